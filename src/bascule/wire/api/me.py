"""Whom a token speaks for, and what that person's record says."""

from __future__ import annotations

from msgspec import Struct

from bascule.model.user import UserRecord


class Refusal(Struct, frozen=True):
    """Why sessions of a person are refused now."""

    reason: str
    message: str


class Me(Struct, frozen=True, kw_only=True):
    """The person of a request, with their record; ``person`` is None where there is nobody.

    Of the record, ``own`` is the person's choice and all else an administrator's. ``refused`` says
    why a session in this task would be refused.
    """

    person: str | None
    task: str | None
    groups: tuple[str, ...] = ()
    record: UserRecord | None = None
    refused: Refusal | None = None
