"""The server over real sockets: addresses, TLS, limits, and an end that leaves nothing behind."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import ssl
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.guard import OPEN, GuardedApp, route
from bascule.asgi.json import json_response
from bascule.asgi.presence import while_connected
from bascule.asgi.serve import CannotServe, Limits, Serving, Tls
from bascule.asgi.sse import DRAINING, Event, EventStream
from bascule.clock import SYSTEM_CLOCK
from tests.asgi.caller import app_of, bearer, echo, make_tokens, ok_route

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what the tests are about


@asynccontextmanager
async def served(app: GuardedApp, **more: Any) -> AsyncGenerator[tuple[Serving, Any]]:
    async with asyncio.timeout(15), Serving(app, **more) as server, aiohttp.ClientSession() as web:
        yield server, web


async def test_a_free_port_is_found_and_answers():
    async with served(app_of(), port=0) as (server, web):
        assert server.url == f"http://127.0.0.1:{server.port}"
        async with web.get(server.url) as answer:
            assert (answer.status, await answer.json()) == (200, {"ok": True})
            assert "server" not in answer.headers


@pytest.mark.requirement("admin:loopback")
async def test_without_being_told_it_listens_on_loopback_alone():
    async with served(app_of()) as (server, _):
        assert server.url.startswith("http://127.0.0.1:")
        # 127.0.0.2 is loopback too, and another address: nothing listens there.
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", server.port)


@pytest.mark.requirement("admin:loopback")
@pytest.mark.parametrize("host", [EVERYWHERE, "::", "192.0.2.1"])
async def test_an_address_for_other_machines_needs_tls_or_a_word(host: str):
    with pytest.raises(CannotServe, match="reached from other machines"):
        async with Serving(app_of(), host):
            raise AssertionError("it served")


async def test_plain_http_for_other_machines_can_be_asked_for():
    async with served(app_of(), host=EVERYWHERE, insecure=True) as (server, web):
        answer = await web.get(f"http://127.0.0.1:{server.port}")
        assert (answer.status, await answer.json()) == (200, {"ok": True})


@pytest.mark.parametrize("host", ["", "no such host", "192.0.2.1"])
async def test_an_address_that_is_not_here_is_told_as_such(host: str):
    with pytest.raises(CannotServe):
        async with Serving(app_of(), host, insecure=True):
            raise AssertionError("it served")


async def test_a_port_that_is_taken_is_told_as_such():
    async with served(app_of()) as (server, _):
        with pytest.raises(CannotServe, match=f"cannot listen on 127.0.0.1:{server.port}"):
            async with Serving(app_of(), port=server.port):
                raise AssertionError("it served")


def certificate(folder: Path) -> Tls:
    """Make a certificate for 127.0.0.1 with the machine's own openssl."""
    tls = Tls(certificate=str(folder / "cert.pem"), key=str(folder / "key.pem"))
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    more = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = [*words.split(), "-keyout", tls.key, "-out", tls.certificate, *more]
    subprocess.run(command, check=True, capture_output=True, timeout=20)
    return tls


async def test_with_a_certificate_it_speaks_tls_and_nothing_else(tmp_path: Path):
    tls = certificate(tmp_path)
    trust = ssl.create_default_context(cafile=tls.certificate)
    async with served(app_of(), tls=tls) as (server, web):
        assert server.url.startswith("https://")
        async with web.get(server.url, ssl=trust) as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await web.get(server.url.replace("https", "http"))


async def test_a_certificate_that_cannot_be_read_is_told_as_such(tmp_path: Path):
    tls = Tls(certificate=str(tmp_path / "none.pem"), key=str(tmp_path / "none.key"))
    with pytest.raises(CannotServe, match=r"none\.pem"):
        async with Serving(app_of(), tls=tls):
            raise AssertionError("it served")


async def test_the_guard_stands_over_real_http_too():
    tokens = make_tokens()
    app = app_of(
        ok_route("/read", "registry:read"),
        route("/echo", echo, ["POST"], permission="registry:write"),
        tokens=tokens,
    )
    viewer, admin = await bearer(tokens, "viewer"), await bearer(tokens, "admin")
    async with served(app) as (server, web):
        seen: list[int] = []
        for headers in ({}, viewer, {**admin, "Host": "evil.example"}):
            async with web.get(f"{server.url}/read", headers=headers) as answer:
                seen.append(answer.status)
        for headers in (viewer, admin, {**admin, "Origin": "http://evil.example"}):
            async with web.post(f"{server.url}/echo", json=[1], headers=headers) as answer:
                seen.append(answer.status)
        assert seen == [401, 200, 421, 403, 200, 403]


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_beyond_the_cap_is_refused_and_its_connection_ends(chunked: bool):
    app = app_of(route("/", echo, ["POST"], permission=OPEN))
    headers = {"Content-Type": "application/json"}

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"1" * 65536

    async with served(app) as (server, web):
        body = pieces() if chunked else io.BytesIO(b"1" * (20 * 65536))
        async with web.post(server.url, data=body, headers=headers) as answer:
            assert (answer.status, answer.headers["Connection"]) == (413, "close")
            assert (await answer.json())["error"]["details"] == {"max_bytes": 1024 * 1024}
        async with web.post(server.url, data=b"[1]", headers=headers) as answer:
            assert await answer.json() == {"got": [1]}


async def raw(server: Serving, *parts: bytes) -> bytes:
    """Send bytes as they are; return everything that comes back until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await reader.read()
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_what_is_not_http_is_refused_in_the_shape_of_all_errors():
    async with served(app_of()) as (server, _):
        answer = await raw(server, b"\x16\x03\x01 nonsense\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["code"] == "invalid_request"


@pytest.mark.parametrize("cut", ["one header", "many headers", "the path"])
async def test_a_head_without_end_is_refused(cut: str):
    begun = {
        "one header": b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ",
        "many headers": b"GET / HTTP/1.1\r\nhost: localhost\r\n",
        "the path": b"GET /",
    }[cut]
    piece = (b"y: z\r\n" if cut == "many headers" else b"abcdef") * 4096
    async with served(app_of()) as (server, _):
        with_pieces = [begun, *[piece] * 24]
        try:
            answer = await raw(server, *with_pieces)
        except ConnectionError:
            return  # cut while the pieces were still on their way: refused as well
    assert answer.startswith(b"HTTP/1.1 400")


class Hall:
    """Endpoints that stay, and say when they began and ended."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended = asyncio.Event()
        self.release = asyncio.Event()

    async def slow(self, request: Request) -> Response:
        self.began.set()
        try:
            await self.release.wait()
            return json_response({"slow": True})
        finally:
            self.ended.set()

    async def last(self, request: Request) -> Response:
        """Stay until the server drains, and answer only then."""
        self.began.set()
        await request.scope[DRAINING].wait()
        self.ended.set()
        return json_response({"last": True})

    async def watched(self, request: Request) -> Response:
        return await while_connected(request.scope, request.receive, self.slow(request))

    async def stream(self, request: Request) -> Response:
        return EventStream(self._events(), SYSTEM_CLOCK)

    async def _events(self) -> AsyncGenerator[Event, None]:
        try:
            yield Event(data=1)
            self.began.set()
            await self.release.wait()
        finally:
            self.ended.set()

    def app(self) -> GuardedApp:
        paths = {
            "/slow": self.slow,
            "/last": self.last,
            "/watched": self.watched,
            "/stream": self.stream,
        }
        return app_of(*(route(path, it, ["GET"], permission=OPEN) for path, it in paths.items()))


async def test_a_call_under_way_finishes_while_the_server_drains():
    hall = Hall()
    async with aiohttp.ClientSession() as web, asyncio.timeout(15):
        async with Serving(hall.app()) as server:
            asked = asyncio.ensure_future(web.get(f"{server.url}/last"))
            await hall.began.wait()
        assert hall.ended.is_set()
        async with await asked as answer:
            assert await answer.json() == {"last": True}


async def test_a_call_that_does_not_finish_is_cancelled_after_the_drain_and_told(
    caplog: pytest.LogCaptureFixture,
):
    hall = Hall()
    async with aiohttp.ClientSession() as web, asyncio.timeout(15):
        async with Serving(hall.app(), limits=Limits(drain_seconds=1)) as server:
            asked = asyncio.ensure_future(web.get(f"{server.url}/slow"))
            await hall.began.wait()
        assert hall.ended.is_set()
        async with await asked as answer:
            assert answer.status == 503
            assert (await answer.json())["error"]["code"] == "shutting_down"
    assert not any(record.exc_info for record in caplog.records)
    assert "1 running after 1 s of draining: cancelled" in caplog.text


async def test_a_second_word_ends_the_drain_at_once():
    hall, hurry = Hall(), asyncio.Event()
    limits = Limits(drain_seconds=3600)
    async with aiohttp.ClientSession() as web, asyncio.timeout(15):
        async with Serving(hall.app(), limits=limits, hurry=hurry) as server:
            asked = asyncio.ensure_future(web.get(f"{server.url}/slow"))
            await hall.began.wait()
            hurry.set()
        assert hall.ended.is_set()
        async with await asked as answer:
            assert answer.status == 503


async def test_a_stream_ends_properly_when_the_server_drains():
    hall = Hall()
    async with aiohttp.ClientSession() as web, asyncio.timeout(15):
        async with Serving(hall.app()) as server:
            answer = await web.get(f"{server.url}/stream")
            await hall.began.wait()
        assert hall.ended.is_set()
        assert await answer.read() == b"data: 1\n\n"


@pytest.mark.parametrize("path", ["/stream", "/watched"])
async def test_a_caller_that_hangs_up_ends_what_it_asked_for(path: str):
    hall = Hall()
    async with served(hall.app()) as (server, _):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        await hall.began.wait()
        writer.close()
        await writer.wait_closed()
        await hall.ended.wait()


async def test_nothing_listens_afterwards_and_no_task_is_left():
    before = asyncio.all_tasks()
    async with served(app_of()) as (server, web):
        await (await web.get(server.url)).read()
    assert asyncio.all_tasks() == before
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", server.port))


async def test_the_end_waits_for_connections_and_not_for_the_clock(monkeypatch: pytest.MonkeyPatch):
    loop = asyncio.get_running_loop()
    stopped = loop.time()
    async with Serving(app_of()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b"200 OK" in await reader.readline()
        monkeypatch.setattr(loop, "time", lambda: stopped)  # no timer ends any more
    assert b'{"ok":true}' in await reader.read()
    assert server.connections == 0
    writer.close()


async def test_a_start_that_is_cancelled_leaves_nothing_listening():
    before = asyncio.all_tasks()
    starting = asyncio.ensure_future(Serving(app_of()).__aenter__())
    await asyncio.wait({starting}, timeout=0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nhost: lo"])
async def test_a_head_that_does_not_come_is_not_awaited_for_ever(begun: bytes):
    async with served(app_of(), limits=Limits(head_seconds=0.02)) as (server, _):
        assert await raw(server, begun) == b""


def test_the_same_holds_on_uvloop():
    async def asked() -> tuple[int, bytes]:
        hall = Hall()
        async with aiohttp.ClientSession() as web, asyncio.timeout(15):
            async with Serving(hall.app()) as server:
                answer = await web.get(f"{server.url}/stream")
                await hall.began.wait()
            return answer.status, await answer.read()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(asked()) == (200, b"data: 1\n\n")
