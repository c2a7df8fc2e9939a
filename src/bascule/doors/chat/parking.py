"""Where the turn of one chat request is parked, and how the same caller comes back to it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct

from bascule.audit.approval_steps import digest_of
from bascule.audit.parked_turns import ParkedTurns, Place, TurnRefused
from bascule.auth.identity import Principal
from bascule.doors.chat.options import Asked
from bascule.doors.questions import Questions
from bascule.errors import BasculeError
from bascule.loop.parking import ParkedTurn
from bascule.model.json import JsonObject

logger = logging.getLogger("bascule.approvals")
_COMPARED = ("messages", "tools")


class Parked(Struct, frozen=True):
    """What is kept of a request.

    ``messages`` is its history with results put back that its caller cannot send; None where there
    are none. ``until`` is the latest deadline of its approvals.
    """

    turn: ParkedTurn
    until: float
    messages: tuple[JsonObject, ...] | None


_decode = msgspec.json.Decoder(Parked).decode


class RequestParking:
    """The ``Parking`` of one request: enter it to have the turn that the request resumes.

    Entering raises TurnRefused. What is not forgotten until the end can be resumed again.
    """

    def __init__(
        self,
        turns: ParkedTurns,
        principal: Principal,
        asked: Asked,
        questions: Questions | None = None,
    ) -> None:
        self._turns = turns
        self._questions = questions
        self._resumes = asked.options.resume is not None
        self._place = Place(
            id=asked.options.resume or f"turn-{secrets.token_hex(16)}",
            owner=digest_of(principal.owner),
            conversation=_conversation(asked),
        )
        self._until = 0.0
        self._kept = False
        self.parked: ParkedTurn | None = None
        self.messages: tuple[JsonObject, ...] | None = None

    async def __aenter__(self) -> RequestParking:
        if self._resumes:
            body = await self._turns.take(self._place)
            try:
                found = _decode(body)
            except msgspec.ValidationError:  # of another version
                await self._turns.forget(self._place)
                raise TurnRefused("not_found", self._place.id) from None
            self.parked, self._until, self.messages = found.turn, found.until, found.messages
            self._kept = True
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._resumes:
            try:
                await self._turns.give_back(self._place)
            except BasculeError as error:
                logger.warning("%s cannot be given back now: %s", self._place.id, error)

    async def keep(self, turn: ParkedTurn) -> str:
        """Keep a turn as it is now; return what it can be resumed by. Raise BasculeError."""
        self._until = max([self._until, *(one.expires_at for one in turn.waiting)])
        body = msgspec.json.encode(Parked(turn, self._until, self.messages))
        await self._turns.keep(self._place, body, self._until)
        self._kept = True
        return self._place.id

    async def forget(self) -> None:
        """Let go of what is kept: from here on, resuming it would do things twice."""
        if self._kept:
            await self._turns.forget(self._place)
            self._kept = False

    async def end(self) -> None:
        """Let go of what is kept, if that can be done: all it could do is ask the model again."""
        try:
            await self.forget()
        except BasculeError as error:
            logger.warning("%s cannot be removed now: %s", self._place.id, error)

    def abandon(self, approval_ids: Sequence[str]) -> None:
        """Take questions back that nobody will come back to."""
        if self._questions is not None:
            for id in approval_ids:
                self._questions.leave(id)


def _conversation(asked: Asked) -> str:
    """Return a digest of what a request that resumes has to have in common with the first."""
    same = [asked.model, *(asked.plain.get(name) for name in _COMPARED)]
    return sha256(msgspec.json.encode(same, order="sorted")).hexdigest()
