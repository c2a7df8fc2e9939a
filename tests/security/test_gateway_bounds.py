"""What one client of the gateway can make it keep: always a bounded number of bounded things."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from bascule.doors.gateway import lists, log_levels, session_ids, views
from bascule.doors.gateway.lists import ToolList
from bascule.doors.gateway.log_levels import LogLevels
from bascule.doors.gateway.session_ids import SessionIds
from bascule.doors.sessions import MAX_PER_PERSON
from bascule.node.bridge.toolset import ToolSet
from bascule.wire.era import LEGACY, META, MODERN
from tests.asgi.caller import KEY
from tests.doors.gateway.stream_site import Peer, Site, serving
from tests.scale import scaled
from tests.waits import SOON_SECONDS, until

Json = dict[str, Any]
GENERATIONS = pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
pytestmark = pytest.mark.requirement("gateway:bounded")


@pytest.fixture
async def site() -> AsyncGenerator[Site, None]:
    async with serving(Site()) as found:
        yield found


async def asked(peer: Peer, method: str, **params: Any) -> tuple[int, Json]:
    """Ask once, hang up, and return the status and the answer."""
    answer = await peer.request(method, **params)
    body = await answer.body()
    answer.close()
    peer.site.streams.remove(answer)
    return answer.status, body


def kept(kind: type) -> int:
    """Say how many objects of a kind there are."""
    gc.collect()
    return sum(isinstance(one, kind) for one in gc.get_objects())


async def works(peer: Peer) -> bool:
    """Say whether the next call is answered rightly."""
    _, body = await asked(peer, "tools/call", name="mcp__fs__read", arguments={})
    return body["result"]["content"] == [{"type": "text", "text": "done"}]


# --- sessions


async def test_sessions_that_are_opened_and_abandoned_keep_nothing(site: Site):
    peer = await site.peer(modern=False)
    ids = {peer.session}
    for _ in range(scaled(10_000)):
        answer = await peer.request(
            "initialize", protocolVersion=LEGACY[0], capabilities={}, clientInfo={"name": "x"}
        )
        ids.add(answer.headers["mcp-session-id"])
        answer.close()
        site.streams.remove(answer)
    assert len(ids) == scaled(10_000) + 1
    gateway = site.gateway
    assert (len(site.sessions), len(gateway.listening), len(gateway.calls)) == (1, 0, 0)
    assert len(gateway.levels) == 0
    assert len(gateway.ids) == 0
    assert await works(peer)


async def test_sessions_that_are_deleted_are_remembered_up_to_a_number(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(session_ids, "MAX_DELETED", 10)
    site.gateway.ids = SessionIds(KEY, site.clock)
    peer = await site.peer(modern=False)
    for _ in range(20):
        other = await Peer(site, peer.token).initialized()
        assert (await other.send("DELETE", None)).status == 204
        assert (await other.send("DELETE", None)).status == 404
    assert len(site.gateway.ids) == 10
    assert await works(peer)


async def test_levels_that_sessions_set_are_kept_up_to_a_number(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(log_levels, "MAX_PER_TOKEN", 10)
    site.gateway.levels = LogLevels()
    peer, other = await site.peer(modern=False), await site.peer(modern=False)
    await asked(other, "logging/setLevel", level="error")
    for _ in range(20):
        one = await Peer(site, peer.token).initialized()
        for level in ("debug", "info"):
            assert (await asked(one, "logging/setLevel", level=level))[1]["result"] == {}
    assert len(site.gateway.levels) == 11
    principal = await site.tokens.verify(other.token)
    assert principal is not None
    assert site.gateway.levels.get(principal.token_id, other.session) == "error"


# --- narrowings and routes


@GENERATIONS
async def test_narrowings_without_number_keep_few_sessions_and_lists(site: Site, modern: bool):
    before = kept(ToolSet)
    peer = await site.peer(modern=modern)
    await asked(peer, "tools/list")
    for number in range(MAX_PER_PERSON + 20):
        peer.headers = narrowed(number)
        assert (await asked(peer, "tools/list"))[1]["result"]["tools"] == []
    peer.headers = {}
    assert len(site.sessions) <= MAX_PER_PERSON
    assert kept(ToolSet) - before <= MAX_PER_PERSON + 1
    assert await works(peer)


async def test_narrowings_that_are_all_in_use_are_refused_and_others_go_on(site: Site):
    peer, other = await site.peer(modern=True), await site.peer(modern=True)
    streams = [
        await Peer(site, peer.token, headers=narrowed(number), modern=True).listening()
        for number in range(MAX_PER_PERSON)
    ]
    one_more = Peer(site, peer.token, headers=narrowed(MAX_PER_PERSON), modern=True)
    for method in ("tools/list", "server/discover"):
        status, body = await asked(one_more, method)
        assert (status, body["error"]["data"]["code"]) == (429, "mcp_budget_exceeded")
    assert (await one_more.opened()).status == 429
    assert await works(other)
    streams[0].close()
    await until(lambda: site.open == MAX_PER_PERSON - 1)
    assert (await asked(one_more, "tools/list"))[0] == 200


def narrowed(number: int) -> dict[str, str]:
    return {"X-Bascule-Tools-Allow": f"none{number}"}


async def test_a_list_without_tools_counts_as_well(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lists, "MAX_TOKEN_BYTES", 8 * lists.LEAST_BYTES)
    peer = await site.peer(modern=True)
    before = kept(ToolList)
    for number in range(20):
        peer.headers = narrowed(number)
        await asked(peer, "tools/list")
    assert kept(ToolList) - before <= 8


async def test_what_is_remembered_of_a_list_is_small_however_long_its_narrowing(site: Site):
    peer = await site.peer(modern=True)
    seen = site.gateway.listening.seen
    for number in range(5):
        peer.headers = {"X-Bascule-Tools-Allow": ",".join(f"{number}t{n}" for n in range(1000))}
        assert (await asked(peer, "tools/list"))[0] == 200
    assert len(seen) == 5
    assert all(isinstance(who, bytes) and len(who) <= 32 for who in seen)


@GENERATIONS
@pytest.mark.parametrize("id", ["a" * 50_000, "%00", "..", "FS", "%C3%A9", "fs%20", "f__s"])
async def test_an_address_that_no_server_can_have_is_not_found_and_not_kept(
    site: Site, modern: bool, id: str
):
    token = (await site.tokens.mint("alice", "client", task_id="writer")).token
    views.one_server.cache_clear()
    events = len(site.world.ledger.events)
    strange = Peer(site, token, f"/mcp/servers/{id}", modern=modern)
    absent = Peer(site, token, "/mcp/servers/nowhere", modern=modern)
    method = "tools/list" if modern else "initialize"
    answers = [await asked(one, method) for one in (strange, absent)]
    assert answers[0] == answers[1]
    assert answers[0][0] == 404
    assert views.one_server.cache_info().currsize == 1
    assert len(site.world.ledger.events) == events + 1


async def test_a_name_that_a_caller_made_up_is_written_down_in_part(site: Site):
    peer = await site.peer(modern=False)
    for name in ("n" * 300_000, "mcp__fs__" + "n" * 300_000, "fs/" + "n" * 300_000):
        _, body = await asked(peer, "tools/call", name=name, arguments={})
        assert body["error"]["code"] == -32602
        assert len(str(body)) < 1000
    peer.headers = {"X-Bascule-Servers": "s" * 50_000}
    await asked(peer, "tools/list")
    assert max(len(str(event)) for event in site.world.ledger.events) < 10_000


# --- floods


@GENERATIONS
async def test_a_token_of_progress_is_as_short_as_an_id(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    meta: Json = {"progressToken": "t" * 257}
    headers: Json = {}
    if modern:
        meta |= {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call"}
        headers["Mcp-Name"] = "mcp__fs__read"
    params = {"name": "mcp__fs__read", "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await peer.send("POST", body, also=headers)
    if answer.headers["content-type"] == "application/json":
        told = await answer.body()
    else:
        told = await answer.next() or {}
    assert told["error"]["code"] == -32602
    assert site.world.caller.sent == []
    assert await works(peer)


async def test_floods_of_notifications_keep_nothing(site: Site):
    peer = await site.peer(modern=False)
    for number in range(scaled(2000)):
        said = {"requestId": number, "reason": "x" * 1000}
        body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": said}
        answer = await peer.send("POST", body)
        assert answer.status == 202
        answer.close()
        site.streams.remove(answer)
    assert len(site.gateway.calls) == 0
    assert await works(peer)


@GENERATIONS
async def test_streams_by_the_hundred_are_refused_and_others_go_on(site: Site, modern: bool):
    peer, other = await site.peer(modern=modern), await site.peer(modern=modern)
    opened = await asyncio.gather(*(peer.opened() for _ in range(300)))
    assert {stream.status for stream in opened} == {200, 429}
    assert sum(stream.status == 200 for stream in opened) == site.open == 64
    assert await works(other)
    assert (await other.listening()).status == 200
    assert await works(peer)
    for stream in opened:
        stream.close()
    await until(lambda: site.open == 1)


async def test_a_flood_of_changed_lists_makes_few_notices_and_ends_with_the_last(site: Site):
    peer = await site.peer(modern=True)
    stream = await peer.listening()
    await peer.tools()
    for number in range(scaled(5000)):
        site.offer("read", f"tool{number}")
        if number % 100 == 0:
            await site.clock.advance(0.01)
    last = f"mcp__fs__tool{scaled(5000) - 1}"
    notices = 0
    async with asyncio.timeout(SOON_SECONDS):
        while True:
            await site.clock.advance(1.5)
            notices += (await stream.next() or {}).get("method", "").endswith("list_changed")
            if last in await peer.tools():
                break
    assert notices <= 3
