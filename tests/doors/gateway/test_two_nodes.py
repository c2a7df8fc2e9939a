"""Two nodes that share a key and their tokens: clients go from one to the other as they like."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from bascule.auth.memory_token_store import MemoryTokenStore
from bascule.auth.tokens import Tokens
from bascule.doors.gateway import lists
from bascule.testing.clock import FakeClock
from tests.asgi.caller import KEY
from tests.doors.gateway.stream_site import CHANGED, Peer, Site, serving


class Nodes:
    """Two nodes with one key over one list of tokens, and a third with a key of its own."""

    def __init__(self) -> None:
        store, clock = MemoryTokenStore(), FakeClock()
        self.one = Site(clock=clock, tokens=Tokens(store, KEY, clock))
        self.other = Site(clock=clock, tokens=Tokens(store, KEY, clock))
        self.stranger = Site(clock=clock, tokens=Tokens(MemoryTokenStore(), b"s" * 32, clock))


@pytest.fixture
async def nodes() -> AsyncGenerator[Nodes, None]:
    found = Nodes()
    async with AsyncExitStack() as stack:
        for site in (found.one, found.other, found.stranger):
            await stack.enter_async_context(serving(site))
        yield found


def at(site: Site, peer: Peer) -> Peer:
    """Return the same client, with its token and session, at another node."""
    return replace(peer, site=site)


@pytest.mark.requirement("gateway:nodes")
@pytest.mark.parametrize("route", ["/mcp", "/mcp/servers/fs"])
async def test_a_session_of_one_node_goes_on_at_another(nodes: Nodes, route: str):
    narrowed = {"X-Bascule-Tools-Deny": "delete"}
    peer = await nodes.one.peer(modern=False, route=route, headers=narrowed)
    moved = at(nodes.other, replace(peer, headers={}))
    assert await moved.tools() == await peer.tools()
    name = (await moved.tools())[0]
    answers = [await one.call(name) for one in (moved, peer)]
    assert [answer["result"].get("isError", False) for answer in answers] == [False, False]
    stream = await moved.listening()
    nodes.other.offer("read", "fresh")
    told = await stream.next()
    assert told is not None
    assert told["method"] == CHANGED
    assert not any("delete" in name for name in await moved.tools())


@pytest.mark.requirement("gateway:nodes")
async def test_a_session_goes_on_only_where_its_key_and_its_token_are(nodes: Nodes):
    peer = await nodes.one.peer(modern=False)
    foreign = await nodes.stranger.peer(modern=False)
    answer = await at(nodes.stranger, replace(foreign, session=peer.session)).request("tools/list")
    assert answer.status == 404
    assert (await at(nodes.stranger, peer).request("tools/list")).status == 401
    mine = await nodes.other.peer(modern=False)
    stolen = await at(nodes.other, replace(mine, session=peer.session)).request("tools/list")
    assert stolen.status == 404


@pytest.mark.requirement("gateway:nodes")
@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_a_cursor_of_one_node_is_good_at_another_that_lists_the_same(
    nodes: Nodes, modern: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lists, "MAX_PAGE_TOOLS", 1)
    peer = await nodes.one.peer(modern=modern)
    first = (await (await peer.request("tools/list")).body())["result"]
    moved = at(nodes.other, peer)
    following = await (await moved.request("tools/list", cursor=first["nextCursor"])).body()
    assert [tool["name"] for tool in first["tools"] + following["result"]["tools"]] == [
        "mcp__fs__delete",
        "mcp__fs__read",
    ]
    nodes.other.offer("read", "fresh", "third")
    stale = await (await moved.request("tools/list", cursor=first["nextCursor"])).body()
    assert stale["error"]["code"] == -32602


@pytest.mark.requirement("gateway:nodes", "gateway:list-changed")
async def test_what_a_session_saw_at_another_node_is_not_taken_for_what_is_here(nodes: Nodes):
    peer = await nodes.one.peer(modern=False)
    nodes.other.offer("read", "fresh")
    seen = await peer.tools()
    moved = at(nodes.other, peer)
    stream = await moved.listening()
    told = await stream.next()
    assert told is not None
    assert told["method"] == CHANGED
    assert await moved.tools() != seen
