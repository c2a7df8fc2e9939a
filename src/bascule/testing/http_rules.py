"""What HTTP adds to the protocol: headers that repeat the body, and statuses that repeat errors.

Written from the specification and not with the bridge's own code, so that a mistake there is not
made twice.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence

from bascule.model.json import JsonObject, JsonValue, is_object, objects
from bascule.testing.peer.frames import META
from bascule.testing.peer.protocol import INVALID_PARAMS

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
HEADER_MISMATCH = -32020
STATUS = {
    **dict.fromkeys((-32700, -32600, -32602, -32020, -32021, -32022), 400),
    -32601: 404,
}
NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
KEYWORD = "x-mcp-header"

Refusal = tuple[int, str]


def is_modern(version: str | None, message: JsonObject) -> bool:
    """Whether a request means to be modern, by its header or by its envelope."""
    return version not in (None, *LEGACY) or META + "protocolVersion" in envelope(message)


def envelope(message: JsonObject) -> JsonObject:
    meta = params_of(message).get("_meta")
    return meta if is_object(meta) else {}


def params_of(message: JsonObject) -> JsonObject:
    params = message.get("params")
    return params if is_object(params) else {}


def refuse_headers(
    message: JsonObject, headers: Mapping[str, str], tools: Sequence[JsonValue]
) -> Refusal | None:
    """Say why a modern request's headers and body do not go together."""
    if META + "protocolVersion" not in envelope(message):
        return INVALID_PARAMS, "params._meta lacks the protocol version"
    expected = expected_headers(message, tools)
    for name, value in expected.items():
        if decoded(headers.get(name)) != value:
            return HEADER_MISMATCH, f"{name} does not agree with the body"
    wanted = {name.lower() for name in expected}
    for name in headers:
        if name.lower().startswith("mcp-param-") and name.lower() not in wanted:
            return HEADER_MISMATCH, f"{name} repeats nothing in the body"
    return None


def expected_headers(message: JsonObject, tools: Sequence[JsonValue]) -> dict[str, JsonValue]:
    """Return what the headers of a modern request must say, after decoding."""
    method, params = message.get("method"), params_of(message)
    expected: dict[str, JsonValue] = {
        "MCP-Protocol-Version": envelope(message)[META + "protocolVersion"],
        "Mcp-Method": method,
    }
    if isinstance(method, str) and method in NAMES:
        expected["Mcp-Name"] = params.get(NAMES[method])
    if method == "tools/call":
        called = (tool for tool in objects(tools) if tool.get("name") == params.get("name"))
        first = next(called, None)
        for name, path in annotated(None if first is None else first.get("inputSchema"), ()):
            value = value_at(params.get("arguments"), path)
            if value is not None:
                expected[f"Mcp-Param-{name}"] = rendered(value)
    return expected


def annotated(schema: JsonValue, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the header name and place of each property that wants to be seen in a header."""
    properties = schema.get("properties") if is_object(schema) else None
    if not is_object(properties):
        return
    for key, below in properties.items():
        if is_object(below) and KEYWORD in below:
            yield str(below[KEYWORD]), (*path, key)
        yield from annotated(below, (*path, key))


def value_at(value: JsonValue, path: tuple[str, ...]) -> JsonValue:
    """Return the argument at a place, or nothing."""
    for key in path:
        value = value.get(key) if is_object(value) else None
    return value


def rendered(value: JsonValue) -> str:
    """Return a plain value as a header has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def decoded(value: str | None) -> str | None:
    """Undo the base64 of a header that could not hold its value."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def unsupported(version: str | None) -> bool:
    """Whether a legacy server must refuse this version header."""
    return version not in (None, *LEGACY)
