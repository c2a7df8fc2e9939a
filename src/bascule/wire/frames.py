"""JSON-RPC frames: bytes to a typed frame and back, without I/O.

Outbound, parameters arrive already serialised and are spliced in untouched, so that the bytes
which were decided on are the bytes which leave. Inbound, a frame is read once, strictly; one that
cannot be read says whose it was, as far as that can be told without trusting it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TypeAlias

import msgspec

from bascule.wire.strict_json import MAX_BYTES, JsonValue, StrictJsonError, dumps, loads

MAX_BATCH = 256

_MARKED = 4096  # how much of either end is searched for the mark of a JSON-RPC frame
_HEAD = 256  # how much of either end is searched for its id
_OBJECT = re.compile(rb"\s*\{")
_HEAD_ID = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*[,}]')
_TAIL_ID = re.compile(rb',\s*"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
_NOT_A_REPLY = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"id"\s*:\s*[^,]{1,64},\s*)?"method"\s*:'
)

RequestId: TypeAlias = int | str


# What nobody listens to is not even parsed once a server floods.
LOG_HEADS = (
    b'{"jsonrpc":"2.0","method":"notifications/message"',
    b'{"jsonrpc": "2.0", "method": "notifications/message"',
    b'{"method":"notifications/message"',
)


class Reply(msgspec.Struct, gc=False):
    """An answer with a result."""

    id: int
    result: JsonValue


class Fault(msgspec.Struct, gc=False):
    """An answer with an error; no id when the peer could not tell what it was answering."""

    id: int | None
    code: int
    message: str
    data: JsonValue


class Request(msgspec.Struct, gc=False):
    """A request made by the peer."""

    id: RequestId
    method: str
    params: JsonValue


class Notice(msgspec.Struct, gc=False):
    """A notification."""

    method: str
    params: JsonValue


class Noise(msgspec.Struct, gc=False):
    """Something else: a log line, a reply to nobody, an unreadable notification."""

    reason: str


class Broken(msgspec.Struct, gc=False):
    """An answer that cannot be read. Without an id it could be anybody's."""

    id: int | None
    reason: str


Frame: TypeAlias = Reply | Fault | Request | Notice | Noise | Broken


def request(id: int, method: str, params: bytes) -> bytes:
    """Encode a request around parameters that are serialised already."""
    return b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}' % (id, _quoted(method), params)


def request_line(id: int, method: str, params: bytes) -> bytes:
    """Encode a request as a line. One that holds a break would be read as two."""
    if 0x0A in params or 0x0D in params:
        raise ValueError("a frame may not hold a line break")
    return b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}\n' % (id, _quoted(method), params)


def notification(method: str, params: bytes) -> bytes:
    """Encode a notification around parameters that are serialised already."""
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (_quoted(method), params)


def response(id: RequestId, result: bytes) -> bytes:
    """Encode the answer to a request of the peer."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (dumps(id), result)


def error_response(id: RequestId, code: int, message: str) -> bytes:
    """Encode the refusal of a request of the peer."""
    error = dumps({"code": code, "message": message})
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (dumps(id), error)


def read(data: bytes, max_bytes: int = MAX_BYTES) -> Frame:
    """Read one frame, strictly. Never raises: what cannot be read is ``Noise`` or ``Broken``."""
    try:
        value = loads(data, max_bytes=max_bytes)
    except StrictJsonError as error:
        return unreadable(data, str(error))
    if type(value) is not dict:
        return Noise("not an object")
    id = value.get("id")
    if len(value) == 3 and type(id) is int and value.get("jsonrpc") == "2.0" and "result" in value:
        return Reply(id, value["result"])  # the usual frame, and nothing else
    return _typed(value)


def read_batch(data: bytes) -> list[Frame]:
    """Read an array of frames, which 2025-03-26 allowed; nothing else has a place in it."""
    try:
        value = loads(data)
    except StrictJsonError as error:
        return [Noise(str(error))]
    items = value if isinstance(value, list) else []
    if len(items) > MAX_BATCH:
        return [Noise(f"a batch of {len(items)}, more than {MAX_BATCH}")]
    return [_typed(item) for item in items if isinstance(item, dict)]


def unreadable(data: bytes, reason: str) -> Frame:
    """Tell whose an unreadable frame was, from its two ends; ``data`` may be its head alone."""
    if not _OBJECT.match(data, 0, _HEAD) or _NOT_A_REPLY.match(data, 0, _HEAD):
        return Noise(reason)
    found = _HEAD_ID.match(data, 0, _HEAD) or _TAIL_ID.search(data, max(0, len(data) - _HEAD))
    if found:
        return Broken(int(found[1]), reason)
    if b'"jsonrpc"' in data[:_MARKED] or b'"jsonrpc"' in data[-_MARKED:]:
        return Broken(None, reason)
    return Noise(reason)


def _typed(value: dict[str, JsonValue]) -> Frame:
    if "method" in value:
        return _from_peer(value)
    id = value.get("id")
    if type(id) is not int:
        return _unowned(value, id)
    if value.get("jsonrpc") != "2.0":
        return _unmarked(value, id)
    if "error" in value:
        both = "result" in value
        return Broken(id, "both a result and an error") if both else _fault(id, value["error"])
    if "result" not in value:
        return Broken(id, "neither a result nor an error")
    return Reply(id, value["result"])


def _unowned(value: dict[str, JsonValue], id: JsonValue) -> Frame:
    """An answer whose id is none of ours; an error without one is about something we sent."""
    if id is None and "error" in value and value.get("jsonrpc") == "2.0":
        frame = _fault(None, value["error"])
        return frame if isinstance(frame, Fault) else Noise("an error that belongs to nobody")
    return Noise(f"the id {id!r:.40} is not one of ours")


def _unmarked(value: dict[str, JsonValue], id: int) -> Frame:
    if "result" in value or "error" in value:
        return Broken(id, "an answer without jsonrpc 2.0")
    return Noise("not JSON-RPC")


def _fault(id: int | None, error: JsonValue) -> Frame:
    if not isinstance(error, dict):
        return Broken(id, "an error that is not an object")
    code, message = error.get("code"), error.get("message", "")
    if type(code) is not int or not isinstance(message, str):
        return Broken(id, "an error without a numeric code and a text")
    return Fault(id, code, message, error.get("data"))


def _from_peer(value: dict[str, JsonValue]) -> Frame:
    method = value["method"]
    if not isinstance(method, str) or value.get("jsonrpc") != "2.0":
        return Noise("not JSON-RPC")
    if "id" not in value:
        return Notice(method, value.get("params"))
    id = value["id"]
    if type(id) is int or isinstance(id, str):
        return Request(id, method, value.get("params"))
    return Noise(f"a request with the id {id!r:.40}")


@lru_cache(maxsize=64)
def _quoted(method: str) -> bytes:
    return dumps(method)
