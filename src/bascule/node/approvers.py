"""Approvers for the library: everything, nothing, or a function that is asked.

Without an approver a call that needs approval does not run and says that approval is required.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable

from bascule.node.ports import ApprovalRequest


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
