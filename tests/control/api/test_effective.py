"""What a session would have, layer by layer, for a stored task or a draft."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.model.tool import describe
from tests.control.api.desk import ADMIN, SERVERS, Desk
from tests.control.registry.build import server

EFFECTIVE = f"{ADMIN}/effective"
LAYERS = ["platform", "server", "task", "profile", "user", "session"]


async def furnished(desk: Desk) -> None:
    """Let there be two servers with known tools, one without, a profile, a task and a person."""
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs", effects={"read": ["read_*"]}))
    await desk.ask("PUT", f"{SERVERS}/git", server("git", display_name="Git"))
    await desk.ask("PUT", f"{SERVERS}/web", server("web", enabled=False))
    await desk.ask("PUT", f"{ADMIN}/platform", {"tool_denylist": ["git/push"]})
    await desk.ask("PUT", f"{ADMIN}/profiles/code", {"name": "code", "tool_denylist": ["write_*"]})
    policy = {"enabled": True, "default_server_ids": ["fs"], "allowed_server_ids": ["fs", "git"]}
    await desk.ask("PUT", f"{ADMIN}/tasks/review", {"task_id": "review", "mcp": policy})
    await desk.ask("PUT", f"{ADMIN}/users/bob", {"user_id": "bob", "read_only": True})
    servers = desk.service.snapshot().servers
    known = {
        name: tuple(
            describe(servers[name], {"name": tool, "inputSchema": {"type": "object"}})
            for tool in tools
        )
        for name, tools in {"fs": ("read_a", "write_a"), "git": ("pull", "push")}.items()
    }
    desk.service.known_tools = lambda: known


async def asked(desk: Desk, **question: Any) -> dict[str, Any]:
    answer = await desk.ask("POST", EFFECTIVE, question, role="viewer")
    assert answer.status == 200, answer.json
    return answer.json


def servers_of(found: dict[str, Any]) -> dict[str, Any]:
    return {one["server_id"]: one for one in found["servers"]}


def tools_of(found: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{one['server_id']}/{tool['tool_name']}": tool
        for one in found["servers"]
        for tool in one["tools"]
    }


def allowed(found: dict[str, Any]) -> set[str]:
    return {name for name, tool in tools_of(found).items() if tool["allowed"]}


def noes(shown: dict[str, Any]) -> dict[str, str]:
    """Return which layers say no, and why."""
    return {one["layer"]: one["reason"] for one in shown["layers"] if one["allowed"] is False}


@pytest.mark.requirement("admin:effective")
async def test_every_server_and_tool_has_the_verdict_of_each_layer(desk: Desk):
    await furnished(desk)
    found = await asked(desk, task_id="review", person="bob")
    servers, tools = servers_of(found), tools_of(found)

    assert (found["revision"], found["refused"]) == (desk.service.view.revision, None)
    assert all([one["layer"] for one in shown["layers"]] == LAYERS for shown in servers.values())
    assert allowed(found) == {"fs/read_a"}
    assert (servers["fs"]["allowed"], servers["fs"]["starts_with"]) == (True, True)
    said = [one["allowed"] for one in servers["fs"]["layers"]]
    assert said == [None, True, True, None, None, None]
    assert noes(servers["git"]) == {"task": "not_default"}
    assert servers["git"]["edit"].endswith("bascule tasks use review git")
    assert (servers["git"]["display_name"], servers["git"]["starts_with"]) == ("Git", False)
    assert noes(servers["web"]) == {"server": "server_disabled", "task": "not_allowed"}
    assert (servers["web"]["listed"], servers["web"]["tools"]) == (False, [])
    assert noes(tools["fs/write_a"]) == {"user": "user_read_only"}
    assert tools["fs/write_a"]["edit"].endswith("bascule users set bob read_only=false")
    assert (tools["fs/read_a"]["effect"], tools["fs/write_a"]["effect"]) == ("read", "write")
    assert noes(tools["git/push"]) == {
        "platform": "platform_denied",
        "task": "not_default",
        "user": "user_read_only",
    }
    assert "bascule servers allow git push; and " in tools["git/push"]["edit"]


@pytest.mark.requirement("admin:effective")
async def test_a_draft_is_decided_on_and_nothing_is_written(desk: Desk):
    await furnished(desk)
    before = desk.service.view
    policy = {"enabled": True, "default_server_ids": ["git"]}
    found = await asked(desk, task={"task_id": "new", "mcp": policy})
    assert allowed(found) == {"git/pull"}
    fs = servers_of(found)["fs"]
    assert fs["edit"] == 'add "fs" to default_server_ids of the task'
    edited = {"task_id": "new", "mcp": {**policy, "profile": "code"}}
    assert noes(tools_of(await asked(desk, task=edited))["fs/write_a"])["profile"] == "task_denied"
    assert desk.service.view is before


@pytest.mark.requirement("admin:effective")
async def test_a_profile_by_name_or_as_a_draft_takes_the_place_of_the_tasks(desk: Desk):
    await furnished(desk)
    named = await asked(desk, task_id="review", profile="code")
    drafted = await asked(desk, task_id="review", profile={"name": "x", "tool_allowlist": ["wri*"]})
    alone = await asked(desk, profile={"name": "x", "default_server_ids": ["git"]})
    assert allowed(named) == {"fs/read_a"}
    write = tools_of(named)["fs/write_a"]
    assert noes(write) == {"profile": "task_denied"}
    assert write["edit"].endswith("bascule profiles set code 'tool_denylist=[]'")
    assert allowed(drafted) == {"fs/write_a"}
    assert allowed(alone) == {"git/pull"}


@pytest.mark.requirement("admin:effective")
async def test_session_parameters_and_the_environment_narrow(desk: Desk):
    await furnished(desk)
    both = await asked(desk, task_id="review", session={"server_ids": ["fs", "git"]})
    session = {"server_ids": ["git", "fs"], "tool_denylist": ["pull"], "read_only": True}
    narrowed = await asked(desk, task_id="review", session=session)
    assert allowed(both) == {"fs/read_a", "fs/write_a", "git/pull"}
    assert allowed(narrowed) == {"fs/read_a"}
    assert noes(tools_of(narrowed)["git/pull"]) == {"session": "session_denied"}
    prod = {"name": "p", "environments": {"prod": {"tool_allowlist": ["read_*"]}}}
    assert allowed(await asked(desk, task_id="review", profile=prod, environment="prod")) == {
        "fs/read_a"
    }
    everywhere = await asked(desk, task_id="review", profile=prod, environment="dev")
    assert allowed(everywhere) == {"fs/read_a", "fs/write_a"}
    assert "profile 'p' says nothing for environment 'dev'" in everywhere["warnings"]


@pytest.mark.requirement("admin:effective")
async def test_a_refused_session_says_so_and_allows_nothing(desk: Desk):
    await furnished(desk)
    closed = {"enabled": True, "default_server_ids": ["fs"], "allowed_groups": ["ops"]}
    await desk.ask("PUT", f"{ADMIN}/tasks/closed", {"task_id": "closed", "mcp": closed})
    outsider = await asked(desk, task_id="closed", person="bob")
    greedy = await asked(desk, task_id="review", session={"server_ids": ["web"]})
    stranger = await asked(desk, task_id="review", person="eve")
    refused = {"outsider": outsider, "greedy": greedy, "stranger": stranger}
    assert {name: found["refused"]["reason"] for name, found in refused.items()} == {
        "outsider": "group_not_allowed",
        "greedy": "not_allowed",
        "stranger": "unknown_user",
    }
    for found in refused.values():
        assert not allowed(found)
        assert not any(one["allowed"] for one in found["servers"])
    assert noes(tools_of(outsider)["fs/read_a"]) == {"user": "group_not_allowed"}
    assert outsider["servers"][0]["edit"].endswith("""users set bob 'groups=["ops"]'""")
    assert noes(servers_of(greedy)["fs"]) == {"session": "not_allowed"}
    assert servers_of(greedy)["fs"]["edit"].endswith("bascule tasks use review web")
    assert stranger["servers"][0]["edit"].endswith("bascule users add eve")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a draft's field": ({"task": {"task_id": "x", "mcp": {"enabled": "yes"}}}, "task.mcp.enabled"),
    "a draft's pattern": ({"task": {"task_id": "x", "mcp": {"tool_denylist": ["/"]}}}, "task.mcp"),
    "a draft's name": ({"task_id": "y", "task": {"task_id": "x"}}, "task.task_id"),
    "a profile": ({"profile": {"name": "x", "nope": 1}}, "profile.nope"),
    "the session": ({"session": {"server_ids": "fs"}}, "session.server_ids"),
    "its patterns": ({"session": {"tool_denylist": ["a*/b"]}}, "session.tool_denylist"),
    "a field that is none": ({"tasks": "x"}, "tasks"),
    "a task that is no record": ({"task": 7}, "task"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_wrong_with_a_question_is_told_with_its_path(desk: Desk, case: str):
    body, path = WRONG[case]
    answer = await desk.ask("POST", EFFECTIVE, body)
    assert (answer.status, answer.code) == (422, "invalid_record")
    assert any(one.startswith(path) for one in answer.json["error"]["details"]["problems"])


async def test_a_task_that_is_not_there_is_not_found(desk: Desk):
    assert (await desk.ask("POST", EFFECTIVE, {"task_id": "nope"})).status == 404
    assert (await desk.ask("POST", EFFECTIVE, {}, role="client")).status == 403
