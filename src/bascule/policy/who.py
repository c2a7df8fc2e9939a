"""Who may use a tool, in which task, and what stands in the way of the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

from msgspec import Struct

from bascule.errors import SessionRefused
from bascule.model.decision import MEANING, Decision, Layer, Reason, deny
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskRecord
from bascule.policy.access import Catalogue, compile_access
from bascule.policy.approval import plan_approval
from bascule.policy.compose import compose, for_anybody

#: Stands for people without a record, where a task takes whomever an acting client names.
ANYBODY = "*"
_REASONS: Mapping[str, Reason] = {reason: reason for reason in get_args(Reason)}


class Holder(Struct, frozen=True):
    """One person in one task, and the decision on the tool.

    ``user`` is None for a token that is nobody's, and ``ANYBODY`` for people without a record.
    ``approval`` says what the rules ask of a call that is allowed.
    """

    task: str
    user: str | None
    server: str
    tool: str
    allowed: bool
    layer: Layer
    reason: Reason
    meaning: str
    rule: str
    approval: str = ""


def holders(registry: Snapshot, server: str, tool: str) -> tuple[Holder, ...]:
    """Return everybody in every task, those who may use the tool first.

    A session may choose among the servers of its task, so what is decided is a session that
    chooses this one.
    """
    found = [
        holder(registry, task, user, (server, tool))
        for task in registry.tasks.values()
        for user in (None, *people(registry, task))
    ]
    return tuple(sorted(found, key=lambda one: not one.allowed))


def people(registry: Snapshot, task: TaskRecord) -> Iterator[str]:
    """Yield whom a task can be used for, by name."""
    yield from sorted(registry.users)
    if task.mcp.users == "open":
        yield ANYBODY


def holder(
    registry: Snapshot,
    task: TaskRecord,
    user: str | None,
    target: tuple[str, str],
    environment: str | None = None,
) -> Holder:
    """Decide on a tool of a server for one person, or for a token that is nobody's."""
    decision = _decision(registry, task, user, target, environment)
    approval = _approval(registry, *target) if decision.allowed else ""
    return Holder(
        task.task_id,
        user,
        *target,
        decision.allowed,
        decision.layer,
        decision.reason,
        MEANING[decision.reason],
        decision.rule,
        approval,
    )


def _decision(
    registry: Snapshot,
    task: TaskRecord,
    user: str | None,
    target: tuple[str, str],
    environment: str | None,
) -> Decision:
    asked = SessionRequest(server_ids=(target[0],))
    acting = user == ANYBODY
    try:
        session = compose(
            registry, task, asked, environment=environment, person=user, acting=acting
        )
    except SessionRefused as refused:
        reason = _REASONS[refused.reason]
        return deny(*target, "task" if reason == "not_allowed" else "user", reason)
    return session.decide(*target)


def over_cap(
    registry: Snapshot, task: TaskRecord, name: str, known: Catalogue, environment: str | None
) -> bool:
    """Say whether a task's ``max_tools`` keeps a tool from sessions that choose nothing themselves.

    ``name`` is the model's. Who asks for fewer servers or tools may have it all the same.
    """
    if not task.mcp.enabled:
        return False
    session = compose(registry, for_anybody(task), environment=environment)
    listed = {server: known[server] for server in session.servers if server in known}
    if sum(map(len, listed.values())) <= task.mcp.max_tools:
        return False  # nothing to work out, of thousands of tools
    found = compile_access(session, listed).decisions.get(name)
    return found is not None and found.reason == "over_max_tools"


def _approval(registry: Snapshot, server: str, tool: str) -> str:
    fixed = plan_approval(registry.platform, registry.servers[server], tool).fixed
    return "approval depends on the call" if fixed is None else str(fixed)
