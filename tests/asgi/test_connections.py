"""Connections over real sockets: none is held for ever, and no stranger keeps others out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.bounded_http import Limits
from bascule.asgi.connections import Caps, Connections, origin_of
from bascule.asgi.guard import OPEN, GuardedApp, route
from bascule.asgi.json import json_response
from bascule.asgi.serve import Serving
from tests.asgi.caller import app_of, bearer, echo, make_tokens, ok_route

HALF_A_POST = (
    b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 1000000\r\n\r\n"
)
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
QUICK = Limits(linger_seconds=0.05)
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def healthy(request: Request) -> Response:
    del request
    return json_response({"status": "ok"})


async def large(request: Request) -> Response:
    del request
    return Response(b"x" * 40_000_000, media_type="text/plain")


@asynccontextmanager
async def serving(limits: Limits = QUICK) -> AsyncGenerator[tuple[Serving, bytes]]:
    """Serve an open route and a closed one; give the server and the header of a valid token."""
    tokens = make_tokens()
    token = await bearer(tokens, "admin")
    app: GuardedApp = app_of(
        route("/healthz", healthy, ["GET"], permission=OPEN),
        route("/large", large, ["GET"], permission=OPEN),
        route("/echo", echo, ["POST"], permission="registry:write"),
        ok_route("/mine", "registry:read"),
        tokens=tokens,
    )
    async with asyncio.timeout(20), Serving(app, limits=limits) as server:
        yield server, f"authorization: {token['Authorization']}\r\n".encode()


@asynccontextmanager
async def wire(server: Serving) -> AsyncGenerator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def head_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    """Return the head of an answer; read its body, too."""
    head = await head_of(reader)
    length = next(x for x in head.lower().split(b"\r\n") if x.startswith(b"content-length"))
    await reader.readexactly(int(length.partition(b":")[2]))
    return head


async def ended(reader: asyncio.StreamReader) -> bool:
    """Wait until the other side has closed; a reset is an end as well."""
    with suppress(ConnectionError):
        while await reader.read(65536):
            pass
    return True


@pytest.mark.requirement("security:connections:unread-body")
async def test_an_answer_before_the_body_was_read_closes_the_connection():
    async with serving() as (server, _), wire(server) as (reader, writer):
        writer.write(HALF_A_POST)
        head = await head_of(reader)
        assert head.startswith(b"HTTP/1.1 401")
        assert b"connection: close" in head.lower()
        assert await ended(reader)


@pytest.mark.requirement("security:connections:unread-body")
async def test_one_byte_at_a_time_does_not_keep_a_connection_that_was_answered():
    async with serving() as (server, _), wire(server) as (reader, writer):
        writer.write(HALF_A_POST)
        await head_of(reader)

        async def trickle() -> None:
            with suppress(OSError):
                while True:
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.to_thread(lambda: None)

        trickling = asyncio.create_task(trickle())
        try:
            assert await ended(reader)
            while server.connections:
                await asyncio.to_thread(lambda: None)
        finally:
            trickling.cancel()


@pytest.mark.parametrize("kind", ["length", "chunked", "open route", "wrong method"])
async def test_whatever_is_answered_early_is_closed(kind: str):
    begun = {
        "length": HALF_A_POST,
        "chunked": HALF_A_POST.replace(b"content-length: 1000000", b"transfer-encoding: chunked"),
        "open route": HEALTH.replace(b"\r\n\r\n", b"\r\ncontent-length: 9\r\n\r\n"),
        "wrong method": HALF_A_POST.replace(b"/echo", b"/healthz"),
    }[kind]
    async with serving() as (server, _), wire(server) as (reader, writer):
        writer.write(begun)
        assert b"connection: close" in (await head_of(reader)).lower()
        assert await ended(reader)


async def test_a_caller_that_is_still_sending_can_read_why_it_was_refused():
    """A socket that is closed with bytes unread resets: the answer would be lost with it."""
    async with serving(Limits(linger_seconds=5)) as (server, token), wire(server) as (reader, out):
        out.write(
            HALF_A_POST.replace(b"1000000", b"4000000").replace(
                b"\r\n\r\n", b"\r\n" + token + b"\r\n"
            )
        )
        for _ in range(40):
            out.write(b"1" * 100_000)
            await out.drain()
        text = await reader.read()
        assert text.startswith(b"HTTP/1.1 413")
        assert json.loads(text.partition(b"\r\n\r\n")[2])["error"]["code"] == "body_too_large"


async def test_a_body_that_was_read_leaves_the_connection_for_the_next_request():
    async with serving() as (server, token), wire(server) as (reader, writer):
        whole = HALF_A_POST.replace(b"1000000\r\n", b"3\r\n" + token) + b"[1]"
        for _ in range(3):
            writer.write(whole)
            head = await answer_of(reader)
            assert head.startswith(b"HTTP/1.1 200")
            assert b"connection: close" not in head.lower()


@pytest.mark.parametrize("byte", [b"\r\n", b"G"])
async def test_bytes_that_are_no_request_do_not_keep_an_idle_connection(byte: bytes):
    limits = Limits(keep_alive_seconds=1, head_seconds=0.2)
    async with serving(limits) as (server, _), wire(server) as (reader, writer):
        writer.write(HEALTH)
        await answer_of(reader)
        trickling = asyncio.create_task(_trickle(writer, byte))
        try:
            assert await ended(reader)
        finally:
            trickling.cancel()


async def _trickle(writer: asyncio.StreamWriter, byte: bytes) -> None:
    with suppress(OSError):
        while not writer.is_closing():
            writer.write(byte)
            await writer.drain()
            await asyncio.to_thread(lambda: None)


async def test_a_reader_that_takes_nothing_of_its_answer_is_let_go():
    limits = Limits(stalled_seconds=0.05)
    async with serving(limits) as (server, _), wire(server) as (_, writer):
        writer.write(b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await writer.drain()
        while not server.connections:
            await asyncio.to_thread(lambda: None)
        while server.connections:
            await asyncio.to_thread(lambda: None)


@pytest.mark.requirement("security:connections:strangers")
async def test_strangers_beyond_the_cap_of_one_address_give_way_the_oldest_first():
    caps = Caps(total=100, strangers=5, grace_seconds=0.0)
    async with serving(Limits(connections=caps)) as (server, _), AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(wire(server)) for _ in range(12)]
        for reader, _ in wires[:7]:
            assert await ended(reader)
        assert server.connections == 5
        for reader, writer in wires[7:]:
            writer.write(HEALTH)
            assert (await answer_of(reader)).startswith(b"HTTP/1.1 200")


@pytest.mark.requirement("security:connections:strangers")
async def test_whoever_has_shown_a_valid_token_does_not_count_among_the_strangers():
    caps = Caps(total=100, strangers=3, grace_seconds=0.0)
    async with serving(Limits(connections=caps)) as (server, token), AsyncExitStack() as stack:
        mine = b"GET /mine HTTP/1.1\r\nhost: localhost\r\n" + token + b"\r\n"
        known: list[Wire] = []
        for _ in range(10):
            known.append(await stack.enter_async_context(wire(server)))
            known[-1][1].write(mine)
            assert (await answer_of(known[-1][0])).startswith(b"HTTP/1.1 200")
        for _ in range(8):
            await stack.enter_async_context(wire(server))
        for reader, writer in known:
            writer.write(mine)
            assert (await answer_of(reader)).startswith(b"HTTP/1.1 200")


async def test_a_token_that_is_not_valid_makes_nobody_known():
    caps = Caps(total=100, strangers=1, grace_seconds=0.0)
    async with serving(Limits(connections=caps)) as (server, _), wire(server) as (reader, writer):
        writer.write(b"GET /mine HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer x\r\n\r\n")
        assert (await answer_of(reader)).startswith(b"HTTP/1.1 401")
        async with wire(server), wire(server):
            assert await ended(reader)


@pytest.mark.requirement("security:connections:flood")
async def test_a_flood_of_half_posts_keeps_neither_health_nor_known_callers_out():
    caps = Caps(total=40, strangers=20, grace_seconds=0.0)
    limits = Limits(connections=caps, linger_seconds=0.05)
    async with serving(limits) as (server, token), AsyncExitStack() as stack:
        mine = b"GET /mine HTTP/1.1\r\nhost: localhost\r\n" + token + b"\r\n"
        flood: list[Wire] = []
        for number in range(300):
            flood.append(await stack.enter_async_context(wire(server)))
            flood[-1][1].write(HALF_A_POST if number % 2 else HALF_A_POST[:40])
            assert server.connections <= caps.total + caps.health
            if number % 50 == 49:
                for asked in (mine, HEALTH):
                    async with wire(server) as (reader, writer):
                        writer.write(asked)
                        assert (await answer_of(reader)).startswith(b"HTTP/1.1 200")
        for reader, _ in flood[:250]:
            assert await ended(reader)


@pytest.mark.requirement("security:connections:health")
async def test_places_are_kept_for_health_when_known_callers_hold_all_others():
    caps = Caps(total=4, strangers=4, health=2, grace_seconds=0.0)
    async with serving(Limits(connections=caps)) as (server, token), AsyncExitStack() as stack:
        mine = b"GET /mine HTTP/1.1\r\nhost: localhost\r\n" + token + b"\r\n"
        for _ in range(4):
            reader, writer = await stack.enter_async_context(wire(server))
            writer.write(mine)
            assert (await answer_of(reader)).startswith(b"HTTP/1.1 200")
        async with wire(server) as (reader, writer):
            writer.write(HEALTH)
            assert (await answer_of(reader)).startswith(b"HTTP/1.1 200")
        async with wire(server) as (reader, writer):
            writer.write(mine)
            head = await answer_of(reader)
            assert head.startswith(b"HTTP/1.1 503")
            assert b"connection: close" in head.lower()
            assert await ended(reader)


async def held(stack: AsyncExitStack, server: Serving, token: bytes) -> None:
    """Have a known caller hold two connections."""
    for _ in range(2):
        reader, writer = await stack.enter_async_context(wire(server))
        writer.write(b"GET /mine HTTP/1.1\r\nhost: localhost\r\n" + token + b"\r\n")
        await answer_of(reader)


@pytest.mark.requirement("security:connections:health")
async def test_nobody_keeps_a_place_for_health_not_even_with_a_token():
    caps = Caps(total=2, strangers=2, health=1, grace_seconds=0.0)
    async with serving(Limits(connections=caps)) as (server, token), AsyncExitStack() as stack:
        await held(stack, server, token)
        for _ in range(3):
            reader, writer = await stack.enter_async_context(wire(server))
            writer.write(HEALTH.removesuffix(b"\r\n") + token + b"\r\n")
            head = await answer_of(reader)
            assert head.startswith(b"HTTP/1.1 200")
            assert b"connection: close" in head.lower()
            assert await ended(reader)


@pytest.mark.requirement("security:connections:health")
async def test_silent_strangers_in_the_places_for_health_give_way_to_a_check():
    caps = Caps(total=2, strangers=2, health=2, grace_seconds=0.0)
    async with serving(Limits(connections=caps)) as (server, token), AsyncExitStack() as stack:
        await held(stack, server, token)
        for _ in range(10):
            await stack.enter_async_context(wire(server))
        async with wire(server) as (reader, writer):
            writer.write(HEALTH)
            assert (await answer_of(reader)).startswith(b"HTTP/1.1 200")


class Chair:
    """A connection that only says whether it was let go."""

    left = False

    def let_go(self) -> None:
        self.left = True

    def end_if_overdue(self, now: float) -> None:
        del now


async def test_a_burst_of_callers_is_given_its_moment():
    held = Connections(Caps(total=100, strangers=2, grace_seconds=60))
    chairs = [Chair() for _ in range(50)]
    assert all(held.admit(chair, "127.0.0.1") for chair in chairs)
    assert not any(chair.left for chair in chairs)


async def test_one_address_does_not_push_another_out_while_there_is_room():
    held = Connections(Caps(total=100, strangers=1, grace_seconds=0.0))
    other = Chair()
    held.admit(other, "192.0.2.7")
    for _ in range(20):
        held.admit(Chair(), "127.0.0.1")
    await asyncio.to_thread(lambda: None)
    assert not other.left


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
    ],
)
def test_what_counts_as_one_address(one: str, other: str, same: bool):
    assert (origin_of(one) == origin_of(other)) is same
