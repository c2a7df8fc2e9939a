"""A task's cap on tools: what is cut is neither listed nor callable, and it is said why."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.model.task import TaskPolicy
from tests.node.fakes import World, failed, succeeded
from tests.policy.build import server

FS = server("fs", effects={"read": ["read_*"]})
GIT = server("git")


def world(count: int, **tasks: Any) -> World:
    made = World(FS, GIT, tasks=tasks)
    made.caller.offers(FS, *(f"tool_{n:03}" for n in range(count)), "read_a", "read_b")
    made.caller.offers(GIT, "commit")
    return made


def task(*servers: str, **fields: Any) -> TaskPolicy:
    return TaskPolicy(enabled=True, default_server_ids=servers, **fields)


@pytest.mark.requirement("task:max-tools")
async def test_by_default_128_tools_are_offered_and_the_cut_is_warned_about():
    session = world(200).core.session(task=task("fs"))
    tools = await session.tools()
    assert len(tools) == 128
    assert {"mcp__fs__read_a", "mcp__fs__read_b", "mcp__fs__tool_125"} <= set(tools.names)
    [warning] = tools.warnings
    assert "74 of 202 tools are left out" in warning
    assert "mcp.max_tools is 128" in warning


@pytest.mark.requirement("task:max-tools")
async def test_what_is_cut_cannot_be_called_and_says_why():
    made = world(200)
    session = made.core.session(task=task("fs"))
    await session.tools()
    for name in ("mcp__fs__tool_126", "fs/tool_126", "fs.tool_126", "tool_126"):
        outcome = failed(await session.call(name), "mcp_policy_denied")
        details = outcome.error.details or {}
        assert details["decision"]["reason"] == "over_max_tools"
        assert details["decision"]["rule"] == "mcp.max_tools = 128"
        found = session.explain(name)
        assert (found.allowed, found.decision.layer) == (False, "task")
    assert not made.sent
    succeeded(await session.call("mcp__fs__tool_125"))


@pytest.mark.requirement("task:max-tools")
async def test_the_order_of_the_allowlist_counts_first_and_then_what_reads():
    session = world(5).core.session(
        task=task("fs", "git", max_tools=4, tool_allowlist=("tool_003", "git/commit", "*"))
    )
    names = (await session.tools()).names
    assert set(names) == {
        "mcp__fs__tool_003",
        "mcp__git__commit",
        "mcp__fs__read_a",
        "mcp__fs__read_b",
    }


@pytest.mark.requirement("task:max-tools")
async def test_a_cut_tool_cannot_be_called_before_anything_was_listed():
    made = world(2)
    chosen = task("git", "fs", max_tools=3, tool_allowlist=("fs/*", "*"))
    failed(await made.core.session(task=chosen).call("git/commit"), "mcp_policy_denied")
    assert set((await made.core.session(task=chosen).tools()).names) == {
        "mcp__fs__read_a",
        "mcp__fs__read_b",
        "mcp__fs__tool_000",
    }


@pytest.mark.requirement("task:max-tools")
async def test_lists_that_are_known_count_for_the_first_call_of_a_session_too():
    """No door waits for another server's list, and none forgets one that it has seen."""
    made = world(130)
    chosen = task("git", "fs", tool_allowlist=("fs/*", "*"))
    assert "mcp__git__commit" not in (await made.core.session(task=chosen).tools()).names
    for name in ("git/commit", "mcp__git__commit", "commit"):
        session = made.core.session(task=chosen)
        outcome = failed(await session.call(name), "mcp_policy_denied")
        assert (outcome.error.details or {})["decision"]["reason"] == "over_max_tools"
        assert session.explain(name).decision.reason == "over_max_tools"
    assert not made.sent
    fresh = made.core.session(task=chosen)
    succeeded(await fresh.call("fs/tool_000"))
    assert {tool.server_id for tool in fresh.known_tools()} == {"fs"}


@pytest.mark.requirement("task:max-tools")
async def test_a_session_that_narrows_has_what_fits_and_without_a_task_there_is_no_cap():
    made = world(200)
    narrowed = made.core.session(task=task("fs"), tool_allowlist=["tool_19*"])
    tools = await narrowed.tools()
    assert (len(tools), tools.warnings) == (10, ())
    assert len(await made.core.session(server_ids=["fs"]).tools()) == 202


@pytest.mark.requirement("task:max-tools")
async def test_a_changed_cap_counts_from_the_next_list_on():
    fields = {"enabled": True, "default_server_ids": ["fs"]}
    made = world(3, t={**fields, "max_tools": 2})
    session = made.core.session(task="t")
    assert len(await session.tools()) == 2
    made.apply(FS, GIT, tasks={"t": {**fields, "max_tools": 4}})
    assert len(await session.tools()) == 4
