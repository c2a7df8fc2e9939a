"""Room for a call: the session's budget, the server's concurrency, the node's.

A call that never left gives its reservation back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from bascule.errors import DeadlineExceeded, ServerUnavailable
from bascule.model.call import CallLimits, Progress
from bascule.model.json import JsonObject
from bascule.node.bridge import approvals
from bascule.node.bridge.limiter import Limiter
from bascule.node.bridge.refusal import refuse
from bascule.node.bridge.table import Accepted, Target
from bascule.policy.budget import Exceeded

if TYPE_CHECKING:
    from bascule.node.bridge.record import CallRecord
    from bascule.node.bridge.session import Session

_RETRY_AFTER = 1.0


class Slot:
    """One call's room, and what is left of its time and output.

    Entering takes what is free at once; until it is ``ready``, ``wait`` gets the rest: a place in
    line, then a connection.
    """

    __slots__ = (
        "_granted", "_idled", "_limits", "_sent", "_session", "_target", "_until", "_wanted",
        "max_media_bytes",
        "max_output_bytes", "timeout",
    )  # fmt: skip

    def __init__(
        self, session: Session, target: Target, limits: CallLimits, until: float | None
    ) -> None:
        self._session = session
        self._target = target
        self._limits = limits
        self._wanted = len(target.limiters)
        self._until = until
        self._sent = False
        self._idled = False
        self._granted = False
        self._bound(target)

    def _bound(self, target: Target) -> None:
        budgets, limits = target.grant.budgets, self._limits
        self.timeout = budgets.tool_timeout_ms / 1000
        self.max_output_bytes = budgets.max_tool_output_bytes
        self.max_media_bytes = budgets.max_media_bytes
        if limits.timeout is not None:
            self.timeout = min(self.timeout, limits.timeout)
        for cap in (limits.max_output_bytes, self._session.max_tool_output_bytes):
            if cap is not None and cap < self.max_output_bytes:
                self.max_output_bytes = cap

    @property
    def ready(self) -> bool:
        """Say whether the call may leave at once."""
        if self._wanted:
            return False
        session = self._session
        return session.core.caller.ready(self._target.server_id, session.session_id, session.whose)

    def __enter__(self) -> Self:
        session = self._session
        budget = session.budget.reserve()
        if isinstance(budget, Exceeded):
            raise refuse("mcp_budget_exceeded", str(budget), retry_after=_RETRY_AFTER)
        session.budget = budget
        for limiter in self._target.limiters:
            if not limiter.enter():
                break
            self._wanted -= 1
        return self

    async def wait(self) -> None:
        """Wait in line for what was not free, or for the connection."""
        session, limiters = self._session, self._target.limiters
        if not self._wanted:
            server_id = self._target.server_id
            await session.core.caller.connect(
                server_id, session.session_id, session.whose, self._latest()
            )
            return
        for limiter in limiters[len(limiters) - self._wanted :]:
            if not limiter.enter():
                await self._queue(limiter)
            self._wanted -= 1

    def decided(
        self, record: CallRecord, target: Target, accepted: Accepted
    ) -> tuple[Target, Accepted]:
        """Take the target and the arguments as they stand after a wait."""
        if target is not self._target:
            self._target = record.resolved(target)
            self._bound(target)
            record.accepted(accepted)
        return target, accepted

    def __exit__(self, kind: object, error: object, *_: object) -> None:
        limiters = self._target.limiters
        for limiter in limiters[: len(limiters) - self._wanted]:
            limiter.leave()
        session = self._session
        if self._sent and not isinstance(error, ServerUnavailable):
            session.budget = session.budget.commit()
        else:
            session.budget = session.budget.release()
        if isinstance(error, DeadlineExceeded):
            raise DeadlineExceeded(f"{error} ({self._limit()})") from error

    def _limit(self) -> str:
        """Say which limit ends a call, so that whoever wants more time knows what to raise."""
        target, limits = self._target, self._limits
        own = target.grant.record.budgets.tool_timeout_ms / 1000
        where = f"budgets.tool_timeout_ms of server {target.server_id!r}"
        allowed = target.grant.budgets.tool_timeout_ms / 1000
        if allowed < own:
            own, where = allowed, "ceilings.tool_timeout_ms of the platform"
        if self._idled:
            return f"the caller's own idle timeout; {where} allows {own:g} s"
        if limits.timeout is not None and limits.timeout < own:
            return f"the caller's own timeout is {limits.timeout:g} s; {where} allows {own:g} s"
        return f"the limit is {own:g} s: raise {where}"

    def send(
        self,
        accepted: Accepted,
        on_progress: Callable[[Progress], None] | None,
        *,
        granted: bool,
    ) -> Awaitable[JsonObject]:
        """Send the call; an idle timeout, if asked for, is extended by progress alone."""
        self._sent = True
        self._granted = granted
        if self._limits.idle_timeout is None:
            return self._dispatch(accepted, on_progress)
        return self._send_watched(accepted, on_progress, self._limits.idle_timeout)

    async def _send_watched(
        self, accepted: Accepted, on_progress: Callable[[Progress], None] | None, idle: float
    ) -> JsonObject:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(idle) as timer:

                def extend(progress: Progress) -> None:
                    if not timer.expired():
                        timer.reschedule(loop.time() + idle)
                    if on_progress is not None:
                        on_progress(progress)

                return await self._dispatch(accepted, extend)
        except TimeoutError:
            self._idled = True
            raise DeadlineExceeded(f"neither answer nor progress for {idle:g} s") from None

    def _dispatch(
        self, accepted: Accepted, on_progress: Callable[[Progress], None] | None
    ) -> Awaitable[JsonObject]:
        target, session = self._target, self._session
        return session.core.caller.send(
            target.server_id,
            session.session_id,
            target.tool,
            accepted.payload,
            timeout=self.timeout,
            until=self._until,
            again=target.grant.idempotent,
            whose=session.whose,
            decide=partial(self._decide, accepted),
            on_progress=on_progress and self._in_harmless_words(on_progress),
        )

    async def _decide(self, accepted: Accepted) -> None:
        """Decide again on a call that has waited on its way out; what leaves is what was noted."""
        again = approvals.decide_again(self._session, self._target, accepted, granted=self._granted)
        _, now = await again
        if now.digest != accepted.digest:
            raise refuse("mcp_policy_denied", "the leak rules changed while the call waited")

    def _in_harmless_words(
        self, on_progress: Callable[[Progress], None]
    ) -> Callable[[Progress], None]:
        def heard(progress: Progress) -> None:
            if progress.message is not None:
                message = self._session.core.presentable_text(progress.message)
                progress = replace(progress, message=message)
            on_progress(progress)

        return heard

    def _latest(self) -> float:
        """Return how long to wait before the call leaves: no longer than for its answer."""
        if self._until is not None:
            return self._until
        return asyncio.get_running_loop().time() + self.timeout

    async def _queue(self, limiter: Limiter) -> None:
        if not await limiter.wait(self._latest(), self._session.whose):
            raise refuse(
                "mcp_budget_exceeded",
                f"no free place for another call within the time given ({limiter.limit} at once)",
                retry_after=_RETRY_AFTER,
            )
