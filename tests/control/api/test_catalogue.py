"""Every known tool over HTTP, and who may call one, with no server started."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from bascule.model.tool import ToolDescriptor, describe
from tests.control.api.desk import ADMIN, SERVERS, Desk
from tests.control.registry.build import server

TOOLS = f"{ADMIN}/tools"
OBJECT = {"type": "object"}


def listed(desk: Desk, server_id: str, *definitions: dict[str, Any]) -> tuple[ToolDescriptor, ...]:
    record = desk.service.snapshot().servers[server_id]
    return tuple(describe(record, {"inputSchema": OBJECT, **one}) for one in definitions)


async def shelved(desk: Desk) -> None:
    """Let two servers be known, one of them listed: a reader, a writer and one that is denied."""
    effects = {"read": ["read_*"], "idempotent": ["write_*"]}
    policy = {"per_tool": {"write_file": "always"}}
    fields = {"allowed_tools": ["read_*", "write_*"], "effects": effects, "approval_policy": policy}
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs", **fields))
    await desk.ask("PUT", f"{SERVERS}/git", server("git"))
    known = listed(
        desk,
        "fs",
        {"name": "read_file", "title": "Read", "annotations": {"readOnlyHint": False}},
        {"name": "write_file", "description": "Write a FILE."},
        {"name": "delete", "annotations": {"readOnlyHint": True}},
    )
    desk.service.known_tools = lambda: {"fs": known}


async def names(desk: Desk, query: str = "") -> list[str]:
    answer = await desk.ask("GET", f"{TOOLS}{query}", role="viewer")
    assert answer.status == 200
    return [tool["tool_name"] for tool in answer.json["tools"]]


@pytest.mark.requirement("admin:tools:catalogue")
async def test_a_known_tool_shows_what_the_platform_and_what_its_server_say_of_it(desk: Desk):
    await shelved(desk)
    answer = await desk.ask("GET", TOOLS, role="viewer")
    page = answer.json
    delete, read, write = page["tools"]

    assert (page["revision"], page["total"], page["next_cursor"]) == (2, 3, None)
    assert (read["name"], read["server_id"], read["title"]) == ("mcp__fs__read_file", "fs", "Read")
    assert (read["effect"], read["idempotent"], read["approval"]) == ("read", True, "never")
    assert (read["allowed"], read["reason"]) == (True, "allowed")
    assert read["annotations"] == {"readOnlyHint": False}
    assert (write["effect"], write["idempotent"], write["approval"]) == ("write", True, "always")
    assert (delete["allowed"], delete["reason"]) == (False, "not_in_allowed_tools")
    assert (delete["effect"], delete["annotations"]) == ("write", {"readOnlyHint": True})
    assert len(read["digest"]) == 64
    assert "definition" not in read
    full = (await desk.ask("GET", f"{TOOLS}?definitions=true")).json["tools"][1]
    assert full["definition"]["inputSchema"] == OBJECT


@pytest.mark.requirement("admin:tools:catalogue")
async def test_tools_are_filtered_by_server_words_and_effect(desk: Desk):
    await shelved(desk)
    assert await names(desk, "?server=fs&effect=read") == ["read_file"]
    assert await names(desk, "?q=WRITE%20a%20file") == ["write_file"]
    assert await names(desk, "?q=read&effect=write") == []
    assert await names(desk, "?server=git") == []
    for wrong in ("?effect=both", "?limit=0", f"?q={'x' * 201}", "?sever=fs"):
        assert (await desk.ask("GET", f"{TOOLS}{wrong}")).status == 400


@pytest.mark.requirement("admin:tools:catalogue")
async def test_pages_of_tools_have_every_tool_once(desk: Desk):
    for name in ("a", "b", "c"):
        await desk.ask("PUT", f"{SERVERS}/{name}", server(name))
    tools = [{"name": f"tool_{number:02}"} for number in range(20)]
    known = {name: listed(desk, name, *tools) for name in ("c", "a", "b")}
    desk.service.known_tools = lambda: known
    cursor, found = "", list[tuple[str, str]]()
    while cursor is not None:
        page = (await desk.ask("GET", f"{TOOLS}?limit=7{cursor}")).json
        assert page["total"] == 60
        found += [(tool["server_id"], tool["tool_name"]) for tool in page["tools"]]
        cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
    assert found == sorted((name, tool["name"]) for name in known for tool in tools)


async def test_the_catalogue_follows_the_registry_and_the_lists(desk: Desk):
    await shelved(desk)
    assert len(await names(desk)) == 3
    await desk.ask("PATCH", f"{SERVERS}/fs", {"allowed_tools": ["delete"]})
    page = (await desk.ask("GET", TOOLS)).json
    assert {tool["tool_name"] for tool in page["tools"] if tool["allowed"]} == {"delete"}
    known = listed(desk, "fs", {"name": "new"})
    desk.service.known_tools = lambda: {"fs": known}
    assert await names(desk) == ["new"]
    await desk.ask("DELETE", f"{SERVERS}/fs")
    assert await names(desk) == []


async def test_words_of_servers_are_made_harmless_and_cut(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs"))
    name, text = "re\u202ead", "x\x1b[31m" + "y" * 10_000
    known = listed(desk, "fs", {"name": name, "title": "T\u200b", "description": text})
    desk.service.known_tools = lambda: {"fs": known}
    [tool] = (await desk.ask("GET", TOOLS)).json["tools"]
    assert (tool["tool_name"], tool["title"]) == ("read", "T")
    assert tool["description"].startswith("x\\x1b[31m")
    assert len(tool["description"]) < 5_000
    for spelled in (name, "read"):
        found = await desk.ask("GET", f"{TOOLS}/fs/{spelled}/access")
        assert found.json["name"] == tool["name"]


# --- who may call it


async def peopled(desk: Desk) -> None:
    await shelved(desk)
    everything = {"enabled": True, "default_server_ids": ["fs", "git"]}
    tasks: dict[str, dict[str, Any]] = {
        "all": everything,
        "elsewhere": {"enabled": True, "default_server_ids": ["git"]},
        "narrow": {**everything, "profile": "code"},
        "team": {**everything, "allowed_groups": ["writers"]},
    }
    await desk.ask("PUT", f"{ADMIN}/profiles/code", {"name": "code", "server_tags": ["none"]})
    for name, policy in tasks.items():
        await desk.ask("PUT", f"{ADMIN}/tasks/{name}", {"task_id": name, "mcp": policy})
    await desk.ask("PUT", f"{ADMIN}/users/ann", {"user_id": "ann", "groups": ["writers"]})
    await desk.ask("PUT", f"{ADMIN}/users/bob", {"user_id": "bob", "tool_denylist": ["write_*"]})


@pytest.mark.requirement("admin:tools:access")
async def test_who_may_call_a_tool_is_told_task_by_task_with_the_edit(desk: Desk):
    await peopled(desk)
    found = (await desk.ask("GET", f"{TOOLS}/fs/write_file/access", role="viewer")).json
    tasks = {task["task_id"]: task for task in found["tasks"]}

    assert (found["name"], found["warnings"]) == ("mcp__fs__write_file", [])
    assert {name: task["allowed"] for name, task in tasks.items()} == {
        "all": True,
        "elsewhere": False,
        "narrow": False,
        "team": False,
    }
    assert (tasks["all"]["approval"], tasks["all"]["edit"]) == ("always", None)
    assert tasks["elsewhere"]["edit"].endswith(": bascule tasks use elsewhere fs")
    assert tasks["narrow"]["edit"].startswith('add "fs" to default_server_ids of profile code')
    assert tasks["team"]["reason"] == "group_not_allowed"
    [ann, bob] = tasks["team"]["people"]
    assert (ann["person"], ann["allowed"], ann["edit"]) == ("ann", True, None)
    assert (bob["allowed"], bob["reason"]) == (False, "group_not_allowed")
    assert bob["edit"].endswith("""bascule users set bob 'groups=["writers"]'""")
    [_, denied] = tasks["all"]["people"]
    assert denied["reason"] == "user_denied"
    words, _, command = denied["edit"].partition(": ")
    assert words == "take what covers write_file out of tool_denylist of the person"
    assert command == "bascule users set bob 'tool_denylist=[]'"


@pytest.mark.requirement("admin:tools:access")
async def test_the_tasks_of_an_access_come_in_pages_and_for_one_person(desk: Desk):
    await peopled(desk)
    place = f"{TOOLS}/fs/write_file/access"
    first = (await desk.ask("GET", f"{place}?limit=3&person=bob")).json
    second = (await desk.ask("GET", f"{place}?limit=3&cursor={first['next_cursor']}")).json
    assert [task["task_id"] for task in first["tasks"]] == ["all", "elsewhere", "narrow"]
    assert {one["person"] for task in first["tasks"] for one in task["people"]} == {"bob"}
    assert [task["task_id"] for task in second["tasks"]] == ["team"]
    assert second["next_cursor"] is None


async def test_of_very_many_people_the_first_are_looked_at_and_that_is_said(desk: Desk):
    await shelved(desk)
    await desk.ask("PUT", f"{ADMIN}/tasks/t", {"task_id": "t", "mcp": {"enabled": True}})
    users = [{"user_id": f"u{number:03}"} for number in range(201)]
    await desk.ask("POST", f"{ADMIN}/import", {"users": users})
    found = (await desk.ask("GET", f"{TOOLS}/fs/write_file/access")).json
    assert len(found["tasks"][0]["people"]) == 200
    assert "the first 200 of 201 people" in found["warnings"][0]


@pytest.mark.requirement("admin:tools:access")
async def test_a_tool_that_a_tasks_cap_leaves_out_is_said_to_be_and_may_be_asked_for(desk: Desk):
    await shelved(desk)
    capped = {"enabled": True, "default_server_ids": ["fs"], "max_tools": 1}
    tasks = {
        "capped": capped,
        "off": {**capped, "enabled": False},
        "chosen": {**capped, "tool_allowlist": ["write_file", "read_file"]},
        "elsewhere": {**capped, "default_server_ids": ["git"]},
        "profiled": {**capped, "profile": "nope"},
        "team": {**capped, "allowed_groups": ["writers"]},
        "wide": {**capped, "max_tools": 2},
    }
    for name, policy in tasks.items():
        await desk.ask("PUT", f"{ADMIN}/tasks/{name}", {"task_id": name, "mcp": policy})
    said = {}
    for tool in ("read_file", "write_file"):
        found = (await desk.ask("GET", f"{TOOLS}/fs/{tool}/access")).json
        said[tool] = [warning.partition(":")[0] for warning in found["warnings"]]
        assert found["tasks"][0]["allowed"]
    assert said == {
        "read_file": ["task 'chosen'"],
        "write_file": ["task 'capped'", "task 'team'"],
    }


async def test_a_tool_that_nobody_listed_is_not_found_unless_nobody_was_asked(desk: Desk):
    await shelved(desk)
    slashed = listed(desk, "fs", {"name": "a/b"})
    assert (await desk.ask("GET", f"{TOOLS}/fs/nope/access")).code == "not_found"
    assert (await desk.ask("GET", f"{TOOLS}/nope/read/access")).code == "not_found"
    unlisted = (await desk.ask("GET", f"{TOOLS}/git/commit/access")).json
    assert unlisted["name"] == "mcp__git__commit"
    desk.service.known_tools = lambda: {"fs": slashed}
    found = await desk.ask("GET", f"{TOOLS}/fs/{quote('a/b')}/access")
    assert found.json["name"] == slashed[0].model_name


@pytest.mark.parametrize("place", ["", "/fs/read_file/access"])
async def test_the_catalogue_is_for_those_who_read_the_registry(desk: Desk, place: str):
    await shelved(desk)
    assert (await desk.ask("GET", f"{TOOLS}{place}", role="client")).status == 403
    assert (await desk.ask("GET", f"{TOOLS}{place}", role=None)).status == 401
