"""Every known tool, who may call one of them, and the effective set of a session taken apart."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from bascule.model.decision import Reason
from bascule.model.effective_set import Effect, EffectiveServer
from bascule.model.json import JsonObject
from bascule.model.person import PERSON_PATTERN
from bascule.model.profile import ProfileRecord
from bascule.model.server import ApprovalMode
from bascule.model.session import SessionRequest
from bascule.model.task import ProfileName, TaskId, TaskRecord
from bascule.wire.api.me import Refusal

Person = Annotated[str, Meta(pattern=PERSON_PATTERN)]


class CatalogueTool(Struct, frozen=True, kw_only=True):
    """One tool that a server listed, and what the platform says of it.

    ``effect`` and ``idempotent`` are the platform's word (``effects`` of the server's record),
    ``annotations`` the server's own. ``allowed`` is the decision of record and platform, before any
    task's. ``approval`` is what both ask of its calls; ``policy``: it depends on the call.
    ``definition`` is what the server listed, for callers who ask for it.
    """

    name: str
    server_id: str
    tool_name: str
    title: str
    description: str
    effect: Effect
    idempotent: bool
    approval: ApprovalMode
    allowed: bool
    reason: Reason
    digest: str
    annotations: JsonObject
    definition: JsonObject | UnsetType = UNSET


class ToolPage(Struct, frozen=True, kw_only=True):
    """Some of the tools that are known at a revision; ``total`` is how many match in all."""

    revision: int
    total: int
    tools: tuple[CatalogueTool, ...]
    next_cursor: str | None = None


class PersonAccess(Struct, frozen=True, kw_only=True):
    """What one person may do with a tool; ``*`` are people without a record."""

    person: str
    allowed: bool
    reason: Reason
    edit: str | None


class ToolTaskAccess(Struct, frozen=True, kw_only=True):
    """What a task's sessions may do with a tool: those for nobody, and for each person.

    Such a session chooses the tool's server, if the task lets it.
    """

    task_id: str
    allowed: bool
    approval: ApprovalMode
    reason: Reason
    edit: str | None
    people: tuple[PersonAccess, ...]


class ToolAccess(Struct, frozen=True, kw_only=True):
    """Who may call a tool, task by task; ``warnings`` say what is left out."""

    revision: int
    name: str
    tasks: tuple[ToolTaskAccess, ...]
    next_cursor: str | None = None
    warnings: tuple[str, ...] = ()


class EffectiveSession(SessionRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the session itself asks for."""


class EffectiveQuestion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The session that is asked about: its task, by id or as a draft, and all that narrows it.

    ``profile`` takes the place of the task's, by name or as a draft. Without a task it is that of a
    task which is on and says nothing else; without both only the platform bounds the session.
    ``environment`` is the node's own unless it is given.
    """

    task_id: TaskId | None = None
    task: TaskRecord | None = None
    profile: ProfileName | ProfileRecord | None = None
    person: Person | None = None
    environment: str | None = None
    session: EffectiveSession = EffectiveSession()


class EffectiveSet(Struct, frozen=True, kw_only=True):
    """What the session may use: the verdict of each layer on each server and tool.

    ``refused`` says why there would be no session at all; then nothing is allowed.
    """

    revision: int
    environment: str | None
    refused: Refusal | None
    warnings: tuple[str, ...]
    servers: tuple[EffectiveServer, ...]
