"""One connection to a Bascule server: requests with a token, errors as they were raised there.

Whatever the server refuses comes back as ``ApiError`` with the server's own code, message and
details; a server that cannot be reached, or does not speak our shape, is ``Unreachable``.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec
import orjson
from msgspec import Struct
from msgspec.structs import replace

from bascule.errors import (
    BasculeError,
    DeadlineExceeded,
    InvalidRecord,
    MalformedReply,
    NotDelivered,
    OutcomeUnknown,
)
from bascule.lifetime import Lifetime
from bascule.model.json import JsonObject, JsonValue
from bascule.outbound.egress import names_loopback
from bascule.outbound.failures import Unconnected
from bascule.outbound.http import HttpAnswer, HttpClient, HttpOptions, HttpRequest
from bascule.outbound.tls import tls_context
from bascule.outbound.url import Url
from bascule.wire.api.errors import Error
from bascule.wire.sse import MAX_EVENT_BYTES, EventTooLarge, SseEvent, SseReader

REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 5.0
#: A stream that carries nothing for this long is dead: an idle one has comments and bookmarks.
STREAM_IDLE_SECONDS = 45.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
Method: TypeAlias = Literal["GET", "POST"]
#: The parameters of a request; what is None is left out.
Query: TypeAlias = Mapping[str, str | int | bool | None]
T = TypeVar("T")
_FIRST_ERROR = 400
_NETWORK = (DeadlineExceeded, EventTooLarge, MalformedReply, NotDelivered, OutcomeUnknown)


class ApiError(BasculeError):
    """What a server answered instead of doing what it was asked; ``code`` is the server's."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: JsonObject | None = None,
        *,
        body: JsonValue = None,
    ) -> None:
        self.status = status
        self.code = code
        self.details = dict(details or {})
        #: The whole answer, for an address whose refusals say more.
        self.body = body
        super().__init__(message)


class Unreachable(OutcomeUnknown):
    """The server cannot be reached, or what answers there is not Bascule.

    Whether it has read what was sent cannot be told, unless it is ``NotSent``.
    """

    code = "unreachable"


class NotSent(Unreachable, NotDelivered):
    """No server can have read the request: it may be sent again."""


class TooLate(Unreachable, DeadlineExceeded):
    """The answer did not come in time."""


class Answer(Struct, frozen=True):
    """What came back: ``body`` is None for 304 and for an empty answer."""

    status: int
    body: JsonValue
    etag: str | None


class ApiClient(Lifetime):
    """Requests to one server. Use it with ``async with``, or call ``close``."""

    def __init__(self, url: str, token: str | None, *, tls: ssl.SSLContext | None = None) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._client = HttpClient(
            HttpOptions(
                connect_seconds=CONNECT_SECONDS,
                egress=None,
                tls=tls,
                connections=0,  # how much is done at once is for the server to say
            )
        )

    async def close(self) -> None:
        """Let the connections go; the client may be used again."""
        await self._client.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> Answer:
        """Send one request, once; return the answer, or raise ApiError or Unreachable.

        ``body`` is written as JSON unless it is bytes already.
        """
        sent = self._request(method, path, query, body, headers)
        async with self._send(sent, seconds) as response:
            return self._read(response, await response.read(MAX_ANSWER_BYTES))

    async def ask(  # noqa: PLR0913 - options, all by keyword
        self,
        kind: type[T],
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> T:
        """Send one request, once; return the answer as what it should be."""
        answer = await self.request(
            method, path, query=query, body=body, headers=headers, seconds=seconds
        )
        return self.shaped(answer.body, kind)

    async def events(  # noqa: PLR0913 - options, all by keyword
        self,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        idle_seconds: float = STREAM_IDLE_SECONDS,
        method: Method = "GET",
        body: object = None,
        seconds: float | None = None,
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> AsyncGenerator[SseEvent, None]:
        """Yield the events of a stream until it ends; close the generator to hang up.

        ``seconds`` bounds the stream as a whole.
        """
        asked = {"Accept": "text/event-stream", **(headers or {})}
        sent = self._request(method, path, query, body, asked)
        async with self._send(sent, seconds, idle_seconds) as response:
            if response.status >= _FIRST_ERROR:
                self._read(response, await response.read(MAX_ANSWER_BYTES))
            if response.content_type != "text/event-stream":
                raise Unreachable(f"{self.url}: {response.content_type} in place of a stream")
            reader = SseReader(max_event_bytes)
            async for chunk in response:
                for event in reader.feed(chunk):
                    yield event

    async def chunks(
        self, path: str, *, query: Query | None = None, idle_seconds: float = STREAM_IDLE_SECONDS
    ) -> AsyncGenerator[bytes, None]:
        """Yield an answer of any length as it comes; one that breaks off raises Unreachable."""
        sent = self._request("GET", path, query, None, {"Accept": "*/*"})
        async with self._send(sent, None, idle_seconds) as response:
            if response.status >= _FIRST_ERROR:
                self._read(response, await response.read(MAX_ANSWER_BYTES))
            async for chunk in response:
                yield chunk

    def shaped(self, body: object, kind: type[T]) -> T:
        """Return an answer, or the bytes of an event, as what it should be."""
        try:
            if isinstance(body, bytes):
                return msgspec.json.decode(body, type=kind)
            return msgspec.convert(body, kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unreachable(f"{self.url}: an answer that cannot be read: {error}") from None

    def _request(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: object,
        headers: Mapping[str, str] | None,
    ) -> HttpRequest:
        given = {**self._headers, **(headers or {})}
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        if data is not None:
            given.setdefault("Content-Type", "application/json")
        url = Url.parse(f"{self.url}{path}").asking(_said(query or {}))
        return HttpRequest(method, url, given, data)

    @asynccontextmanager
    async def _send(
        self, request: HttpRequest, seconds: float | None, idle_seconds: float | None = None
    ) -> AsyncGenerator[HttpAnswer, None]:
        """Yield the answer; the connection is closed unless it was read to its end."""
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        try:
            answer = await self._client.send(
                replace(request, deadline=deadline, idle_seconds=idle_seconds)
            )
            try:
                yield answer
            finally:
                answer.close()
        except _NETWORK as error:
            raise _unreachable(self.url, error) from error

    def _read(self, response: HttpAnswer, text: bytes) -> Answer:
        body = self._parsed(response, text) if text else None
        if response.status >= _FIRST_ERROR:
            raise self.error(response.status, body)
        return Answer(response.status, body, response.headers.get("ETag"))

    def _parsed(self, response: HttpAnswer, text: bytes) -> JsonValue:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            raise Unreachable(
                f"{self.url}: status {response.status} and no JSON: is this Bascule?"
            ) from None

    def error(self, status: int, body: JsonValue) -> BasculeError:
        """Return what a body in our shape of errors says; in any other it is not Bascule's."""
        try:
            words = msgspec.convert(body, Error).error
        except msgspec.ValidationError:
            return Unreachable(f"{self.url}: status {status} in a shape that is not Bascule's")
        return ApiError(status, words.code, words.message, words.details, body=body)


def open_api(
    url: str, token: str | None, *, tls_ca: str | None = None, insecure: bool = False
) -> ApiClient:
    """Return a client for an address that somebody gave; raise InvalidRecord for a bad one.

    A token does not travel in the clear: plain HTTP is for this machine, unless ``insecure``.
    """
    parts = _parts(url)
    if parts.scheme == "http" and not insecure and not names_loopback(parts.hostname or ""):
        raise InvalidRecord(
            [f"url: {url!r} would send the token in the clear: use https, or insecure=True"]
        )
    return ApiClient(url, token, tls=None if tls_ca is None else _trusting(tls_ca))


def _said(query: Query) -> dict[str, str]:
    given = {name: value for name, value in query.items() if value is not None}
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in given.items()}


def _parts(url: str) -> SplitResult:
    problem = f"url: {url!r} is not the address of a server, such as http://127.0.0.1:7070"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise InvalidRecord([problem]) from None
    if not usable or parts.query or parts.fragment or parts.username is not None:
        raise InvalidRecord([problem])
    return parts


def _trusting(tls_ca: str) -> ssl.SSLContext:
    try:
        return tls_context(tls_ca)
    except OSError as error:
        raise InvalidRecord([f"tls_ca: {tls_ca}: {error}"]) from error


def _unreachable(url: str, error: Exception) -> Unreachable:
    """Say what became of a request that has no answer: at most once needs to know."""
    words = f"{url}: {error.words if isinstance(error, Unconnected) else error}"
    if isinstance(error, NotDelivered):
        return NotSent(words)
    return (TooLate if isinstance(error, DeadlineExceeded) else Unreachable)(words)
