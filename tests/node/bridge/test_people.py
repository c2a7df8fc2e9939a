"""A session of a person: refused where unknown, narrowed by their record, and it follows that."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.errors import SessionRefused
from bascule.node.bridge.opening import Opening
from tests.node.fakes import World, failed, succeeded
from tests.policy.build import server

JOB: dict[str, Any] = {"job": {"enabled": True, "default_server_ids": ["fs"]}}


@pytest.mark.requirement("people:unknown", "people:disabled")
@pytest.mark.parametrize(
    ("users", "reason"),
    [({}, "unknown_user"), ({"alice": {"enabled": False}}, "user_disabled")],
)
async def test_a_person_who_may_not_opens_nothing(users: dict[str, Any], reason: str):
    world = World(tasks=JOB, users=users)
    with pytest.raises(SessionRefused) as refused:
        world.session(task="job", person="alice")
    assert refused.value.reason == reason
    assert not world.ledger.opened()


@pytest.mark.requirement("people:layer")
async def test_two_people_have_different_tools_in_one_task():
    users = {"alice": {}, "bob": {"tool_denylist": ["delete"]}}
    world = World(tasks=JOB, users=users)
    alice, bob = (world.session(task="job", person=name) for name in users)
    assert (await alice.tools()).names != (await bob.tools()).names
    succeeded(await alice.call("mcp__fs__delete"))
    denied = failed(await bob.call("mcp__fs__delete"), "mcp_policy_denied")
    assert "user" in denied.error.message
    assert bob.explain("fs/delete").reason == "user_denied"


GONE: dict[str, dict[str, Any]] = {
    "removed": {"users": {}},
    "renamed": {"users": {"alicia": {"groups": ["g"]}}},
    "off": {"users": {"alice": {"enabled": False, "groups": ["g"]}}},
    "out of the group": {"users": {"alice": {}}},
}


@pytest.mark.requirement("people:removal-law", "people:followed")
@pytest.mark.parametrize("change", GONE.values(), ids=GONE.keys())
async def test_an_open_session_loses_everything_with_its_person(change: dict[str, Any]):
    tasks: dict[str, Any] = {"job": JOB["job"] | {"allowed_groups": ["g"]}}
    world = World(tasks=tasks, users={"alice": {"groups": ["g"]}})
    session = world.session(task="job", person="alice")
    succeeded(await session.call("mcp__fs__read"))
    world.apply(tasks=tasks, **change)
    failed(await session.call("mcp__fs__read"), "mcp_policy_denied")
    listed = await session.tools()
    assert not listed
    with pytest.raises(SessionRefused) as refused:
        session.is_enabled()
    assert listed.warnings == (str(refused.value),)


@pytest.mark.requirement("people:followed")
async def test_a_narrower_record_counts_at_the_next_call():
    world = World(tasks=JOB, users={"alice": {}})
    session = world.session(task="job", person="alice")
    succeeded(await session.call("mcp__fs__write"))
    world.apply(tasks=JOB, users={"alice": {"own": {"tool_denylist": ["write"]}}})
    failed(await session.call("mcp__fs__write"), "mcp_policy_denied")
    world.apply(tasks=JOB, users={"alice": {}})
    succeeded(await session.call("mcp__fs__write"))


@pytest.mark.requirement("people:unknown")
async def test_an_acting_client_names_anybody_in_an_open_task_alone():
    tasks: dict[str, Any] = {"open": JOB["job"] | {"users": "open"}, **JOB}
    world = World(tasks=tasks)
    opened = world.core.open_session(Opening(task="open", person="anybody", acting=True))
    succeeded(await opened.call("mcp__fs__read"))
    for opening in (
        Opening(task="open", person="anybody"),
        Opening(task="job", person="anybody", acting=True),
    ):
        with pytest.raises(SessionRefused):
            world.core.open_session(opening)


@pytest.mark.requirement("people:rules")
async def test_a_rule_asks_for_the_groups_of_whom_a_session_is_for():
    rule = {"effect": "deny", "when": "!('writers' in user.groups)", "tools": ["write"]}
    fs = server("fs", approval_policy={"rules": [rule]})
    world = World(fs, tasks=JOB, users={"alice": {"groups": ["writers"]}, "bob": {}})
    succeeded(await world.session(task="job", person="alice").call("mcp__fs__write"))
    bob = world.session(task="job", person="bob")
    failed(await bob.call("mcp__fs__write"), "mcp_policy_denied")
    nobody = world.session(task="job")
    failed(await nobody.call("mcp__fs__write"), "mcp_approval_required")
