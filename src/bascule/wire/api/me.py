"""Whom a token speaks for, and what that person's record says."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bascule.model.effective_set import Effect
from bascule.model.server import ApprovalMode
from bascule.model.user import UserRecord

#: Whether a person has something: yes; no, by their own choice; no, by an administrator's.
Standing = Literal["on", "off", "withheld"]


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


class OwnTool(Struct, frozen=True, kw_only=True):
    """One tool that a task offers. ``name`` is what models call it, ``description`` its server's.

    ``standing`` is what the lists of tools say of it, whatever holds for its server as a whole.
    """

    name: str
    tool_name: str
    description: str
    effect: Effect
    approval: ApprovalMode
    standing: Standing


class Integration(Struct, frozen=True, kw_only=True):
    """One server that a task offers; ``starts_with`` says that sessions have it unasked.

    ``listed`` is false where its tools are not known, since nobody has asked it for them yet.
    """

    server_id: str
    display_name: str
    standing: Standing
    starts_with: bool
    listed: bool
    tools: tuple[OwnTool, ...]


class Integrations(Struct, frozen=True, kw_only=True):
    """What the task of a token offers, and what of it its person has."""

    revision: int
    person: str | None
    task: str | None
    refused: Refusal | None
    integrations: tuple[Integration, ...]
