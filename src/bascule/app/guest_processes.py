"""Guests as processes of the node, one for each: a fault of the engine ends that one alone.

A process gets its order on standard input, which stays open: its end is the word to end, also when
the node dies. It has a bare environment and a session of its own, and is killed if it dawdles.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.types import ASGIApp

from bascule.asgi.errors import Refused
from bascule.asgi.serve import Serving
from bascule.asgi.sse import Event
from bascule.audit.events import GuestEnded
from bascule.audit.ledger import Ledger
from bascule.audit.log_lines import say
from bascule.clock import SYSTEM_CLOCK
from bascule.doors.hostcalls.orders import (
    GuestOrder,
    KeptModules,
    Line,
    NotRun,
    Ready,
    SentOrder,
)
from bascule.lifetime import Lifetime
from bascule.loop.budgets import DEFAULT_SETTINGS, LoopSettings
from bascule.wire.api.guests import GuestExit, GuestReason

logger = logging.getLogger("bascule.guests")
T = TypeVar("T")

#: How long a process that is told to end may take.
GRACE_SECONDS: Final = 0.15
#: How long it may take to start and to compile its module.
START_SECONDS: Final = 60.0
#: How much later than its own deadline a guest may end, before its process is killed.
LATE_SECONDS: Final = 6.0
MAX_LINE_BYTES: Final = 1024 * 1024
_STDERR_BYTES: Final = 4096
#: Where libraries are, of the node's variables: all that its own interpreter may need.
_KEPT: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_BOOT: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; from bascule.app.guest_child import main; main()"
)
_lines = msgspec.json.Decoder(Line)


class GuestProcesses(Lifetime):
    """Starts guests, which call the node at an address of their own.

    It is on loopback, whatever the node's own is, and served from the first guest on.
    """

    def __init__(
        self,
        ledger: Ledger,
        modules: KeptModules | None = None,
        settings: LoopSettings = DEFAULT_SETTINGS,
    ) -> None:
        #: What guests call; set before there are any.
        self.app: ASGIApp | None = None
        self._ledger = ledger
        self._modules = modules
        self._settings = settings
        self._serving: Serving | None = None
        self._opening = asyncio.Lock()
        self._started: set[GuestProcess] = set()

    async def launch(self, order: GuestOrder) -> GuestProcess:
        """Start a process and wait until its module is compiled; raise Refused if it is not."""
        url = await self._url()
        guest = GuestProcess(await _spawned(), order, self._ledger)
        self._started.add(guest)
        try:
            await guest.begin(SentOrder(url, order, self._settings, self._modules))
        except BaseException:
            await guest.end()
            raise
        finally:
            self._started = {one for one in self._started if not one.ended}
        return guest

    async def close(self) -> None:
        """End every guest, then their address."""
        await asyncio.gather(*(guest.end() for guest in self._started))
        async with self._opening:
            serving, self._serving = self._serving, None
            if serving is not None:
                await serving.__aexit__()

    async def _url(self) -> str:
        async with self._opening:
            if self.app is None:
                raise Refused("not_serving", "this process runs no guests")
            if self._serving is None:
                self._serving = await Serving(self.app).__aenter__()
            return self._serving.url


class GuestProcess:
    """One process and its guest."""

    def __init__(self, process: Process, order: GuestOrder, ledger: Ledger) -> None:
        self._process = process
        self._order = order
        self._ledger = ledger
        self._noted = False
        self._handle = _handle_of(process.pid)
        self._sha256 = ""
        self._began = SYSTEM_CLOCK.monotonic()
        #: Why it was killed, if it was.
        self._killed: GuestReason | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._ending: asyncio.Task[None] | None = None
        self._said = bytearray()
        self._listening = asyncio.create_task(self._drain_errors())

    @property
    def pid(self) -> int:
        """Return the process."""
        return self._process.pid

    @property
    def task(self) -> str:
        """Return whose guest it is."""
        return self._order.task

    @property
    def ended(self) -> bool:
        """Say whether the process is gone."""
        return self._process.returncode is not None

    async def begin(self, order: SentOrder) -> None:
        """Give the order and wait for the first word; raise Refused if that is not ``ready``."""
        self._kill_after(START_SECONDS, "timeout")
        stdin = self._stdin()
        with suppress(ConnectionError):  # what became of the process its output tells
            stdin.write(msgspec.json.encode(order) + b"\n")
            await stdin.drain()
        first = await self._next()
        if first is not None and first.event == "refused":
            why = msgspec.json.decode(first.data, type=NotRun)
            raise Refused(why.code, why.message)
        if first is None or first.event != "ready":
            raise Refused("guest_failed", f"the guest did not begin: {await self._fate()}")
        self._sha256 = msgspec.json.decode(first.data, type=Ready).sha256
        self._forget_timers()
        seconds = order.order.limits.seconds
        if seconds is not None:
            self._kill_after(seconds + LATE_SECONDS, "timeout")

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield what the guest says; the last event is ``exit``, whatever becomes of it."""
        while (line := await self._next()) is not None:
            if line.event == "exit":
                self._note(msgspec.json.decode(line.data, type=GuestExit))
            yield Event(event=line.event, data=bytes(line.data))
            if line.event == "exit":
                return
        found = replace(self._failed(self._killed or "crashed"), message=await self._fate())
        self._note(found)
        yield Event(event="exit", data=found)

    def interrupt(self) -> None:
        """Have it end soon; its events go on until then."""
        self._stdin().close()
        self._kill_after(GRACE_SECONDS, "interrupted")

    async def end(self) -> None:
        """End it and wait until its process is gone; any number of times."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        self.interrupt()
        # Whatever it still says is nobody's to read, and must not keep it from ending.
        reading = asyncio.create_task(self._throw_away())
        await self._process.wait()
        await asyncio.wait((reading, self._listening))
        self._forget_timers()
        self._note(self._failed("interrupted"))
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    async def _next(self) -> Line | None:
        """Return the next line; None at the end, and for what no guest's process says."""
        try:
            return _lines.decode(await self._stdout().readuntil())
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, msgspec.DecodeError):
            return None

    async def _throw_away(self) -> None:
        while await self._stdout().read(65_536):
            pass

    async def _drain_errors(self) -> None:
        """Read what its interpreter complains about, and keep the end of it."""
        stderr = _there(self._process.stderr)
        while part := await stderr.read(65_536):
            self._said = (self._said + part)[-_STDERR_BYTES:]

    async def _fate(self) -> str:
        """Return what became of a process that said nothing about it."""
        self._strike()  # a process that has closed its output is no guest any more
        status = await self._process.wait()
        await self._listening
        if self._said:
            words = self._said.decode(errors="replace")
            say(logger, logging.WARNING, f"a guest's process failed: {words}", pid=self.pid)
        if self._killed == "timeout":
            return "its process did not end in time and was killed"
        return f"its process ended with {_in_words(status)}"

    def _kill_after(self, seconds: float, reason: GuestReason) -> None:
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(seconds, self._kill, reason))

    def _kill(self, reason: GuestReason) -> None:
        if not self.ended:
            self._killed = self._killed or reason
            self._strike()

    def _strike(self) -> None:
        """Kill the process, and no other: asyncio's own way may reap it before asyncio knows."""
        with suppress(OSError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            elif not self.ended:
                os.kill(self.pid, signal.SIGKILL)

    def _forget_timers(self) -> None:
        while self._timers:
            self._timers.pop().cancel()

    def _failed(self, reason: GuestReason) -> GuestExit:
        return GuestExit(reason=reason, code=1, seconds=SYSTEM_CLOCK.monotonic() - self._began)

    def _note(self, found: GuestExit) -> None:
        """Write down who ran what, and how it ended, once; nothing of one that never began."""
        if self._noted or not self._sha256:
            return
        self._noted, order = True, self._order
        self._ledger.guest_ended(
            GuestEnded(
                timestamp=SYSTEM_CLOCK.now(),
                task_id=order.task,
                caller=order.caller,
                token_id=order.token_id,
                person=order.person,
                path=order.path,
                sha256=self._sha256,
                reason=found.reason,
                exit_code=found.code,
                duration_ms=found.seconds * 1000,
                calls=found.calls,
            )
        )

    def _stdin(self) -> asyncio.StreamWriter:
        return _there(self._process.stdin)

    def _stdout(self) -> asyncio.StreamReader:
        return _there(self._process.stdout)


async def _spawned() -> Process:
    # The modules of the child are those of the node, wherever those come from.
    path = [entry for entry in sys.path if entry]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-X", "utf8", "-X", "faulthandler", "-c", _BOOT, *path),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={name: os.environ[name] for name in _KEPT if name in os.environ},
        cwd="/",
        start_new_session=True,
        limit=MAX_LINE_BYTES,
    )


def _there(pipe: T | None) -> T:
    assert pipe is not None  # noqa: S101 - every guest is started with three pipes
    return pipe


def _handle_of(pid: int) -> int | None:
    """Return a descriptor of a process, where the system has such."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _in_words(status: int) -> str:
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
