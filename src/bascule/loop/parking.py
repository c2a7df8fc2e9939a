"""A conversation that stops in the middle of a turn, and goes on from there.

What is parked has the results of the calls that were made, and the calls that wait for approval.
The loop says what is to be kept; where, and for whom, is a door's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from bascule.loop.budgets import Spent
from bascule.loop.deltas import Asked, Turn
from bascule.loop.events import CallReport, Paused
from bascule.model.json import JsonObject


class WaitingCall(Struct, frozen=True, kw_only=True):
    """A call that was not made yet: somebody has to approve it."""

    asked: Asked
    name: str
    server: str
    tool: str
    approval_id: str
    expires_at: float


class Answered(Struct, frozen=True, kw_only=True):
    """What the model reads of a call that has ended, or of one that waits for approval."""

    message: JsonObject
    warnings: tuple[str, ...] = ()
    waiting: WaitingCall | None = None


class ParkedTurn(Struct, frozen=True, kw_only=True):
    """A turn with the answers to its calls so far, and what came before it.

    ``appended`` is what the turns before added to the history; ``reports`` stand beside the number
    of their turn.
    """

    turn: Turn
    answers: tuple[Answered, ...]
    appended: tuple[JsonObject, ...]
    reports: tuple[tuple[int, CallReport], ...]
    spent: Spent
    warnings: tuple[str, ...]

    @property
    def waiting(self) -> list[WaitingCall]:
        """Return the calls that are not made yet."""
        return [one.waiting for one in self.answers if one.waiting is not None]


def paused_words(paused: Paused) -> str:
    """Return what somebody reads who knows nothing of parked turns."""
    what = ", ".join(f"{one.server}/{one.tool} ({one.approval_id})" for one in paused.approvals)
    return (
        f"Waiting for approval of {what}. The turn is kept: once somebody has decided, the same "
        f'request goes on with "mcp": {{"resume": "{paused.resume}"}}.'
    )


class Parking(Protocol):
    """Where the turns of one request are parked."""

    @property
    def parked(self) -> ParkedTurn | None:
        """Return the turn to go on with; None in a conversation that begins."""
        ...

    async def keep(self, turn: ParkedTurn) -> str:
        """Keep a turn as it is now; return what it can be resumed by. Raise BasculeError."""
        ...

    async def forget(self) -> None:
        """Let go of what is kept: from here on, resuming it would do things twice."""
        ...

    def abandon(self, approval_ids: Sequence[str]) -> None:
        """Take questions back that nobody will come back to."""
        ...
