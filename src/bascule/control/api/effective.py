"""``POST /admin/api/mcp/effective``: what a session would have, and which layer says what.

The task and the profile may be drafts, which are read as a write of them would be. Nothing is
written, and no server is asked or started.
"""

from __future__ import annotations

from functools import partial
from typing import TypeVar, get_args

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.json import as_struct, json_response, read_object
from bascule.asgi.parameters import only_parameters
from bascule.control.api.tool_shelf import ToolShelf
from bascule.control.registry.errors import NotFound
from bascule.control.registry.offload import apart
from bascule.control.registry.plan import Edit, draft_of
from bascule.errors import InvalidRecord, SessionRefused
from bascule.model.decision import Reason
from bascule.model.effective_set import LayerName
from bascule.model.json import JsonObject, is_object
from bascule.model.kinds import Kind
from bascule.model.profile import ProfileRecord
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.policy.compose import Effective, compose, for_anybody
from bascule.policy.edits import edit_of
from bascule.policy.verdicts import Facts, Placed, Refusing, effective_servers
from bascule.wire.api.catalogue import EffectiveQuestion, EffectiveSet
from bascule.wire.api.me import Refusal
from bascule.wire.record_rules import refuse_bad_patterns

_REASONS: dict[str, Reason] = {reason: reason for reason in get_args(Reason)}
#: Refusals of a session for what it asks; all others are for whom it is.
_OF_SESSION = frozenset({"not_allowed", "task_disabled"})


_DRAFTS = ("task", "profile")
R = TypeVar("R", TaskRecord, ProfileRecord)


class Asked(Struct, frozen=True, kw_only=True):
    """The session in question, in a registry that has the drafts."""

    registry: Snapshot
    task_id: str
    policy: TaskPolicy | None
    draft: bool
    person: str | None
    environment: str | None
    session: SessionRequest
    warnings: tuple[str, ...] = ()


class EffectiveSets:
    """The endpoint."""

    def __init__(self, shelf: ToolShelf) -> None:
        self._shelf = shelf
        self._service = shelf.service

    async def ask(self, request: Request) -> Response:
        """Say what a session would have, and what each layer says of every server and tool."""
        only_parameters(request)
        asked = self._read(await read_object(request))
        shelf = await self._shelf.current()
        size = len(asked.registry.servers) + shelf.size
        return json_response(await apart(size, partial(effective_set, asked, shelf.facts)))

    def _read(self, body: JsonObject) -> Asked:
        """Read a question; raise InvalidRecord with paths, NotFound where there is no such task."""
        drafts = {name: one for name in _DRAFTS if is_object(one := body.get(name))}
        plain = {name: value for name, value in body.items() if name not in drafts}
        question = as_struct(plain, EffectiveQuestion)
        _refuse_patterns(question.session)
        registry, profile, warnings = self._profile(drafts.get("profile"), question)
        task, doubts = self._task(drafts.get("task"), question)
        return Asked(
            registry=registry,
            task_id="" if task is None else task.task_id,
            policy=_policy(task, profile),
            draft="task" in drafts,
            person=question.person,
            environment=question.environment or self._shelf.environment,
            session=question.session,
            warnings=(*doubts, *warnings),
        )

    def _profile(
        self, draft: JsonObject | None, question: EffectiveQuestion
    ) -> tuple[Snapshot, str | None, tuple[str, ...]]:
        """Return the registry with a draft of a profile in it, and the profile's name."""
        registry, named = self._service.snapshot(), question.profile
        if draft is None:
            return registry, named if isinstance(named, str) else None, ()
        record, warnings = self._draft("profile", draft, None, ProfileRecord)
        profiles = {**registry.profiles, record.name: record}
        return replace(registry, profiles=profiles), record.name, warnings

    def _task(
        self, draft: JsonObject | None, question: EffectiveQuestion
    ) -> tuple[TaskRecord | None, tuple[str, ...]]:
        key = question.task_id
        if draft is not None:
            return self._draft("task", draft, key, TaskRecord)
        if key is not None and key not in self._service.snapshot().tasks:
            raise NotFound("task", key, self._service.view.objects)
        return None if key is None else self._service.snapshot().tasks[key], ()

    def _draft(
        self, kind: Kind, data: JsonObject, key: str | None, wanted: type[R]
    ) -> tuple[R, tuple[str, ...]]:
        """Read a draft as a write of it would be read."""
        try:
            draft = draft_of(self._service.view, [Edit(kind=kind, key=key, data=data)])
        except InvalidRecord as error:
            raise InvalidRecord([f"{kind}.{one}" for one in error.problems]) from None
        [record] = [one.record for one in draft.writes if isinstance(one.record, wanted)]
        return record, tuple(f"{kind}.{one}" for one in draft.warnings)


def _refuse_patterns(session: SessionRequest) -> None:
    try:
        refuse_bad_patterns(session)
    except InvalidRecord as error:
        raise InvalidRecord([f"session.{one}" for one in error.problems]) from None


def _policy(task: TaskRecord | None, profile: str | None) -> TaskPolicy | None:
    if profile is None:
        return None if task is None else task.mcp
    return replace(TaskPolicy(enabled=True) if task is None else task.mcp, profile=profile)


def effective_set(asked: Asked, known: Facts) -> EffectiveSet:
    """Decide as a session does, and take the decision apart."""
    refused: SessionRefused | None = None
    try:
        effective = _composed(asked)
    except SessionRefused as error:
        refused, effective = error, _without_refusal(asked, error)
    edit = partial(_edit, asked)
    refusing = None if refused is None else _refusing(asked, refused)
    return EffectiveSet(
        revision=asked.registry.revision,
        environment=asked.environment,
        refused=None if refused is None else Refusal(refused.reason, str(refused)),
        warnings=(*asked.warnings, *effective.warnings),
        servers=effective_servers(effective, known, edit, refusing),
    )


def _composed(asked: Asked) -> Effective:
    return compose(
        asked.registry,
        asked.policy,
        asked.session,
        environment=asked.environment,
        person=asked.person,
        acting=True,
    )


def _without_refusal(asked: Asked, error: SessionRefused) -> Effective:
    """Return what would be left if the session were not refused, so that layers can be told."""
    if error.reason in _OF_SESSION:
        return _composed(replace(asked, session=SessionRequest()))
    policy = None if asked.policy is None else for_anybody(asked.policy)
    anybody = replace(asked, policy=policy, person=None)
    try:
        return _composed(anybody)
    except SessionRefused:
        return _composed(replace(anybody, session=SessionRequest()))


def _refusing(asked: Asked, error: SessionRefused) -> Refusing:
    layer: LayerName = "session" if error.reason in _OF_SESSION else "user"
    rule = str(error)
    told: JsonObject = {"server": error.server, "reason": error.reason, "rule": rule}
    return Refusing(Placed(layer, _REASONS[error.reason], rule), _edit(asked, told))


def _edit(asked: Asked, decision: JsonObject) -> str:
    return edit_of(asked.registry, decision, asked.task_id, draft=asked.draft)
