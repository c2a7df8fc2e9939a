"""Clients that hang up, stall or break off, at every stage: nothing is left of any."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncGenerator
from itertools import count, islice
from typing import Any

import pytest

from bascule.asgi.bounded_http import Limits
from bascule.asgi.connections import Caps
from bascule.audit.approvals import Approvals, MemoryStore
from bascule.clock import SYSTEM_CLOCK
from bascule.doors.gateway import reply
from bascule.model.call import Progress
from bascule.wire.era import META, MODERN
from tests.doors.gateway.raw_http import PING, Line, exchanged, fields_of, head_of, line_of, posted
from tests.doors.gateway.stream_site import TASKS, Peer, Site, serving
from tests.doors.gateway.test_calls import GENERATIONS, READ, begin, whole
from tests.node.fakes import Doorman, Json, Sent, World, text
from tests.policy.build import server
from tests.scale import scaled
from tests.waits import SOON_SECONDS, until

pytestmark = pytest.mark.requirement("gateway:hang-ups")
ENVELOPE: Json = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
STREAMED = [("Accept", "application/json, text/event-stream")]


@pytest.fixture
async def site() -> AsyncGenerator[Site, None]:
    async with serving(Site()) as found:
        yield found


def call_of(peer: Peer, id: int = 1, **meta: Any) -> bytes:
    """Return a call of ``read`` as bytes, for a reader of streams."""
    said = {**meta, **(ENVELOPE if peer.modern else {})}
    params: Json = {"name": READ, "arguments": {}, "_meta": said}
    body = json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    headers = [*STREAMED]
    if peer.modern:
        headers += [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call")]
        headers += [("Mcp-Name", READ)]
    return posted(peer, body.encode(), headers)


async def quiet(site: Site, before: set[asyncio.Task[Any]]) -> None:
    """Wait until nothing is under way, and no task is there that was not before."""
    await until(lambda: len(site.gateway.calls) == 0 and site.open == 0)
    await until(lambda: not {t for t in asyncio.all_tasks() if not t.done()} - before)


def now() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks()


async def works(peer: Peer) -> None:
    """Make the next call."""
    assert isinstance(peer.site, Site)
    peer.site.world.caller.answers("read", text("done"))
    _, messages = await whole(peer)
    assert messages[-1]["result"]["content"] == [{"type": "text", "text": "done"}]


# --- every stage


@GENERATIONS
async def test_hanging_up_before_the_body_is_there_leaves_nothing(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    before, whole_request = now(), call_of(peer)
    for end in range(0, len(whole_request), max(1, len(whole_request) // scaled(300))):
        line = await line_of(peer)
        line.writer.write(whole_request[:end])
        await line.writer.drain()
        line.close()
    await quiet(site, before)
    assert site.world.caller.sent == []
    await works(peer)


@GENERATIONS
@pytest.mark.parametrize("wished", [{}, {"progressToken": 1}], ids=["JSON", "a stream"])
async def test_hanging_up_during_a_call_leaves_nothing_once_it_ends(
    site: Site, modern: bool, wished: Json
):
    peer = await site.peer(modern=modern)
    doorman = Doorman()
    site.world.caller.answers("read", doorman)
    before = now()
    doors: list[asyncio.Event] = []
    for id in range(6):
        line = await line_of(peer)
        line.writer.write(call_of(peer, id, **wished))
        doors.append(await doorman.next())
        if id % 2:
            line.close()
        else:
            line.writer.write_eof()
    if modern:
        await until(lambda: doorman.inside == 0)
    else:
        assert doorman.inside == 6
        for door in doors:
            door.set()
    await quiet(site, before)
    await works(peer)


@GENERATIONS
async def test_hanging_up_in_the_middle_of_a_stream_leaves_nothing_once_it_ends(
    site: Site, modern: bool
):
    peer = await site.peer(modern=modern)
    doorman = Doorman()

    async def stepping(sent: Sent) -> Json:
        assert sent.on_progress is not None
        sent.on_progress(Progress(1))
        return await doorman(sent)

    site.world.caller.answers("read", stepping)
    before = now()
    for id in range(10):
        line = await line_of(peer)
        line.writer.write(call_of(peer, id, progressToken="p"))
        door = await doorman.next()
        async with asyncio.timeout(SOON_SECONDS):
            await line.reader.readuntil(b"notifications/progress")
        line.close()
        if not modern:
            door.set()
    await quiet(site, before)
    await works(peer)


@GENERATIONS
async def test_hanging_up_while_somebody_is_asked_leaves_nothing(modern: bool):
    approvals = Approvals(MemoryStore())
    record = server("fs", approval_policy={"default": "always"})
    world = World(record, tasks=TASKS, approver=approvals)
    site = Site(world.core)
    async with serving(site):
        peer = await site.peer(modern=modern)
        before = now()
        line = await line_of(peer)
        line.writer.write(call_of(peer, 1, progressToken="p", **{"bascule/approval_wait_ms": 50}))
        async with asyncio.timeout(SOON_SECONDS):
            await line.reader.readuntil(b"waits for approval")
        line.close()
        await quiet(site, before)
        assert world.sent == []
        _, messages = await whole(peer, meta={"bascule/approval_wait_ms": 0})
        assert messages[-1]["result"]["_meta"]["bascule/error"]["code"] == "mcp_approval_required"
    await approvals.close()


@GENERATIONS
async def test_hanging_up_on_streams_leaves_nothing(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    before = now()
    for _ in range(scaled(100)):
        stream = await peer.opened()
        stream.close()
    await quiet(site, before)
    await works(peer)


# --- readers that take nothing


@GENERATIONS
@pytest.mark.parametrize("ends", [False, True], ids=["before its end", "at its end"])
async def test_a_reader_of_progress_who_stops_reading_is_let_go(
    site: Site,
    modern: bool,
    ends: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(reply, "STALLED_SECONDS", 0.2)
    peer = await site.peer(modern=modern)
    before, over = now(), asyncio.Event()

    async def flooding(sent: Sent) -> Json:
        assert sent.on_progress is not None
        numbers, most = count(1), 0
        while not over.is_set():
            for number in islice(numbers, 50):
                sent.on_progress(Progress(number, message="x" * 4000))
            most = max(most, len(now() - before))
            if ends and len(now() - before) < most:  # the writer has just given up
                break
            await SYSTEM_CLOCK.sleep(0)
        return text("done")

    site.world.caller.answers("read", flooding)
    loop = asyncio.get_running_loop()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        slow.setblocking(False)
        await loop.sock_connect(slow, ("127.0.0.1", site.port))
        await loop.sock_sendall(slow, call_of(peer, 1, progressToken="p"))
        await until(lambda: len(site.gateway.calls) == 1)
        if not modern and not ends:  # it goes on to its deadline, but nothing is written any more
            await until(lambda: len(now() - before) == 2)
            await until(lambda: len(now() - before) == 1)
            over.set()
        await quiet(site, before)
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []
    await works(peer)


async def test_a_client_that_sends_its_request_drop_by_drop_is_let_go():
    limits = Limits(head_seconds=0.2, linger_seconds=0.1, connections=Caps(total=4096))
    async with serving(Site(), limits) as site:
        peer = await site.peer(modern=False)
        lines = [await line_of(peer) for _ in range(20)]
        for line in lines:
            line.writer.write(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        async with asyncio.timeout(SOON_SECONDS):
            for line in lines:
                assert await line.reader.read() == b""
        assert (await exchanged(peer, posted(peer, PING))).status == 200


# --- what goes wrong after the answer has begun


@GENERATIONS
async def test_what_goes_wrong_inside_once_a_stream_has_begun_is_its_last_message(
    site: Site, modern: bool, caplog: pytest.LogCaptureFixture
):
    async def breaking(sent: Sent) -> Json:
        assert sent.on_progress is not None
        sent.on_progress(Progress(1))
        await SYSTEM_CLOCK.sleep(0)
        raise RuntimeError("a secret of the inside")

    site.world.caller.answers("read", breaking)
    peer = await site.peer(modern=modern)
    before = now()
    stream, messages = await whole(peer, meta={"progressToken": "p"}, id=77)
    assert stream.headers["content-type"] == "text/event-stream"
    error = messages[-1]["error"]
    assert (messages[-1]["id"], error["code"], error["data"]["code"]) == (77, -32603, "internal")
    assert "secret" not in json.dumps(messages)
    assert "a secret of the inside" in caplog.text
    await quiet(site, before)
    await works(peer)


# --- one connection, several requests


async def numbered(line: Line, *ids: int) -> list[int]:
    return [(await line.answer()).json["id"] for _ in ids]


@GENERATIONS
async def test_requests_in_one_go_are_answered_once_each_in_their_order(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    before, line, ids = now(), await line_of(peer), tuple(range(50))
    line.writer.write(b"".join(call_of(peer, id) for id in ids))
    assert await numbered(line, *ids) == list(ids)
    line.close()
    await quiet(site, before)


async def test_hanging_up_with_requests_in_line_makes_none_of_them(site: Site):
    peer = await site.peer(modern=True)
    doorman = Doorman()
    site.world.caller.answers("read", doorman)
    before, line = now(), await line_of(peer)
    line.writer.write(b"".join(call_of(peer, id) for id in range(5)))
    await doorman.next()
    line.close()
    await quiet(site, before)
    assert len(site.world.caller.sent) == 1


async def test_what_is_answered_before_its_body_came_ends_the_connection(site: Site):
    peer = await site.peer(modern=False)
    large = [("Content-Type", "application/json"), ("Content-Length", str(10**9))]
    line = await line_of(peer)
    line.writer.write(head_of("POST", "/mcp", [*fields_of(peer), *large]) + PING)
    answer = await line.answer()
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    line.close()


async def test_a_body_is_asked_for_only_where_it_is_wanted(site: Site):
    peer = await site.peer(modern=False)
    expecting = [("Expect", "100-continue")]
    line = await line_of(peer)
    line.writer.write(posted(peer, PING, expecting).removesuffix(PING))
    async with asyncio.timeout(SOON_SECONDS):
        assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    line.writer.write(PING)
    assert (await line.answer()).json["result"] == {}
    stranger = Peer(site, "nobody")
    refused = await exchanged(stranger, posted(stranger, PING, expecting).removesuffix(PING))
    assert refused.status == 401


async def test_a_cancelled_call_is_answered_once_and_its_id_is_free_again(site: Site):
    peer = await site.peer(modern=False)
    doorman = Doorman()
    site.world.caller.answers("read", doorman)
    before = now()
    for _ in range(5):
        pending = await begin(peer, id=5)
        await doorman.next()
        said = {"requestId": 5}
        body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": said}
        for _ in range(3):
            assert (await peer.send("POST", body)).status == 202
        message = await (await pending).body()
        assert (message["id"], message["error"]["code"]) == (5, -32800)
    for stream in site.streams:
        stream.close()
    await quiet(site, before)
