"""The bundled demo MCP server on stdio, in both eras: ``python -m bascule.demo.server``.

``records/notes.toml`` is its record. It uses the standard library alone and answers one message at
a time, which is all a demo needs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from bascule.demo.notes import BY_NAME, TOOLS, Json, Notebook, call

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
META = "io.modelcontextprotocol/"
INFO = {"name": "bascule-notes", "title": "Notes", "version": "1.0.0"}
CAPABILITIES: Json = {"tools": {"listChanged": False}}
INSTRUCTIONS = "A small notebook. Begin with list_notes."
CACHING: Json = {"ttlMs": 60_000, "cacheScope": "public"}
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
METHOD_NOT_FOUND, INVALID_PARAMS, UNSUPPORTED_VERSION = -32601, -32602, -32022


class Refusal(Exception):
    """A request that gets a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


def initialize(_: Notebook, params: Json) -> Json:
    """The handshake of the legacy eras."""
    wanted = params.get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in LEGACY else LEGACY[0],
        "capabilities": CAPABILITIES,
        "serverInfo": INFO,
        "instructions": INSTRUCTIONS,
    }


def discover(*_: object) -> Json:
    """The probe of the modern era."""
    return {
        "supportedVersions": [MODERN],
        "capabilities": CAPABILITIES,
        "instructions": INSTRUCTIONS,
        **CACHING,
    }


def ping(*_: object) -> Json:
    """Still here."""
    return {}


def list_tools(_: Notebook, params: Json) -> Json:
    """All tools, on one page, always in the same order."""
    caching = CACHING if is_modern(params) else {}
    return {"tools": [tool.listed() for tool in TOOLS], **caching}


def call_tool(notebook: Notebook, params: Json) -> Json:
    """Run one tool."""
    name, arguments = params.get("name"), params.get("arguments", {})
    if name not in BY_NAME:
        raise Refusal(INVALID_PARAMS, f"Unknown tool: {name}")
    if not isinstance(arguments, dict):
        raise Refusal(INVALID_PARAMS, "arguments must be an object")
    return call(notebook, name, params.get("arguments", {}))


Methods = dict[str, Callable[[Notebook, Json], Json]]
BOTH_ERAS: Methods = {"tools/list": list_tools, "tools/call": call_tool}
LEGACY_METHODS: Methods = {"initialize": initialize, "ping": ping, **BOTH_ERAS}
MODERN_METHODS: Methods = {"server/discover": discover, **BOTH_ERAS}


def is_modern(params: Json) -> bool:
    """Whether the request carries the envelope of the modern era."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and META + "protocolVersion" in meta


def result_of(notebook: Notebook, method: str, params: Json) -> Json:
    """The result of a request, dressed for its era."""
    modern = is_modern(params)
    if modern:
        version = params["_meta"][META + "protocolVersion"]
        if version != MODERN:
            data = {"supported": [MODERN], "requested": version}
            raise Refusal(UNSUPPORTED_VERSION, "unsupported protocol version", data)
    handler = (MODERN_METHODS if modern else LEGACY_METHODS).get(method)
    if handler is None:
        raise Refusal(METHOD_NOT_FOUND, "Method not found")
    result = handler(notebook, params)
    if modern:
        result = {"resultType": "complete", **result, "_meta": {META + "serverInfo": INFO}}
    return result


def answer(notebook: Notebook, line: bytes) -> Json | None:
    """The frame that answers a line, or none for a notification."""
    key: Any = None
    try:
        message = parse(line)
        if "id" not in message:
            return None
        key = message["id"]
        result = result_of(notebook, message["method"], message.get("params", {}))
    except Refusal as refusal:
        return {"jsonrpc": "2.0", "id": key, "error": refusal.error}
    return {"jsonrpc": "2.0", "id": key, "result": result}


def parse(line: bytes) -> Json:
    """One message of the client."""
    try:
        message: Any = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise Refusal(PARSE_ERROR, "not JSON") from problem
    match message:
        case {"method": str(), "params": dict()}:
            return message
        case {"method": str()} if "params" not in message:
            return message
        case _:
            raise Refusal(INVALID_REQUEST, "not a request")


def main() -> None:
    """Serve until the input is closed."""
    notebook = Notebook()
    for line in sys.stdin.buffer:
        frame = answer(notebook, line) if line.strip() else None
        if frame is not None:
            sys.stdout.buffer.write(json.dumps(frame, ensure_ascii=False).encode() + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
