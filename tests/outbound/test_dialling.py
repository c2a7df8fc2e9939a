"""Making a connection: several addresses, one of them good; and how many are made at most."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import pytest

from bascule.errors import DeadlineExceeded, LaunchDenied, NotDelivered
from bascule.outbound.egress import EgressRules
from bascule.outbound.failures import Unconnected
from bascule.outbound.http import HttpClient, HttpOptions, HttpRequest, Resolve
from bascule.outbound.url import Url

HERE = "127.0.0.1"
OTHER = "127.0.0.2"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Site:
    """Answers every request once it may; counts connections and requests."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = self.most = self.requests = 0
        self.asked = asyncio.Event()
        self.may = asyncio.Event()
        self.may.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.most = max(self.most, self.connections)
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.requests += 1
                self.asked.set()
                await self.may.wait()
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.connections -= 1
            writer.close()


@asynccontextmanager
async def site(host: str = HERE, port: int = 0) -> AsyncGenerator[Site]:
    made = Site()
    server = await asyncio.start_server(made.serve, host, port)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()


@contextlib.contextmanager
def full(host: str, port: int) -> Generator[None]:
    """Listen and accept nobody: whoever connects waits."""
    with contextlib.ExitStack() as held:
        listener = held.enter_context(socket.socket())
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(4):
            waiting = held.enter_context(socket.socket())
            waiting.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                waiting.connect((host, port))
        yield


def resolving(*addresses: str) -> Resolve:
    async def resolve(_host: str, _port: int) -> list[str]:
        return list(addresses)

    return resolve


@asynccontextmanager
async def client(resolve: Resolve | None = None, **fields: object) -> AsyncGenerator[HttpClient]:
    options = HttpOptions(
        **{"connect_seconds": 20.0, "egress": None, "resolve": resolve, **fields}  # pyright: ignore[reportArgumentType]
    )
    made = HttpClient(options)
    try:
        async with asyncio.timeout(60):
            yield made
    finally:
        await made.close()


async def get(http: HttpClient, port: int, host: str = "name.example", seconds: float = 20) -> int:
    url = Url.parse(f"http://{host}:{port}/")
    deadline = asyncio.get_running_loop().time() + seconds
    answer = await http.send(HttpRequest("GET", url, {}, None, deadline))
    assert await answer.read(10) == b"{}"
    return answer.status


async def test_an_address_where_nobody_listens_gives_way_to_the_next():
    async with site() as server, client(resolving(OTHER, HERE)) as http:
        assert await get(http, server.port) == 200


async def test_an_address_that_does_not_answer_does_not_hold_up_the_next():
    async with site() as server:
        with full(OTHER, server.port):
            async with client(resolving(OTHER, HERE)) as http:
                assert await get(http, server.port) == 200


async def test_where_no_address_answers_the_first_one_s_reason_is_given():
    async with site() as server, client(resolving(OTHER, "127.0.0.3")) as http:
        with pytest.raises(Unconnected) as failed:
            await get(http, server.port)
        assert failed.value.why == "refused"


async def test_one_refused_address_among_good_ones_refuses_the_name():
    async with site() as server:
        rules = EgressRules(["name.example"])
        async with client(resolving(HERE, "169.254.169.254"), egress=rules, insecure=True) as http:
            with pytest.raises(LaunchDenied, match="metadata"):
                await get(http, server.port)
        assert not server.requests


async def test_no_more_connections_are_made_than_allowed_and_everybody_has_a_turn():
    async with site() as server, client(resolving(HERE), connections=3) as http:
        asked = [get(http, server.port) for _ in range(30)]
        assert await asyncio.gather(*asked) == [200] * 30
        assert server.most == 3
        assert server.requests == 30


async def test_a_turn_that_does_not_come_is_a_request_that_was_never_sent():
    async with site() as server, client(resolving(HERE), connections=1) as http:
        server.may.clear()
        first = asyncio.create_task(get(http, server.port))
        await server.asked.wait()
        with pytest.raises(DeadlineExceeded):
            await get(http, server.port, seconds=0.02)
        server.may.set()
        assert await first == 200
        assert await get(http, server.port) == 200
        assert server.requests == 2


async def test_a_turn_that_is_given_up_goes_to_the_next():
    async with site() as server, client(resolving(HERE), connections=1) as http:
        server.may.clear()
        asked = [asyncio.create_task(get(http, server.port)) for _ in range(4)]
        await server.asked.wait()
        asked[1].cancel()
        server.may.set()
        ends = await asyncio.gather(*asked, return_exceptions=True)
        assert [end for end in ends if end != 200] == [ends[1]]
        assert isinstance(ends[1], asyncio.CancelledError)


async def test_a_kept_connection_to_another_place_makes_room():
    async with site() as one, site() as two, client(resolving(HERE), connections=1) as http:
        for _ in range(3):
            assert await get(http, one.port) == 200
            assert await get(http, two.port) == 200
        assert (one.most, two.most) == (1, 1)


async def test_closing_tells_who_waits_for_a_turn_and_who_waits_for_an_answer():
    async with site() as server, client(resolving(HERE), connections=1) as http:
        server.may.clear()
        asked = [asyncio.create_task(get(http, server.port)) for _ in range(3)]
        await server.asked.wait()
        await http.close()
        ends = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(end).__name__ for end in ends] == [
            "Unanswered",
            "NotDelivered",
            "NotDelivered",
        ]
        assert not http.is_open
        server.may.set()
        assert await get(http, server.port) == 200  # it may be used again


async def test_closing_while_a_connection_is_made_sends_nothing():
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def resolve(_host: str, _port: int) -> list[str]:
        begun.set()
        await go_on.wait()
        return [HERE]

    async with site() as server, client(resolve) as http:
        asked = asyncio.create_task(get(http, server.port))
        await begun.wait()
        await http.close()
        go_on.set()
        with pytest.raises(NotDelivered, match="closed"):
            await asked
        assert not server.requests
        assert not http.is_open


async def test_a_request_whose_time_is_up_is_not_sent():
    async with site() as server, client(resolving(HERE)) as http:
        assert await get(http, server.port) == 200
        with pytest.raises(DeadlineExceeded):
            await get(http, server.port, seconds=0)
        assert await get(http, server.port) == 200
        assert (server.requests, server.most) == (2, 1)
