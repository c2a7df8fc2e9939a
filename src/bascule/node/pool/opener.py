"""Opening a channel to a server: which transport, under which of the node's rules.

One process is counted from before it starts until its channel is closed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import replace
from pathlib import Path

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import LaunchDenied, ServerUnavailable
from bascule.model.fetch_line import FetchLine, fetch_line
from bascule.model.launcher import from_cache, start_timeout
from bascule.model.sandbox import BEST_FIRST, CLOSES_NETWORK, InForce, at_least
from bascule.model.secret_use import server_use
from bascule.model.server import ServerRecord
from bascule.node.homes import Home, Homes, KeptHome
from bascule.node.pool.fetch import Fetch, held_argv
from bascule.node.pool.launch import (
    PrivateHomes,
    Resolved,
    base_environment,
    closed_places,
    resolve_launch,
)
from bascule.node.pool.pins import PinFile
from bascule.node.pool.process.missed import missed
from bascule.node.pool.process.plan import keeps_files
from bascule.node.pool.process.spawn import (
    GRACE,
    Launch,
    ServerProcess,
    Spawner,
    TriesLevels,
)
from bascule.node.pool.process.surroundings import around
from bascule.node.pool.transport.channel import Channel, Events
from bascule.node.pool.transport.stdio import StdioChannel
from bascule.node.sharing import ALL, Sharer
from bascule.outbound.forward_proxy import ForwardProxy, Passage
from bascule.outbound.references import Reading, SecretResolver
from bascule.outbound.rules import NodeRules
from bascule.wire.api.trials import Missed

logger = logging.getLogger(__name__)
_NO_WARDEN = "only a warden confines, and there is none here"


class NoRoom(ServerUnavailable):
    """The node is full: no fault of the server's, and no reason to back off from it."""


class Opener:
    """Opens channels within the node's rules and process limit."""

    def __init__(  # noqa: PLR0913 - options, all by keyword
        self,
        spawner: Spawner,
        *,
        rules: NodeRules | None = None,
        environ: Mapping[str, str] | None = None,
        secrets: SecretResolver | None = None,
        max_processes: int = 64,
        max_processes_per_task: int = 32,
        clock: Clock = SYSTEM_CLOCK,
        homes: Homes | None = None,
    ) -> None:
        self._spawner = spawner
        self._rules = rules or NodeRules()
        self._environ = environ
        self._secrets = secrets
        self._max_processes = max_processes
        self._max_of_task = max_processes_per_task
        self._clock = clock
        self._kept = homes
        self._homes: PrivateHomes | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._closed = False
        self._processes = 0
        self._of_task: Counter[str] = Counter()
        self._room = asyncio.Lock()
        self._started = 0
        self.known_values: frozenset[str] = frozenset()
        self.reference_values: frozenset[str] = frozenset()
        #: Told of the values when they become more.
        self.on_values: Callable[[frozenset[str], frozenset[str]], None] = _ignore_values
        #: Told what was decided about each connection of a server that only reaches some hosts.
        self.on_passage: Callable[[str, Passage], None] = _ignore_passage
        #: Asked to close something idle, of a task's, when the process limit is reached.
        self.reap: Callable[[str | None], Awaitable[bool]] | None = None

    async def open(self, record: ServerRecord, events: Events, sharer: Sharer = ALL) -> Channel:
        """Open a channel to a server, for those who share it."""
        events.on_step("resolve")
        if record.transport != "stdio":
            return await self._open_remote(record, events)
        await self._take_room(sharer.task)
        try:
            return await self._open_stdio(record, events, sharer)
        except BaseException:
            self._give_room(sharer.task)
            raise

    async def isolation(self) -> dict[InForce, str]:
        """Try each level of isolation, best first; say why one does not work, "" for one that does.

        What was found is kept: only the first time costs.
        """
        spawner = self._spawner
        if not isinstance(spawner, TriesLevels):
            return {level: "" if level == "limits" else _NO_WARDEN for level in BEST_FIRST}
        return {level: await spawner.why_not(level) for level in spawner.levels}

    async def shortfall(self) -> str:
        """Say why no level keeps files from servers here; "" as soon as one is found that does."""
        spawner = self._spawner
        if not isinstance(spawner, TriesLevels):
            return _NO_WARDEN
        reasons: list[str] = []
        for level in filter(keeps_files, spawner.levels):
            reason = await spawner.why_not(level)
            if not reason:
                return ""
            reasons.append(f"{level}: {reason}")
        return "; ".join(reasons) or _NO_WARDEN

    async def missed(self, record: ServerRecord, said: str) -> tuple[Missed, ...]:
        """Say what a server seems to have missed in its sandbox, by what it said."""
        sandbox, stdio, homes = record.sandbox, record.stdio, self._homes
        if stdio is None or sandbox is None or homes is None:
            return ()
        if not at_least(sandbox.level, CLOSES_NETWORK):
            return ()
        environ = os.environ if self._environ is None else self._environ
        path = stdio.env.get("PATH", environ.get("PATH", os.defpath))

        def looked() -> tuple[Missed, ...]:
            never = closed_places(environ, self._rules, homes.path.parent, self._kept)
            return missed(said, around(sandbox, stdio, path, (str(homes.path),), never))

        return await asyncio.to_thread(looked)

    def sweep(self) -> None:
        """Begin to remove kept HOMEs that are too old, or too large together."""
        if self._kept is not None and self._sweeping is None:
            sweep = asyncio.to_thread(self._kept.sweep, lambda: self._closed)
            self._sweeping = asyncio.get_running_loop().create_task(_swept(sweep))

    async def close(self) -> None:
        """End every process and remove the private directories."""
        self._closed = True
        await self._spawner.close()
        if self._sweeping is not None:
            await asyncio.wait({self._sweeping})
        homes, self._homes = self._homes, None
        if homes is not None:
            await homes.close()

    async def _take_room(self, task: str) -> None:
        """Count one process more; at a limit, one at a time has something idle closed."""
        async with self._room:
            while task and self._of_task[task] >= self._max_of_task:
                if self.reap is None or not await self.reap(task):
                    raise NoRoom(
                        f"task {task!r} has reached its limit of {self._max_of_task} server "
                        "processes (node.max_processes_per_task)"
                    )
            while self._processes >= self._max_processes:
                if self.reap is None or not await self.reap(None):
                    raise NoRoom(
                        f"the node's limit of {self._max_processes} server processes is reached"
                    )
            self._processes += 1
            self._of_task[task] += 1

    def _give_room(self, task: str) -> None:
        self._processes -= 1
        self._of_task[task] -= 1
        if not self._of_task[task]:
            del self._of_task[task]

    async def _open_stdio(self, record: ServerRecord, events: Events, sharer: Sharer) -> Channel:
        homes = self._homes = self._homes or PrivateHomes()
        self._started += 1
        home = homes.path / str(self._started)
        kept: Home | None = None
        proxy: ForwardProxy | None = None
        try:
            reading = self._reading(record, events)
            resolved = await resolve_launch(record, reading, home, self._kept, sharer.home)
            kept = resolved.kept
            self._remember(resolved.known_values, resolved.reference_values)
            noted, cached = _believed(resolved.launch, kept)
            launch = await self._ready(record, resolved, reading, events, cached=cached)
            events.on_step("start")
            proxy = await self._way_out(record, launch)
            process = await self._spawner.spawn(launch)
            events.on_step("handshake")
        except BaseException:
            await _shut(proxy)
            _leave(kept)
            await homes.remove(home)
            raise

        async def clear_away() -> None:
            self._give_room(sharer.task)
            await _shut(proxy)
            _leave(kept)
            await homes.remove(home)

        return _ProcessChannel(_Counted(process, clear_away), events, noted, cached=cached)

    async def _ready(
        self,
        record: ServerRecord,
        resolved: Resolved,
        reading: Reading,
        events: Events,
        *,
        cached: bool,
    ) -> Launch:
        """Return how to start a server, once what it is made of is there.

        A confined one is fetched apart; where nothing can be fetched now, what came before is
        enough. What came before and is another now is not.
        """
        launch = resolved.launch
        line = _fetch_line(record, launch)
        pins = None if line is None else await asyncio.to_thread(self._pins, record, line)
        if line is not None and not cached:
            events.on_step("fetch")
            base = base_environment(reading, resolved.folder)
            fetching = Fetch(self._spawner, line, launch, base, pins, events.on_said)
            try:
                await fetching.run(start_timeout(record))
            except LaunchDenied:
                raise
            except ServerUnavailable:
                if resolved.kept is None or not resolved.kept.postpone():
                    raise
        if line is None and not cached:
            return launch
        held = await asyncio.to_thread(held_argv, launch, pins)
        return replace(launch, argv=from_cache(held) or held)

    def _pins(self, record: ServerRecord, line: FetchLine) -> PinFile | None:
        """Return what a line of a server is held to; None where nothing is kept."""
        file = None if self._kept is None else self._kept.pin_file(record.server_id, line.words)
        return None if file is None else PinFile(record.server_id, file, self._clock)

    async def _way_out(self, record: ServerRecord, launch: Launch) -> ForwardProxy | None:
        """Return what lets a server reach the hosts of its record, where it reaches no others."""
        if record.sandbox is None or launch.confinement is None:
            return None
        if launch.confinement.egress is None:
            return None
        proxy = ForwardProxy(
            record.sandbox.hosts,
            self._rules,
            self._variables(),
            lambda passage: self.on_passage(record.server_id, passage),
            clock=self._clock,
        )
        await proxy.listen(Path(launch.confinement.egress))
        return proxy

    async def _open_remote(self, record: ServerRecord, events: Events) -> Channel:
        from bascule.node.pool.remote_opener import open_remote  # noqa: PLC0415 - aiohttp, when needed

        reading = self._reading(record, events)
        return await open_remote(record, events, reading, self._clock, self._remember)

    def _reading(self, record: ServerRecord, events: Events) -> Reading:
        """Return what reads the references of one record, with the variables as they are now."""
        use = server_use(record)
        return Reading(self._rules, self._variables(), self._secrets, use, events.secrets_read)

    def _variables(self) -> Mapping[str, str]:
        return os.environ if self._environ is None else self._environ

    def _remember(self, known: Set[str], read: Set[str]) -> None:
        """Keep the same sets while nothing new is in them: others compare them by identity."""
        if not known <= self.known_values:
            self.known_values |= known
        if not read <= self.reference_values:
            self.reference_values |= read
        self.on_values(self.known_values, self.reference_values)


def _ignore_values(_known: frozenset[str], _read: frozenset[str]) -> None:
    """Nobody asked."""


def _ignore_passage(_server_id: str, _passage: Passage) -> None:
    """Nobody asked."""


async def _shut(proxy: ForwardProxy | None) -> None:
    if proxy is not None:
        await proxy.close()


def _leave(home: Home | None) -> None:
    if home is not None:
        home.leave()


async def _swept(sweep: Awaitable[list[KeptHome]]) -> None:
    for home in await sweep:
        logger.info("removed the kept HOME %s of %s", home.folder.name, home.server_id)


def _fetch_line(record: ServerRecord, launch: Launch) -> FetchLine | None:
    """Return how a server is fetched apart from its start; None where it is not."""
    sandbox = record.sandbox
    if sandbox is None or not at_least(sandbox.level, CLOSES_NETWORK):
        return None
    return fetch_line(launch.argv, build=sandbox.build)


def _believed(launch: Launch, kept: Home | None) -> tuple[Home | None, bool]:
    """Say which HOME is to know what came up, and whether to start what was fetched before.

    That asks no network, as long as it is fresh. pnpm, bunx and pipx do so of themselves; uv and
    npm would ask at each start, and fail or wait for a minute where there is no network.
    """
    if kept is None or from_cache(launch.argv) is None:
        return None, False
    return kept, kept.complete


class _ProcessChannel(StdioChannel):
    """A channel that says which process is at its other end, and what became of its start."""

    def __init__(
        self, process: ServerProcess, events: Events, kept: Home | None, *, cached: bool
    ) -> None:
        super().__init__(process, events)
        self.pid = process.pid
        self.standing = process.standing
        self._kept = kept
        self._cached = cached

    def came_up(self) -> None:
        """Take note that the server is there."""
        if self._kept is not None and not self._cached:
            self._kept.came_up()

    def another_way(self, *, late: bool) -> bool:
        """Say whether the next start is another: with the network, or without it.

        One from the cache that was only late is no reason to doubt the cache.
        """
        if self._kept is None:
            return False
        if self._cached:
            if not late:
                self._kept.forget()
            return not late
        return self._kept.postpone()


class _Counted:
    """A process that tells, once, when it has been ended."""

    def __init__(self, process: ServerProcess, ended: Callable[[], Awaitable[None]]) -> None:
        self._process = process
        self._ended: Callable[[], Awaitable[None]] | None = ended
        self.pid = process.pid
        self.standing = process.standing
        self.stdin_fd = process.stdin_fd
        self.stdout_fd = process.stdout_fd
        self.stderr_fd = process.stderr_fd

    @property
    def excess(self) -> str:
        """What it was ended for, if it used more than it may."""
        return self._process.excess

    async def wait(self) -> int:
        """Return the exit status."""
        return await self._process.wait()

    async def end(self, grace: float = GRACE) -> None:
        """End the process and all that came of it, even if the one who waits is cancelled."""
        ending = asyncio.get_running_loop().create_task(self._end(grace))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait({ending})  # it is near, and a process half ended is nobody's
            raise

    async def _end(self, grace: float) -> None:
        try:
            await self._process.end(grace)
        finally:
            ended, self._ended = self._ended, None
            if ended is not None:
                await ended()
