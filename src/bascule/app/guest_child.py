"""The process of one guest: reads its order from standard input, says a line for each event.

It ends when its standard input does. ``guest_processes`` starts it.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import math
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bascule.app.guests import Program, read_module, served
from bascule.app.hardening import harden
from bascule.doors.hostcalls.host import GuestLimits, Host, LogLine, Output
from bascule.doors.hostcalls.module_cache import ModuleCache
from bascule.doors.hostcalls.orders import KeptModules, NotRun, Ready, Said, SentOrder
from bascule.errors import BasculeError
from bascule.model.session import SessionRequest
from bascule.node.bridge.opening import Opening
from bascule.wire.api.guests import GuestExit, GuestLog, GuestOutput
from bascule.wire.faults import FACES

#: The most of an output or of a log's text that stands in one line.
PIECE: Final = 16_384
#: What compiling may take: the largest modules need some fifty times their size.
COMPILING_BYTES: Final = 4 * 1024 * 1024 * 1024
COMPILING_SECONDS: Final = 60
#: The guest's own and the one that calls for it.
_THREADS: Final = 2
_PR_SET_PDEATHSIG: Final = 1
T = TypeVar("T", bytes, str)
_writing = threading.Lock()


def main() -> None:
    """Run the guest that standard input orders."""
    _die_with_parent()
    harden()
    line = sys.stdin.buffer.readline()
    if line:
        sent = msgspec.json.decode(line, type=SentOrder)
        _bound(sent.order.limits)
        asyncio.run(_until_told(sent))
    os._exit(0)  # nothing is left to be tidied up, and whoever reads waits for the end


def _die_with_parent() -> None:
    """Have the kernel end this process with the node, should it not be able to see that itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _bound(limits: GuestLimits) -> None:
    """Have the system hold this process to what it can need, should the engine run away.

    Address space has no bound: the engine reserves far more of it than it ever uses.
    """
    _lower(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":  # elsewhere it does not count what is mapped
        _lower(resource.RLIMIT_DATA, limits.memory_bytes + COMPILING_BYTES)
    if limits.seconds is not None:
        compiling = COMPILING_SECONDS * (os.cpu_count() or 1)
        _lower(resource.RLIMIT_CPU, math.ceil(_THREADS * limits.seconds) + compiling)


def _lower(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (least, least))


async def _until_told(order: SentOrder) -> None:
    """Run the guest until it ends or standard input does."""
    running = asyncio.create_task(_run(order, _cache(order.modules)))
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _heard, running)
    try:
        await running
    except asyncio.CancelledError:
        _say("exit", GuestExit(reason="interrupted", code=1))


def _heard(running: asyncio.Task[None]) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        running.cancel()


def _cache(kept: KeptModules | None) -> ModuleCache | None:
    return None if kept is None else ModuleCache(Path(kept.folder), key=kept.key)


async def _run(sent: SentOrder, cache: ModuleCache | None) -> None:
    order = sent.order
    first, *further = order.requests or (SessionRequest(),)
    opening = Opening(request=first, further=tuple(further), task=order.task, person=order.person)
    host = Host(
        listener=_listen,
        limits=order.limits,
        args=order.args,
        env=order.env,
        model=order.model,
        settings=sent.settings,
    )
    try:
        content = await asyncio.to_thread(read_module, Path(order.path), order.checksum)
        program = await asyncio.to_thread(Program, content, order.limits, cache)
        async with served(host, opening, url=sent.url, token=order.token) as given:
            _say("ready", Ready(hashlib.sha256(content).hexdigest()))
            found = await program.run(given)
    except BasculeError as error:
        code = error.code if error.code in FACES else "bad_module"
        _say("refused", NotRun(code, str(error)))
    else:
        _say("exit", msgspec.convert(found, GuestExit, from_attributes=True))


def _listen(said: Output | LogLine) -> None:
    """Say what a guest says, on its own thread: it waits while nobody reads."""
    if isinstance(said, LogLine):
        for text in _pieces(said.text):
            _say("log", GuestLog(level=said.level, text=text))
    else:
        for data in _pieces(said.data):
            _say(said.stream, GuestOutput.of(data))


def _pieces(whole: T) -> Iterator[T]:
    return (whole[at : at + PIECE] for at in range(0, max(len(whole), 1), PIECE))


def _say(event: Said, data: object) -> None:
    line = msgspec.json.encode({"event": event, "data": data})
    with _writing:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
