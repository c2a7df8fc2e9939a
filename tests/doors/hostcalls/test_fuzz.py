"""Random calls: whatever numbers a guest gives, the host stands, and nothing else is reached."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from collections.abc import Callable

import pytest
from wasmtime import wat2wasm

from bascule.clock import SystemClock
from bascule.doors.hostcalls import wasi
from bascule.doors.hostcalls.abi import ABSENT, IMPORTS
from bascule.doors.hostcalls.guest import Guest, current
from bascule.doors.hostcalls.host import GuestLimits, Host, LogLine, Output
from tests.doors.hostcalls.hosts import Hosts
from tests.doors.hostcalls.running import ENGINES, PATIENT
from tests.doors.hostcalls.talks import OneModel
from tests.doors.hostcalls.wat import import_of
from tests.loop.fakes import FakeUpstream, says
from tests.scale import SOAK

#: Page 0 and the last one are the guest's to write in, and what lies between is not: the list of
#: calls, and a pattern.
PAGE = 65_536
END = 4 * PAGE
BATCH = 1000
COUNT = 1_000_000 if SOAK else 10_000
RECORD = 80
CALLS = {
    **IMPORTS,
    **ABSENT,
    **{f"wasi.{name}": letters for name, letters in wasi.IMPORTS.items() if name != "proc_exit"},
}
NAMES = list(CALLS)
SERVERS = [b"fs", b"spare", b"other", b"", b"f\xff"]
TOOLS = [b"read", b"write", b"delete", b"fs/read", b"re\xc3"]
TEXTS = [
    *(b"user", b"tool", b"hello", b"\xff\xfe", b"", b"{", b"null", b"[1, 2]", b'{"path": "a"}'),
    *(b'{"name": "sum"}', b'{"set": ["O_NONBLOCK"]}', b'{"clear": ["O_NONBLOCK"]}'),
    *(b'{"key": "model", "value": "m"}', b'{"key": "mcp.enabled", "value": true}'),
    b'{"key": "mcp.server_ids", "value": ["other"]}',
    b'{"key": "mcp.task_tool_allowlist", "value": ["*"]}',
    b'{"key": "mcp.tool_allowlist", "value": ["*"]}',
    *(b'{"key": "timeout_ms", "value": -1}', b'{"key": "tool_arena_ptr", "value": 4294967295}'),
]
EDGES = (0, 1, 4, 7, 8, 100, 4096, END - 8, END - 4, END - 1, END, END + 1, END + PAGE)
HUGE = (-1, -4, -8, 0x7FFF_FFFF, -0x8000_0000, -PAGE)
#: What each number of a call is; others are anything. Texts and windows are two numbers.
MEANT = {
    "log": "num text",
    "cchat_write_msg": "chat text text",
    "cchat_write_fn": "chat num text",
    "cchat_ctl": "chat command argument",
    "cchat_send": "chat command",
    "cchat_recv": "fd window",
    "cchat_close": "fd",
    "mcp_open": "server",
    "mcp_list_tools": "mcp window",
    "mcp_call_tool": "mcp tool text window",
    "mcp_close": "fd",
    "mcp_registry_list": "window",
    "mcp_registry_get": "server window",
    "spear_epoll_ctl": "epoll command fd num",
    "spear_epoll_wait": "epoll window soon",
    "spear_fd_ctl": "fd command argument",
}
#: Every batch begins with some handles of each kind.
FIRST = ["cchat_create"] * 5 + ["mcp_open"] * 5 + ["spear_epoll_create"] * 5


class Chance:
    """Makes up the calls of one batch, and the memory that they find."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lying: dict[bytes, tuple[int, int]] = {}
        self.low = bytearray(self._random.randbytes(PAGE))
        for at in range(512, 1024, 4):
            room = self._random.choice((0, 7, 8, 16, 64, 4096, 4096))
            self.low[at : at + 4] = struct.pack("<I", room)
        at = 24_000
        for text in {*SERVERS, *TOOLS, *TEXTS}:
            self._lying[text] = (at + 4, len(text))
            self.low[at : at + 4 + len(text)] = struct.pack("<I", len(text)) + text
            at += 4 + len(text)
        self._kinds: dict[str, Callable[[], list[int]]] = {
            "num": lambda: [self._number()],
            "text": lambda: self._text(TEXTS),
            "server": lambda: self._text(SERVERS),
            "tool": lambda: self._text(TOOLS),
            "argument": self._argument,
            "window": lambda: [self._place(), 512 + 4 * self._random.randrange(128)],
            "command": lambda: [self._random.randrange(-1, 9)],
            "soon": lambda: [self._random.randrange(2)],
            "chat": lambda: [self._random.randrange(1000, 1005)],
            "mcp": lambda: [self._random.randrange(1005, 1010)],
            "epoll": lambda: [self._random.randrange(1010, 1015)],
            "fd": lambda: [self._random.choice((0, 1, 2, 3, 999, -1, *range(1000, 1040)))],
        }

    def records(self) -> bytes:
        """Return the list of calls."""
        fs = [*self._lying[b"fs"]]
        first = [self._record(name, fs) for name in FIRST]
        return b"".join(first + [self._any() for _ in range(BATCH - len(first))])

    def _any(self) -> bytes:
        name = self._random.choice([*NAMES, *MEANT, *MEANT])
        if name in MEANT and self._random.random() < 0.8:
            numbers = [one for kind in MEANT[name].split() for one in self._kinds[kind]()]
            if self._random.random() < 0.2:
                numbers[self._random.randrange(len(numbers))] = self._number()
        else:
            numbers = [self._number() for _ in CALLS[name][:-1]]
        if name == "spear_epoll_wait":  # nobody else would end a wait for ever
            numbers[3] = self._random.randrange(2)
        if name == "wasi.random_get":  # may be told to fill the whole memory
            numbers[1] = self._random.choice((0, 1, 4096, END + 1, -1))
        return self._record(name, numbers)

    def _record(self, name: str, numbers: list[int]) -> bytes:
        given = [*numbers, *[0] * 9][:9]
        return struct.pack("<q9q", NAMES.index(name), *given)

    def _number(self) -> int:
        outside = self._random.getrandbits(31) | END << 1
        kinds = (EDGES, HUGE, (self._place(),), range(1000, 1040), (outside,))
        return self._random.choice(self._random.choice(kinds))

    def _place(self) -> int:
        """Return a place in page 0, with room behind it for the longest answer."""
        return self._random.randrange(1024, 16_384)

    def _text(self, texts: list[bytes]) -> list[int]:
        return [*self._lying[self._random.choice(texts)]]

    def _argument(self) -> list[int]:
        """Return a text, and where its length lies."""
        at, _ = self._lying[self._random.choice(TEXTS)]
        return [at, at - 4]


def escaped(content: bytes) -> str:
    return "".join(f"\\{byte:02x}" for byte in content)


def thunk(name: str) -> str:
    letters = CALLS[name]
    kinds = {"i": "i32", "l": "i64"}
    numbers = " ".join(
        f"({kinds[letter]}.load offset={8 * at + 8} (local.get $at))"
        for at, letter in enumerate(letters[:-1])
    )
    return f"(func ${name}.made (param $at i32) (call ${name} {numbers}) {_dropped(letters)})"


def _dropped(letters: str) -> str:
    return "" if letters.endswith("-") else "drop"


def fuzzer(low: bytes, middle: bytes) -> str:
    """Return a guest that makes the calls of a list, and shows what must not have changed."""
    return f"""(module
  {"".join(map(import_of, NAMES))}
  (memory (export "memory") 4)
  (table {len(NAMES)} funcref)
  (elem (i32.const 0) {" ".join(f"${name}.made" for name in NAMES)})
  (data (i32.const 0) "{escaped(low)}")
  (data (i32.const {PAGE}) "{escaped(middle)}")
  {" ".join(map(thunk, NAMES))}
  (func (export "_start") (local $at i32)
    (local.set $at (i32.const {PAGE}))
    (loop
      (call_indirect (param i32) (local.get $at) (i32.load (local.get $at)))
      (local.set $at (i32.add (local.get $at) (i32.const {RECORD})))
      (br_if 0 (i32.lt_u (local.get $at) (i32.const {PAGE + BATCH * RECORD}))))
    (i32.store (i32.const 0) (i32.const {PAGE}))
    (i32.store (i32.const 4) (i32.const {2 * PAGE}))
    (drop (call $wasi.fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"""


class Instant(SystemClock):
    """Does not sleep."""

    async def sleep(self, seconds: float) -> None:
        del seconds


class Ear:
    """Keeps the last thing that was said, and who said it."""

    def __init__(self) -> None:
        self.last: Output | LogLine | None = None
        self.guest: Guest | None = None

    def hear(self, said: Output | LogLine) -> None:
        self.last, self.guest = said, current()


@pytest.mark.timeout(1800)
@pytest.mark.requirement("hostcalls:hostile")
async def test_random_calls_harm_nobody(caplog: pytest.LogCaptureFixture):
    hosts = Hosts(is_connected=False)
    models = OneModel(FakeUpstream(says("hi")), [])
    limits = GuestLimits(output_bytes=1 << 40)
    engine = ENGINES.of(limits)
    for seed in range(COUNT // BATCH):
        chance = Chance(seed)
        records = chance.records()
        middle = records + random.Random(seed).randbytes(2 * PAGE - len(records))
        program = engine.load(bytes(wat2wasm(fuzzer(bytes(chance.low), middle))))
        ear = Ear()
        host = Host(
            listener=ear.hear,
            models=models,
            model="m",
            limits=limits,
            clock=Instant(),
            **hosts.fields("reader"),
        )
        async with asyncio.timeout(PATIENT):
            ended = await engine.run(program, host)
        assert (ended.reason, ended.message) == ("exited", ""), seed
        assert ear.last == Output("stdout", middle), seed
        assert ear.guest is not None
        assert len(ear.guest.handles) == 0
    failed = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert not failed, failed[0].getMessage()
    assert {(one.server, one.tool) for one in hosts.caller.sent} == {("fs", "read")}
    assert models.asked
