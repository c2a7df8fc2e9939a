"""What a node has of its control plane in words alone: approvals are not asked for there.

Whatever needs one fails, and says why.
"""

from __future__ import annotations

from typing import NoReturn

from bascule.audit.approval_steps import ApprovalRefused
from bascule.audit.events import LeavingCall
from bascule.model.approval import ApprovalRequest, Approved, Denied, ExactCall, OnWaiting

_NOBODY = (
    "approvals are asked and claimed at the control plane, which a node of its own process cannot "
    "do yet; call it where both are one process (bascule up)"
)


class FarApprovals:
    """Refuses every call that needs approval."""

    async def ask(
        self, request: ApprovalRequest, wait: float | None, told: OnWaiting | None = None
    ) -> Denied:
        """Say no."""
        del request, wait, told
        return Denied(_NOBODY)

    async def claim(self, approved: Approved, call: ExactCall, leaving: LeavingCall) -> NoReturn:
        """Refuse: nothing was approved here."""
        raise ApprovalRefused("mcp_approval_denied", _NOBODY)
