"""Approvers for the library: everything, nothing, or a function that is asked.

Without an approver a call that needs approval does not run and says that approval is required.
``LocalApprovals`` makes one of them what the bridge asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable

from bascule.audit.approval_steps import ApprovalRefused
from bascule.audit.events import LeavingCall
from bascule.model.approval import (
    Answer,
    ApprovalRequest,
    Approved,
    Denied,
    ExactCall,
    OnWaiting,
    Unasked,
)
from bascule.node.ports import Approvals, Approver


class AllowAll:
    """Approves everything; for tests and for people who are the approver themselves."""

    async def approve(self, request: ApprovalRequest) -> bool:
        """Say yes."""
        del request
        return True


class DenyAll:
    """Approves nothing."""

    async def approve(self, request: ApprovalRequest) -> bool:
        """Say no."""
        del request
        return False


class AskFunction:
    """Asks a function, plain or async, which gets the whole question."""

    def __init__(self, function: Callable[[ApprovalRequest], bool | Awaitable[bool]]) -> None:
        self._function = function

    async def approve(self, request: ApprovalRequest) -> bool:
        """Say what the function says; anything but True is no."""
        answer = self._function(request)
        return (await answer if isawaitable(answer) else answer) is True


def approvals_of(approver: Approver | Approvals | None, seconds: float) -> Approvals:
    """Return what the bridge asks; an approver has so many seconds."""
    return approver if isinstance(approver, Approvals) else LocalApprovals(approver, seconds)


class LocalApprovals:
    """An approver of this process as ``Approvals``: its answer is for one call, at once or never.

    It has ``seconds`` where whoever calls gives no time of their own.
    """

    def __init__(self, approver: Approver | None, seconds: float) -> None:
        self._approver = approver
        self._seconds = seconds

    async def ask(
        self, request: ApprovalRequest, wait: float | None, told: OnWaiting | None = None
    ) -> Answer:
        """Ask; who does not answer in time has not decided."""
        del told
        if self._approver is None or request.approval_id is not None:
            return Unasked()
        try:
            async with asyncio.timeout(self._seconds if not wait else min(wait, self._seconds)):
                agreed = await self._approver.approve(request)
        except TimeoutError:
            return Unasked()
        return Approved(request.call) if agreed else Denied("whoever was asked said no")

    async def claim(self, approved: Approved, call: ExactCall, leaving: LeavingCall) -> bool:
        """Refuse a call that is not the one that was asked about."""
        del leaving
        changed = approved.call.differences(call)
        if changed:
            words = f"the approval is void: there is another {changed[0]} now"
            raise ApprovalRefused("void", words)
        return False
