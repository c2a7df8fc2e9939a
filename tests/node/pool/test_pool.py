"""The pool over fake peers: following the registry, sharing, limits, and races among them."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from bascule.errors import NotDelivered, OutcomeUnknown, ServerUnavailable
from bascule.model.platform import PlatformRecord, SandboxFloor
from bascule.model.sandbox import Sandbox
from bascule.model.server import ApprovalPolicy, Budgets, Effects, Stdio
from bascule.model.snapshot import Snapshot
from bascule.node.pool.pool import Pool
from bascule.testing import FakeClock, tool
from tests.node.pool.conftest import MakePool, snapshot
from tests.node.pool.fake_channel import FakeOpener, FakePeer, outgoing, record, replaced
from tests.waits import SOON_SECONDS

OTHER = Stdio(command="another-program")


async def send(pool: Pool, server_id: str = "fs", session_id: str = "s1", **options: Any) -> Any:
    return await pool.send(outgoing(server_id, session_id, **options))


def states(pool: Pool) -> dict[str, str]:
    return {status.server_id: status.state for status in pool.statuses()}


# -- opening -----------------------------------------------------------------------------


@pytest.mark.requirement("pool:lazy", "pool:sharing:shared")
async def test_sessions_share_one_connection_which_opens_at_first_use(make_pool: MakePool):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs")))
    assert (states(pool), peer.opening) == ({"fs": "disconnected"}, 0)
    await asyncio.gather(*(send(pool, session_id=f"s{n}") for n in range(10)))
    assert (states(pool), peer.opens) == ({"fs": "connected"}, 1)


async def test_a_server_that_is_not_registered_or_not_enabled_is_refused(make_pool: MakePool):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    with pytest.raises(ServerUnavailable, match="no server 'fs'"):
        await send(pool)
    await pool.apply(snapshot(record("fs", enabled=False)))
    with pytest.raises(ServerUnavailable, match="disabled"):
        await send(pool)
    with pytest.raises(ServerUnavailable, match="disabled"):
        await pool.listing("fs", "s1")
    assert (states(pool), peer.opening) == ({"fs": "disabled"}, 0)


@pytest.mark.requirement("pool:prewarm", "catalogue:on-demand")
async def test_a_server_with_prewarm_is_connected_and_listed_at_start(
    make_pool: MakePool, clock: FakeClock
):
    eager, lazy = FakePeer(), FakePeer()
    pool = make_pool({"eager": eager, "lazy": lazy})
    await pool.apply(snapshot(record("eager", prewarm=True), record("lazy")))
    await clock.settle()
    assert states(pool) == {"eager": "connected", "lazy": "disconnected"}
    assert (eager.count("tools/list"), lazy.opening) == (1, 0)


async def test_a_server_that_cannot_be_warmed_does_not_fail_the_start(
    make_pool: MakePool, clock: FakeClock
):
    peer = FakePeer()
    peer.refusals = [ServerUnavailable("no such program")]
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs", prewarm=True)))
    await clock.settle()
    (status,) = pool.statuses()
    assert (status.state, status.last_error) == ("down", "no such program")


async def test_prewarming_is_not_for_connections_that_belong_to_sessions(
    make_pool: MakePool, clock: FakeClock
):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs", prewarm=True, sharing="session")))
    await clock.settle()
    assert peer.opening == 0


# -- sessions ----------------------------------------------------------------------------


@pytest.mark.requirement("pool:sharing:session")
async def test_each_session_has_its_own_connection_and_releasing_it_closes_it(
    make_pool: MakePool,
):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs", sharing="session")))
    await asyncio.gather(send(pool, session_id="a"), send(pool, session_id="b"))
    await send(pool, session_id="a")
    assert (peer.opens, peer.alive) == (2, 2)
    await pool.release("a")
    assert peer.alive == 1
    await pool.release("nobody")
    await send(pool, session_id="b")
    assert (peer.opens, peer.alive) == (2, 1)


async def test_releasing_a_session_leaves_shared_connections_alone(make_pool: MakePool):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs")))
    await send(pool, session_id="a")
    await pool.release("a")
    await pool.release("")
    assert (peer.alive, states(pool)) == (1, {"fs": "connected"})


async def test_a_reconnect_reaches_every_sessions_connection(make_pool: MakePool):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs", sharing="session")))
    await asyncio.gather(send(pool, session_id="a"), send(pool, session_id="b"))
    await pool.reconnect("fs")
    assert (peer.opens, peer.alive, len(pool.statuses())) == (4, 2, 2)


async def test_releasing_twice_and_while_the_registry_moves_harms_nobody(make_pool: MakePool):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs", sharing="session")))
    await send(pool, session_id="a")
    await asyncio.gather(pool.release("a"), pool.apply(snapshot()), pool.release("a"))
    assert peer.alive == 0


# -- following the registry --------------------------------------------------------------


@pytest.mark.requirement("pool:removed")
async def test_removing_or_disabling_a_record_closes_its_connection(make_pool: MakePool):
    peers = {"gone": FakePeer(), "off": FakePeer(), "kept": FakePeer()}
    pool = make_pool(peers)
    await pool.apply(snapshot(*(record(name) for name in peers)))
    for name in peers:
        await send(pool, name)
    await pool.apply(snapshot(record("off", enabled=False), record("kept")))
    assert [peers[name].alive for name in ("gone", "off", "kept")] == [0, 0, 1]
    assert states(pool) == {"kept": "connected", "off": "disabled"}
    with pytest.raises(ServerUnavailable):
        await send(pool, "gone")


@pytest.mark.requirement("pool:restart-on-change", "catalogue:invalidate-by-server")
async def test_a_changed_transport_restarts_that_connection_only_after_the_old_one_is_gone(
    make_pool: MakePool, clock: FakeClock
):
    moved, kept = FakePeer(), FakePeer()
    pool = make_pool({"moved": moved, "kept": kept})
    await pool.apply(snapshot(record("moved"), record("kept")))
    for name in ("moved", "kept"):
        await pool.listing(name, "s1")
    moved.may_close.clear()
    applying = asyncio.create_task(
        pool.apply(snapshot(record("moved", stdio=OTHER), record("kept")))
    )
    await clock.settle()
    caller = asyncio.create_task(send(pool, "moved"))
    await clock.settle()
    assert moved.opens == 1
    moved.may_close.set()
    async with asyncio.timeout(SOON_SECONDS):
        await asyncio.gather(applying, caller)
    assert (moved.opens, moved.most_alive) == (2, 1)
    assert (kept.opens, kept.count("tools/list")) == (1, 1)
    await pool.listing("moved", "s1")
    assert moved.count("tools/list") == 2


@pytest.mark.requirement("catalogue:key-policy")
async def test_a_change_of_policy_alone_touches_neither_connection_nor_list(
    make_pool: MakePool, clock: FakeClock
):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    before = record("fs", prewarm=True)
    await pool.apply(snapshot(before))
    listing = await pool.listing("fs", "s1")
    epoch = pool.epoch
    for change in (
        {"allowed_tools": ("read_*",)},
        {"approval_policy": ApprovalPolicy(default="always")},
        {"effects": Effects(read=("*",))},
        {"budgets": Budgets(max_concurrency=1)},
        {"display_name": "Files", "tags": ("x",)},
    ):
        await pool.apply(snapshot(replaced(before, **change)))
        await clock.settle()
        assert await pool.listing("fs", "s1") is listing
    assert (peer.opens, peer.count("tools/list"), pool.epoch) == (1, 1, epoch)


async def test_changed_budgets_hold_for_the_connection_there_is(make_pool: MakePool):
    peer = FakePeer()
    pool = make_pool({"fs": peer}, list_ttl_seconds=0.0)
    await pool.apply(snapshot(record("fs")))
    await pool.listing("fs", "s1")
    await pool.apply(snapshot(record("fs", budgets=Budgets(list_timeout_ms=10))))
    peer.hold("tools/list")
    with pytest.raises(ServerUnavailable, match="no tool list in time"):
        await pool.listing("fs", "s1")
    assert peer.opens == 1


@pytest.mark.parametrize(
    "change",
    [{"sharing": "session"}, {"tool_namespace": "other"}, {"sandbox": Sandbox(level="limits")}],
    ids=["sharing", "namespace", "sandbox"],
)
async def test_a_connection_that_no_longer_fits_its_record_is_made_anew(
    make_pool: MakePool, change: dict[str, Any]
):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs")))
    await pool.listing("fs", "s1")
    await pool.apply(snapshot(record("fs", **change)))
    assert peer.alive == 0
    (found,) = (await pool.listing("fs", "s1")).tools
    assert peer.opens == 2
    assert found.model_name == ("other__echo" if "tool_namespace" in change else "mcp__fs__echo")


@pytest.mark.requirement("record:sandbox:floor")
async def test_a_floor_that_is_raised_restarts_what_it_raises_and_no_other(make_pool: MakePool):
    low, high = FakePeer(), FakePeer()
    pool = make_pool({"low": low, "high": high})
    servers = {
        "low": record("low", sandbox=Sandbox(level="limits")),
        "high": record("high", sandbox=Sandbox(level="bwrap", required=True)),
    }
    await pool.apply(Snapshot(servers=servers))
    for server in servers:
        await pool.listing(server, "s1")
    floor = PlatformRecord(sandbox=SandboxFloor(level="landlock", required=True))
    await pool.apply(Snapshot(servers=servers, platform=floor))
    for server in servers:
        await pool.listing(server, "s1")
    assert (low.opens, high.opens) == (2, 1)
    assert low.records[-1].sandbox == Sandbox(level="landlock", required=True)
    assert high.records[-1].sandbox == servers["high"].sandbox


async def test_a_new_connections_list_never_has_the_version_of_an_old_one(make_pool: MakePool):
    """Sessions compare versions to see whether their table still holds."""
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs")))
    first = await pool.listing("fs", "s1")
    peer.tools = [tool("other")]
    await pool.apply(snapshot(record("fs", stdio=OTHER)))
    assert (await pool.listing("fs", "s1")).version > first.version


async def test_callers_during_a_removal_are_refused_and_nothing_is_opened_for_them(
    make_pool: MakePool, clock: FakeClock
):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs")))
    await send(pool)
    peer.may_close.clear()
    removing = asyncio.create_task(pool.apply(snapshot()))
    await clock.settle()
    with pytest.raises(ServerUnavailable, match="no server"):
        await send(pool)
    peer.may_close.set()
    await removing
    assert (peer.opens, states(pool)) == (1, {})


async def test_a_connect_under_way_is_given_up_when_its_record_moves(
    make_pool: MakePool, clock: FakeClock
):
    peer = FakePeer()
    opener = FakeOpener(fs=peer)
    pool = Pool(opener, clock=clock)
    await pool.apply(snapshot(record("fs")))
    peer.may_open.clear()
    waiting = asyncio.create_task(send(pool))
    await clock.settle()
    await pool.apply(snapshot(record("fs", stdio=OTHER)))
    with pytest.raises(ServerUnavailable, match="closed"):
        await waiting
    peer.may_open.set()
    await send(pool)
    assert [opened.stdio == OTHER for opened in opener.records] == [False, True]
    assert (peer.opens, peer.most_alive) == (1, 1)
    await pool.close()


async def test_a_cancelled_apply_still_closes_what_is_gone(make_pool: MakePool, clock: FakeClock):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs")))
    await send(pool)
    peer.may_close.clear()
    applying = asyncio.create_task(pool.apply(snapshot()))
    await clock.settle()
    applying.cancel()
    await clock.settle()
    peer.may_close.set()
    await clock.settle()
    assert peer.alive == 0


async def test_the_epoch_grows_with_every_changed_list_and_with_nothing_else(
    make_pool: MakePool, clock: FakeClock
):
    peer = FakePeer()
    pool = make_pool({"fs": peer}, list_debounce_seconds=0.1)
    await pool.apply(snapshot(record("fs")))
    await pool.listing("fs", "s1")
    seen = [pool.epoch]
    for tools in ([tool("echo")], [tool("echo"), tool("new")], [tool("new"), tool("echo")]):
        peer.tools = tools
        peer.channel.announce(10)
        await clock.advance(0.2)
        seen.append(pool.epoch)
        await send(pool)
    assert [later - earlier for earlier, later in pairwise(seen)] == [0, 1, 0]
    assert peer.count("tools/list") == 4


# -- sending -----------------------------------------------------------------------------


async def test_a_call_that_never_left_is_sent_again_on_the_connection_of_the_new_record(
    make_pool: MakePool, clock: FakeClock
):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs")))
    await send(pool)
    peer.hold("tools/call")
    caller = asyncio.create_task(send(pool))
    await clock.settle()
    (waiting,) = peer.held["tools/call"]
    applying = asyncio.create_task(pool.apply(snapshot(record("fs", stdio=OTHER))))
    waiting.set_exception(NotDelivered("not one byte left"))
    await clock.settle()
    peer.release("tools/call")
    async with asyncio.timeout(SOON_SECONDS):
        await applying
        assert await caller
    assert (peer.opens, peer.most_alive, peer.count("tools/call")) == (2, 1, 3)


@pytest.mark.parametrize("again", [False, True])
async def test_a_call_with_an_unknown_outcome_is_sent_again_only_if_that_does_no_harm(
    make_pool: MakePool, clock: FakeClock, again: bool
):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs")))
    peer.hold("tools/call")
    caller = asyncio.create_task(send(pool, again=again))
    await clock.settle()
    peer.channel.lose()
    peer.release("tools/call")
    async with asyncio.timeout(SOON_SECONDS):
        if again:
            assert await caller
        else:
            with pytest.raises(OutcomeUnknown):
                await caller
    assert peer.count("tools/call") == (2 if again else 1)


@pytest.mark.requirement("pool:failure-skips", "pool:isolation")
async def test_a_server_that_fails_costs_the_others_nothing(make_pool: MakePool):
    bad, good = FakePeer(), FakePeer()
    bad.refusals = [ServerUnavailable("broken") for _ in range(3)]
    pool = make_pool({"bad": bad, "good": good})
    await pool.apply(snapshot(record("bad"), record("good")))
    failed, worked = await asyncio.gather(
        pool.listing("bad", "s1"), pool.listing("good", "s1"), return_exceptions=True
    )
    assert isinstance(failed, ServerUnavailable)
    assert not isinstance(worked, BaseException)
    assert states(pool) == {"bad": "down", "good": "connected"}


# -- hearing of changes ------------------------------------------------------------------


async def test_a_modern_server_is_asked_to_tell_and_what_it_tells_is_listed(
    make_pool: MakePool, clock: FakeClock
):
    peer = FakePeer(era="modern")
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs")))
    await pool.listing("fs", "s1")
    await clock.settle()
    assert peer.count("subscriptions/listen") == 1
    peer.tools = [tool("new")]
    peer.channel.announce()
    await clock.advance(0.1)
    assert [found.name for found in (await pool.listing("fs", "s1")).tools] == ["new"]
    assert peer.count("tools/list") == 2


async def test_a_subscription_that_ends_is_renewed_without_haste_and_the_tools_listed_anew(
    make_pool: MakePool, clock: FakeClock
):
    peer = FakePeer(era="modern")
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs")))
    await pool.listing("fs", "s1")
    await clock.settle()
    peer.channel.end_subscription()
    peer.tools = [tool("changed-meanwhile")]
    await clock.settle()
    assert peer.count("subscriptions/listen") == 1
    await clock.advance(2.0)
    assert peer.count("subscriptions/listen") == 2
    (found,) = (await pool.listing("fs", "s1")).tools
    assert found.name == "changed-meanwhile"


async def test_a_connection_that_came_back_is_listed_anew(make_pool: MakePool, clock: FakeClock):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs")))
    await pool.listing("fs", "s1")
    peer.tools = [tool("upgraded")]
    peer.channel.lose()
    await clock.advance(1.0)
    (found,) = (await pool.listing("fs", "s1")).tools
    assert (found.name, peer.count("tools/list")) == ("upgraded", 2)


# -- the end -----------------------------------------------------------------------------


async def test_a_closed_pool_opens_nothing_any_more(make_pool: MakePool):
    peer = FakePeer()
    pool = make_pool({"fs": peer})
    await pool.apply(snapshot(record("fs")))
    await send(pool)
    await pool.close()
    with pytest.raises(ServerUnavailable):
        await send(pool)
    await pool.close()
    assert (peer.opens, peer.alive) == (1, 0)


@pytest.mark.requirement("pool:no-orphans")
async def test_closing_ends_warming_connecting_and_recovering(
    make_pool: MakePool, clock: FakeClock
):
    peers = {"warming": FakePeer(), "waiting": FakePeer(), "lost": FakePeer()}
    pool = make_pool(peers)
    await pool.apply(snapshot(record("warming", prewarm=True), record("waiting"), record("lost")))
    await send(pool, "lost")
    for peer in peers.values():
        peer.may_open.clear()
    peers["lost"].channel.lose()
    waiting = asyncio.create_task(send(pool, "waiting"))
    await clock.settle()
    await pool.close()
    with pytest.raises(ServerUnavailable):
        await waiting
    assert [peer.alive for peer in peers.values()] == [0, 0, 0]
    assert clock.sleepers == 0
