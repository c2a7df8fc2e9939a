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

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError
from bascule.model.decision import Distrust
from bascule.model.snapshot import Snapshot, SnapshotChange
from bascule.model.status import ServerStatus
from bascule.node.changes import News
from bascule.node.retries import Jitter, Retries
from bascule.node.sync.judging import Implausible, Remedy, by_restart, doubt_about, is_stale
from bascule.node.sync.ports import FollowingNode, RegistrySource, Report, SyncState
from bascule.node.sync.reported import reported

#: What a registry says to a node that it will not have: its token was revoked, for one.
_REFUSALS = frozenset({"unauthenticated", "forbidden"})
#: How long whoever asks for the newest revision waits for what it ends.
_APPLY_SECONDS = 2.0


class SyncSettings(Retries, frozen=True, kw_only=True):
    """The rhythm of following."""

    #: A poll comes after a time between these.
    poll_seconds: float = 30.0
    poll_limit_seconds: float = 120.0
    #: A snapshot that the registry has not confirmed for this long is not called current.
    ttl_seconds: float = 120.0
    #: A watch that said nothing for this long is over; idle ones have a bookmark every 10 seconds.
    silence_seconds: float = 25.0
    #: How long one question to the registry may take.
    answer_seconds: float = 10.0
    #: A registry that does not answer in time may be overrun: it is left alone for up to this.
    overrun_limit_seconds: float = 30.0
    #: A watch that was lost sooner is a failure, whatever it said.
    steady_seconds: float = 10.0
    #: The pause after a report, and when the same is said again.
    pause_seconds: float = 0.5
    report_seconds: float = 15.0
    #: A watch that is lost for less long is not worth a report: the next one is there before it.
    trouble_seconds: float = 2.0
    #: How long a node decides by what its registry does not confirm; None is for ever.
    max_stale: float | None = None


class Silent(BasculeError):
    """The registry has said nothing on a watch for too long."""


class Follower:
    """Keeps one node at a registry's newest revision.

    ``remedy`` says what ends a doubt. None is for the registry of the same process: its owner
    opened its store, so what it has is taken, whatever it is.
    """

    def __init__(
        self,
        source: RegistrySource,
        node: FollowingNode,
        *,
        clock: Clock = SYSTEM_CLOCK,
        settings: SyncSettings | None = None,
        jitter: Jitter = random.uniform,
        remedy: Remedy | None = by_restart,
    ) -> None:
        self._source = source
        self._node = node
        self._clock = clock
        self._settings = settings or SyncSettings()
        self._jitter = jitter
        self._remedy = remedy
        self._current = node.snapshot
        #: When the registry last confirmed what is in force; a node that starts from its disk
        #: has it from there.
        self.confirmed_at = clock.now()
        self._confirmed_at = self._heard_at = clock.monotonic()
        self._gaps = 0
        self._is_overrun = False
        #: Since when the registry cannot be followed; None if it can, or never could.
        self._lost_at: float | None = None
        self._refreshing = asyncio.Lock()
        self._applying: asyncio.TaskGroup | None = None
        self._taken: asyncio.Task[None] | None = None
        self._news = News()
        #: Why the registry cannot be followed now, if so.
        self.problem: str | None = None
        #: Why the registry will not have this node any more, if so.
        self.refusal: str | None = None
        #: Says what else is wrong with the node, for its reports; ``noticed`` when that changes.
        self.trouble: Callable[[], str | None] = _nothing
        #: Called whenever the registry has confirmed what is in force, or could not.
        self.on_word: Callable[[], object] | None = None

    @property
    def snapshot(self) -> Snapshot:
        """Return what is in force."""
        return self._current

    @property
    def revision(self) -> int:
        """Return the revision in force."""
        return self._current.revision

    @property
    def state(self) -> SyncState:
        """Say whether the snapshot may be called current, or decide anything at all."""
        distrust = self.distrust()
        if distrust is not None:
            return "stale" if distrust.reason == "stale" else "refused"
        age = self._clock.monotonic() - self._confirmed_at
        fresh = age <= self._settings.ttl_seconds
        return "ok" if fresh and self.problem is None else "degraded"

    @property
    def trusted_until(self) -> float | None:
        """Until when what is known may decide, if nothing more is heard; None is for ever."""
        most = self._settings.max_stale
        return None if most is None else self.confirmed_at + most

    def distrust(self) -> Distrust | None:
        """Say why nothing may be decided by the snapshot any more, if so.

        Its registry refuses the node, or has not been heard for ``max_stale``. It is asked for
        every call. The date may be set and a machine may sleep, so both clocks count.
        """
        if self.refusal is not None:
            return Distrust("node_refused", self.refusal)
        most = self._settings.max_stale
        if most is None:
            return None
        since = self._clock.monotonic() - self._confirmed_at
        if since < most and not is_stale(self.confirmed_at, self._clock.now(), most):
            return None
        words = (
            f"this node has not heard from its control plane for {most / 3600:g} h "
            "(node.max_stale), and nothing is called by what was allowed then; it goes on as soon "
            "as the control plane answers"
        )
        return Distrust("stale", words)

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
            steady = await self._watch_once()
            failures = 0 if steady else failures + 1
            limit = self._settings.overrun_limit_seconds if self._is_overrun else None
            delay = self._settings.delay(failures, self._jitter, limit=limit)
            await self._clock.sleep(delay)

    async def _watch_once(self) -> bool:
        """List, then watch until the stream is lost; say whether it was good for a while."""
        self._gaps, began = 0, self._clock.monotonic()
        self._heard_at, self._is_overrun = began, False
        try:
            await self._refresh()
            async with asyncio.timeout(self._settings.answer_seconds):
                stream = await self._source.watch(self._current)
            await self._listen(stream)
            self._lose("the registry ended the watch")
        except (BasculeError, TimeoutError) as error:
            self._is_overrun = isinstance(error, TimeoutError)
            self._note(error)
        return self._heard_at - began >= self._settings.steady_seconds

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
                self._heard_at = self._clock.monotonic()
                await self._hear(change)

    async def _hear(self, change: SnapshotChange) -> None:
        """Apply the next change; ask for the whole when one is missing before it."""
        now = self._current
        if now.is_followed_by(change):
            self._take(now.after(change))
        elif not now.position.agrees(change.position) and not now.is_beyond(change):
            await self._fill_gap()
            return
        self._gaps = 0
        self._confirm()

    async def _fill_gap(self) -> None:
        """Ask for the whole; more slowly where every change of a watch leads to that."""
        await self._clock.sleep(self._settings.least_delay(self._gaps))
        self._gaps += 1
        await self._refresh()

    async def _poll(self) -> None:
        """Ask now and then, unless the registry has said meanwhile where it is.

        A watch that lives repeats that every few seconds, so thousands who follow need not ask.
        """
        settings = self._settings
        while True:
            pause = self._jitter(settings.poll_seconds, settings.poll_limit_seconds)
            await self._clock.sleep(pause)
            if self._clock.monotonic() - self._confirmed_at < pause:
                continue
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
            self._refuse_doubtful(known, found)
            overtaken = self._current is not known and self._current.is_beyond(found)
            if not overtaken and not self._current.is_at(found):
                self._take(found)
            self._confirm()

    def _refuse_doubtful(self, known: Snapshot, found: Snapshot) -> None:
        doubt = None if self._remedy is None else doubt_about(known, found)
        if self._remedy is not None and doubt is not None:
            raise Implausible(doubt, self._remedy(known, found))

    async def _asked(self, known: Snapshot) -> Snapshot:
        try:
            return await self._source.snapshot(known)
        except BasculeError as error:
            if error.code == Implausible.code:
                remedy = (self._remedy or by_restart)(known, None)
                raise Implausible(str(error), remedy) from error
            raise

    def _take(self, found: Snapshot) -> None:
        if self._applying is None:
            raise RuntimeError("a follower refreshes while it runs")
        self._current = found
        self._news.tell()
        self._taken = self._applying.create_task(self._node.apply(found))

    def _confirm(self) -> None:
        self._confirmed_at, self.confirmed_at = self._clock.monotonic(), self._clock.now()
        self.problem = self.refusal = self._lost_at = None
        self._tell_of_word()

    def _note(self, error: Exception) -> None:
        self._lose(str(error) or "the registry did not answer in time")
        if isinstance(error, BasculeError) and error.code in _REFUSALS:
            self.refusal = (
                f"the control plane refuses this node, and nothing is called here: {self.problem}"
            )
        self._tell_of_word()

    def _lose(self, problem: str) -> None:
        if self.problem is None:
            self._lost_at = self._clock.monotonic()
        self.problem = problem

    def _tell_of_word(self) -> None:
        self._news.tell()
        if self.on_word is not None:
            self.on_word()

    # --- the way back

    def noticed(self) -> None:
        """Look soon whether there is something to report."""
        self._news.tell()

    async def _tell(self) -> None:
        """Report when something changed, and the same again every so often."""
        said: object = None
        said_at, failures = 0.0, 0
        while True:
            report = self._report()
            now = self._clock.monotonic()
            words = (report.revision, report.state, report.reason, _words(report.servers))
            if words != said or now - said_at >= self._settings.report_seconds:
                if await self._send(report):
                    said, said_at, failures = words, now, 0
                else:
                    failures += 1
            pause = max(self._settings.pause_seconds, self._settings.least_delay(failures))
            await self._clock.sleep(pause)
            if failures:
                await self._news.wait(self._clock, self._patience(failures))
            elif all(status.starting is None for status in report.servers):
                # What a start says is not announced: it is looked at after every pause.
                silence = said_at + self._settings.report_seconds - self._clock.monotonic()
                await self._news.wait(self._clock, silence)

    def _report(self) -> Report:
        servers = reported(self._node.statuses())
        if self.state == "ok" or self._is_lost_just_now():
            trouble = self.trouble()
            return Report(self.revision, "degraded" if trouble else "ok", servers, trouble)
        distrust = self.distrust()
        reason = self.problem if distrust is None else distrust.words
        return Report(self.revision, "degraded", servers, reason)

    def _is_lost_just_now(self) -> bool:
        if self._lost_at is None or self.distrust() is not None:
            return False
        return self._clock.monotonic() - self._lost_at < self._settings.trouble_seconds

    def _patience(self, failures: int) -> float:
        """Return how long to keep a report that was not taken, if nothing happens meanwhile."""
        first = self._settings.pause_seconds
        most = min(self._settings.report_seconds, self._settings.overrun_limit_seconds)
        return self._settings.delay(failures, self._jitter, first=first, limit=most)

    async def _send(self, report: Report) -> bool:
        try:
            async with asyncio.timeout(self._settings.answer_seconds):
                await self._source.report(report)
        except (BasculeError, TimeoutError):
            return False
        return True


def _nothing() -> None:
    return None


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
            s.sandbox,
        )
        for s in servers
    ]
