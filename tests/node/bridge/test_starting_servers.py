"""Who waits for a server that is long in starting: whoever needs it, and nobody else."""

from __future__ import annotations

import asyncio

import pytest

from bascule.model.server import Budgets
from bascule.testing import FakeClock
from tests.node.fakes import World, failed, succeeded
from tests.policy.build import server
from tests.waits import SOON_SECONDS


def two_servers() -> World:
    return World(server("well"), server("slow"))


@pytest.mark.requirement("catalogue:not-waited-for")
async def test_a_list_leaves_out_with_a_warning_what_is_long_in_starting():
    world = two_servers()
    world.caller.slow["slow"] = True
    async with world.session() as session:
        tools = await session.tools()
        assert {tool.server_id for tool in tools} == {"well"}
        assert tools.warnings == ("slow: unavailable: starting",)
        del world.caller.slow["slow"]
        tools = await session.tools()
        assert {tool.server_id for tool in tools} == {"well", "slow"}
        assert tools.warnings == ()


@pytest.mark.requirement("catalogue:not-waited-for")
async def test_with_nothing_else_to_show_a_list_waits_for_the_first_start():
    world = two_servers()
    world.caller.slow |= {"slow": True, "well": True}
    gates = [world.caller.hold_listing(name) for name in ("well", "slow")]
    async with world.session() as session:
        listing = asyncio.create_task(session.tools())
        await FakeClock().settle()
        assert not listing.done()
        gates[0].set()
        async with asyncio.timeout(SOON_SECONDS):
            tools = await listing
        assert {tool.server_id for tool in tools} == {"well"}
        assert tools.warnings == ("slow: unavailable: starting",)


@pytest.mark.requirement("catalogue:not-waited-for")
async def test_after_the_first_failure_a_list_answers_from_what_is_known_at_once():
    world = World(server("slow"))
    world.caller.slow["slow"] = False
    world.caller.hold_listing("slow")
    async with world.session() as session, asyncio.timeout(SOON_SECONDS):
        tools = await session.tools()
        assert (len(tools), tools.warnings) == (0, ("slow: unavailable: starting",))


async def test_tools_that_are_known_stay_while_their_server_starts_again():
    world = two_servers()
    async with world.session() as session:
        before = await session.tools()
        world.caller.slow["slow"] = False
        after = await session.tools()
        assert after.names == before.names
        assert after.warnings == ("slow: unavailable: starting",)


@pytest.mark.requirement("catalogue:not-waited-for")
async def test_a_call_asks_for_the_list_of_its_own_server_alone():
    world = two_servers()
    world.caller.hold_listing("slow")
    async with world.session() as session, asyncio.timeout(SOON_SECONDS):
        succeeded(await session.call("mcp__well__read", {}))
        assert not (await session.call("mcp__well__no_such_tool", {})).ok
        assert world.caller.listed == ["well"]


@pytest.mark.requirement("catalogue:not-waited-for")
async def test_an_explanation_waits_for_no_server_but_the_one_it_is_about():
    world = two_servers()
    world.caller.hold_listing("slow")
    async with world.session() as session, asyncio.timeout(SOON_SECONDS):
        for name in ("mcp__well__read", "well/no_such_tool", "well"):
            await session.look_up(name)
            assert session.explain(name).server == "well"
        assert set(world.caller.listed) == {"well"}


@pytest.mark.requirement("catalogue:not-waited-for")
async def test_an_explanation_of_a_bare_name_goes_on_once_the_name_is_found():
    world = World(server("well"), server("slow"), server("other"))
    world.caller.hold_listing("slow")
    async with world.session(server_ids=["well", "slow"]) as session, asyncio.timeout(SOON_SECONDS):
        await session.look_up("read")
        found = session.explain("read")
        assert (found.server, found.allowed) == ("well", True)
        world.caller.listed.clear()
        await session.look_up("other/read")  # a server that the session does not have
        await session.look_up("other")
        assert world.caller.listed == []


@pytest.mark.requirement("catalogue:not-waited-for")
async def test_a_bare_name_that_nobody_lists_names_the_servers_that_have_not_listed():
    world = two_servers()
    world.caller.slow["slow"] = False
    async with world.session() as session, asyncio.timeout(SOON_SECONDS):
        outcome = failed(await session.call("tiny_image", {}), "mcp_invalid_arguments")
        assert "slow has not listed its tools" in outcome.error.message
        del world.caller.slow["slow"]
        outcome = failed(await session.call("tiny_image", {}), "mcp_invalid_arguments")
        assert "not listed" not in outcome.error.message


async def test_the_tools_that_are_known_are_had_without_asking_anybody():
    world = two_servers()
    async with world.session() as session:
        assert len(session.known_tools()) == 0
        assert (await session.call("mcp__well__read", {})).ok
        world.caller.listed.clear()
        assert {tool.server_id for tool in session.known_tools()} == {"well"}
        assert world.caller.listed == []


@pytest.mark.requirement("pool:start-timeout")
async def test_a_call_waits_for_a_start_no_longer_than_its_own_limit():
    world = World(server("slow", budgets=Budgets(tool_timeout_ms=30)))
    world.caller.slow["slow"] = True
    world.caller.hold_listing("slow")
    async with world.session() as session, asyncio.timeout(SOON_SECONDS):
        outcome = failed(await session.call("mcp__slow__read", {}), "mcp_timeout")
        assert "starting" in outcome.error.message
        failed(await session.call("mcp__slow__read", {}, timeout=0.01), "mcp_timeout")
