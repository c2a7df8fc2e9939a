"""Calls as a ledger sees them, without a bridge."""

from __future__ import annotations

from dataclasses import dataclass

from bascule.audit.events import CallEvent, CallIntent, TokenMade
from bascule.model.code import CallStatus


@dataclass
class Leaving:
    """A call that is about to leave."""

    number: int
    reads: bool = False
    token_id: str | None = None
    made: int = 0

    def intent(self) -> CallIntent:
        self.made += 1
        return CallIntent(
            1.5, f"r{self.number}", "s", "t", "alice", self.token_id, "fs", "read", 1, "d",
            approved=False, approval_id=None,
        )  # fmt: skip


@dataclass
class Ended:
    """A call that ended, and how often its event was made."""

    number: int = 0
    status: CallStatus = "ok"
    left: bool = True
    token_id: str | None = None
    duration_ms: float = 1.0
    made: int = 0
    arguments: object = None

    def event(self) -> CallEvent:
        self.made += 1
        return CallEvent(
            1.5, f"r{self.number}", "s", "t", "alice", self.token_id, "fs", "read", 1,
            self.status, None, "session", "allowed", "", 1.0, 2, self.arguments or {}, "d", None,
        )  # fmt: skip


def made(number: int) -> TokenMade:
    return TokenMade(
        timestamp=1.5,
        by="admin:root",
        token_id=f"tok-{number}",
        name="n",
        role="client",
        task_id="t",
        expires_at=None,
    )
