"""JSON bodies and answers: strict in, compact out, with ETags where a face wants them.

A body is read like a file of records: all problems at once, each with its path.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import inspect
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from bascule.asgi.errors import ClientGone, Refused
from bascule.asgi.exchange import EXCHANGE, READY, WHOLE
from bascule.errors import InvalidRecord, refuse_any
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.wire.collector import Findings, collect
from bascule.wire.strict_json import StrictJsonError, loads

T = TypeVar("T")

ANY_TAG = "*"
_LARGE = 64 * 1024
_JSON = (b"content-type", b"application/json")
_JSON_LINE = b"%b: %b\r\n" % _JSON
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
_TAG = re.compile(r'(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_TAGS = re.compile(rf"\s*{_TAG.pattern}\s*(?:,\s*{_TAG.pattern}\s*)*")


class JsonResponse(Response):
    """An answer made of plain values or msgspec structs."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Return the bytes of a value."""
        return msgspec.json.encode(content)


def json_response(
    value: object,
    status: int = 200,
    *,
    etag: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JsonResponse:
    """Return an answer; ``etag`` is a tag of ``make_etag``."""
    tagged = {**(headers or {}), **({} if etag is None else {"ETag": etag})}
    return JsonResponse(value, status, headers=tagged)


async def send_json(
    scope: Scope, send: Send, value: object, status: int = 200, headers: Headers = ()
) -> None:
    """Answer without a response object, as ``json_response`` does; in one message if it can be."""
    body = msgspec.json.encode(value)
    start: Message = {"type": "http.response.start", "status": status, "headers": headers}
    if EXCHANGE in scope:
        await send({**start, READY: _JSON_LINE, WHOLE: body})
        return
    own = [*headers, (b"content-length", b"%d" % len(body)), _JSON]
    await send({**start, "headers": own})
    await send({"type": "http.response.body", "body": body})


async def read_body(receive: Receive) -> bytes:
    """Read the whole body without a request object; raise ClientGone if its sender hangs up."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone("the caller hung up before its body was here")
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def read_json(request: Request) -> JsonValue:
    """Read the body; a large one beside the event loop, since others wait for it too."""
    body = await request.body()
    return await asyncio.to_thread(as_json, body) if len(body) > _LARGE else as_json(body)


def as_json(body: bytes) -> JsonValue:
    """Read a body that is here, or refuse it: missing, not UTF-8, a key twice, NaN, too deep."""
    if not body:
        raise Refused("invalid_json", "a JSON body is needed")
    try:
        return loads(body)
    except StrictJsonError as error:
        raise Refused("invalid_json", f"the body is not valid JSON: {error}") from None


async def read_object(request: Request) -> JsonObject:
    """Read a body that must be an object."""
    return await as_object(await request.body())


async def as_object(body: bytes) -> JsonObject:
    """Read a body that is here and must be an object; a large one beside the event loop."""
    value = await asyncio.to_thread(as_json, body) if len(body) > _LARGE else as_json(body)
    if not is_object(value):
        raise Refused("invalid_json", "the body must be a JSON object")
    return value


async def read_as(request: Request, kind: type[T]) -> T:
    """Read a body as a struct; raise InvalidRecord with every problem, unknown fields too."""
    return as_struct(await read_object(request), kind)


_description = cache(inspect.type_info)


def as_struct(value: JsonValue, kind: type[T], path: str = "") -> T:
    """Return plain values as a struct; raise InvalidRecord with every problem."""
    findings = Findings(strict=True)
    clean = collect(_description(kind), value, path, findings)
    refuse_any(findings.problems)
    try:
        return msgspec.convert(clean, kind)
    except msgspec.ValidationError as error:
        raise InvalidRecord([str(error)]) from None


def make_etag(*parts: object) -> str:
    """Return a strong tag made of parts, such as a store's id and a revision."""
    opaque = "-".join(str(part) for part in parts)
    tag = f'"{opaque}"'
    if not _TAG.fullmatch(tag):
        raise ValueError(f"{opaque!r} cannot stand in an ETag")
    return tag


def is_unchanged(request: Request, etag: str) -> bool:
    """Say whether the caller has this state already (If-None-Match), so that 304 will do."""
    tags = _tags(request, "if-none-match")
    return tags is not None and (tags == (ANY_TAG,) or _weak(etag) in map(_weak, tags))


def not_modified(etag: str) -> Response:
    """Return the answer to a caller who has this state already."""
    return Response(status_code=304, headers={"ETag": etag})


def if_match(request: Request) -> tuple[str, ...] | None:
    """Return the tags of If-Match (``*`` alone for any state), or None without the header.

    The write itself compares, inside its transaction.
    """
    return _tags(request, "if-match")


def check_if_none_match(request: Request, etag: str | None) -> None:
    """Refuse a write with 412 when If-None-Match names this state; ``*`` means: only create."""
    names_it = is_unchanged(request, etag or "")  # one that is malformed is refused in any case
    if etag is not None and names_it:
        raise Refused("conflict", "If-None-Match names the state that is stored already")


def _tags(request: Request, name: str) -> tuple[str, ...] | None:
    values = request.headers.getlist(name)
    if not values:
        return None
    text = ", ".join(values).strip()
    if text == ANY_TAG:
        return (ANY_TAG,)
    if not _TAGS.fullmatch(text):
        raise Refused("invalid_request", f'{name.title()} must be * or tags in quotes: "a", "b"')
    return tuple(found[0] for found in _TAG.finditer(text))


def _weak(tag: str) -> str:
    return tag.removeprefix("W/")
