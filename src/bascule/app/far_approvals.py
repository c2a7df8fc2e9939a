"""Approvals of a node whose control plane is elsewhere: asked and claimed there, waited for here.

Nothing of them is kept at the node. While the control plane does not answer, a call that needs
approval does not leave; what waits already goes on waiting until its time is up.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from math import inf
from typing import Protocol, TypeVar

from msgspec.structs import replace

from bascule.audit.approval_steps import ApprovalRefused, unknown
from bascule.audit.events import CallIntent, LeavingCall
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.log_lines import say
from bascule.client.http import ApiError, Unreachable
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError
from bascule.lifetime import Lifetime
from bascule.model.approval import (
    Answer,
    Approval,
    ApprovalRequest,
    Approved,
    Denied,
    ExactCall,
    OnWaiting,
    Waiting,
)

#: How long one call waits for a decision before it is made again.
POLL_SECONDS = 15.0
#: For how long a control plane that does not answer is asked again: another replica may.
PATIENCE_SECONDS = 5.0
#: The same for a claim, which somebody approved already.
CLAIM_SECONDS = 10.0
#: The longest pause before it is asked again.
_PAUSE_SECONDS = 1.0
#: How long taking questions back may hold up the end of the process.
_CLOSE_SECONDS = 2.0
#: How far the clocks of both may be apart, where a question's time is up and nobody answers.
_SKEW_SECONDS = 60.0
#: Codes of refusals that pass by themselves.
_PASSING = frozenset({"store_unavailable", "shutting_down", "mcp_unavailable"})

logger = logging.getLogger("bascule.approvals")
T = TypeVar("T")


class Calls(Protocol):
    """The control plane (``bascule.client.rpc_approvals.ApprovalCalls``)."""

    async def ask(self, request: ApprovalRequest, wait: float) -> Answer: ...

    async def claim(self, id: str, call: ExactCall, intent: CallIntent) -> None: ...

    async def approval(self, id: str, wait: float = 0.0) -> Approval | None: ...

    async def withdraw(self, id: str) -> None: ...


class FarApprovals(Lifetime):
    """The ``Approvals`` of a node, and what its doors ask about questions.

    ``refuse`` is the ledger's: it raises for a call that could not be written down here.
    """

    def __init__(
        self,
        calls: Calls,
        refuse: Callable[[LeavingCall], None] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._calls = calls
        self._refuse = refuse
        self._clock = clock
        self._stopping = asyncio.Event()
        self._leaving: set[asyncio.Task[None]] = set()
        #: Whether the log says already that the control plane does not answer.
        self._is_away = False

    # --- the bridge's side

    async def ask(
        self, request: ApprovalRequest, wait: float | None, told: OnWaiting | None = None
    ) -> Answer:
        """Return the answer to a question, or that there is none yet after so long.

        Whoever is cancelled meanwhile takes the question back. Raise LedgerUnavailable where the
        control plane does not answer, BudgetExceeded, or OutcomeUnknown.
        """
        answer = await self._first(request)
        if not isinstance(answer, Waiting) or wait == 0:
            return answer
        if told is not None:
            told(answer)
        again = replace(request, approval_id=answer.approval_id)
        until = inf if wait is None else self._clock.monotonic() + wait
        try:
            while isinstance(answer, Waiting) and not self._stopping.is_set():
                seconds = min(POLL_SECONDS, until - self._clock.monotonic())
                if seconds <= 0:
                    break
                answer = await self._awaited(again, answer, seconds)
        except asyncio.CancelledError:
            self.leave(again.approval_id or "")
            raise
        return answer

    async def _first(self, request: ApprovalRequest) -> Answer:
        """Ask for the first time; whoever hangs up meanwhile takes back what was asked."""
        work = self._patiently(lambda: self._calls.ask(request, 0), PATIENCE_SECONDS)
        asking = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._in_background(self._never_mind(asking))
            raise
        except ApiError as error:
            return self._refused(error)

    async def _never_mind(self, asking: asyncio.Future[Answer]) -> None:
        answer = await asking
        if isinstance(answer, Waiting):
            await self._calls.withdraw(answer.approval_id)

    async def _awaited(self, request: ApprovalRequest, known: Waiting, seconds: float) -> Answer:
        """Ask again, and wait for the answer; a control plane that is away has not decided."""
        try:
            return await self._unless_stopping(self._calls.ask(request, seconds), known)
        except (ApiError, Unreachable) as error:
            if _is_final(error):
                return self._refused(error)
            self._note_away(error)
        if known.expires_at is not None and self._clock.now() > known.expires_at + _SKEW_SECONDS:
            raise _away()  # and who answers later says that it has expired
        await self._unless_stopping(self._pause(min(seconds, _PAUSE_SECONDS)), None)
        return known

    async def _unless_stopping(self, work: Coroutine[object, object, T], otherwise: T) -> T:
        """Wait for work, unless the process ends meanwhile."""
        working = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else otherwise
        finally:
            for task in (working, ending):
                task.cancel()

    async def claim(self, approved: Approved, call: ExactCall, leaving: LeavingCall) -> bool:
        """Claim an approval for the call as it is now; its intent is yet to be written here.

        An answer that is lost is asked for again, as the same call: it is claimed once. Raise
        ApprovalRefused if it cannot be, LedgerUnavailable where no answer comes.
        """
        id = approved.approval_id
        if id is None:
            raise AssertionError("there is nothing to claim")
        if self._refuse is not None:
            self._refuse(leaving)
        intent = leaving.intent()
        try:
            await self._patiently(lambda: self._calls.claim(id, call, intent), CLAIM_SECONDS)
        except ApiError as error:
            raise ApprovalRefused("void", self._refused(error).reason) from error
        return False

    # --- the doors' side

    def leave(self, id: str) -> None:
        """Take a question back, if nobody else has asked it; in the background."""
        if not self._stopping.is_set():
            work = lambda: self._calls.withdraw(id)  # noqa: E731 - one line
            self._in_background(self._patiently(work, PATIENCE_SECONDS))

    async def current(self, id: str) -> Approval | None:
        """Return one approval of a client of this node; raise LedgerUnavailable."""
        return await self._patiently(lambda: self._calls.approval(id), PATIENCE_SECONDS)

    async def settled(self, id: str, seconds: float | None) -> Approval:
        """Wait until a question is not pending any more, at most so long; return it as it is.

        Raise ApprovalRefused if there is none, LedgerUnavailable where no answer comes.
        """
        until = inf if seconds is None else self._clock.monotonic() + seconds
        found = await self.current(id)
        while found is not None and found.state == "pending" and not self._stopping.is_set():
            left = min(POLL_SECONDS, until - self._clock.monotonic())
            if left <= 0:
                break
            found = await self._unless_stopping(self._looked(id, left), found)
        if found is None:
            raise unknown(id)
        return found

    async def _looked(self, id: str, wait: float) -> Approval | None:
        return await self._patiently(lambda: self._calls.approval(id, wait), PATIENCE_SECONDS)

    # --- the end

    def stop(self) -> None:
        """Let whoever waits come back later: the process ends, and questions stay."""
        self._stopping.set()

    async def close(self) -> None:
        """Wait a moment for what is being taken back."""
        if self._leaving:
            await asyncio.wait(set(self._leaving), timeout=_CLOSE_SECONDS)
        for task in set(self._leaving):
            task.cancel()

    def _in_background(self, work: Coroutine[object, object, None]) -> None:
        async def quietly() -> None:
            with suppress(BasculeError):  # it expires, then
                await work

        task = asyncio.ensure_future(quietly())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    # --- the way there

    async def _patiently(self, work: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Ask until somebody answers, for so long; raise LedgerUnavailable, or what is refused."""
        until = self._clock.monotonic() + seconds
        while True:
            try:
                found = await work()
            except (ApiError, Unreachable) as error:
                if _is_final(error):
                    raise
                self._note_away(error)
                if self._stopping.is_set() or self._clock.monotonic() >= until:
                    raise _away() from error
            else:
                self._is_away = False
                return found
            await self._pause(_PAUSE_SECONDS)

    async def _pause(self, most: float) -> None:
        await self._clock.sleep(random.uniform(0, most))  # noqa: S311 - so that not all ask at once

    def _note_away(self, error: BasculeError) -> None:
        if not self._is_away:
            say(logger, logging.WARNING, f"approvals cannot be asked for: {error}")
        self._is_away = True

    def _refused(self, error: BasculeError) -> Denied:
        """Say no; where the control plane is, and what it says to nodes, is for the log."""
        say(logger, logging.WARNING, f"a question of this node is refused: {error}")
        return Denied(f"the control plane refuses this node's question ({error.code})")


def _is_final(error: BasculeError) -> bool:
    return isinstance(error, ApiError) and error.code not in _PASSING


def _away() -> LedgerUnavailable:
    return LedgerUnavailable(
        "approvals are asked and claimed at the control plane, which does not answer now; calls "
        "that need none go on"
    )
