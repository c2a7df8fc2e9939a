"""The layer of a person: between task and session, only narrowing, and refused where unknown."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from bascule.errors import SessionRefused
from bascule.model.task import TaskRecord
from bascule.policy.compose import compose
from bascule.policy.explain import diff, explain
from bascule.policy.who import ANYBODY, holders
from tests.policy.build import allowed, reasons, registry, server, session, task, user

FS = server("fs", effects={"read": ["read_*"]})
TOOLS = ("read_file", "write_file", "delete_file")


def refusal(
    *users: Any, mcp: Any = None, person: str | None = "alice", acting: bool = False
) -> str:
    world = registry(FS, users=users)
    with pytest.raises(SessionRefused) as refused:
        compose(world, mcp or task("fs"), person=person, acting=acting)
    return refused.value.reason


def left(**fields: Any) -> list[str]:
    world = registry(FS, users=[user("alice", **fields)])
    return allowed(compose(world, task("fs"), person="alice"), "fs", *TOOLS)


@pytest.mark.requirement("people:unknown")
def test_a_person_without_a_record_is_refused_unless_an_acting_client_names_them_in_an_open_task():
    opened = task("fs", users="open")
    assert refusal() == "unknown_user"
    assert refusal(acting=True) == "unknown_user"
    assert refusal(mcp=opened) == "unknown_user"
    assert compose(registry(FS), opened, person="alice", acting=True).servers == ("fs",)
    with pytest.raises(SessionRefused):
        compose(registry(FS), None, session("fs"), person="alice")


@pytest.mark.requirement("people:disabled")
def test_a_person_who_is_off_is_refused_in_every_task():
    off = user("alice", enabled=False)
    assert refusal(off) == "user_disabled"
    assert refusal(off, mcp=task("fs", users="open"), acting=True) == "user_disabled"


@pytest.mark.requirement("people:groups")
def test_a_task_for_groups_refuses_everybody_else():
    writers, nobody = task("fs", allowed_groups=["writers"]), task("fs", allowed_groups=[])
    member = user("alice", groups=["writers", "b"])
    assert compose(registry(FS, users=[member]), writers, person="alice").servers == ("fs",)
    assert refusal(user("alice", groups=["readers"]), mcp=writers) == "group_not_allowed"
    assert refusal(member, mcp=nobody) == "group_not_allowed"
    assert refusal(member, mcp=writers, person=None) == "group_not_allowed"
    opened = task("fs", allowed_groups=["writers"], users="open")
    assert refusal(mcp=opened, acting=True) == "group_not_allowed"


@pytest.mark.requirement("people:layer", "people:absent-empty")
def test_a_record_narrows_and_what_it_leaves_out_does_not():
    assert left() == list(TOOLS)
    assert left(tool_allowlist=["read_*", "write_*"]) == ["read_file", "write_file"]
    assert left(tool_denylist=["fs/delete_*"]) == ["read_file", "write_file"]
    assert left(read_only=True) == ["read_file"]
    assert left(tool_allowlist=[]) == []
    assert left(enabled_server_ids=[]) == []
    assert left(enabled_server_ids=["fs"], own={"read_only": True}) == ["read_file"]


@pytest.mark.requirement("people:layer")
def test_a_server_that_a_person_has_not_is_left_out_with_the_reason():
    world = registry(FS, server("web"), users=[user("alice", enabled_server_ids=["web"])])
    found = compose(world, task("fs", "web"), person="alice")
    assert found.servers == ("web",)
    assert reasons(found) == {"fs": ("user", "user_not_enabled")}
    assert [one.server for one in found.denied] == ["fs"]


@pytest.mark.requirement("people:layer", "people:explained")
@pytest.mark.parametrize(
    ("fields", "reason", "rule"),
    [
        ({"tool_denylist": ["delete_*"]}, "user_denied", "user alice tool_denylist 'delete_*'"),
        ({"tool_allowlist": ["x"]}, "user_not_allowlisted", "user alice tool_allowlist"),
        ({"read_only": True}, "user_read_only", "user alice read_only"),
        ({"own": {"read_only": True}}, "user_read_only", "user alice own read_only"),
        ({"enabled_server_ids": []}, "user_not_enabled", "user alice enabled_server_ids"),
    ],
)
def test_a_denial_names_the_person_and_the_field(fields: dict[str, Any], reason: str, rule: str):
    world = registry(FS, users=[user("alice", **fields)])
    found = explain(compose(world, task("fs"), person="alice"), "fs/delete_file")
    assert (found.allowed, found.layer, found.reason, found.rule) == (False, "user", reason, rule)


def test_the_task_objects_before_the_person_and_the_person_before_the_session():
    world = registry(FS, users=[user("alice", tool_denylist=["write_*"])])
    asked = session(tool_denylist=["write_*"])
    denied = compose(world, task("fs", tool_denylist=["write_*"]), asked, person="alice")
    layers = [one.layer for one in denied.objections("fs", "write_file")]
    assert layers == ["task", "user", "session"]


@pytest.mark.requirement("people:explained")
def test_a_difference_names_what_a_person_lost():
    before = registry(FS, users=[user("alice")])
    after = registry(FS, users=[user("alice", tool_denylist=["delete_*"])])
    old, new = (compose(one, task("fs"), person="alice") for one in (before, after))
    assert diff(old, new).filters == ("user alice tool_denylist: none -> delete_*",)


@pytest.mark.requirement("people:explained")
def test_who_may_delete_is_one_answer_with_a_reason_for_everybody():
    people = [
        user("alice", groups=["writers"]),
        user("bob", tool_denylist=["delete_*"], groups=["writers"]),
        user("carol", enabled=False, groups=["writers"]),
        user("dave"),
    ]
    asks = server("fs", approval_policy={"per_tool": {"delete_*": "always"}})
    world = registry(asks, users=people)
    tasks = [
        task_record("team", allowed_groups=["writers"]),
        task_record("open", users="open", tool_denylist=["delete_*"]),
    ]
    world = replace(world, tasks={one.task_id: one for one in tasks})
    found = {(one.task, one.user): one for one in holders(world, "fs", "delete_file")}
    may = [key for key, one in found.items() if one.allowed]
    assert may == [("team", "alice")]
    assert found["team", "alice"].approval.startswith("approval required")
    assert {user: one.reason for (name, user), one in found.items() if name == "team"} == {
        "alice": "allowed",
        None: "group_not_allowed",
        "bob": "user_denied",
        "carol": "user_disabled",
        "dave": "group_not_allowed",
    }
    assert found["open", ANYBODY].reason == "task_denied"


def task_record(task_id: str, **mcp: Any) -> TaskRecord:
    policy = {"enabled": True, "default_server_ids": ["fs"]} | mcp
    return convert({"task_id": task_id, "mcp": policy}, TaskRecord)
