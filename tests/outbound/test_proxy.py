"""Through a proxy: what it sees, what it may not see, and what it does wrong."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from bascule.outbound.egress import EgressRules
from bascule.outbound.http import Proxy
from tests.outbound.authority import Authority
from tests.outbound.exchange import (
    BOTH_LOOPS,
    Outcome,
    client,
    descriptors,
    failed,
    outcome,
    request,
    url,
)
from tests.outbound.scripted_server import (
    Line,
    Script,
    answering,
    answering_once,
    closing,
    resetting,
    scripted,
)
from tests.outbound.wire_answers import TEXT, chunked, measured
from tests.waits import until

pytestmark = BOTH_LOOPS
PASSWORD = "Basic cHJveHk6c2VjcmV0"  # pragma: allowlist secret
TOKEN = "Bearer only-for-the-server"  # pragma: allowlist secret
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def here(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]


def through(port: int, authorization: str | None = PASSWORD) -> Proxy:
    return Proxy(url(f"http://127.0.0.1:{port}"), authorization)


def tunnelling(port: int, *, reply: bytes = ESTABLISHED) -> Script:
    """Be a proxy that leads everything to one port."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def script(line: Line) -> None:
        await line.request()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await line.say(reply)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(carry(line.reader, writer))
                group.create_task(carry(reader, line.writer))
        except* OSError:
            pass
        finally:
            writer.close()

    return script


async def test_a_tunnel_leads_to_the_server_and_serves_again(authority: Authority):
    async with (
        scripted(answering(chunked(TEXT)), tls=authority.serving("server.test")) as server,
        scripted(tunnelling(server.port)) as proxy,
        client(tls=authority.trusting(), proxy=through(proxy.port), resolve=here) as http,
    ):
        asked = request(
            f"https://server.test:{server.port}/path?q=1", headers={"Authorization": TOKEN}
        )
        for _ in range(3):
            assert await outcome(http, asked) == Outcome(200, TEXT)
        assert (len(proxy.lines), len(server.lines), len(server.requests)) == (1, 1, 3)
        connect = proxy.requests[0].decode()
        assert connect.startswith(f"CONNECT server.test:{server.port} HTTP/1.1\r\n")
        assert f"\r\nProxy-Authorization: {PASSWORD}\r\n" in connect
        assert TOKEN not in connect
        assert all(PASSWORD.encode() not in seen for seen in server.requests)
        assert server.requests[0].startswith(b"POST /path?q=1 HTTP/1.1\r\n")


async def test_plain_http_goes_through_a_proxy_by_its_whole_url():
    async with (
        scripted(answering(measured())) as proxy,
        client(proxy=through(proxy.port), resolve=here) as http,
    ):
        for _ in range(2):
            got = await outcome(http, request("http://server.test:8080/path?q=1"))
            assert got == Outcome(200, TEXT)
        assert len(proxy.lines) == 1
        seen = proxy.requests[0].decode()
        assert seen.startswith("POST http://server.test:8080/path?q=1 HTTP/1.1\r\n")
        assert "\r\nHost: server.test:8080\r\n" in seen
        assert f"\r\nProxy-Authorization: {PASSWORD}\r\n" in seen


async def test_without_a_credential_none_is_sent():
    async with (
        scripted(answering(measured())) as proxy,
        client(proxy=through(proxy.port, None), resolve=here) as http,
    ):
        await outcome(http, request("http://server.test/"))
        await outcome(http, request("https://server.test/"))
        assert len(proxy.requests) == 2
        assert not any(b"authorization" in seen.lower() for seen in proxy.requests)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_is_not_there_is_no_connection(scheme: str):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        proxy = through(closed.getsockname()[1])
    async with client(proxy=proxy, resolve=here) as http:
        got = await outcome(http, request(f"{scheme}://server.test/"))
        assert got == failed("Unconnected: refused")
        assert not http.is_open


WRONG: dict[str, Script] = {
    "a refusal": answering_once(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
    "a wish for a password": answering_once(
        b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    ),
    "another success": answering_once(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "an interim answer": answering_once(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a redirect": answering_once(b"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\n\r\n"),
    "something else": answering_once(b"220 mail.example ESMTP\r\n\r\n"),
    "a status in other digits": answering_once(b"HTTP/1.1 +200 OK\r\n\r\n"),
    "HTTP/2": answering_once(b"HTTP/2 200 OK\r\n\r\n"),
    "too much": answering_once(ESTABLISHED + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "without an end": answering_once(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000),
    "half": closing(ESTABLISHED[:20]),
    "nothing": closing(),
    "a reset": resetting(ESTABLISHED[:20]),
    "no TLS behind it": answering_once(ESTABLISHED, b"HTTP/1.1 200 OK\r\n\r\n"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_proxy_that_does_not_lead_on_is_no_connection_and_gets_nothing(name: str):
    async with (
        scripted(WRONG[name]) as proxy,
        client(proxy=through(proxy.port), resolve=here) as http,
    ):
        got = await outcome(http, request("https://server.test/", headers={"Authorization": TOKEN}))
        wanted = "tls" if name == "no TLS behind it" else "network"
        assert got == failed(f"Unconnected: {wanted}")
        assert not http.is_open
        await proxy.closed()
        assert len(proxy.requests) == 1
        assert TOKEN.encode() not in proxy.requests[0]


@pytest.mark.parametrize("said", [b"", ESTABLISHED[:20], ESTABLISHED])
async def test_a_proxy_that_hangs_is_late(said: bytes):
    before = descriptors()
    async with (
        scripted(answering_once(said)) as proxy,
        client(proxy=through(proxy.port), connect_seconds=0.1, resolve=here) as http,
    ):
        got = await outcome(http, request("https://server.test/"))
        assert got == failed("Unconnected: late")
        got = await outcome(http, request("https://server.test/", seconds=0.05))
        assert got == failed("DeadlineExceeded")
        await proxy.closed()
        assert not http.is_open
    await until(lambda: descriptors() <= before)


async def test_the_certificate_is_the_servers_and_not_the_proxys(authority: Authority):
    async with (
        scripted(answering(measured()), tls=authority.serving("proxy.test")) as server,
        scripted(tunnelling(server.port)) as proxy,
        client(tls=authority.trusting(), proxy=through(proxy.port), resolve=here) as http,
    ):
        got = await outcome(http, request("https://server.test/"))
        assert got == failed("Unconnected: certificate")
        assert not server.requests


# The egress rules, for what is decided here


async def test_the_rules_hold_for_addresses_behind_a_proxy():
    async def inside(host: str, _port: int) -> list[str]:
        return ["10.0.0.1"] if host == "inside.test" else ["127.0.0.1"]

    async with (
        scripted(answering(measured())) as proxy,
        client(egress=EgressRules(), proxy=through(proxy.port), resolve=inside) as http,
    ):
        for address in ("https://10.0.0.1/", "https://169.254.169.254/", "https://inside.test/"):
            assert await outcome(http, request(address)) == failed("LaunchDenied")
        got = await outcome(http, request("http://server.test/"))
        assert got == failed("LaunchDenied"), "plain http to another machine"
        assert not proxy.lines


async def test_the_rules_are_for_servers_and_not_for_the_proxy_that_the_operator_names():
    async def resolve(host: str, _port: int) -> list[str]:
        return ["127.0.0.1"] if host == "proxy.test" else ["93.184.215.14"]

    async with scripted(answering_once(b"HTTP/1.1 403 Forbidden\r\n\r\n")) as peer:
        proxy = Proxy(url(f"http://proxy.test:{peer.port}"), PASSWORD)
        async with client(egress=EgressRules(), proxy=proxy, resolve=resolve) as http:
            got = await outcome(http, request("https://server.test/"))
            assert got == failed("Unconnected: network")
            assert peer.requests[0].startswith(b"CONNECT server.test:443 ")
