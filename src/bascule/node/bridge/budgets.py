"""Room for a call: the session's budget, the server's concurrency, the node's.

Below: ``bascule.policy.budget`` keeps the session's count as a value. Above: ``call.py`` enters a
``Slot`` around dispatch. A call that never left gives its reservation back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from bascule.errors import DeadlineExceeded, ServerUnavailable
from bascule.model.call import CallLimits, Progress
from bascule.node.bridge.refused import refuse
from bascule.node.bridge.table import Target
from bascule.policy.budget import Exceeded

if TYPE_CHECKING:
    from bascule.node.bridge.session import Session

_RETRY_AFTER = 1.0


class Limiter:
    """At most so many at once; the others wait in line until their deadline."""

    __slots__ = ("_waiting", "active", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.active = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self, until: float) -> bool:
        """Wait for a place; False when there was none in time."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        timer = loop.call_at(until, _give_up, place)
        self._waiting.append(place)
        try:
            await place
        except TimeoutError:
            with suppress(ValueError):  # unless it was passed over meanwhile
                self._waiting.remove(place)
            return False
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.leave()  # the place came just as its caller went away
            raise
        finally:
            timer.cancel()
        return True

    def enter(self) -> bool:
        """Take a place if one is free and nobody waits."""
        if self.active < self.limit and not self._waiting:
            self.active += 1
            return True
        return False

    def leave(self) -> None:
        """Give the place back, to the first who still waits."""
        self.active -= 1
        self._admit()

    def resize(self, limit: int) -> None:
        """Change how many there may be; more room is used at once."""
        self.limit = limit
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self.active < self.limit:
            place = self._waiting.popleft()
            if not place.done():
                self.active += 1
                place.set_result(None)


def _give_up(place: asyncio.Future[None]) -> None:
    if not place.done():
        place.set_exception(TimeoutError())


class Slot:
    """One call's room, and what is left of its time and output."""

    __slots__ = (
        "_held", "_limits", "_session", "_target", "_until", "max_output_bytes", "timeout",
    )  # fmt: skip

    def __init__(
        self, session: Session, target: Target, limits: CallLimits, until: float | None
    ) -> None:
        budgets = target.grant.budgets
        self._session = session
        self._target = target
        self._limits = limits
        self._held: list[Limiter] = []
        self._until = until
        self.timeout = budgets.tool_timeout_ms / 1000
        self.max_output_bytes = budgets.max_tool_output_bytes
        if limits.timeout is not None:
            self.timeout = min(self.timeout, limits.timeout)
        if limits.max_output_bytes is not None:
            self.max_output_bytes = min(self.max_output_bytes, limits.max_output_bytes)

    async def __aenter__(self) -> Self:
        session = self._session
        budget = session.budget.reserve()
        if isinstance(budget, Exceeded):
            raise refuse("mcp_budget_exceeded", str(budget), retry_after=_RETRY_AFTER)
        session.budget = budget
        try:
            for limiter in session.core.limiters(self._target.server_id, self._target.grant):
                if not limiter.enter():
                    await self._queue(limiter)
                self._held.append(limiter)
        except BaseException:
            self._leave()
            session.budget = session.budget.release()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()
        session = self._session
        if isinstance(error, ServerUnavailable):
            session.budget = session.budget.release()
        else:
            session.budget = session.budget.commit()

    async def send(
        self, payload: bytes, on_progress: Callable[[Progress], None] | None
    ) -> dict[str, Any]:
        """Send the call; an idle timeout, if asked for, is extended by progress alone."""
        idle = self._limits.idle_timeout
        if idle is None:
            return await self._dispatch(payload, on_progress)
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

    def _leave(self) -> None:
        for limiter in self._held:
            limiter.leave()
        self._held.clear()
