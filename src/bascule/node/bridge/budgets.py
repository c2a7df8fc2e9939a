"""Room for a call: the session's budget, the server's concurrency, the node's.

Below: ``bascule.policy.budget`` keeps the session's count as a value. Above: ``call.py`` enters a
``Slot`` around dispatch. A call that never left gives its reservation back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from bascule.errors import DeadlineExceeded, ServerUnavailable
from bascule.model.call import CallLimits, Progress
from bascule.node.bridge.limiter import Limiter
from bascule.node.bridge.refused import refuse
from bascule.node.bridge.table import Target
from bascule.policy.budget import Exceeded

if TYPE_CHECKING:
    from bascule.node.bridge.session import Session

_RETRY_AFTER = 1.0


class Slot:
    """One call's room, and what is left of its time and output.

    Entering takes what is free at once; when it is ``crowded``, ``wait`` gets the rest.
    """

    __slots__ = (
        "_limits", "_sent", "_session", "_target", "_until", "_wanted", "max_media_bytes",
        "max_output_bytes", "timeout",
    )  # fmt: skip

    def __init__(
        self, session: Session, target: Target, limits: CallLimits, until: float | None
    ) -> None:
        budgets = target.grant.budgets
        self._session = session
        self._target = target
        self._limits = limits
        self._wanted = len(target.limiters)
        self._until = until
        self._sent = False
        self.timeout = budgets.tool_timeout_ms / 1000
        self.max_output_bytes = budgets.max_tool_output_bytes
        self.max_media_bytes = budgets.max_media_bytes
        if limits.timeout is not None:
            self.timeout = min(self.timeout, limits.timeout)
        for cap in (limits.max_output_bytes, session.max_tool_output_bytes):
            if cap is not None and cap < self.max_output_bytes:
                self.max_output_bytes = cap

    @property
    def crowded(self) -> bool:
        """Say whether somebody has to be waited for."""
        return self._wanted > 0

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
        """Wait in line for what was not free."""
        limiters = self._target.limiters
        for limiter in limiters[len(limiters) - self._wanted :]:
            if not limiter.enter():
                await self._queue(limiter)
            self._wanted -= 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        limiters = self._target.limiters
        for limiter in limiters[: len(limiters) - self._wanted]:
            limiter.leave()
        session = self._session
        if self._sent and not isinstance(error, ServerUnavailable):
            session.budget = session.budget.commit()
        else:
            session.budget = session.budget.release()

    def send(
        self, payload: bytes, on_progress: Callable[[Progress], None] | None
    ) -> Awaitable[dict[str, Any]]:
        """Send the call; an idle timeout, if asked for, is extended by progress alone."""
        self._sent = True
        if self._limits.idle_timeout is None:
            return self._dispatch(payload, on_progress)
        return self._send_watched(payload, on_progress, self._limits.idle_timeout)

    async def _send_watched(
        self, payload: bytes, on_progress: Callable[[Progress], None] | None, idle: float
    ) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(idle) as timer:

                def extend(progress: Progress) -> None:
                    if not timer.expired():
                        timer.reschedule(loop.time() + idle)
                    if on_progress is not None:
                        on_progress(progress)

                return await self._dispatch(payload, extend)
        except TimeoutError:
            raise DeadlineExceeded(f"neither answer nor progress for {idle:g} s") from None

    def _dispatch(
        self, payload: bytes, on_progress: Callable[[Progress], None] | None
    ) -> Awaitable[dict[str, Any]]:
        target, session = self._target, self._session
        return session.core.caller.send(
            target.server_id,
            session.session_id,
            target.tool,
            payload,
            timeout=self.timeout,
            until=self._until,
            again=target.grant.idempotent,
            on_progress=on_progress and self._in_harmless_words(on_progress),
        )

    def _in_harmless_words(
        self, on_progress: Callable[[Progress], None]
    ) -> Callable[[Progress], None]:
        def heard(progress: Progress) -> None:
            if progress.message is not None:
                message = self._session.core.presentable_text(progress.message)
                progress = replace(progress, message=message)
            on_progress(progress)

        return heard

    async def _queue(self, limiter: Limiter) -> None:
        until = self._until
        if until is None:
            until = asyncio.get_running_loop().time() + self.timeout
        if not await limiter.wait(until):
            raise refuse(
                "mcp_budget_exceeded",
                f"no free place for another call within the time given ({limiter.limit} at once)",
                retry_after=_RETRY_AFTER,
            )
