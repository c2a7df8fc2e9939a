"""How the gateway's streams end, how many there may be, and that none leaves anything behind."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncGenerator
from typing import NoReturn

import pytest

from bascule.asgi.bounded_http import Limits
from bascule.asgi.presence import while_connected
from bascule.asgi.sse import ABORT, KEEP_ALIVE_SECONDS, STALLED_SECONDS
from bascule.auth.identity import Principal
from bascule.clock import SYSTEM_CLOCK
from bascule.doors.gateway.listener import CHANGED as NEWS
from bascule.doors.gateway.listener import Frames, Listener
from bascule.doors.gateway.listening import MAX_PER_PERSON, MAX_PER_TOKEN
from bascule.doors.gateway.watch import Watch
from bascule.testing.clock import FakeClock
from tests.doors.gateway.stream_site import SUBSCRIPTION, Peer, Site, serving
from tests.doors.gateway.test_listening import GENERATIONS, told
from tests.node.fakes import Sent
from tests.scale import scaled
from tests.waits import SOON_SECONDS, until

ALICE = Principal(name="alice", role="client", task_id="writer", token_id="t")


@pytest.fixture
async def site() -> AsyncGenerator[Site, None]:
    async with serving(Site()) as found:
        yield found


# --- ends


@pytest.mark.requirement("gateway:streams:end")
@GENERATIONS
@pytest.mark.parametrize("revoked", [True, False], ids=["revoked", "expired"])
async def test_the_streams_of_a_token_that_is_gone_end_within_five_seconds(
    site: Site, modern: bool, revoked: bool
):
    minted = await site.tokens.mint("alice", "client", task_id="writer", ttl_seconds=60)
    peer = await site.joined(Peer(site, minted.token, modern=modern))
    other = await site.peer(modern=modern)
    stream, others = await peer.listening(), await other.listening()
    await peer.tools()
    await site.clock.advance(55)
    if revoked:
        await site.tokens.revoke(minted.record.id)
    await site.clock.advance(5 if revoked else 10)
    assert await stream.next() is None
    assert (await peer.opened()).status == 401
    site.offer("read")
    await told(others)
    assert site.open == 1


@pytest.mark.requirement("gateway:streams:end")
async def test_a_session_that_is_deleted_takes_its_streams_along(site: Site):
    token = (await site.tokens.mint("alice", "client", task_id="writer")).token
    one, other = [await site.joined(Peer(site, token)) for _ in range(2)]
    streams = [await one.listening(), await one.listening()]
    others = await other.listening()
    assert (await one.send("DELETE", None)).status == 204
    for stream in streams:
        assert await stream.next() is None
    assert (await one.opened()).status == 404
    await other.tools()
    site.offer("read")
    await told(others)


@pytest.mark.requirement("gateway:streams:end")
@GENERATIONS
async def test_a_server_that_drains_ends_its_streams_in_good_order(modern: bool):
    async with serving(Site()) as site:
        peer = await site.peer(modern=modern)
        stream = await peer.listening()
        await peer.tools()
    if modern:
        result = await stream.next()
        assert result is not None
        assert (result["id"], result["result"]["resultType"]) == (1, "complete")
        assert result["result"]["_meta"][SUBSCRIPTION] == 1
    assert await stream.next() is None
    assert site.open == 0


@pytest.mark.requirement("gateway:drain")
@GENERATIONS
async def test_a_streamed_call_that_outlasts_the_drain_is_told_so(modern: bool):
    async def reluctant(sent: Sent) -> NoReturn:
        """Never answer, and take a while to be cancelled."""
        del sent
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(50):
                await SYSTEM_CLOCK.sleep(0)
        raise AssertionError

    site = Site()
    site.world.caller.answers("read", reluctant)
    async with serving(site, Limits(drain_seconds=1)) as site:
        peer = await site.peer(modern=modern)
        call = await peer.request("tools/call", name="mcp__fs__read", arguments={})
        assert call.headers["content-type"] == "text/event-stream"
    ended = await call.result()
    assert (ended["id"], ended["error"]["data"]["code"]) == (peer.number, "shutting_down")


async def test_signs_of_life_come_while_nothing_else_does(site: Site):
    stream = await (await site.peer(modern=False)).listening()
    for _ in range(3):
        await site.clock.advance(KEEP_ALIVE_SECONDS + 2)
        await stream.comment()


# --- bounds


@pytest.mark.requirement("gateway:streams:bounded")
@GENERATIONS
async def test_one_more_than_a_person_may_have_is_refused_until_one_closes(
    site: Site, modern: bool
):
    minted = await site.tokens.mint("gate", "client", task_id="open", acts_for_users=True)

    async def person(name: str) -> Peer:
        headers = {"X-Bascule-User": name}
        return await site.joined(Peer(site, minted.token, headers=headers, modern=modern))

    alice = await person("alice")
    streams = [await alice.listening() for _ in range(MAX_PER_PERSON)]
    refused = await alice.opened()
    error = (await refused.body())["error"]
    assert (refused.status, refused.headers["retry-after"]) == (429, "5")
    assert error["data"]["code"] == "mcp_budget_exceeded"
    assert f"{MAX_PER_PERSON} streams" in error["message"]
    assert (await (await person("bob")).listening()).status == 200
    streams[0].close()
    await until(lambda: site.open == MAX_PER_PERSON)
    await alice.listening()


async def test_all_people_of_a_token_have_no_more_than_the_token_may(site: Site):
    minted = await site.tokens.mint("gate", "client", task_id="open", acts_for_users=True)
    people = [
        Peer(site, minted.token, headers={"X-Bascule-User": f"p{number}"}, modern=True)
        for number in range(MAX_PER_TOKEN // 32 + 1)
    ]
    for number in range(MAX_PER_TOKEN):
        await people[number // 32].listening()
    assert (await people[-1].opened()).status == 429
    assert (await (await site.peer(modern=True)).listening()).status == 200


async def test_a_reader_who_takes_nothing_is_let_go_and_one_notice_waits_at_most():
    clock, sent, stuck = FakeClock(), list[bytes](), asyncio.Event()
    gone = asyncio.Event()
    frames = Frames(b"first", b"changed", b"")
    listener = Listener(ALICE, b"", frames, clock)

    async def send(message: object) -> None:
        assert isinstance(message, dict)
        body = message.get("body", b"")
        if body == b"changed":
            await stuck.wait()
        sent.append(body)

    async def receive() -> dict[str, str]:
        await gone.wait()
        return {"type": "http.disconnect"}

    scope = {ABORT: gone.set}
    stream = asyncio.ensure_future(while_connected(scope, receive, listener.run(scope, send)))
    for _ in range(100):
        listener.wake(NEWS)
        await clock.advance(0.1)
        listener.check(clock.monotonic())
    assert (sent, gone.is_set()) == ([b"", b"first"], False)
    stuck.set()
    await clock.settle()
    assert sent == [b"", b"first", b"changed", b"changed"]
    stuck.clear()
    listener.wake(NEWS)
    await clock.advance(STALLED_SECONDS)
    listener.check(clock.monotonic())
    with pytest.raises(Exception, match="hung up"):
        await stream


@pytest.mark.requirement("gateway:streams:bounded")
async def test_a_reader_who_stops_reading_is_let_go_by_the_server(site: Site):
    peer = await site.peer(modern=False)
    await peer.tools()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, ("127.0.0.1", site.port))
        head = (
            f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n"
            f"Authorization: Bearer {peer.token}\r\nAccept: text/event-stream\r\n"
            f"Mcp-Session-Id: {peer.session}\r\n\r\n"
        )
        await loop.sock_sendall(slow, head.encode())
        await until(lambda: site.open == 1)
        number = 0

        async def flooded() -> bool:
            nonlocal number
            number += 1
            site.offer("read", f"new{number}")
            await site.clock.advance(1.5)
            return site.open == 0

        async with asyncio.timeout(SOON_SECONDS):
            while not await flooded():
                pass


# --- nothing is left behind


@pytest.mark.requirement("gateway:streams:bounded")
@GENERATIONS
async def test_streams_that_come_and_go_leave_nothing_behind(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    for _ in range(scaled(100)):
        streams = [await peer.listening() for _ in range(10)]
        for stream in streams:
            stream.close()
        await until(lambda: site.open == 0)
    gc.collect()
    assert [one for one in gc.get_objects() if isinstance(one, Listener | Watch)] == []
    await site.clock.advance(700)
    await site.sessions.sweep()
    assert len(site.sessions) == 0


async def test_a_stream_keeps_the_session_that_it_watches(site: Site):
    stream = await (await site.peer(modern=True)).listening()
    await site.clock.advance(700)
    await site.sessions.sweep()
    assert len(site.sessions) == 1
    stream.close()
    await until(lambda: site.open == 0)
    await site.clock.advance(700)
    await site.sessions.sweep()
    assert len(site.sessions) == 0


async def test_a_stream_of_a_server_that_the_task_does_not_have_is_refused(site: Site):
    token = (await site.tokens.mint("alice", "client", task_id="writer")).token
    answers = [
        await Peer(site, token, f"/mcp/servers/{name}", modern=True).opened()
        for name in ("git", "nowhere")
    ]
    assert [answer.status for answer in answers] == [404, 404]
    bodies = [await answer.body() for answer in answers]
    assert bodies[0] == bodies[1]
    assert site.open == 0


@GENERATIONS
async def test_who_takes_no_stream_is_given_none(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    peer.headers["Accept"] = "application/json"
    answer = await peer.opened()
    assert answer.status == 406
    assert "text/event-stream" in (await answer.body())["error"]["message"]
