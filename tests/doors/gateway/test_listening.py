"""Who is told of a changed list at the gateway, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from bascule import Bridge, Server
from bascule.doors.gateway.seen import MAX_TOKENS, UNKNOWN, Seen
from bascule.model.status import Change
from bascule.testing import ScriptedServer, do, tool
from bascule.testing.clock import FakeClock
from tests.doors.gateway.stream_site import (
    ACKNOWLEDGED,
    CHANGED,
    SUBSCRIPTION,
    TASKS,
    Json,
    Peer,
    Site,
    Stream,
    serving,
)
from tests.node.fakes import snapshot_of, text
from tests.waits import SOON_SECONDS, advanced_until, until

GENERATIONS = pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
KEEP_ALIVE_SECONDS = 15.0


@pytest.fixture
async def site() -> AsyncGenerator[Site, None]:
    async with serving(Site()) as found:
        yield found


async def told(stream: Stream) -> Json:
    """Return the next message, which tells of a changed list."""
    message = await stream.next()
    assert message is not None
    assert message["method"] == CHANGED
    return message


async def told_in_time(site: Site, stream: Stream) -> None:
    """Read what tells of a changed list, while the clock goes on."""
    reading = asyncio.create_task(told(stream))
    await advanced_until(site.clock, reading.done)
    await reading


async def quiet(site: Site, *streams: Stream) -> None:
    """Check that nothing was told: the next thing that comes is a sign of life."""
    await site.clock.advance(KEEP_ALIVE_SECONDS + 5)
    for stream in streams:
        await stream.comment()


# --- what is told, and to whom


@GENERATIONS
async def test_a_stream_is_told_of_a_changed_list(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    stream = await peer.listening()
    assert await peer.tools() == ["mcp__fs__delete", "mcp__fs__read", "mcp__fs__write"]
    await quiet(site, stream)
    site.offer("read", "fresh")
    await told(stream)
    assert await peer.tools() == ["mcp__fs__fresh", "mcp__fs__read"]
    await quiet(site, stream)


@GENERATIONS
async def test_whoever_has_listed_nothing_is_told_as_well(site: Site, modern: bool):
    stream = await (await site.peer(modern=modern)).listening()
    await until(lambda: site.world.caller.listed)
    site.offer("read")
    await told(stream)


async def test_a_subscription_says_what_it_grants_and_tags_all_that_it_tells(site: Site):
    peer = await site.peer(modern=True)
    stream = await peer.opened(toolsListChanged=True, promptsListChanged=True)
    tag = {SUBSCRIPTION: peer.number}
    assert await stream.next() == {
        "jsonrpc": "2.0",
        "method": ACKNOWLEDGED,
        "params": {"_meta": tag, "notifications": {"toolsListChanged": True}},
    }
    await peer.tools()
    site.offer("read")
    assert await told(stream) == {"jsonrpc": "2.0", "method": CHANGED, "params": {"_meta": tag}}


async def test_what_was_not_asked_for_is_not_told(site: Site):
    peer = await site.peer(modern=True)
    stream = await peer.opened(promptsListChanged=True, toolsListChanged=False)
    first = await stream.next()
    assert first is not None
    assert first["params"]["notifications"] == {}
    await peer.tools()
    site.offer("read")
    await quiet(site, stream)


@pytest.mark.parametrize("wish", [None, [], {"toolsListChanged": 1}])
async def test_a_wish_of_the_wrong_type_is_refused(site: Site, wish: Any):
    peer = await site.peer(modern=True)
    answer = await peer.request("subscriptions/listen", notifications=wish)
    body = await answer.body()
    assert (answer.status, body["id"], body["error"]["code"]) == (400, peer.number, -32602)
    assert "notifications" in body["error"]["message"]


@pytest.mark.requirement("gateway:list-changed")
@GENERATIONS
async def test_a_change_that_others_alone_can_see_is_not_told(site: Site, modern: bool):
    writer = await site.peer("writer", modern=modern)
    reader = await site.peer("reader", modern=modern)
    streams = [await writer.listening(), await reader.listening()]
    assert await reader.tools() == ["mcp__fs__read"]
    await writer.tools()
    site.offer("read", "new")
    await told(streams[0])
    site.offer("read", of="git")  # a server of neither
    await quiet(site, *streams)
    site.apply(tasks={**TASKS, "writer": {"enabled": True, "tool_allowlist": ["fs/new"]}})
    await told(streams[0])
    await quiet(site, *streams)


async def test_a_route_of_one_server_is_told_of_that_server_alone(site: Site):
    token = (await site.tokens.mint("alice", "client", task_id="open")).token
    routes = ("/mcp", "/mcp/servers/git")
    peers = [await site.joined(Peer(site, token, route)) for route in routes]
    streams = [await peer.listening() for peer in peers]
    assert await peers[1].tools() == ["delete", "read", "write"]
    await peers[0].tools()
    site.offer("read")
    await told(streams[0])
    await quiet(site, streams[1])
    site.offer("read", of="git")
    await asyncio.gather(*(told(stream) for stream in streams))


@GENERATIONS
async def test_a_task_that_is_narrowed_removed_and_back_is_told_each_time(site: Site, modern: bool):
    peer = await site.peer("writer", modern=modern)
    stream = await peer.listening()
    await peer.tools()
    rest = {key: task for key, task in TASKS.items() if key != "writer"}
    for tasks, left in (
        ({**TASKS, "writer": TASKS["reader"]}, ["mcp__fs__read"]),
        (rest, []),
        (TASKS, ["mcp__fs__delete", "mcp__fs__read", "mcp__fs__write"]),
    ):
        site.apply(tasks=tasks)
        await told(stream)
        assert await peer.tools() == left
        await site.clock.advance(1)


async def test_a_stream_of_a_task_that_is_not_there_hears_when_it_is(site: Site):
    site.apply(tasks={})
    peer = await site.peer("writer", modern=True)
    stream = await peer.listening()
    assert await peer.tools() == []
    site.apply()
    await told(stream)
    assert len(await peer.tools()) == 3


async def test_a_person_who_was_switched_off_is_told_and_another_is_not(site: Site):
    people = {"alice": {}, "bob": {}}
    task = {"team": {"enabled": True, "default_server_ids": ["fs"]}}
    site.apply(tasks=task, users=people)
    minted = await site.tokens.mint("gate", "client", task_id="team", acts_for_users=True)
    peers = [
        await site.joined(Peer(site, minted.token, headers={"X-Bascule-User": name}))
        for name in people
    ]
    streams = [await peer.listening() for peer in peers]
    assert [len(await peer.tools()) for peer in peers] == [3, 3]
    site.apply(tasks=task, users={"alice": {"enabled": False}, "bob": {}})
    await told(streams[0])
    await quiet(site, *streams)


async def test_the_tool_that_reads_outputs_is_told_when_it_appears(site: Site):
    site.apply(tasks={**TASKS, "writer": {**TASKS["writer"], "max_tool_output_bytes": 20}})
    peer = await site.peer("writer", modern=True)
    stream = await peer.listening()
    await peer.tools()
    site.world.caller.answers("read", text("x" * 100))
    assert "result" in await peer.call("mcp__fs__read")
    await site.clock.advance(3)
    await told(stream)
    assert "bascule__read_output" in await peer.tools()


# --- when


@pytest.mark.requirement("gateway:list-changed")
@GENERATIONS
async def test_a_flood_of_changes_is_told_once_a_second_and_the_last_is_never_lost(
    site: Site, modern: bool
):
    peer = await site.peer(modern=modern)
    streams = [await peer.listening() for _ in range(50 if modern else 1)]
    await peer.tools()
    await site.clock.advance(2)
    looks = len(site.world.caller.listed)
    for number in range(500):
        site.offer("read", f"new{number}")
        if number % 50 == 0:
            await site.clock.settle()
    for stream in streams:
        await told(stream)
    await site.clock.advance(1)
    for stream in streams:
        await told(stream)
    assert len(site.world.caller.listed) == looks + 2
    assert await peer.tools() == ["mcp__fs__new499", "mcp__fs__read"]
    await quiet(site, *streams)


async def test_a_list_that_changes_and_changes_back_is_told_to_whoever_saw_it_between(site: Site):
    peer = await site.peer(modern=True)
    stream = await peer.listening()
    await peer.tools()
    site.offer("read")
    await told(stream)
    site.offer("write")
    assert await peer.tools() == ["mcp__fs__write"]  # within the second: nobody has looked yet
    site.offer("read")
    await site.clock.advance(1)
    await told(stream)
    assert await peer.tools() == ["mcp__fs__read"]
    await quiet(site, stream)


@pytest.mark.requirement("gateway:list-changed")
@GENERATIONS
async def test_a_change_before_the_stream_is_told_when_it_opens(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    await peer.tools()
    site.offer("read")
    stream = await peer.listening()
    await told(stream)
    await peer.tools()
    await quiet(site, stream)
    await site.clock.advance(60)
    again = await peer.listening()
    await quiet(site, again)


async def test_what_another_client_of_the_token_saw_is_not_what_this_one_saw(site: Site):
    one = await site.peer(modern=True)
    other = Peer(site, one.token, modern=True)
    await one.tools()
    site.offer("read")
    await other.tools()
    await told(await one.listening())


@pytest.mark.parametrize("later", [0, 5])
async def test_a_session_of_an_earlier_process_is_told_once(site: Site, later: int):
    peer = await site.peer(modern=False)
    await site.clock.advance(later)
    restarted = Site(clock=site.clock, tokens=site.tokens)
    async with serving(restarted):
        peer.site = restarted
        stream = await peer.listening()
        await told(stream)
        await quiet(restarted, stream)


async def test_of_the_streams_of_one_session_the_newest_alone_is_told(site: Site):
    peer = await site.peer(modern=False)
    old, new = await peer.listening(), await peer.listening()
    await peer.tools()
    site.offer("read")
    await told(new)
    await quiet(site, old)
    new.close()
    await until(lambda: site.open == 1)
    site.offer("write")
    await told(old)


async def test_a_server_that_is_back_after_it_could_not_be_listed_is_told(site: Site):
    peer = await site.peer("open", modern=True)
    site.world.caller.fails("git", site.failure)
    stream = await peer.listening()
    assert len(await peer.tools()) == 3
    site.world.caller.offers(site.records[1], "log")
    site.announce(Change(kind="state", server_id="fs", old="connecting", state="connected"))
    await quiet(site, stream)  # one that was listed may come and go
    site.announce(Change(kind="state", server_id="git", old="connecting", state="connected"))
    await told(stream)
    assert "mcp__git__log" in await peer.tools()


# --- with real servers


@GENERATIONS
async def test_a_server_that_adds_a_tool_and_a_record_that_is_edited_are_told(modern: bool):
    grow = do("change_tools", tools=[tool("grow"), tool("fresh")])
    command, args = ScriptedServer(behaviours={"grow": grow}).command
    record = Server.stdio("a", command, *args)
    tasks = {"t": {"enabled": True, "default_server_ids": ["a"]}}
    async with asyncio.timeout(SOON_SECONDS * 2), Bridge.open([record]) as bridge:
        await bridge.apply(snapshot_of(2, [record], {"tasks": tasks}))
        async with serving(Site(bridge)) as site:
            peer = await site.peer("t", modern=modern)
            stream = await peer.listening()
            assert await peer.tools() == ["mcp__a__grow"]
            assert "result" in await peer.call("mcp__a__grow")
            await told_in_time(site, stream)
            assert await peer.tools() == ["mcp__a__fresh", "mcp__a__grow"]
            edited = Server.stdio("a", command, *args, allow=["grow"])
            await bridge.apply(snapshot_of(3, [edited], {"tasks": tasks}))
            await told_in_time(site, stream)
            assert await peer.tools() == ["mcp__a__grow"]
            await bridge.apply(snapshot_of(4, [], {"tasks": tasks}))
            await told_in_time(site, stream)
            assert await peer.tools() == []


# --- what clients have seen


def test_what_was_seen_is_bounded_and_what_is_forgotten_is_unknown():
    clock = FakeClock()
    seen = Seen(clock, 60, most=2)
    born = int(clock.now())
    assert seen.last("t", b"new", born) is None
    assert seen.last("t", b"old", born - 1) == UNKNOWN
    for who in (b"a", b"b", b"c"):
        seen.note("t", who, b"1", alone=True)
    assert len(seen) == 2
    assert [seen.last("t", who, born) for who in (b"a", b"b", b"c")] == [UNKNOWN, b"1", b"1"]
    assert seen.last("t", b"later", born + 1) is None


def test_no_token_pushes_out_what_the_clients_of_another_saw():
    clock = FakeClock()
    seen = Seen(clock, 60, most=2)
    born = int(clock.now())
    seen.note("alice", b"a", b"1", alone=True)
    for number in range(20):
        seen.note("bob", b"%d" % number, b"1", alone=True)
    assert (seen.last("alice", b"a", born), seen.last("alice", b"new", born)) == (b"1", None)
    for number in range(MAX_TOKENS):
        seen.note(f"t{number}", b"x", b"1", alone=True)
    assert len(seen) == MAX_TOKENS
    assert seen.last("alice", b"a", born) == UNKNOWN


@GENERATIONS
async def test_a_look_that_nobody_sees_is_not_written_down_as_shown(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    await peer.tools()
    shown = len(site.world.ledger.listings())
    stream = await peer.listening()
    site.offer("read", "fresh")
    assert await stream.next() is not None
    assert len(site.world.ledger.listings()) == shown
