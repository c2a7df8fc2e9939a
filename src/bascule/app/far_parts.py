"""What a node has of its control plane in words alone: secrets and approvals are not handed out.

Whatever needs one of them fails, and says why.
"""

from __future__ import annotations

from typing import NoReturn

from bascule.audit.approval_steps import ApprovalRefused
from bascule.audit.events import LeavingCall
from bascule.errors import ServerUnavailable
from bascule.model.approval import ApprovalRequest, Approved, Denied, ExactCall, OnWaiting
from bascule.model.secret_use import SecretUse

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


class FarSecrets:
    """Resolves no secret."""

    async def secret(self, name: str, use: SecretUse) -> NoReturn:
        """Say where it is."""
        del use
        raise ServerUnavailable(
            f"the secret {name!r} is at the control plane, which a node of its own process cannot "
            "ask for it yet; refer to a variable or a file of the node that records may read "
            "(--allow-variable, --allow-file)",
            reason="env_missing",
        )
