"""The laws of assignments: a node has all that decides about its tasks, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import convert
from msgspec.structs import replace

from bascule.errors import SessionRefused
from bascule.model.assignment import ALL, Assignment
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.policy.compose import compose, for_anybody
from bascule.policy.share import EVERYTHING, Share, Shares
from tests.laws.oracle import Case
from tests.laws.strategies import (
    ANY_SERVER,
    TAGS,
    cases,
    lists,
    lively_cases,
    registry_of,
    tasks,
    universe,
)

Plain = dict[str, Any]
TASK, OTHER = "t", "other"


def whole(case: Case, other: Plain) -> Snapshot:
    """Return the registry of a case, with its task and another one."""
    policies = {TASK: case.task or {}, OTHER: other}
    made = {
        name: TaskRecord(task_id=name, mcp=convert(policy, TaskPolicy))
        for name, policy in policies.items()
    }
    return replace(registry_of(case), tasks=made)


def part(registry: Snapshot, share: Share) -> Snapshot:
    """Return what a node has that was given a share and no more."""
    names = ("servers", "tasks", "profiles", "backends", "users")
    kept = {
        name: {
            key: record
            for key, record in getattr(registry, name).items()
            if share.serves(name.removesuffix("s"), key)  # pyright: ignore[reportArgumentType] - the kind is a word
        }
        for name in names
    }
    return replace(registry, **kept)


def allowed(registry: Snapshot, case: Case) -> set[tuple[str, str]] | None:
    """Return the tools of a session at a node; None where it has no session."""
    try:
        effective = compose(
            registry,
            registry.tasks[TASK],
            convert(case.session, SessionRequest),
            environment=case.environment,
            person=case.person,
            acting=case.acting,
        )
    except SessionRefused:
        return None
    gates = {server: effective.gate(server) for server in ANY_SERVER}
    return {(server, tool) for server, tool in universe() if gates[server](tool).allowed}


@pytest.mark.requirement("registry:nodes:assigned-law")
@given(case=cases() | lively_cases(), other=tasks())
def test_a_node_with_a_task_decides_about_it_as_one_with_everything(case: Case, other: Plain):
    assume(case.task is not None)
    registry = whole(case, other)
    share = Shares(registry).of(Assignment(tasks=(TASK,)))
    assert allowed(part(registry, share), case) == allowed(registry, case)


@pytest.mark.requirement("registry:nodes:assigned-law")
@given(case=cases() | lively_cases(), other=tasks(), labels=lists(TAGS, 2))
def test_labels_only_take_servers_away(case: Case, other: Plain, labels: list[str]):
    assume(case.task is not None)
    registry = whole(case, other)
    assignment = Assignment(tasks=(TASK,), labels=tuple(labels))
    found = allowed(part(registry, Shares(registry).of(assignment)), case)
    tagged = {s for s, record in registry.servers.items() if set(record.tags) & set(labels)}
    usable = allowed(registry, case) or set[tuple[str, str]]()
    assert (found or set()) <= {(server, tool) for server, tool in usable if server in tagged}


def reaches(registry: Snapshot, task: str, server: str) -> bool:
    """Say whether the task's layer has nothing against a server that a session asks for."""
    asked = SessionRequest(server_ids=(server,))
    try:
        effective = compose(registry, for_anybody(registry.tasks[task]), asked)
    except SessionRefused:
        return False
    return not any(objection.layer == "task" for objection in effective.objections(server))


@pytest.mark.requirement("registry:nodes:assigned-law")
@given(
    case=cases() | lively_cases(),
    other=tasks(),
    named=st.none() | lists((TASK, OTHER, "gone"), 2),
    labels=st.none() | lists(TAGS, 2),
)
def test_a_share_is_exactly_what_its_tasks_need(
    case: Case, other: Plain, named: list[str] | None, labels: list[str] | None
):
    registry = whole(case, other)
    assignment = Assignment(
        tasks=None if named is None else tuple(named),
        labels=None if labels is None else tuple(labels),
    )
    share = Shares(registry).of(assignment)
    if assignment == ALL:
        assert share is EVERYTHING
        return
    left = {
        task: {
            server
            for server, record in registry.servers.items()
            if reaches(registry, task, server)
            and (labels is None or set(labels) & set(record.tags))
        }
        for task in registry.tasks
    }
    wanted = {t for t in registry.tasks if (left[t] if named is None else t in named)}
    assert share.tasks == wanted
    assert share.servers == {server for task in wanted for server in left[task]}
    for name in registry.profiles:
        assert share.serves("profile", name) == any(
            registry.tasks[task].mcp.profile == name for task in wanted
        )
    for name, user in registry.users.items():
        groups = [registry.tasks[task].mcp.allowed_groups for task in wanted]
        admitted = any(some is None or set(some) & set(user.groups) for some in groups)
        assert share.serves("user", name) == admitted
    assert share.serves("platform", "platform")
