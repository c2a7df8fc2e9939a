"""The leanest MCP server we can write in Python: what is measured behind it is the client.

Legacy era, one tool ``echo`` with a text of up to some kilobytes. The request is not parsed: the
id and the text are cut out of the bytes where the usual clients put them, and anything unusual
takes the slow path through json. 200 bytes of text give a frame of about 290 bytes.
"""

from __future__ import annotations

import json
import os

NEAR = 64  # clients write the id near the front, before the params
CALL = b'"method":"tools/call"'
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
RESULTS: dict[str, object] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "floor", "version": "1"},
    },
    "ping": {},
    "tools/list": {
        "tools": [{"name": "echo", "description": "Gives back the text.", "inputSchema": SCHEMA}]
    },
}


def quick(line: bytes) -> bytes | None:
    """The answer to an ordinary call, or nothing when the line is not one."""
    at = line.find(b'"id":', 0, NEAR)
    text = line.find(b'"text":"')
    if at < 0 or text < 0 or CALL not in line or b"\\" in line:
        return None
    key = line[at + 5 : line.find(b",", at)]
    body = line[text + 8 : line.find(b'"', text + 8)]
    return (
        b'{"jsonrpc":"2.0","id":%b,"result":{"content":[{"type":"text","text":"%b"}],'
        b'"isError":false}}\n' % (key, body)
    )


def careful(line: bytes) -> bytes:
    """The answer to anything else; nothing to a notification."""
    message = json.loads(line)
    method = message.get("method")
    if "id" not in message or method is None:
        return b""
    if method == "tools/call":
        text = message["params"].get("arguments", {}).get("text", "")
        outcome = {"result": {"content": [{"type": "text", "text": text}], "isError": False}}
    elif method in RESULTS:
        outcome = {"result": RESULTS[method]}
    else:
        outcome = {"error": {"code": -32601, "message": "Method not found"}}
    frame = {"jsonrpc": "2.0", "id": message["id"], **outcome}
    return json.dumps(frame, separators=(",", ":")).encode() + b"\n"


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def main() -> None:
    rest = b""
    while data := os.read(0, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        write(b"".join([quick(line) or careful(line) for line in lines]))


if __name__ == "__main__":
    main()
