"""Guests for tests: written as WAT, which needs no toolchain, and run on the real engine."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from msgspec import Struct
from wasmtime import wat2wasm

from bascule.doors.hostcalls.engine import Engines, GuestEngine
from bascule.doors.hostcalls.guest import Exit
from bascule.doors.hostcalls.host import GuestLimits, Host, LogLine, Output, Stream

PATIENT = 30.0
#: Shared by all tests of a process, as by all guests of a node.
ENGINES = Engines()


class Ran(Struct, frozen=True):
    """How a guest ended, and what it said, in its order."""

    exit: Exit
    heard: list[Output | LogLine]

    @property
    def stdout(self) -> bytes:
        return self._written("stdout")

    @property
    def stderr(self) -> bytes:
        return self._written("stderr")

    @property
    def answers(self) -> list[int]:
        """What each call of a ``wat.guest`` answered."""
        return [one for (one,) in struct.iter_unpack("<q", self.stderr)]

    def _written(self, stream: Stream) -> bytes:
        said = (one for one in self.heard if isinstance(one, Output))
        return b"".join(one.data for one in said if one.stream == stream)

    @property
    def logged(self) -> list[str]:
        return [one.text for one in self.heard if isinstance(one, LogLine)]


async def run_wat(text: str, *, engine: GuestEngine | None = None, **host: Any) -> Ran:
    """Run a guest to its end."""
    heard: list[Output | LogLine] = []
    engine = engine or ENGINES.of(host.get("limits", GuestLimits()))
    program = engine.load(bytes(wat2wasm(text)))
    async with asyncio.timeout(PATIENT):
        found = await engine.run(program, Host(listener=heard.append, **host))
    return Ran(found, heard)
