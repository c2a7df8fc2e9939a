"""A session follows the registry and the servers' lists, and rebuilds nothing without need."""

from __future__ import annotations

import asyncio

import pytest

from bascule.errors import ServerUnavailable
from tests.node.fakes import World, definition, failed, succeeded
from tests.policy.build import server
from tests.waits import SOON_SECONDS

JOB = {"enabled": True, "default_server_ids": ["fs"], "allowed_server_ids": ["fs"]}


@pytest.mark.requirement("catalogue:revision-unchanged")
async def test_nothing_new_rebuilds_nothing():
    world = World()
    session = world.session()
    await session.tools()
    built = session.builds
    for _ in range(5):
        await session.tools()
        succeeded(await session.call("mcp__fs__read"))
        succeeded(await session.call("fs/write"))
        session.explain("mcp__fs__read")
    assert session.builds == built == 1


@pytest.mark.requirement("catalogue:revision-unchanged")
async def test_a_list_that_changed_elsewhere_rebuilds_nothing_here():
    world = World(server("a"), server("b"))
    session = world.session("a")
    await session.tools()
    built = session.builds
    world.caller.offers(world.records[1], "other")
    succeeded(await session.call("mcp__a__read"))
    assert session.builds == built


async def test_a_changed_list_is_followed_before_the_next_call():
    world = World()
    session = world.session()
    await session.tools()
    world.caller.offers(world.records[0], "read", "rename")
    succeeded(await session.call("mcp__fs__rename"))
    failed(await session.call("mcp__fs__write"), "mcp_invalid_arguments")
    assert session.builds == 2


async def test_a_changed_schema_counts_from_the_next_call_on():
    world = World()
    session = world.session()
    succeeded(await session.call("mcp__fs__read", {"text": "a"}))
    strict = {"type": "object", "properties": {"text": {"type": "integer"}}}
    world.caller.offers(world.records[0], definition("read", inputSchema=strict))
    failed(await session.call("mcp__fs__read", {"text": "a"}), "mcp_invalid_arguments")


async def test_a_tool_that_is_another_under_the_same_version_is_noticed():
    world = World()
    session = world.session()
    await session.tools()
    world.caller._versions -= 1  # a connection made anew counts from the beginning
    world.caller.offers(world.records[0], "rename")
    succeeded(await session.call("mcp__fs__rename"))
    failed(await session.call("mcp__fs__read"), "mcp_invalid_arguments")


async def test_a_server_in_trouble_keeps_its_old_list_for_now():
    world = World()
    session = world.session()
    await session.tools()
    world.caller.fails("fs", ServerUnavailable("restarting"))
    world.caller.epoch += 1
    succeeded(await session.call("mcp__fs__read"))


@pytest.mark.parametrize("name", ["mcp__fs__read", "fs/read", "mcp.fs.read"])
async def test_a_new_snapshot_decides_the_next_call(name: str):
    world = World()
    session = world.session()
    succeeded(await session.call(name))
    world.apply(server("fs", allowed_tools=["write"]))
    failed(await session.call(name), "mcp_policy_denied")
    succeeded(await session.call("mcp__fs__write"))
    assert session.revision == 2
    assert (await session.tools()).names == ("mcp__fs__write",)


@pytest.mark.parametrize("used", [False, True])
async def test_a_task_that_now_refuses_the_session_leaves_it_with_nothing(used: bool):
    world = World(tasks={"job": JOB})
    session = world.session("fs", task="job")
    if used:
        await session.tools()
    world.apply(tasks={"job": {"enabled": True, "allowed_server_ids": ["other"]}})
    for _ in range(2):
        outcome = failed(await session.call("mcp__fs__read"), "mcp_policy_denied")
        assert "outside the servers its task allows" in outcome.error.message
    assert not await session.tools()
    assert not world.sent
    world.apply(tasks={"job": JOB})
    succeeded(await session.call("mcp__fs__read"))


async def test_a_task_that_is_narrowed_narrows_its_sessions():
    world = World(tasks={"job": JOB})
    session = world.session(task="job")
    succeeded(await session.call("mcp__fs__write"))
    world.apply(tasks={"job": {**JOB, "tool_denylist": ["write"]}})
    failed(await session.call("mcp__fs__write"), "mcp_policy_denied")


async def test_a_server_removed_and_down_is_explained_as_removed():
    world = World(server("fs"), server("bad"))
    world.caller.fails("bad", ServerUnavailable("it is down"))
    session = world.session()
    await session.tools()
    assert session.explain("bad").decision.reason == "unavailable"
    world.apply(server("fs"))
    assert session.explain("bad").decision.reason == "unknown_server"
    assert "unavailable" not in {line.reason for line in session.decisions}


async def test_a_server_removed_while_two_calls_catch_up_harms_neither():
    one, two = server("one"), server("two")
    world = World(one, two)
    session = world.session()
    await session.tools()
    gate = world.caller.hold_listing("one")
    world.caller.offers(one, "read", "more")
    first = asyncio.create_task(session.call("mcp__one__read"))
    async with asyncio.timeout(SOON_SECONDS):
        while world.caller.listed.count("one") < 2:
            await world.core.clock.sleep(0)
        world.apply(one)
        second = asyncio.create_task(session.call("mcp__one__read"))
        while world.caller.listed.count("one") < 3:
            await world.core.clock.sleep(0)
        gate.set()
        succeeded(await first)
        succeeded(await second)
    failed(await session.call("mcp__two__read"), "mcp_invalid_arguments")


async def test_a_changed_budget_counts_from_the_next_call_on():
    world = World()
    session = world.session()
    await session.call("mcp__fs__read")
    world.apply(server("fs", budgets={"tool_timeout_ms": 1000}))
    await session.call("mcp__fs__read")
    assert [sent.timeout for sent in world.sent] == [60.0, 1.0]
