"""One bad server among ten: the others neither fail nor wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bascule.model.snapshot import Snapshot
from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from bascule.testing.server import ScriptedServer, do, tool
from tests.flow.servers import PATIENT, any_fault, code_of, misbehave, record, works

GOOD = [f"good{number}" for number in range(9)]
#: A step for the tool of the bad server, which the others are called beside.
WHILE_SERVING = {
    "wedged": "stop_reading",
    "dead": "die",
    "slow": do("progress"),
    "flooding": do("flood", count=5_000_000),
    "changing": do("flood", count=5_000_000, method="notifications/tools/list_changed"),
    "shouting": do("stderr", bytes=500_000_000),
}
#: What a server does that never contributes a tool, and the reason it is left out with.
NEVER_LISTED: dict[str, tuple[ScriptedServer, str]] = {
    "wedged": (any_fault(at_start=["stop_reading"]), "unavailable"),
    "dead": (any_fault(at_start=["die"]), "unavailable"),
    "slow": (any_fault(on={"tools/list": "never"}), "list_timeout"),
    "flooding": (any_fault(at_start=[do("flood", count=5_000_000)]), "unavailable"),
    "in circles": (any_fault(pagination="cycle"), "unavailable"),
}


@asynccontextmanager
async def among_ten(bad: ScriptedServer, **fields: Any) -> AsyncGenerator[Session, None]:
    """Open a session on a bad server and nine good ones."""
    good = [record(ScriptedServer(), server_id) for server_id in GOOD]
    records = [record(bad, **fields), *good]
    async with (
        Bridge.open(records, settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad", *GOOD]) as session,
    ):
        yield session


@pytest.mark.requirement("pool:isolation")
@pytest.mark.parametrize("kind", WHILE_SERVING)
async def test_calls_on_nine_servers_succeed_beside_a_bad_one(kind: str):
    async with among_ten(any_fault()) as session:
        assert len(await session.tools()) == 11
        bad = asyncio.create_task(misbehave(session, WHILE_SERVING[kind], timeout=0.5))
        rounds = 0
        while not bad.done() or not rounds:
            await asyncio.gather(*(works(session, server_id) for server_id in GOOD))
            rounds += 1
        assert code_of(await bad) in {"mcp_timeout", "mcp_outcome_unknown"}


@pytest.mark.requirement("pool:isolation", "pool:failure-skips", "catalogue:failure-alone")
@pytest.mark.parametrize("kind", NEVER_LISTED)
async def test_a_server_that_cannot_list_leaves_nine_and_a_warning_with_its_reason(kind: str):
    server, reason = NEVER_LISTED[kind]
    budgets = {"connect_timeout_ms": 1000, "list_timeout_ms": 500}
    async with among_ten(server, budgets=budgets) as session:
        async with asyncio.timeout(15):
            tools = await session.tools()
        assert set(tools.names) == {f"mcp__{server_id}__echo" for server_id in GOOD}
        assert len(tools.warnings) == 1
        assert tools.warnings[0].startswith(f"bad: {reason}: ")
        assert {decision.reason for decision in session.decisions if not decision.allowed} == {
            reason
        }
        await asyncio.gather(*(works(session, server_id) for server_id in GOOD))
        assert code_of(await session.call("mcp__bad__echo", {"text": "x"})) == "mcp_unavailable"


@pytest.mark.requirement("pool:isolation")
async def test_good_servers_are_called_while_a_bad_one_is_still_connecting():
    stuck = any_fault(on={"server/discover": "never", "initialize": "never"})
    async with among_ten(stuck, budgets={"connect_timeout_ms": 60_000}) as session:
        listing = asyncio.create_task(session.tools())
        await asyncio.gather(*(works(session, server_id) for server_id in GOOD))
        assert not listing.done()
        listing.cancel()
        await asyncio.gather(listing, return_exceptions=True)


@pytest.mark.requirement("pool:isolation")
async def test_a_changed_list_does_not_make_calls_wait_for_another_server_that_hangs():
    listed = {"tools": [tool("echo")], "ttlMs": 0, "cacheScope": "private"}
    once_only = do("turns", steps=[do("fixed", result=listed), "never"])
    hanging = any_fault(on={"tools/list": once_only})
    changing = ScriptedServer(
        behaviours={
            "echo": "echo",
            "change": do("change_tools", tools=[tool("echo"), tool("more")]),
        }
    )
    records = [
        record(hanging, "hanging", budgets={"list_timeout_ms": 60_000}),
        record(changing, "changing"),
        record(ScriptedServer(), "good"),
    ]
    async with (
        Bridge.open(records, settings=PATIENT) as bridge,
        bridge.session(server_ids=["hanging", "changing", "good"]) as session,
    ):
        assert len(await session.tools()) == 4
        async with asyncio.timeout(8):
            assert (await session.call("mcp__changing__change")).ok
            epoch = bridge.caller.epoch
            while bridge.caller.epoch == epoch:
                await bridge.clock.sleep(0.01)
            await works(session, "good")


@pytest.mark.requirement("pool:isolation")
async def test_calls_waiting_for_a_bad_server_take_no_place_from_the_others():
    async with among_ten(any_fault(), budgets={"max_concurrency": 2}) as session:
        await session.tools()
        stuck = [asyncio.create_task(misbehave(session, "never", timeout=1.0)) for _ in range(20)]
        await asyncio.gather(*(works(session, server_id) for server_id in GOOD))
        codes = {code_of(outcome) for outcome in await asyncio.gather(*stuck)}
        assert codes == {"mcp_timeout", "mcp_budget_exceeded"}
        await works(session)


@pytest.mark.requirement("pool:removed", "outcomes:unavailable")
@pytest.mark.parametrize("end", ["removed", "reconnected", "closed"])
async def test_who_waits_for_a_connection_that_is_taken_away_gets_a_code(end: str):
    stuck = any_fault(on={"server/discover": "never", "initialize": "never"})
    async with (
        Bridge.open([record(stuck)], settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        calling = asyncio.create_task(session.call("mcp__bad__echo", {"text": "x"}))
        listing = asyncio.create_task(session.tools())
        async with asyncio.timeout(10):
            while bridge.statuses()[0].state != "connecting":
                await bridge.clock.sleep(0.01)
            again = asyncio.create_task(taken_away(bridge, end))
            code = "mcp_policy_denied" if end == "removed" else "mcp_unavailable"
            assert code_of(await calling) == code
            assert (await listing).warnings
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)


async def taken_away(bridge: Bridge, end: str) -> None:
    """Take the only connection away, in one of the ways there are."""
    if end == "removed":
        await bridge.apply(Snapshot(store_id="memory", revision=2, servers={}))
    elif end == "reconnected":
        await bridge.reconnect("bad")
    else:
        await bridge.close()
