"""A confined server reaches the hosts of its record through the node's proxy, and no others."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from bascule.audit.events import EgressDecided
from bascule.audit.ledger import MemoryLedger
from bascule.errors import LaunchDenied
from bascule.model.sandbox import Level, Sandbox
from bascule.node.assembly import Bridge
from bascule.node.pool.process.plan import Confinement
from bascule.node.pool.process.spawn import Launch
from bascule.node.pool.process.warden import Warden
from bascule.outbound.rules import NodeRules
from bascule.server import Server
from tests.outbound.scripted_server import Line, Script, closing, scripted
from tests.outbound.wire_answers import TEXT, measured

# An MCP server of the standard library with one tool: fetch a URL through the proxy that its
# environment names, or past it. It answers with the text or with what went wrong.
FETCHER = """
import http.client, json, os, socket, sys
from urllib.parse import urlsplit

def fetch(url, way):
    host, port = urlsplit(url).hostname, urlsplit(url).port or 80
    proxy = urlsplit(os.environ["HTTP_PROXY"])
    try:
        if way == "direct":
            socket.create_connection((host, port), 3).close()
            return "reached"
        link = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=20)
        if way == "tunnel":
            link.set_tunnel(host, port)
        link.request("GET", "/" if way == "tunnel" else url)
        answer = link.getresponse()
        return "%d %s" % (answer.status, answer.read().decode())
    except Exception as fault:
        return "failed: %r" % fault

for line in sys.stdin:
    asked = json.loads(line)
    method = asked["method"]
    if "id" not in asked:
        continue
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "fetcher", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "fetch", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        text = fetch(asked["params"]["arguments"]["url"], asked["params"]["arguments"]["way"])
        result = {"content": [{"type": "text", "text": text}]}
    else:
        error = {"code": -32601, "message": "unknown"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.fixture
def folder() -> Generator[Path]:
    """Where others may go: pytest's own folders are closed to them."""
    folder = Path("/var/tmp", f"egress-{secrets.token_hex(8)}")
    folder.mkdir()
    (folder / "fetcher.py").write_text(FETCHER, encoding="utf-8")
    yield folder
    shutil.rmtree(folder)


@contextlib.asynccontextmanager
async def site() -> AsyncGenerator[int]:
    """A host that answers every request with its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        text = b"welcome"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def needs(level: Level) -> None:
    warden = Warden()
    reason = await warden.why_not(level)
    await warden.close()
    if reason:
        pytest.skip(f"{level} does not work on this machine: {reason}")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("level", ["namespaces", "bwrap"])
@pytest.mark.requirement("process:network-policy")
async def test_a_server_with_hosts_reaches_them_and_no_other(level: Level, folder: Path):
    await needs(level)
    ledger = MemoryLedger()
    async with site() as granted, site() as other:
        sandbox = Sandbox(
            level=level,
            required=True,
            read=(str(folder),),
            write=(),
            network="egress",
            hosts=(f"localhost:{granted}",),
        )
        script = str(folder / "fetcher.py")
        record = Server.stdio("web", sys.executable, "-I", script, sandbox=sandbox)
        async with (
            Bridge.open([record], ledger=ledger, homes=folder / "homes") as bridge,
            bridge.session(server_ids=["web"]) as session,
        ):

            async def fetch(url: str, way: str = "plain") -> str:
                outcome = await session.call("mcp__web__fetch", {"url": url, "way": way})
                assert outcome.ok, outcome.error
                return outcome.text

            for way in ("plain", "tunnel"):
                assert await fetch(f"http://localhost:{granted}/", way) == "200 welcome"
            refused = await fetch(f"http://localhost:{other}/")
            assert refused.startswith("403 ")
            assert f"localhost:{other} is not among this server's sandbox.hosts" in refused
            assert "403" in await fetch(f"http://localhost:{other}/", "tunnel")
            assert "403" in await fetch("http://169.254.169.254/latest/meta-data")
            past = await fetch(f"http://127.0.0.1:{granted}/", "direct")
            assert past.startswith("failed")
    passages = [event for event in ledger.events if isinstance(event, EgressDecided)]
    verdicts = [(event.server_id, event.verdict, event.host, event.port) for event in passages]
    assert ("web", "allowed", "localhost", granted) in verdicts
    assert ("web", "refused", "localhost", other) in verdicts
    assert ("web", "refused", "169.254.169.254", 80) in verdicts
    ended = [event for event in passages if event.verdict == "ended"]
    assert len(ended) == 2
    assert all(event.bytes_sent > 0 for event in ended)
    assert all(event.bytes_received > len("welcome") for event in ended)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("level", ["namespaces", "bwrap"])
@pytest.mark.requirement("process:network-policy:proxy")
async def test_a_node_behind_a_proxy_lets_its_servers_through_it(level: Level, folder: Path):
    await needs(level)
    async with scripted(closing(measured())) as granted, scripted(upstream(granted.port)) as proxy:
        sandbox = Sandbox(
            level=level,
            required=True,
            read=(str(folder),),
            write=(),
            network="egress",
            hosts=("site.invalid:80",),
        )
        script = str(folder / "fetcher.py")
        record = Server.stdio("web", sys.executable, "-I", script, sandbox=sandbox)
        rules = NodeRules(proxy=f"http://127.0.0.1:{proxy.port}")
        async with (
            Bridge.open([record], rules=rules, homes=folder / "homes") as bridge,
            bridge.session(server_ids=["web"]) as session,
        ):

            async def fetch(url: str, way: str) -> str:
                outcome = await session.call("mcp__web__fetch", {"url": url, "way": way})
                assert outcome.ok, outcome.error
                return outcome.text

            for way in ("plain", "tunnel"):
                assert await fetch("http://site.invalid/", way) == f"200 {TEXT.decode()}"
            for url in ("http://other.invalid/", "http://10.0.0.1/"):
                assert "403" in await fetch(url, "plain")
                assert "403" in await fetch(url, "tunnel")
        first = [request.split(b"\r\n")[0] for request in proxy.requests]
        assert first == [b"GET http://site.invalid/ HTTP/1.1", b"CONNECT site.invalid:80 HTTP/1.1"]


def upstream(port: int) -> Script:
    """Be a proxy to which one port is every host."""

    async def script(line: Line) -> None:
        asked = await line.request()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if asked.startswith(b"CONNECT"):
            await line.say(b"HTTP/1.1 200 OK\r\n\r\n")
            asked = await line.reader.readuntil(b"\r\n\r\n")
        writer.write(asked)
        await line.say(await reader.read())
        line.writer.close()
        writer.close()
        line.over.set()

    return script


async def test_some_hosts_only_are_refused_where_nothing_can_keep_the_others_away(folder: Path):
    sandbox = Sandbox(level="landlock", network="egress", hosts=("localhost:80",))
    confinement = Confinement(sandbox, (str(folder),), egress=str(folder / "socket"))
    warden = Warden()
    launch = Launch(("/bin/true",), {}, None, confinement)
    with pytest.raises(LaunchDenied, match='"egress" needs namespaces or bwrap'):
        await warden.spawn(launch)
    await warden.close()
