"""What the benchmark of the gateway rests on: its floor, its clients and its sums."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from bench.caller import Bare
from bench.gateway import times_added
from bench.gateway_clients import greet, legacy, modern
from bench.http_clients import HEADERS, serving
from bench.rounds import Rounds
from bench.serving import TEXT

LISTING = Path(__file__).parents[2] / "bench" / "listing_server.py"


def test_what_two_gateways_add_is_compared_round_by_round():
    figures = {"floor": (10, 20, 30), "ours": (20, 40, 40), "peer": (40, 100, 70)}
    turns = {name: [{"p50": float(value)} for value in seen] for name, seen in figures.items()}
    assert times_added(Rounds(turns=turns, crowd={}), "peer", "ours", "floor", "p50") == 4.0


@pytest.mark.parametrize("speak", [legacy, modern])
async def test_both_generations_are_spoken_to_the_floor(speak):
    with serving("floor") as url:
        async with asyncio.timeout(20), speak(url, {}) as call:
            assert await call() == TEXT


class Closing(BaseHTTPRequestHandler):
    """Answers once for each connection, with a session id."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("MCP-Session-ID", "s-1")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


@pytest.fixture
def closing() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Closing) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()
        thread.join(20)


async def test_a_session_id_goes_with_what_follows_the_handshake(closing):
    async with asyncio.timeout(20):
        headers = await greet(closing, {"Authorization": "Bearer t"})
    assert headers["Mcp-Session-Id"] == "s-1"
    assert headers["Authorization"] == "Bearer t"


async def test_a_connection_that_a_server_closed_is_made_again(closing):
    async with asyncio.timeout(20), Bare(closing, HEADERS) as caller:
        assert [await caller.send(b"{}") for _ in range(3)] == [b"{}"] * 3


def test_the_server_with_many_tools_notes_every_request(tmp_path: Path):
    noted = tmp_path / "requests"
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "prompts/list"},
    ]
    done = subprocess.run(
        [sys.executable, LISTING, "500", noted],
        input="".join(json.dumps(message) + "\n" for message in messages),
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=20,
    )
    listed, refused = map(json.loads, done.stdout.splitlines())
    assert len({tool["name"] for tool in listed["result"]["tools"]}) == 500
    assert refused["error"]["code"] == -32601
    assert noted.read_text(encoding="utf-8").split() == ["tools/list", "prompts/list"]
