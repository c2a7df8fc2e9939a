"""The leanest MCP server over HTTP we can write in Python: what is measured is the client.

Both eras, one tool ``echo``, answers in JSON, connections kept alive, no sessions, no checks. It
prints its URL and lives until its input closes. The head of a request is searched for its length
and its version and not parsed; an ordinary call takes one pass of orjson each way.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from typing import Any

import orjson
import uvloop

HOST = "127.0.0.1"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
MODERN = b"2026-07-28"
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = {"tools": [{"name": "echo", "description": "Gives back the text.", "inputSchema": SCHEMA}]}
HINTS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
LEGACY_RESULTS: dict[str, object] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "floor", "version": "1"},
    },
    "ping": {},
    "tools/list": TOOLS,
}
MODERN_RESULTS: dict[str, object] = {
    "server/discover": {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "instructions": "",
        **HINTS,
    },
    "tools/list": {**TOOLS, **HINTS},
}
HEAD = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
NOT_HERE = b"HTTP/1.1 405 Method Not Allowed\r\nAllow: POST\r\nContent-Length: 0\r\n\r\n"


def answer(body: bytes, *, modern: bool) -> bytes:
    """The whole response to a POST."""
    message = orjson.loads(body)
    method, key = message.get("method"), message.get("id")
    if method is None or key is None:
        return ACCEPTED
    status, results = 200, MODERN_RESULTS if modern else LEGACY_RESULTS
    frame: dict[str, object] = {"jsonrpc": "2.0", "id": key}
    if method == "tools/call":
        text = message["params"].get("arguments", {}).get("text", "")
        result: dict[str, object] = {"content": [{"type": "text", "text": text}], "isError": False}
        if modern:
            result["resultType"] = "complete"
        frame["result"] = result
    elif method in results:
        frame["result"] = results[method]
    else:
        status = 404 if modern else 200
        frame["error"] = {"code": -32601, "message": "Method not found"}
    reply = orjson.dumps(frame)
    return HEAD % (status, len(reply)) + reply


class Connection(asyncio.Protocol):
    """One connection: bytes in, responses out, in order."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer = buffer = self.buffer + data if self.buffer else data
        replies: list[bytes] = []
        while (end := buffer.find(b"\r\n\r\n")) >= 0:
            head = buffer[:end]
            length = LENGTH.search(head)
            stop = end + 4 + (int(length[1]) if length else 0)
            if len(buffer) < stop:
                break
            post = head.startswith(b"POST ")
            modern = MODERN in head
            replies.append(answer(buffer[end + 4 : stop], modern=modern) if post else NOT_HERE)
            self.buffer = buffer = buffer[stop:]
        if replies:
            self.transport.write(replies[0] if len(replies) == 1 else b"".join(replies))


def until_closed(ended: asyncio.Event) -> None:
    if not os.read(0, 1 << 12):
        ended.set()


async def main(port: int) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    server = await loop.create_server(Connection, HOST, port)
    print(f"http://{HOST}:{server.sockets[0].getsockname()[1]}/mcp", flush=True)
    loop.add_reader(0, until_closed, ended)
    await ended.wait()
    server.close()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
