"""The floor server of the benchmarks over HTTP: lean, and still a server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from mcp import Client

FLOOR = Path(__file__).parents[2] / "bench" / "floor_http_server.py"


@pytest.fixture
def url() -> Iterator[str]:
    """The floor server in a process of its own, gone when its input closes."""
    command = [sys.executable, str(FLOOR)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        yield process.stdout.readline().decode().strip()
        process.stdin.close()
        assert process.wait(10) == 0


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_the_official_client_lists_and_calls(url, mode, version):
    async with asyncio.timeout(20), Client(url, mode=mode) as client:
        assert client.protocol_version == version
        assert [tool.name for tool in (await client.list_tools()).tools] == ["echo"]
        result = await client.call_tool("echo", {"text": "hi"})
        assert result.content[0].model_dump()["text"] == "hi"


async def test_requests_may_come_in_pieces_and_in_a_row(url):
    port = int(url.removesuffix("/mcp").rpartition(":")[2])
    body = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}'
    frame = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"
    first, second, third = (frame % (len(body % n), body % n) for n in (1, 2, 3))
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(first + second + third[:30])
        for number in (b"1", b"2"):
            assert b'"id":' + number in await reader.readuntil(b"}}")
        writer.write(third[30:])
        assert b'"id":3' in await reader.readuntil(b"}}")
        writer.close()


async def test_what_it_does_not_know_it_says(url):
    headers = {"MCP-Protocol-Version": "2026-07-28"}
    async with asyncio.timeout(10), aiohttp.ClientSession() as web:
        async with web.get(url) as response:
            assert response.status == 405
        for sent, status in (({"id": 1, "method": "ping"}, 404), ({"method": "x"}, 202)):
            async with web.post(url, json=sent, headers=headers) as response:
                assert response.status == status
