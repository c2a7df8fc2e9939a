"""Guests that call ``mcp_*``, written as what they do in turn."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from bascule.doors.hostcalls.guest import Exit
from tests.doors.hostcalls.running import Ran, run_wat
from tests.doors.hostcalls.wat import Call, call, guest

#: Where answers go, each into a window of its own; below are the guest's texts.
WINDOWS, WINDOW = 16_384, 4_096
_LENGTHS = 16


class Told(Struct, frozen=True):
    """What each call returned, and what those with a window wrote there."""

    exit: Exit
    answers: list[int]
    written: list[bytes]

    def json(self, at: int) -> Any:
        """Return what the call in this place wrote, as far as it says it wrote something."""
        return json.loads(self.written[at][: self.answers[at]])

    def wanted(self, at: int) -> int:
        """Return the length that the call in this place left."""
        return int.from_bytes(self.written[at][-4:], "little")


class Script:
    """A guest that does one thing after another."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.data: dict[int, bytes | int] = {}
        self._texts = 1024
        self._windows: dict[int, int] = {}

    def text(self, content: str | bytes) -> tuple[int, int]:
        """Put a text into the guest's memory; return where it is."""
        raw = content.encode() if isinstance(content, str) else content
        at = self._texts
        self.data[at] = raw
        self._texts += len(raw) + 1
        assert self._texts < WINDOWS
        return at, len(raw)

    def window(self, capacity: int = WINDOW) -> tuple[int, int]:
        """Return a place for the answer of the next call, with room for so much."""
        place = len(self._windows)
        assert place < (40_000 - WINDOWS) // WINDOW
        self._windows[len(self.calls)] = place
        length = _LENGTHS + 4 * place
        self.data[length] = capacity
        return WINDOWS + WINDOW * place, length

    def make(self, name: str, *numbers: int | str) -> str:
        """Make a call; return what stands for its answer."""
        self.calls.append(call(name, *numbers))
        return f"${len(self.calls) - 1}"

    def open(self, server_id: str | bytes) -> str:
        return self.make("mcp_open", *self.text(server_id))

    def list(self, fd: int | str, capacity: int = WINDOW) -> str:
        return self.make("mcp_list_tools", fd, *self.window(capacity))

    def call(
        self,
        fd: int | str,
        tool: str | bytes,
        arguments: str | bytes = "{}",
        capacity: int = WINDOW,
    ) -> str:
        texts = (*self.text(tool), *self.text(arguments))
        return self.make("mcp_call_tool", fd, *texts, *self.window(capacity))

    def control(self, fd: int | str, command: int, sent: str | bytes = b"") -> str:
        """Call ``spear_fd_ctl``, with something to send or with a window."""
        if not sent:
            return self.make("spear_fd_ctl", fd, command, *self.window())
        at, length = self.text(sent)
        length_at, _ = self.text(length.to_bytes(4, "little"))
        return self.make("spear_fd_ctl", fd, command, at, length_at)

    def set(self, fd: int | str, key: str, value: Any) -> str:
        return self.control(fd, 6, json.dumps({"key": key, "value": value}))

    async def run(self, **host: Any) -> Told:
        shown = WINDOWS, WINDOW * len(self._windows)
        text = guest(*self.calls, data=self.data, shown=(_LENGTHS, WINDOWS - _LENGTHS + shown[1]))
        ran: Ran = await run_wat(text, **host)
        written = [b"" for _ in self.calls]
        for at, place in self._windows.items():
            start = shown[0] - _LENGTHS + WINDOW * place
            written[at] = ran.stdout[start : start + WINDOW] + ran.stdout[4 * place : 4 * place + 4]
        return Told(ran.exit, ran.answers, written)


def too_short(server_id: str, tool: str, times: int) -> str:
    """Return a guest that makes a call so often, each time with no room for the answer first."""
    texts, places = [server_id, tool, "{}"], [100, 200, 300]
    server, name, given = (
        f"(i32.const {at}) (i32.const {len(text)})" for at, text in zip(places, texts, strict=True)
    )
    made = f"(call $call (local.get $fd) {name} {given} (i32.const 8192) (i32.const 0))"
    data = "".join(
        f'(data (i32.const {at}) "{text}")' for at, text in zip(places, texts, strict=True)
    )
    return f"""(module
  (import "spear" "mcp_open" (func $open (param i32 i32) (result i32)))
  (import "spear" "mcp_call_tool"
    (func $call (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  {data}
  (func (export "_start") (local $fd i32) (local $left i32)
    (local.set $fd (call $open {server}))
    (local.set $left (i32.const {times}))
    (loop $again
      (i32.store (i32.const 0) (i32.const 1))
      (if (i32.ne {made} (i32.const -28)) (then unreachable))
      (if (i32.le_s {made} (i32.const 1)) (then unreachable))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br_if $again (local.get $left)))))
"""
