"""Requests that one process hands to another: whole, once, and to nobody else."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bascule.asgi.connections import SHOWN
from bascule.asgi.errors import Refused
from bascule.asgi.forward_frames import (
    GREETING,
    LISTENING,
    MAX_FRAME_BYTES,
    FrameChannel,
)
from bascule.asgi.forwarded import ForwardedRequests
from bascule.asgi.forwarding import Peer, PeerAway
from bascule.asgi.presence import while_connected
from bascule.asgi.serve import Serving
from bascule.asgi.sse import Event, EventStream
from bascule.clock import SYSTEM_CLOCK
from tests.waits import SOON_SECONDS

KEY = b"k" * 32


class Owner:
    """An application with the request that it saw, and signs of what became of it."""

    def __init__(self) -> None:
        self.scope: Scope = {}
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        answer = getattr(self, scope["path"].strip("/"))
        try:
            await (await answer(Request(scope, receive)))(scope, receive, send)
        finally:
            self.ended.set()

    async def echo(self, request: Request) -> Response:
        headers = {"X-Method": request.method, "X-Query": request.url.query}
        return Response(await request.body(), 201, headers=headers)

    async def shows(self, request: Request) -> Response:
        request.scope[SHOWN]()
        return Response(b"shown")

    async def early(self, request: Request) -> Response:
        del request
        return Response(b"too much", 413)

    async def events(self, request: Request) -> Response:
        async def source() -> AsyncGenerator[Event, None]:
            for number in range(3):
                yield Event(data={"number": number})
            self.begun.set()
            await asyncio.Event().wait()

        del request
        return EventStream(source(), SYSTEM_CLOCK)

    async def waits(self, request: Request) -> Response:
        await request.body()
        self.begun.set()
        await while_connected(request.scope, request.receive, asyncio.Event().wait())
        return Response()

    async def dies(self, request: Request) -> Response:
        del request
        raise RuntimeError("it fails, as a process that ends")

    async def half(self, request: Request) -> ASGIApp:
        del request

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            del scope, receive
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})

        return answer


class Meeting:
    """An owner at a socket, and a server that hands everything over to it."""

    def __init__(self, path: Path, key: bytes = KEY) -> None:
        self.owner = Owner()
        self.path = path
        self.draining, self.hurry = asyncio.Event(), asyncio.Event()
        self.taken = ForwardedRequests(
            self.owner, path, KEY, draining=self.draining, hurry=self.hurry
        )
        self.peer = Peer(path, key)
        self.shown = 0
        self.failures: list[Exception] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[SHOWN] = self._show
        try:
            await self.peer.forward(scope, receive, send)
        except (PeerAway, Refused) as error:
            self.failures.append(error)
            await Response(str(error), 503)(scope, receive, send)

    def _show(self) -> None:
        self.shown += 1


@asynccontextmanager
async def met(tmp_path: Path, **more: Any) -> AsyncGenerator[tuple[Meeting, str, Any]]:
    meeting = Meeting(tmp_path / "owner", **more)
    async with (
        asyncio.timeout(SOON_SECONDS),
        meeting.taken,
        Serving(meeting) as server,
        aiohttp.ClientSession() as web,
    ):
        yield meeting, server.url, web


@pytest.mark.requirement("workers:handed-over")
@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 900_007])
async def test_a_request_and_its_answer_arrive_as_they_are(tmp_path: Path, size: int):
    body = b"x" * size
    async with met(tmp_path) as (meeting, url, web):
        async with web.post(f"{url}/echo?a=%20b", data=body, headers={"X-Own": "1"}) as answer:
            assert (answer.status, await answer.read()) == (201, body)
            assert (answer.headers["X-Method"], answer.headers["X-Query"]) == ("POST", "a=%20b")
            assert answer.headers.getall("content-length") == [str(size)]
        seen = meeting.owner.scope
        assert (seen["client"][0], seen["scheme"]) == ("127.0.0.1", "http")
        assert seen["server"][1] == int(url.rpartition(":")[2])
        assert dict(seen["headers"])[b"x-own"] == b"1"
        assert meeting.shown == 0


async def test_whoever_answers_says_that_the_caller_has_shown_a_token(tmp_path: Path):
    async with met(tmp_path) as (meeting, url, web), web.get(f"{url}/shows") as answer:
        assert (answer.status, meeting.shown) == (200, 1)


async def test_an_answer_before_the_whole_body_is_told(tmp_path: Path):
    async def endless() -> AsyncGenerator[bytes, None]:
        for _ in range(200):
            yield b"x" * 65_536

    async with (
        met(tmp_path) as (_, url, web),
        web.post(f"{url}/early", data=endless()) as answer,
    ):
        assert (answer.status, await answer.read()) == (413, b"too much")


@pytest.mark.requirement("workers:handed-over")
async def test_a_stream_comes_event_by_event_and_ends_with_its_reader(tmp_path: Path):
    async with met(tmp_path) as (meeting, url, web):
        async with web.get(f"{url}/events") as answer:
            first = await answer.content.readuntil(b"\n\n")
            assert first == b'data: {"number":0}\n\n'
            await meeting.owner.begun.wait()
            assert not meeting.owner.ended.is_set()
        await meeting.owner.ended.wait()


async def test_a_stream_ends_when_its_process_is_told_to_drain(tmp_path: Path):
    async with met(tmp_path) as (meeting, url, web), web.get(f"{url}/events") as answer:
        await meeting.owner.begun.wait()
        meeting.draining.set()
        assert (await answer.read()).count(b"data:") == 3


async def test_who_hangs_up_ends_the_call_at_the_other_process(tmp_path: Path):
    async with met(tmp_path) as (meeting, url, web):
        asking = asyncio.create_task(web.post(f"{url}/waits", data=b"{}"))
        await meeting.owner.begun.wait()
        asking.cancel()
        await meeting.owner.ended.wait()


async def test_a_process_that_ends_over_a_request_leaves_its_outcome_unknown(tmp_path: Path):
    async with met(tmp_path) as (meeting, url, web):
        async with web.get(f"{url}/dies") as answer:
            assert answer.status == 503
        [failure] = meeting.failures
        assert isinstance(failure, Refused)
        assert "what became of it is not known" in str(failure)


async def test_half_an_answer_is_seen_as_half(tmp_path: Path):
    async with met(tmp_path) as (_, url, web):
        with pytest.raises(aiohttp.ClientPayloadError):
            async with web.get(f"{url}/half") as answer:
                await answer.read()


async def test_calls_are_cut_off_at_the_end_where_it_is_in_a_hurry(tmp_path: Path):
    async with met(tmp_path) as (meeting, url, web):
        asking = asyncio.create_task(web.post(f"{url}/waits", data=b"{}"))
        await meeting.owner.begun.wait()
        meeting.hurry.set()
        await meeting.taken.close()
        assert meeting.owner.ended.is_set()
        assert (await asking).status == 503


# --- who may


@pytest.mark.requirement("workers:handed-over")
async def test_whoever_is_not_there_has_had_nothing_of_a_request(tmp_path: Path):
    async with met(tmp_path) as (meeting, url, web):
        await meeting.taken.close()
        async with web.post(f"{url}/echo", data=b"x") as answer:
            assert answer.status == 503
        assert isinstance(meeting.failures[0], PeerAway)
        assert meeting.owner.scope == {}


async def test_who_has_another_key_is_not_heard(tmp_path: Path):
    async with met(tmp_path, key=b"o" * 32) as (meeting, url, web):
        async with web.post(f"{url}/echo", data=b"x") as answer:
            assert answer.status == 503
        assert isinstance(meeting.failures[0], PeerAway)
        assert meeting.owner.scope == {}


async def test_the_socket_is_its_owners_and_one_that_was_left_makes_room(tmp_path: Path):
    left = tmp_path / "owner"
    left.write_bytes(b"")
    async with met(tmp_path) as (meeting, _, _):
        assert stat.S_IMODE(meeting.path.stat().st_mode) == 0o600
    assert not left.exists()


async def test_a_frame_that_is_too_large_is_not_read(tmp_path: Path):
    async with met(tmp_path) as (meeting, _, _):
        reader, writer = await asyncio.open_unix_connection(str(meeting.path))
        channel = FrameChannel(reader, writer)
        await channel.write(GREETING, KEY)
        assert await channel.expect(LISTENING) == b""
        writer.write((MAX_FRAME_BYTES + 1).to_bytes(4) + b"R" + b"x" * 100)
        assert await channel.read() is None
        channel.abort()
        assert meeting.owner.scope == {}
