"""The leanest model's server we can write in Python: what is measured before it is the client.

It answers at once: a request that ends with a tool's result gets the final text, any other one a
call of the first tool it offers. A request with ``"stream": true`` gets ``CHUNKS`` pieces of text,
``PAUSE`` seconds apart. It prints its base URL and lives until its input closes.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from typing import Any

import orjson
import uvloop

from bench.serving import ARGUMENTS, TEXT

HOST = "127.0.0.1"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CHUNKS = 50
PAUSE = 0.02
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
MODELS = {"object": "list", "data": [{"id": "instant", "object": "model", "owned_by": "bench"}]}


def completion(message: dict[str, Any], reason: str) -> bytes:
    """A whole answer."""
    body = orjson.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "instant",
            "choices": [
                {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
            ],
            "usage": USAGE,
        }
    )
    return HEAD % len(body) + body


def answer(request: dict[str, Any]) -> bytes:
    """Call the first tool, or say the last word."""
    if request["messages"][-1]["role"] == "tool" or not request.get("tools"):
        return completion({"role": "assistant", "content": TEXT, "refusal": None}, "stop")
    name = request["tools"][0]["function"]["name"]
    function = {"name": name, "arguments": orjson.dumps(ARGUMENTS).decode()}
    call = {"id": "call_1", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}
    return completion(message, "tool_calls")


def piece(delta: dict[str, Any], reason: str | None = None) -> bytes:
    """One chunk of a stream, inside a chunk of HTTP."""
    body = orjson.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "instant",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        }
    )
    return chunked(b"data: %b\n\n" % body)


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Connection(asyncio.Protocol):
    """One client."""

    def connection_made(self, transport: Any) -> None:  # uvloop's is no asyncio.Transport
        self._transport = transport
        self._buffer = b""
        self._streams: set[asyncio.Task[None]] = set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while True:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            length = LENGTH.search(head)
            size = int(length[1]) if length else 0
            if len(rest) < size:
                return
            body, self._buffer = rest[:size], rest[size:]
            self._answer(body)

    def connection_lost(self, exc: Exception | None) -> None:
        for stream in self._streams:
            stream.cancel()

    def _answer(self, body: bytes) -> None:
        if not body:
            models = orjson.dumps(MODELS)
            self._transport.write(HEAD % len(models) + models)
            return
        request = orjson.loads(body)
        if request.get("stream"):
            task = asyncio.get_running_loop().create_task(self._stream())
            self._streams.add(task)
            task.add_done_callback(self._streams.discard)
        else:
            self._transport.write(answer(request))

    async def _stream(self) -> None:
        self._transport.write(STREAM_HEAD + piece({"role": "assistant", "content": ""}))
        for _ in range(CHUNKS):
            await asyncio.sleep(PAUSE)  # noqa: TID251 - a model's pace, not a wait for something
            self._transport.write(piece({"content": "a few words "}))
        self._transport.write(piece({}, "stop") + chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")


async def serve() -> None:
    """Listen, say where, and end with the input."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, HOST, 0, backlog=1024)
    print(f"http://{HOST}:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), lambda: os.read(0, 4096) or ended.set())
    await ended.wait()
    server.close()


if __name__ == "__main__":
    uvloop.run(serve())
