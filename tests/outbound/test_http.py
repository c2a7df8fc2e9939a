"""The HTTP client: an answer as it comes, and what is known when none does."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bascule.errors import (
    BasculeError,
    DeadlineExceeded,
    LaunchDenied,
    MalformedReply,
    NotDelivered,
    OutcomeUnknown,
)
from bascule.outbound.egress import EgressRules
from bascule.outbound.failures import BrokenAnswer, Unanswered, Unconnected
from bascule.outbound.http import HttpAnswer, HttpClient, HttpOptions, HttpRequest, Resolve
from bascule.outbound.url import Url
from tests.client.peers import Conduct, answers, hangs_up, is_silent, nobody, peer

SECRET = "sk-nobody-may-see-this"  # pragma: allowlist secret


@asynccontextmanager
async def client(
    egress: EgressRules | None = None, *, connect_seconds: float = 5, resolve: Resolve | None = None
) -> AsyncGenerator[HttpClient]:
    options = HttpOptions(connect_seconds=connect_seconds, egress=egress, resolve=resolve)
    made = HttpClient(options)
    try:
        yield made
    finally:
        await made.close()


async def sent(
    http: HttpClient, url: str, *, seconds: float = 5, idle_seconds: float | None = None
) -> HttpAnswer:
    deadline = asyncio.get_running_loop().time() + seconds
    headers = {"Authorization": SECRET}
    return await http.send(
        HttpRequest("POST", Url.parse(url), headers, b"{}", deadline, idle_seconds)
    )


async def failed(
    http: HttpClient, url: str, *, seconds: float = 5, idle_seconds: float | None = None
) -> BasculeError:
    """Return how a request failed, wherever it did; what was sent stands in nothing of it."""
    with pytest.raises(BasculeError) as raised:
        await (await sent(http, url, seconds=seconds, idle_seconds=idle_seconds)).read(1000)
    error = raised.value
    assert SECRET not in f"{error!r} {error.__cause__!r}"
    return error


def says(text: bytes, *, then_silent: bool = False) -> Conduct:
    async def conduct(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()
        if then_silent:
            await is_silent(head, writer)

    return conduct


# Nothing was sent


async def test_where_nobody_listens_the_connection_is_refused():
    async with client() as http:
        error = await failed(http, nobody())
    assert isinstance(error, Unconnected)
    assert isinstance(error, NotDelivered)
    assert (error.why, error.words) == ("refused", "Connection refused")


async def test_a_name_that_is_not_found_is_said_to_be_that():
    async def unknown(_host: str, _port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with client(resolve=unknown) as http:
        error = await failed(http, "http://nowhere.example/")
    assert isinstance(error, Unconnected)
    assert error.why == "name"
    assert "not known" in error.words


async def test_a_handshake_that_does_not_end_is_a_connection_that_was_late():
    async with peer(is_silent) as server, client(connect_seconds=0.05) as http:
        error = await failed(http, server.url.replace("http:", "https:"))
        assert not server.heads
    assert isinstance(error, Unconnected)
    assert error.why == "late"


async def test_what_does_not_speak_tls_fails_the_handshake():
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server, client() as http:
        error = await failed(http, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert isinstance(error, Unconnected)
    assert error.why == "tls"


async def test_an_address_that_the_rules_refuse_is_not_connected_to():
    async with client(EgressRules()) as http:
        assert isinstance(await failed(http, "https://10.1.2.3/"), LaunchDenied)


# Bytes may have left


async def test_a_server_that_hangs_up_leaves_the_outcome_unknown_and_is_asked_once():
    async with peer(hangs_up) as server, client() as http:
        error = await failed(http, server.url)
        assert len(server.heads) == 1
    assert isinstance(error, Unanswered)
    assert isinstance(error, OutcomeUnknown)


@pytest.mark.parametrize(
    "text",
    [
        b"220 mail.example ESMTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 10\r\n\r\nabc",
    ],
)
async def test_an_answer_that_is_not_http_or_breaks_off_leaves_the_outcome_unknown(text: bytes):
    async with peer(says(text)) as server, client() as http:
        error = await failed(http, server.url)
    assert isinstance(error, BrokenAnswer)
    assert isinstance(error, OutcomeUnknown)


@pytest.mark.parametrize("text", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"])
async def test_the_deadline_bounds_head_and_body(text: bytes):
    async with peer(says(text, then_silent=True)) as server, client() as http:
        assert isinstance(await failed(http, server.url, seconds=0.1), DeadlineExceeded)
        error = await failed(http, server.url, idle_seconds=0.05)
        assert isinstance(error, DeadlineExceeded)


async def test_a_body_over_its_limit_is_refused_and_its_connection_closed():
    async with peer(answers("200 OK", b"x" * 1001)) as server, client() as http:
        answer = await sent(http, server.url)
        with pytest.raises(MalformedReply, match="over the limit of 1000 bytes"):
            await answer.read(1000)
        assert not answer.connected


# Answers


async def test_an_answer_comes_in_pieces_or_whole():
    async with peer(answers("404 Not Found", b"gone")) as server, client() as http:
        answer = await sent(http, server.url)
        assert (answer.status, answer.headers["content-length"]) == (404, "4")
        assert b"".join([piece async for piece in answer]) == b"gone"
        assert answer.ended
        assert await (await sent(http, server.url)).read(4) == b"gone"


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        ("Content-Type: Application/JSON ; charset=utf-8\r\n", "application/json"),
        ("", ""),
    ],
)
async def test_the_type_of_an_answer_is_without_its_parameters(header: str, kind: str):
    text = f"HTTP/1.1 200 OK\r\n{header}Content-Length: 0\r\n\r\n".encode()
    async with peer(says(text)) as server, client() as http:
        assert (await sent(http, server.url)).content_type == kind


async def test_a_client_opens_when_it_is_used_and_again_after_it_was_closed():
    async with peer(answers("200 OK", b"yes")) as server, client() as http:
        for _ in range(2):
            assert not http.is_open
            assert await (await sent(http, server.url)).read(10) == b"yes"
            assert http.is_open
            await http.close()
