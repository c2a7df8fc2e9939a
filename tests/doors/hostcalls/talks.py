"""Guests that talk: their calls one after another, and what those need laid out in their memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from bascule.loop.backend import ChatUpstream
from bascule.loop.backends import Chosen
from tests.doors.hostcalls.running import Ran, run_wat
from tests.doors.hostcalls.wat import Call, guest

SET_PARAM, GET_METRICS = 1, 2
METRICS, AUTO, STREAM = 1, 2, 4
#: Where answers go, and tools have their arena; both in pages of their own.
OUT, ROOM, ARENA = 65_536, 8_192, 524_288
PAGES = 12
SUM = {"name": "sum", "parameters": {"type": "object"}}
#: A tool that says {"sum":42}, whatever it is given; its index is 1.
SAYS_42 = """
  (data (i32.const 60000) "{\\"sum\\":42}")
  (func $sum (param $args i32) (param $n i32) (param $out i32) (param $len i32) (result i32)
    (memory.copy (local.get $out) (i32.const 60000) (i32.const 10))
    (i32.store (local.get $len) (i32.const 10))
    (i32.const 0))
"""
Json = dict[str, Any]


def table(*functions: str) -> str:
    """Return an exported table with these functions from index 1 on."""
    names = " ".join(functions)
    return f"""
  (table (export "__indirect_function_table") 8 funcref)
  (elem (i32.const 1) func {names})"""


class OneModel(Struct, frozen=True, eq=False):
    """Chooses the same upstream for every model, and remembers what was asked for."""

    upstream: ChatUpstream
    asked: list[str]

    async def choose(self, model: str) -> Chosen:
        self.asked.append(model)
        return Chosen(self.upstream, model)


class Talked(Struct, frozen=True):
    """How a guest ended, what its calls answered, and what it read."""

    ran: Ran
    answers: list[int]
    read: list[bytes]

    def answer(self, call: str) -> int:
        """Return what a call answered."""
        return self.answers[int(call[1:])]

    @property
    def body(self) -> Json:
        return json.loads(self.read[0])

    @property
    def chunks(self) -> list[Json]:
        return [json.loads(one) for one in self.read if one]


class Talk:
    """A guest to be: each method adds a call and returns what stands for its answer."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._data: dict[int, bytes | int] = {}
        self._next = 64
        self._windows = 0

    def put(self, content: str | bytes) -> tuple[int, int]:
        """Lay something out; return where it lies and how long it is."""
        data = content.encode() if isinstance(content, str) else content
        at = self._next
        self._data[at] = data
        self._next += len(data) + 8 & ~7
        return at, len(data)

    def number(self, value: int) -> int:
        return self.put(value.to_bytes(4, "little"))[0]

    def call(self, name: str, *numbers: int | str) -> str:
        self._calls.append(Call(name, numbers))
        return f"${len(self._calls) - 1}"

    def create(self, **parameters: Any) -> str:
        """Open a session of the model m, with parameters."""
        session = self.call("cchat_create")
        for key, value in {"model": "m", **parameters}.items():
            self.set(session, key, value)
        return session

    def say(self, session: str, text: str | bytes, role: str = "user") -> str:
        return self.call("cchat_write_msg", session, *self.put(role), *self.put(text))

    def set(self, fd: str | int, key: str, value: Any) -> str:
        return self.control(fd, json.dumps({"key": key, "value": value}))

    def control(self, fd: str | int, argument: str | bytes) -> str:
        at, length = self.put(argument)
        return self.call("cchat_ctl", fd, SET_PARAM, at, self.number(length))

    def tool(self, session: str, index: int = 1, definition: Mapping[str, Any] | str = SUM) -> str:
        text = definition if isinstance(definition, str) else json.dumps(definition)
        return self.call("cchat_write_fn", session, index, *self.put(text))

    def send(self, session: str, flags: int = 0) -> str:
        return self.call("cchat_send", session, flags)

    def receive(self, response: str, room: int = ROOM - 8) -> str:
        return self.call("cchat_recv", response, *self._window(room))

    def metrics(self, response: str) -> str:
        return self.call("cchat_ctl", response, GET_METRICS, *self._window(ROOM - 8))

    def _window(self, room: int) -> tuple[int, int]:
        at = OUT + ROOM * self._windows
        self._windows += 1
        self._data[at] = room
        return at + 8, at

    async def run(
        self, upstream: ChatUpstream, more: str = "", imports: str = "", **host: Any
    ) -> Talked:
        """Run the guest to its end."""
        text = guest(
            *self._calls,
            data=self._data,
            shown=(OUT, ROOM * self._windows),
            more=more,
            pages=PAGES,
        )
        text = text.replace("(module", f"(module {imports}", 1)
        given: dict[str, Any] = {"models": OneModel(upstream, []), **host}
        ran = await run_wat(text, **given)
        windows = (ran.stdout[at : at + ROOM] for at in range(0, len(ran.stdout), ROOM))
        read = [one[8 : 8 + int.from_bytes(one[:4], "little")] for one in windows]
        return Talked(ran, ran.answers, read)
