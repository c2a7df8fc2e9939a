"""Room for a call: the session's budget, the server's concurrency, the node's.

A call that never left gives its reservation back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from bascule.errors import BasculeError, DeadlineExceeded, ServerUnavailable
from bascule.model.approval import Approved
from bascule.model.call import (
    NO_LIMITS,
    NOTHING_BESIDE,
    SCHEMA_KEPT,
    Beside,
    CallLimits,
    LogMessage,
    OnLog,
    OnProgress,
    Progress,
)
from bascule.model.json import JsonObject
from bascule.model.outcome import Outcome
from bascule.node.bridge import approvals
from bascule.node.bridge.limiter import Limiter
from bascule.node.bridge.record import CallRecord
from bascule.node.bridge.refusal import refuse
from bascule.node.bridge.table import Accepted, Target
from bascule.node.ports import Outgoing, Way

T = TypeVar("T")
_RETRY_AFTER = 1.0
#: Of a time that is up: none at all would say that nobody gave one.
_SHORTEST = 1e-6


class Passage(CallRecord, eq=False):
    """One call on its way across: its record, the room it holds, and what limits it.

    ``enter`` takes what is free at once. Where that is not everything, ``wait`` gets the rest: a
    place in line, then a connection.
    """

    limits: CallLimits = NO_LIMITS
    until: float | None = None
    timeout: float = 0.0
    max_output_bytes: int = 0
    #: How many places it has.
    places: int = 0
    sent: bool = False
    idled: bool = False

    def limited(self, limits: CallLimits) -> None:
        """Take the caller's own limits."""
        self.limits = limits
        if limits.timeout is not None:
            self.until = asyncio.get_running_loop().time() + limits.timeout

    async def within(self, work: Awaitable[T]) -> T:
        """Wait for something that may take its time, but not beyond the caller's own limit."""
        try:
            async with asyncio.timeout_at(self.until):
                return await work
        except TimeoutError:
            words = "the time given for the call is up (the caller's timeout)"
            raise DeadlineExceeded(words) from None

    def patience(self, wait: float | None) -> float | None:
        """Return for how long to wait for somebody: what is wanted, and not beyond that limit."""
        if self.until is None:
            return wait
        left = max(_SHORTEST, self.until - asyncio.get_running_loop().time())
        return left if wait is None else min(wait, left)

    def resolved(self, target: Target) -> Target:
        """Note which tool it is; its limits count where the caller's are not lower."""
        self.target = target
        self.revision = self.session.revision
        self.timeout = target.seconds
        self.max_output_bytes = target.max_output_bytes
        limits = self.limits
        if limits is not NO_LIMITS:
            if limits.timeout is not None:
                self.timeout = min(self.timeout, limits.timeout)
            if limits.max_output_bytes is not None:
                self.max_output_bytes = min(self.max_output_bytes, limits.max_output_bytes)
        return target

    def enter(self, target: Target) -> Way | None:
        """Take what is free; return the way out if nothing has to be waited for."""
        session = self.session
        exceeded = session.spending.reserve()
        if exceeded is not None:
            raise refuse("mcp_budget_exceeded", str(exceeded), retry_after=_RETRY_AFTER)
        self.reserved = True
        places = 0
        for limiter in target.limiters:
            if limiter.active >= limiter.limit or limiter.lines:
                self.places = places
                return None
            limiter.active += 1
            places += 1
        self.places = places
        return session.core.caller.way(target.route)

    def way(self, target: Target) -> Way | None:
        """Return the way out if nothing has to be waited for."""
        if self.places < len(target.limiters):
            return None
        return self.session.core.caller.way(target.route)

    async def wait(self, target: Target) -> None:
        """Wait in line for what was not free, or for the connection."""
        limiters = target.limiters
        if self.places == len(limiters):
            await self.session.core.caller.connect(target.route, self._latest())
            return
        for limiter in limiters[self.places :]:
            if not limiter.enter():
                await self._queue(limiter)
            self.places += 1

    def asked(
        self, target: Target, accepted: Accepted, approved: Approved | None
    ) -> tuple[Target, Accepted]:
        """Take the call as it stands after somebody was asked, and what they agreed to."""
        self.approved = approved
        return self.decided(target, accepted)

    def decided(self, target: Target, accepted: Accepted) -> tuple[Target, Accepted]:
        """Take the target and the arguments as they stand after a wait."""
        if target is not self.target:
            self.resolved(target)
            self.accepted(accepted)
        return target, accepted

    def send(
        self, way: Way, target: Target, accepted: Accepted, beside: Beside
    ) -> Awaitable[JsonObject]:
        """Send the call; an idle timeout, if asked for, is extended by progress alone."""
        self.sent = True
        idle = self.limits.idle_timeout
        if beside is not NOTHING_BESIDE:
            beside = NOTHING_BESIDE if beside is SCHEMA_KEPT else self._overheard(beside)
        call = Outgoing(
            target.route, accepted.payload, self.timeout, self.until, self._decide, beside=beside
        )
        return way.send(call) if idle is None else self._send_watched(way, call, idle)

    async def _send_watched(self, way: Way, call: Outgoing, idle: float) -> JsonObject:
        loop, on_progress = asyncio.get_running_loop(), call.beside.on_progress
        try:
            async with asyncio.timeout(idle) as timer:

                def extend(progress: Progress) -> None:
                    if not timer.expired():
                        timer.reschedule(loop.time() + idle)
                    if on_progress is not None:
                        on_progress(progress)

                watched = replace(call.beside, on_progress=extend)
                return await way.send(replace(call, beside=watched))
        except TimeoutError:
            self.idled = True
            raise DeadlineExceeded(f"neither answer nor progress for {idle:g} s") from None

    def leave(self) -> None:
        """Give the places back, and the reservation of a call that never left."""
        target = self.target
        if target is not None:
            self.reserved = False
            for limiter in target.limiters[: self.places]:
                limiter.active -= 1
                if limiter.lines:
                    limiter.admit()
            spending = self.session.spending
            spending.reserved -= 1
            spending.calls += self.sent

    def failed(self, error: BasculeError) -> Outcome:
        """Turn an error into the outcome its caller gets, and give the room back."""
        if isinstance(error, ServerUnavailable):
            self.sent = False
        if self.reserved and isinstance(error, DeadlineExceeded) and self.target is not None:
            error = DeadlineExceeded(f"{error} ({self._limit(self.target)})")
        return CallRecord.failed(self, error)

    def _limit(self, target: Target) -> str:
        """Say which limit ends a call, so that whoever wants more time knows what to raise."""
        limits = self.limits
        own = target.grant.record.budgets.tool_timeout_ms / 1000
        where = f"budgets.tool_timeout_ms of server {target.server_id!r}"
        if target.seconds < own:
            own, where = target.seconds, "ceilings.tool_timeout_ms of the platform"
        if self.idled:
            return f"the caller's own idle timeout; {where} allows {own:g} s"
        if limits.timeout is not None and limits.timeout < own:
            return f"the caller's own timeout is {limits.timeout:g} s; {where} allows {own:g} s"
        return f"the limit is {own:g} s: raise {where}"

    async def _decide(self) -> None:
        """Decide again on a call that has waited on its way out; what leaves is what was noted."""
        target, accepted = self.target, self.taken
        if target is None or accepted is None:
            raise AssertionError("a call waits on its way out only after it was accepted")
        approved = self.approved
        again = approvals.decide_again(self.session, target, accepted, granted=approved is not None)
        current, now = await again
        if now.digest != accepted.digest:
            raise refuse("mcp_policy_denied", "the leak rules changed while the call waited")
        if approved is not None:
            approvals.refuse_other(self.session, current, now, approved)

    def _overheard(self, beside: Beside) -> Beside:
        """Let whoever hears of a call hear harmless words alone, and nothing after its end."""
        on_progress, on_log = beside.on_progress, beside.on_log
        if on_progress is not None:
            on_progress = partial(self._told, on_progress)
        if on_log is not None:
            on_log = partial(self._logged, on_log)
        return replace(beside, on_progress=on_progress, on_log=on_log)

    def _logged(self, on_log: OnLog, message: LogMessage) -> None:
        if not self.ended_at:
            on_log(self.session.core.presentable_log(message))

    def _told(self, on_progress: OnProgress, progress: Progress) -> None:
        if self.ended_at:
            return
        if progress.message is not None:
            message = self.session.core.presentable_text(progress.message)
            progress = replace(progress, message=message)
        on_progress(progress)

    def _latest(self) -> float:
        """Return how long to wait before the call leaves: no longer than for its answer."""
        if self.until is not None:
            return self.until
        return asyncio.get_running_loop().time() + self.timeout

    async def _queue(self, limiter: Limiter) -> None:
        session = self.session
        if not await limiter.wait(self._latest(), session.line, session.session_id):
            raise refuse(
                "mcp_budget_exceeded",
                f"no free place for another call within the time given ({limiter.limit} at once)",
                retry_after=_RETRY_AFTER,
            )
