"""The node's side of the warden: servers that leave nobody behind, whoever is killed.

One warden process (``warden_process``) starts the servers and is the parent of all they leave
behind. The node makes the pipes and hands the server's ends over, so data takes no extra hop.
Node dies: the warden kills. Warden dies: the kernel (in a PID namespace) or the node kills.

``plain`` is the way without a warden.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import ServerUnavailable
from bascule.model.sandbox import BEST_FIRST, InForce
from bascule.node.pool.process.confiner import Confiner
from bascule.node.pool.process.plain import PlainSpawner
from bascule.node.pool.process.spawn import (
    Launch,
    Owner,
    ServerProcess,
    Spawner,
    start_helper,
    working_directory,
)
from bascule.node.pool.process.warden_link import Link, WardenServer
from bascule.node.pool.process.warden_process import NO_NAMESPACE
from bascule.node.pool.process.watch import Watch

if TYPE_CHECKING:
    from bascule.node.pool.process.confinement.root import Plan

logger = logging.getLogger(__name__)

START_LIMIT = 10.0  # seconds; a warden starts in a fiftieth of one
_CAP_SYS_ADMIN = 21


def default_spawner(*, clock: Clock = SYSTEM_CLOCK) -> Spawner:
    """Return the best this system has: the warden on Linux, process groups elsewhere."""
    return Warden(clock=clock) if sys.platform == "linux" else PlainSpawner(clock=clock)


class Warden:
    """A spawner with a warden process, started at the first server and again when it died.

    ``isolate_pids``: whether the warden gets a PID namespace. ``None`` takes one where it costs
    the servers nothing else (CAP_SYS_ADMIN); ``True`` also tries an unprivileged user namespace,
    in which other users' files seem to be nobody's; ``False`` never does.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, isolate_pids: bool | None = None) -> None:
        self._clock = clock
        self._owner = Owner()
        self._modes = _modes(isolate_pids=isolate_pids)
        self._numbers = itertools.count(1)
        self._starting = asyncio.Lock()
        self._link: Link | None = None
        self._plain: PlainSpawner | None = None
        self._watch = Watch(clock)
        self._confiner = Confiner(self._start_planned, self._watch)
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The warden process, while there is one."""
        return self._link.process.pid if self._link else None

    @property
    def isolated(self) -> bool:
        """Whether the servers live in a PID namespace."""
        return self._link is not None and self._link.isolated

    async def spawn(self, launch: Launch) -> ServerProcess:
        """Start a server, or raise ``ServerUnavailable`` with what to mend."""
        cwd = working_directory(launch)
        link = await self._at_work()
        if link is None:
            return await self._fallback().spawn(launch)
        if launch.confinement is not None and launch.confinement.sandbox.level != "none":
            return await self._confiner.spawn(launch, launch.confinement)
        return await link.spawn(next(self._numbers), launch, cwd)

    @property
    def levels(self) -> tuple[InForce, ...]:
        """The levels that can be asked about, best first."""
        return BEST_FIRST

    async def why_not(self, level: InForce) -> str:
        """Say why a level of isolation does not work here, having tried it; "" if it does."""
        return await self._confiner.reason(level)

    async def close(self) -> None:
        """End every server and the warden, within a second; any number of times."""
        self._closed = True
        await self._watch.close()
        async with self._starting:
            if self._link is not None:
                await self._link.close()
            if self._plain is not None:
                await self._plain.close()

    async def _at_work(self) -> Link | None:
        async with self._starting:
            if self._closed:
                raise ServerUnavailable("the node is closing and starts no more servers")
            return await self._linked()

    async def _start_planned(self, launch: Launch, cwd: str, plan: Plan) -> WardenServer:
        link = await self._at_work()
        if link is None:
            raise ServerUnavailable("no warden can start here, and only a warden confines")
        return await link.spawn(next(self._numbers), launch, cwd, plan)

    async def _linked(self) -> Link | None:
        """Return the warden at work, or a new one; ``None`` when none can start here."""
        if self._link is not None:
            if not self._link.lost.is_set():
                return self._link
            await self._link.cleared()  # nothing new before the old servers are gone
            self._link = None
        while self._modes and self._link is None:
            self._link = await _start(self._modes[0], self._owner, self._clock)
            if self._link is None:
                self._modes = self._modes[1:]
        return self._link

    def _fallback(self) -> PlainSpawner:
        """Return the spawner that needs no warden."""
        if self._plain is None:
            logger.warning("no warden can start here: servers are kept in process groups only")
            self._plain = PlainSpawner(clock=self._clock)
        return self._plain


def _modes(*, isolate_pids: bool | None) -> tuple[str, ...]:
    """Return the ways to try, best first."""
    if isolate_pids is False:
        return ("none",)
    if _may_make_namespaces():
        return ("pid", "none")
    return ("user", "none") if isolate_pids else ("none",)


def _may_make_namespaces() -> bool:
    """Say whether this process may make a PID namespace without a user namespace."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return False
    effective = status.partition("CapEff:")[2].split(maxsplit=1)
    return bool(effective) and bool(int(effective[0], 16) >> _CAP_SYS_ADMIN & 1)


async def _start(mode: str, owner: Owner, clock: Clock) -> Link | None:
    """Start a warden process; ``None`` when this mode does not work here."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    try:
        process = start_helper(mode, owner, theirs.fileno())
    except OSError as fault:
        logger.warning("the warden cannot be started: %s", fault)
        ours.close()
        return None
    finally:
        theirs.close()
    link = Link(ours, process, owner, clock)
    try:
        async with asyncio.timeout(START_LIMIT):
            await link.greeted()
    except BaseException as fault:
        process.kill()
        link.lose()
        await link.cleared()
        if isinstance(fault, TimeoutError):
            raise ServerUnavailable("the warden did not start in time") from fault
        raise
    if not link.lost.is_set():
        return link
    await link.cleared()
    if process.returncode != NO_NAMESPACE:
        logger.warning("the warden ended at its start with status %s", process.returncode)
    return None
