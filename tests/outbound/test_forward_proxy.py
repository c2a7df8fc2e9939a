"""The proxy of a confined server: what it lets through, what it refuses, and the way it takes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.outbound.forward_proxy import MOST_REFUSALS, ForwardProxy, Passage
from bascule.outbound.rules import NodeRules
from bascule.testing.clock import FakeClock
from tests.outbound.scripted_server import Line, answering, answering_once, closing, scripted
from tests.outbound.test_proxy import tunnelling
from tests.outbound.wire_answers import TEXT, measured
from tests.waits import SOON_SECONDS, until

SECRET = "http://ann:secret@127.0.0.1:{}"  # pragma: allowlist secret
AUTHORIZATION = b"Proxy-Authorization: Basic YW5uOnNlY3JldA=="  # pragma: allowlist secret


class Asking:
    """A proxy as its server sees it, and what the node was told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.told: list[Passage] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def open(self, words: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(self.path)
        self.writers.append(writer)
        writer.write(words)
        return reader, writer

    async def ask(self, words: bytes) -> bytes:
        """Return all that is answered."""
        reader, _ = await self.open(words)
        async with asyncio.timeout(SOON_SECONDS):
            return await reader.read()

    @property
    def verdicts(self) -> list[tuple[str, str, int]]:
        return [(each.verdict, each.host, each.port) for each in self.told]


@asynccontextmanager
async def proxying(
    *hosts: str,
    rules: NodeRules | None = None,
    environ: Mapping[str, str] | None = None,
    addresses: Mapping[str, list[list[str]]] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> AsyncGenerator[Asking]:
    """Run a proxy; ``addresses`` are what a name leads to, each time that it is asked for."""
    left = {host: list(found) for host, found in (addresses or {}).items()}

    async def resolve(host: str, _port: int) -> list[str]:
        if host[0].isdigit() or ":" in host:
            return [host]
        if host not in left:
            raise OSError(f"{host} is not known")
        return left[host].pop(0)

    asking = Asking(Path("/tmp", f"proxy-{secrets.token_hex(8)}"))
    proxy = ForwardProxy(
        hosts, rules or NodeRules(), environ or {}, asking.told.append, clock=clock, resolve=resolve
    )
    await proxy.listen(asking.path)
    try:
        yield asking
    finally:
        await proxy.close()
        for writer in asking.writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        asking.path.unlink()


def behind(port: int) -> NodeRules:
    return NodeRules(proxy=f"http://127.0.0.1:{port}")


# What is asked, in odd ways


@pytest.mark.parametrize(
    "head",
    [
        "CONNECT other.test\0.site.test:443 HTTP/1.1",
        "CONNECT [fd00::1%.site.test]:443 HTTP/1.1",
        "CONNECT a.site.test@other.test:443 HTTP/1.1",
        "CONNECT other.test/.site.test:443 HTTP/1.1",
        "CONNECT other.test#.site.test:443 HTTP/1.1",
        "CONNECT other.test\\.site.test:443 HTTP/1.1",
        "CONNECT https://a.site.test:443 HTTP/1.1",
        "CONNECT a.site.test HTTP/1.1",
        "CONNECT a.site.test:0 HTTP/1.1",
        "CONNECT a.site.test:443:443 HTTP/1.1",
        "CONNECT a.site.test:99999 HTTP/1.1",
        f"CONNECT {'a' * 300}.site.test:443 HTTP/1.1",
        "CONNECT a.site.test:443 HTTP/2.0",
        "CONNECT\ta.site.test:443 HTTP/1.1",
        "GET /path HTTP/1.1",
        "GET https://a.site.test/ HTTP/1.1",
        "GET http://a.site.test:0/ HTTP/1.1",
        "GET http://user@a.site.test:443/ HTTP/1.1",
        "GET http://a.site.test:443\0/ HTTP/1.1",
        "get http://a.site.test:443/ HTTP/1.1",
        "GET http://a.site.test:443/ HTTP/1.1\r\nX: y\nHost: other.test",
        "GET http://a.site.test:443/ HTTP/1.1\r\nX: y\n\nGET http://other.test/ HTTP/1.1",
        "GET http://a.site.test:443/ HTTP/1.1\r\nX: y\rZ: z",
        "GET http://a.site.test:443/ HTTP/1.1\r\nX: y\r\n folded",
        "GET http://a.site.test:443/ HTTP/1.1\r\nX : y",
        "GET http://a.site.test:443/ HTTP/1.1\r\nX",
        "POST http://a.site.test:443/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1",
        "POST http://a.site.test:443/ HTTP/1.1\r\nContent-Length: +1",
        "POST http://a.site.test:443/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
        "POST http://a.site.test:443/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked",
    ],
)
async def test_what_can_be_read_in_two_ways_is_refused(head: str):
    lead = {"other.test": [["93.184.215.14"]] * 2, "a.site.test": [["93.184.215.14"]] * 2}
    async with proxying("*.site.test", addresses=lead) as asking:
        answer = await asking.ask(f"{head}\r\n\r\n".encode("latin-1"))
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert asking.told == []


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("other.test:443", "other.test:443 is not among this server's sandbox.hosts"),
        ("site.test:444", "site.test:444 is not among"),
        ("notsite.test:443", "notsite.test:443 is not among"),
        ("site.test.other.test:443", "is not among"),
        ("[::1]:443", "::1:443 is not among"),
        ("127.0.0.1:443", "is not among"),
        ("inside.site.test:443", "10.0.0.1, where inside.site.test leads: it is a private"),
        ("mixed.site.test:443", "169.254.169.254, where mixed.site.test leads: it is a metadata"),
        ("mapped.site.test:443", "it is a loopback address"),
    ],
)
async def test_other_hosts_and_private_addresses_are_refused(target: str, message: str):
    lead = {
        "inside.site.test": [["10.0.0.1"]],
        "mixed.site.test": [["93.184.215.14", "169.254.169.254"]],
        "mapped.site.test": [["::ffff:127.0.0.1"]],
    }
    async with proxying("site.test", "*.site.test", addresses=lead) as asking:
        answer = await asking.ask(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert message in answer.decode()
        assert [each.verdict for each in asking.told] == ["refused"]


@pytest.mark.parametrize("host", ["LOCALHOST", "localhost.", "Localhost"])
async def test_a_host_is_the_same_in_capitals_and_with_a_dot_at_its_end(host: str):
    lead = {"localhost": [["127.0.0.1"]]}
    async with (
        scripted(closing(measured())) as site,
        proxying(f"localhost:{site.port}", addresses=lead) as asking,
    ):
        words = f"GET http://{host}:{site.port}/ HTTP/1.1\r\n\r\n"
        assert (await asking.ask(words.encode())).endswith(TEXT)
        assert asking.verdicts[0] == ("allowed", "localhost", site.port)


async def test_a_name_is_resolved_once_and_what_was_judged_is_used():
    lead = {"localhost": [["127.0.0.1"], ["10.0.0.1"]]}
    async with (
        scripted(closing(measured())) as site,
        proxying(f"localhost:{site.port}", addresses=lead) as asking,
    ):
        words = f"GET http://localhost:{site.port}/ HTTP/1.1\r\n\r\n".encode()
        assert (await asking.ask(words)).endswith(TEXT)
        assert b" 403 " in await asking.ask(words)  # the next connection is judged anew


async def test_the_host_is_told_the_name_that_was_judged_and_nothing_that_is_for_a_proxy():
    lead = {"localhost": [["127.0.0.1"]]}
    async with (
        scripted(closing(measured())) as site,
        proxying(f"localhost:{site.port}", addresses=lead) as asking,
    ):
        words = (
            f"GET http://localhost:{site.port}/a?b=c HTTP/1.1\r\nHost: other.test\r\nX: y\r\n"
            "Proxy-Authorization: Basic x\r\nConnection: keep-alive\r\n\r\n"
        )
        assert (await asking.ask(words.encode())).endswith(TEXT)
        assert site.requests == [
            f"GET /a?b=c HTTP/1.1\r\nHost: localhost:{site.port}\r\nX: y\r\n"
            "Connection: close\r\n\r\n".encode()
        ]


async def test_a_node_that_reaches_only_what_it_lists_lets_its_servers_reach_no_more():
    lead = {"site.test": [["93.184.215.14"]]}
    async with proxying(
        "site.test", rules=NodeRules(closed_to_others=True), addresses=lead
    ) as asking:
        answer = await asking.ask(b"CONNECT site.test:443 HTTP/1.1\r\n\r\n")
        assert b"site.test is not listed" in answer


async def test_a_server_that_asks_for_what_it_may_not_without_end_has_to_wait():
    clock = FakeClock()
    async with proxying("site.test", clock=clock) as asking:
        words = b"CONNECT other.test:443 HTTP/1.1\r\n\r\n"
        for _ in range(MOST_REFUSALS):
            assert b" 403 " in await asking.ask(words)
        waiting = asyncio.ensure_future(asking.ask(words))
        await clock.asleep()
        assert len(asking.told) == MOST_REFUSALS
        await clock.advance(60.0)
        assert b" 403 " in await waiting
        assert len(asking.told) == MOST_REFUSALS + 1


# Through the node's own proxy


@pytest.mark.requirement("process:network-policy:proxy")
async def test_behind_a_proxy_a_tunnel_goes_through_it():
    async with scripted(answering(measured())) as site, scripted(tunnelling(site.port)) as upstream:
        environ = {"HTTPS_PROXY": SECRET.format(upstream.port)}
        rules = NodeRules(proxy="environment")
        async with proxying("site.test", rules=rules, environ=environ) as asking:
            reader, writer = await asking.open(b"CONNECT site.test:443 HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(SOON_SECONDS):
                assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                assert await reader.readuntil(TEXT)
            writer.close()
            await until(lambda: len(asking.told) == 2)
            assert asking.verdicts == [("allowed", "site.test", 443), ("ended", "site.test", 443)]
            assert asking.told[1].bytes_received > len(TEXT)
        (seen,) = upstream.requests
        assert seen.startswith(b"CONNECT site.test:443 HTTP/1.1\r\n")
        assert AUTHORIZATION in seen
        assert all(AUTHORIZATION not in request for request in site.requests)


@pytest.mark.requirement("process:network-policy:proxy")
async def test_behind_a_proxy_plain_http_is_one_request_by_its_whole_url():
    more: list[bytes] = []

    async def script(line: Line) -> None:
        await line.request()
        await line.say(measured())
        more.append(await line.left())
        line.drop()

    async with scripted(script) as upstream:
        environ = {"HTTP_PROXY": SECRET.format(upstream.port)}
        rules = NodeRules(proxy="environment")
        async with proxying("site.test:80", rules=rules, environ=environ) as asking:
            smuggled = b"GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n"
            reader, writer = await asking.open(
                b"POST http://site.test/a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc" + smuggled
            )
            async with asyncio.timeout(SOON_SECONDS):
                assert await reader.readuntil(TEXT)
            writer.write(smuggled)
            writer.close()
            await until(lambda: len(asking.told) == 2)
        (seen,) = upstream.requests
        assert seen.startswith(b"POST http://site.test/a HTTP/1.1\r\nHost: site.test\r\n")
        assert AUTHORIZATION in seen
        assert seen.endswith(b"\r\nConnection: close\r\n\r\nabc")
        assert more == [b""]


async def test_behind_a_proxy_a_body_without_a_length_is_refused():
    async with scripted(answering(measured())) as upstream:
        async with proxying("site.test:80", rules=behind(upstream.port)) as asking:
            answer = await asking.ask(
                b"POST http://site.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"0\r\n\r\nGET http://other.test/ HTTP/1.1\r\n\r\n"
            )
            assert answer.startswith(b"HTTP/1.1 411 ")
            assert asking.verdicts == [("refused", "site.test", 80)]
        assert not upstream.lines


@pytest.mark.parametrize("target", ["inside.test:443", "10.0.0.1:443", "other.test:443"])
async def test_behind_a_proxy_the_same_is_refused(target: str):
    lead = {"inside.test": [["10.0.0.1"]]}
    async with scripted(answering(measured())) as upstream:
        rules = behind(upstream.port)
        async with proxying("inside.test", "10.0.0.1", rules=rules, addresses=lead) as asking:
            answer = await asking.ask(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 403 ")
            assert asking.verdicts[0][0] == "refused"
        assert not upstream.lines


async def test_what_no_proxy_spares_is_reached_without_it():
    lead = {"site.test": [["127.0.0.1"]]}
    async with scripted(closing(measured())) as site, scripted(answering(b"")) as upstream:
        environ = {"HTTP_PROXY": f"http://127.0.0.1:{upstream.port}", "NO_PROXY": ".test"}
        rules = NodeRules(proxy="environment", egress=("site.test",))
        hosts = (f"site.test:{site.port}",)
        async with proxying(*hosts, rules=rules, environ=environ, addresses=lead) as asking:
            words = f"GET http://site.test:{site.port}/ HTTP/1.1\r\n\r\n".encode()
            assert (await asking.ask(words)).endswith(TEXT)
        assert not upstream.lines


async def test_a_proxy_that_refuses_is_a_host_that_cannot_be_reached():
    refusing = answering_once(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")
    async with (
        scripted(refusing) as upstream,
        proxying("site.test", rules=behind(upstream.port)) as asking,
    ):
        answer = await asking.ask(b"CONNECT site.test:443 HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert answer.endswith(b"site.test:443 cannot be reached\n")


async def test_a_proxy_that_is_none_is_told_to_the_node_and_not_to_the_server():
    environ = {"HTTPS_PROXY": "socks5://ann:secret@proxy.test"}  # pragma: allowlist secret
    rules = NodeRules(proxy="environment")
    async with proxying("site.test", rules=rules, environ=environ) as asking:
        answer = await asking.ask(b"CONNECT site.test:443 HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert b"secret" not in answer
        assert "HTTPS_PROXY: is not a proxy" in asking.told[0].reason
