"""The engine and servers that others wrote: kept connections, chunks, large bodies, events."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.outbound.authority import Authority
from tests.outbound.exchange import BOTH_LOOPS, Outcome, client, gathered, outcome, request
from tests.outbound.real_app import CHUNKS
from tests.outbound.real_servers import NAMES, NGINX, nginx, serving
from tests.scale import scaled
from tests.waits import until

LARGE = bytes(range(256)) * 4 * 8192
CHUNKED = b"".join(b"%06d" % number * 200 for number in range(CHUNKS))
EVENTS = b"".join(b"data: %d\n\n" % number for number in range(10))
WITH_NGINX = pytest.mark.skipif(NGINX is None, reason="no nginx on this machine")


pytestmark = BOTH_LOOPS


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """Give the address of each server; they start side by side, once."""
    with ExitStack() as stack:
        ports = {name: stack.enter_context(serving(name)) for name in NAMES}
        yield {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}


@pytest.fixture(params=NAMES)
def address(request: pytest.FixtureRequest, addresses: dict[str, str]) -> str:
    return addresses[request.param]


async def test_one_connection_serves_many_requests(address: str):
    async with client(connections=1) as http:
        for number in range(scaled(500)):
            body = b"%d" % number
            assert await outcome(http, request(f"{address}/echo", body=body)) == Outcome(200, body)


async def test_many_at_once_get_their_own_answers(address: str):
    async with client(connections=16) as http:

        async def one(number: int) -> None:
            body = b"%d" % number * (number + 1)
            assert await outcome(http, request(f"{address}/echo", body=body)) == Outcome(200, body)

        async with asyncio.TaskGroup() as group:
            for number in range(scaled(1_000)):
                group.create_task(one(number))


async def test_chunks_are_joined(address: str):
    async with client(connections=1) as http:
        for method in ("GET", "GET", "POST"):
            got = await outcome(http, request(f"{address}/chunks", method=method))
            assert got == Outcome(200, CHUNKED)


async def test_events_come_as_a_stream(address: str):
    async with client() as http:
        answer = await http.send(request(f"{address}/events", method="GET", idle_seconds=20))
        assert answer.content_type == "text/event-stream"
        assert await gathered(answer) == EVENTS


async def test_large_bodies_go_both_ways(address: str):
    async with client() as http:
        for _ in range(2):
            asked = request(f"{address}/echo", body=LARGE, seconds=60)
            assert await outcome(http, asked, limit=len(LARGE)) == Outcome(200, LARGE)


async def test_a_connection_that_a_server_ends_when_idle_is_noticed_and_replaced(
    addresses: dict[str, str],
):
    async def one(address: str) -> None:
        async with client() as http:
            for body in (b"one", b"two"):
                got = await outcome(http, request(f"{address}/echo", body=body))
                assert got == Outcome(200, body)
                await until(lambda: not http.is_open)

    async with asyncio.TaskGroup() as group:
        for address in addresses.values():
            group.create_task(one(address), name=address)


# nginx before another server


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def before(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Give the addresses of an nginx that ends each connection with its fifth answer."""
    folder: Path = tmp_path_factory.mktemp("nginx")
    certificate = authority.issue("nginx", "127.0.0.1")
    with serving("uvicorn") as port, nginx(folder, certificate, port, each=5) as (plain, secure):
        yield [f"http://127.0.0.1:{plain}", f"https://127.0.0.1:{secure}"]


@WITH_NGINX
@pytest.mark.parametrize("path", ["small", "echo"])
async def test_nginx_ends_connections_and_no_request_is_lost(
    before: list[str], authority: Authority, path: str
):
    async with client(tls=authority.trusting()) as http:
        for address in before:
            for number in range(scaled(1_000)):
                body = b"small" if path == "small" else b"%d" % number
                got = await outcome(http, request(f"{address}/{path}", body=body))
                assert got == Outcome(200, body)


@WITH_NGINX
async def test_nginx_leads_on_chunks_events_and_large_bodies(
    before: list[str], authority: Authority
):
    async with client(tls=authority.trusting()) as http:
        for address in before:
            assert await outcome(http, request(f"{address}/chunks")) == Outcome(200, CHUNKED)
            events = await http.send(request(f"{address}/events", method="GET"))
            assert await gathered(events) == EVENTS
            asked = request(f"{address}/echo", body=LARGE, seconds=60)
            assert await outcome(http, asked, limit=len(LARGE)) == Outcome(200, LARGE)


@WITH_NGINX
async def test_nginx_compresses_where_it_is_asked_to(before: list[str], authority: Authority):
    async with client(tls=authority.trusting()) as http:
        for address in before:
            asked = request(f"{address}/chunks", headers={"Accept-Encoding": "gzip"})
            assert await outcome(http, asked) == Outcome(200, CHUNKED)
            answer = await http.send(asked)
            assert gzip.decompress(await gathered(answer)) == CHUNKED


@WITH_NGINX
async def test_nginx_hangs_up_and_the_request_has_no_known_outcome(
    before: list[str], authority: Authority
):
    async with client(tls=authority.trusting()) as http:
        for address in before:
            for method in ("POST", "GET"):
                got = await outcome(http, request(f"{address}/gone", method=method))
                assert got == Outcome(failure="Unanswered")


@WITH_NGINX
async def test_connections_that_nginx_ends_when_idle_are_noticed(
    before: list[str], authority: Authority
):
    async with client(tls=authority.trusting()) as http:
        for address in [*before, *before]:
            assert await outcome(http, request(f"{address}/small")) == Outcome(200, b"small")
            await until(lambda: not http.is_open)
