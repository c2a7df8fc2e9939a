"""Follows a registry: reads it once, applies each change the watch brings, and reports.

A change that does not follow the snapshot leads to one request for the whole; so does a poll, now
and then, and each new watch. When the registry cannot be asked, the old snapshot goes on serving,
the follower says ``degraded`` and tries again with full jitter over a doubling delay. So it does
when the registry offers what is implausible (``judging.py``), and when a watch has gone silent.
Connections move beside the watch, so that a server which is slow to end delays no later change.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from msgspec import Struct

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError
from bascule.model.snapshot import Snapshot, SnapshotChange
from bascule.model.status import ConnectionStatus, ServerStatus
from bascule.node.changes import News
from bascule.node.sync.judging import Implausible, doubt_about
from bascule.node.sync.ports import FollowingNode, RegistrySource, Report, SyncState

_MAX_DOUBLINGS = 16


#: How long whoever asks for the newest revision waits for what it ends.
_APPLY_SECONDS = 2.0


class SyncSettings(Struct, frozen=True, kw_only=True):
    """The rhythm of following."""

    #: A poll comes after this long, more or less a fifth.
    poll_seconds: float = 30.0
    #: A snapshot that the registry has not confirmed for this long is not called current.
    ttl_seconds: float = 120.0
    #: A watch that said nothing for this long is over; idle ones have a bookmark every 10 seconds.
    silence_seconds: float = 25.0
    #: How long one question to the registry may take.
    answer_seconds: float = 10.0
    backoff_seconds: float = 0.1
    backoff_limit_seconds: float = 30.0
    #: The pause after a report, and when the same is said again.
    pause_seconds: float = 0.5
    report_seconds: float = 15.0


class Silent(BasculeError):
    """The registry has said nothing on a watch for too long."""


class Follower:
    """Keeps one node at a registry's newest revision.

    ``own_registry`` is for the registry of the same process: its owner opened its store, so what
    it has is taken, whatever it is.
    """

    def __init__(
        self,
        source: RegistrySource,
        node: FollowingNode,
        *,
        clock: Clock = SYSTEM_CLOCK,
        settings: SyncSettings | None = None,
        jitter: Callable[[float, float], float] = random.uniform,
        own_registry: bool = False,
    ) -> None:
        self._source = source
        self._node = node
        self._clock = clock
        self._settings = settings or SyncSettings()
        self._jitter = jitter
        self._own_registry = own_registry
        self._current = node.snapshot
        self._confirmed_at = self._heard_at = clock.monotonic()
        self._heard = False
        self._refreshing = asyncio.Lock()
        self._applying: asyncio.TaskGroup | None = None
        self._taken: asyncio.Task[None] | None = None
        self._news = News()
        #: Why the registry cannot be followed now, if so.
        self.problem: str | None = None

    @property
    def revision(self) -> int:
        """Return the revision in force."""
        return self._current.revision

    @property
    def state(self) -> SyncState:
        """Say whether the snapshot may be called current."""
        age = self._clock.monotonic() - self._confirmed_at
        fresh = age <= self._settings.ttl_seconds
        return "ok" if fresh and self.problem is None else "degraded"

    async def catch_up(self) -> None:
        """Put the newest revision in force now; raise where the registry cannot be asked.

        Connections that end with it may take longer than anybody here waits for.
        """
        await self._refresh()
        await self._applied()

    async def accept(self) -> None:
        """Take what the registry has, whatever it is: somebody has looked at it."""
        async with self._refreshing:
            async with asyncio.timeout(self._settings.answer_seconds):
                found = await self._source.snapshot()
            self._take(found)
            self._confirm()
        await self._applied()

    async def _applied(self) -> None:
        if self._taken is not None:
            await asyncio.wait({self._taken}, timeout=_APPLY_SECONDS)

    async def run(self) -> None:
        """Follow until cancelled; whatever was begun has ended then."""
        unsubscribe = self._node.subscribe(self._news.tell)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._applying = tasks
                tasks.create_task(self._follow())
                tasks.create_task(self._poll())
                tasks.create_task(self._tell())
        finally:
            unsubscribe()

    async def _follow(self) -> None:
        failures = 0
        while True:
            heard = await self._watch_once()
            failures = 0 if heard else failures + 1
            await self._clock.sleep(self._delay(failures))

    async def _watch_once(self) -> bool:
        """List, then watch until the stream is lost; say whether anything was heard on it."""
        self._heard = False
        try:
            await self._refresh()
            async with asyncio.timeout(self._settings.answer_seconds):
                stream = await self._source.watch(self._current)
            await self._listen(stream)
            self.problem = "the registry ended the watch"
        except (BasculeError, TimeoutError) as error:
            self._note(error)
        return self._heard

    async def _listen(self, stream: AsyncGenerator[SnapshotChange, None]) -> None:
        """Hear a stream to its end; raise Silent when nothing came for too long."""
        seconds, self._heard_at = self._settings.silence_seconds, self._clock.monotonic()
        hearing = asyncio.create_task(self._hear_all(stream))
        try:
            while not hearing.done():
                left = self._heard_at + seconds - self._clock.monotonic()
                if left <= 0:
                    raise Silent(f"the registry has said nothing for {seconds:g} s")
                await self._wait(hearing, left)
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)
        hearing.result()

    async def _wait(self, task: asyncio.Task[None], seconds: float) -> None:
        """Wait for a task, and no longer than that."""
        alarm = asyncio.create_task(self._clock.sleep(seconds))
        try:
            await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()

    async def _hear_all(self, stream: AsyncGenerator[SnapshotChange, None]) -> None:
        async with aclosing(stream) as changes:
            async for change in changes:
                self._heard, self._heard_at = True, self._clock.monotonic()
                await self._hear(change)

    async def _hear(self, change: SnapshotChange) -> None:
        """Apply the next change; ask for the whole when one is missing before it."""
        now = self._current
        if now.is_followed_by(change):
            self._take(now.after(change))
        elif not now.position.agrees(change.position) and not now.is_beyond(change):
            await self._refresh()
        self._confirm()

    async def _poll(self) -> None:
        """Ask now and then: a watch may hang without a word."""
        seconds = self._settings.poll_seconds
        while True:
            await self._clock.sleep(self._jitter(0.8 * seconds, 1.2 * seconds))
            try:
                await self._refresh()
            except (BasculeError, TimeoutError) as error:
                self._note(error)

    async def _refresh(self) -> None:
        """Ask for the newest snapshot and take it, unless it is the one in force.

        Raise Implausible for one that should not take its place.
        """
        async with self._refreshing:
            known = self._current
            async with asyncio.timeout(self._settings.answer_seconds):
                found = await self._asked(known)
            doubt = None if self._own_registry else doubt_about(known, found)
            if doubt is not None:
                raise Implausible(doubt)
            overtaken = self._current is not known and self._current.is_beyond(found)
            if not overtaken and not self._current.position.agrees(found.position):
                self._take(found)
            self._confirm()

    async def _asked(self, known: Snapshot) -> Snapshot:
        try:
            return await self._source.snapshot(known)
        except BasculeError as error:
            if error.code == Implausible.code:
                raise Implausible(str(error)) from error
            raise

    def _take(self, found: Snapshot) -> None:
        if self._applying is None:
            raise RuntimeError("a follower refreshes while it runs")
        self._current = found
        self._news.tell()
        self._taken = self._applying.create_task(self._node.apply(found))

    def _confirm(self) -> None:
        self._confirmed_at = self._clock.monotonic()
        self.problem = None
        self._news.tell()

    def _note(self, error: Exception) -> None:
        self.problem = str(error) or "the registry did not answer in time"
        self._news.tell()

    def _delay(self, failures: int) -> float:
        doubled = self._settings.backoff_seconds * 2 ** min(failures, _MAX_DOUBLINGS)
        return self._jitter(0.0, min(doubled, self._settings.backoff_limit_seconds))

    # --- the way back

    async def _tell(self) -> None:
        """Report when something changed, and the same again every so often."""
        said: object = None
        said_at, failures = 0.0, 0
        while True:
            report = Report(self.revision, self.state, _first(self._node.statuses()))
            now = self._clock.monotonic()
            words = (report.revision, report.state, _words(report.servers))
            if words != said or now - said_at >= self._settings.report_seconds:
                if await self._send(report):
                    said, said_at, failures = words, now, 0
                else:
                    failures += 1
            await self._clock.sleep(self._settings.pause_seconds)
            if failures:
                await self._news.wait(self._clock, self._patience(failures))
            elif all(status.starting is None for status in report.servers):
                # What a start says is not announced: it is looked at after every pause.
                silence = said_at + self._settings.report_seconds - self._clock.monotonic()
                await self._news.wait(self._clock, silence)

    def _patience(self, failures: int) -> float:
        """Return how long to keep a report that was not taken, if nothing happens meanwhile."""
        doubled = self._settings.pause_seconds * 2 ** min(failures, _MAX_DOUBLINGS)
        return min(doubled, self._settings.report_seconds)

    async def _send(self, report: Report) -> bool:
        try:
            async with asyncio.timeout(self._settings.answer_seconds):
                await self._source.report(report)
        except (BasculeError, TimeoutError):
            return False
        return True


def _first(statuses: Sequence[ServerStatus]) -> tuple[ServerStatus, ...]:
    """Return one line a server: sessions with connections of their own are further ones."""
    first: dict[str, ServerStatus] = {}
    for status in statuses:
        first.setdefault(status.server_id, status)
    return tuple(s.reported() if isinstance(s, ConnectionStatus) else s for s in first.values())


def _words(servers: Sequence[ServerStatus]) -> object:
    """Return what of a report is worth a write; latencies move all the time."""
    return [
        (
            s.server_id,
            s.state,
            s.trouble,
            s.last_error,
            s.starting,
            s.tool_count,
            s.reconnects,
            s.latency_ms is None,
        )
        for s in servers
    ]
