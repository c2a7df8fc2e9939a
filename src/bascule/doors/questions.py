"""What doors ask about questions that wait for somebody, wherever these are kept."""

from __future__ import annotations

from typing import Protocol

from bascule.model.approval import Approval


class Questions(Protocol):
    """The questions of calls (``bascule.audit.approvals.Approvals``, or a node's way to them)."""

    async def current(self, id: str) -> Approval | None:
        """Return one; one whose time is up has ended."""
        ...

    async def settled(self, id: str, seconds: float | None) -> Approval:
        """Wait until one is not pending any more, at most so long; return it as it is.

        Raise ApprovalRefused if there is none.
        """
        ...

    def leave(self, id: str) -> None:
        """Take a question back, if nobody else has asked it; in the background."""
        ...
