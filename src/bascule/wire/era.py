"""The two generations of the protocol, as data: versions, envelopes, and how results are read.

Legacy (up to 2025-11-25) opens with a handshake; modern (2026-07-28) has none, and every request
carries its version and the client's capabilities. Results are read as they come: fields we do not
know stay, nothing is coerced.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec

from bascule import __version__
from bascule.errors import MalformedReply, RemoteError
from bascule.model.whole_words import beginning
from bascule.wire.strict_json import JsonValue, dumps

Era: TypeAlias = Literal["modern", "legacy"]
CacheScope: TypeAlias = Literal["public", "private"]
JsonObject: TypeAlias = dict[str, JsonValue]

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # newest first

META = "io.modelcontextprotocol/"
CLIENT_INFO: JsonObject = {"name": "bascule", "version": __version__}
LIST_CHANGED = "notifications/tools/list_changed"


class Peer(msgspec.Struct, frozen=True):
    """Who answered, in which era, and what it says of itself (untrusted)."""

    era: Era
    version: str
    capabilities: JsonObject
    server_info: JsonObject
    instructions: str | None


class ToolPage(msgspec.Struct, frozen=True):
    """One page of a tool list, its tools untouched."""

    tools: list[JsonValue]
    next_cursor: str | None
    ttl_ms: int | None
    cache_scope: CacheScope


def modern_meta(capabilities: JsonObject | None = None) -> bytes:
    """Build the ``_meta`` members that every modern request carries, without the braces."""
    members = {
        META + "protocolVersion": MODERN,
        META + "clientCapabilities": capabilities or {},
        META + "clientInfo": CLIENT_INFO,
    }
    return dumps(members)[1:-1]


def initialize_params(capabilities: JsonObject | None = None) -> bytes:
    """Build the opening of the legacy handshake."""
    return dumps(
        {
            "protocolVersion": LEGACY[0],
            "capabilities": capabilities or {},
            "clientInfo": CLIENT_INFO,
        }
    )


def with_meta(members: bytes, meta: bytes) -> bytes:
    """Join the members of a request and of its ``_meta``, both serialised already."""
    if not meta:
        return b"{%b}" % members
    return b'{%b%b"_meta":{%b}}' % (members, b"," if members else b"", meta)


def with_members(meta: bytes, members: JsonObject) -> bytes:
    """Add members to those of a ``_meta`` that are serialised already."""
    if not members:
        return meta
    return b"%b%b%b" % (meta, b"," if meta else b"", dumps(members)[1:-1])


def call_params(name: str, arguments: bytes, inputs: bytes, meta: bytes) -> bytes:
    """Build the parameters of a tool call around arguments that are serialised already."""
    if not meta:
        return b"{" + _call_head(name) + arguments + inputs + b"}"
    return b'{%b%b%b,"_meta":{%b}}' % (_call_head(name), arguments, inputs, meta)


@lru_cache(maxsize=4096)
def _call_head(name: str) -> bytes:
    return b'"name":%b,"arguments":' % dumps(name)


def read_discover(result: JsonValue) -> tuple[Peer, list[str]]:
    """Read the answer to the probe: the peer, and the versions it supports."""
    fields = _object(result, "server/discover")
    versions = fields.get("supportedVersions")
    if not isinstance(versions, list):
        raise MalformedReply("server/discover gave no list of supported versions")
    meta = fields.get("_meta")
    info = meta.get(META + "serverInfo") if isinstance(meta, dict) else None
    peer = Peer("modern", MODERN, *_self_description(fields, info))
    return peer, [version for version in versions if isinstance(version, str)]


def read_initialize(result: JsonValue) -> Peer:
    """Read the answer to the handshake."""
    fields = _object(result, "initialize")
    version = fields.get("protocolVersion")
    if not isinstance(version, str):
        raise MalformedReply("initialize gave no protocol version")
    return Peer("legacy", version, *_self_description(fields, fields.get("serverInfo")))


def supported_versions(error: RemoteError) -> list[str]:
    """Read which versions a server that refused ours does support."""
    data: JsonValue = error.data
    found = data.get("supported") if isinstance(data, dict) else None
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def read_tools(result: JsonValue) -> ToolPage:
    """Read one page of ``tools/list``; the tools themselves are for others to judge."""
    fields = _complete(result, "tools/list")
    tools, cursor = fields.get("tools"), fields.get("nextCursor")
    if not isinstance(tools, list):
        raise MalformedReply("tools/list gave no list of tools")
    if cursor is not None and not isinstance(cursor, str):
        raise MalformedReply("tools/list gave a cursor that is not text")
    scope: CacheScope = "public" if fields.get("cacheScope") == "public" else "private"
    return ToolPage(tools, cursor, _milliseconds(fields.get("ttlMs")), scope)


def _milliseconds(value: JsonValue) -> int | None:
    """Read a hint; one that makes no sense is no hint."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return None
    return int(value)


class InputRequired(msgspec.Struct, frozen=True):
    """A server's wish for input before it goes on; ``state`` goes back exactly as it came."""

    requests: JsonObject
    state: JsonValue


def read_call(result: JsonValue) -> JsonObject | InputRequired:
    """Read the result of ``tools/call``: complete, or a wish for input."""
    fields = result if type(result) is dict else _object(result, "tools/call")
    if fields.get("resultType", "complete") == "complete":
        return fields
    if fields["resultType"] != "input_required":
        return _complete(result, "tools/call")
    requests = fields.get("inputRequests", {})
    if not isinstance(requests, dict):
        raise MalformedReply("tools/call asks for input that is no table of requests")
    return InputRequired(requests, fields.get("requestState"))


def input_members(responses: JsonObject, state: JsonValue) -> bytes:
    """Build the members that a call has besides its arguments once a server's wishes are met."""
    more = b',"inputResponses":%b' % dumps(responses)
    return more if state is None else b'%b,"requestState":%b' % (more, dumps(state))


def _complete(result: JsonValue, method: str) -> JsonObject:
    fields = _object(result, method)
    kind = fields.get("resultType", "complete")
    if kind == "complete":
        return fields
    raise MalformedReply(f"{method} gave a result of the unknown type {beginning(repr(kind), 40)}")


def _object(result: JsonValue, method: str) -> JsonObject:
    if not isinstance(result, dict):
        raise MalformedReply(f"{method} gave a result that is not an object")
    return result


def _self_description(
    fields: JsonObject, info: JsonValue
) -> tuple[JsonObject, JsonObject, str | None]:
    capabilities, instructions = fields.get("capabilities"), fields.get("instructions")
    return (
        capabilities if isinstance(capabilities, dict) else {},
        info if isinstance(info, dict) else {},
        instructions if isinstance(instructions, str) and instructions else None,
    )
