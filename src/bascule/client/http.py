"""One connection to a Bascule server: requests with a token, errors as they were raised there.

Below: aiohttp, the SSE reader of ``bascule.wire``. Above: ``registry.py``, ``tools.py``. Whatever
the server refuses comes back as ``ApiError`` with the server's own code, message and details; a
server that cannot be reached, or does not speak our shape, is ``Unreachable``.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import SplitResult, urlsplit

import aiohttp
import msgspec
import orjson
from msgspec import Struct

from bascule import __version__
from bascule.errors import BasculeError, InvalidRecord
from bascule.lifetime import Lifetime
from bascule.model.json import is_object
from bascule.wire.sse import MAX_EVENT_BYTES, EventTooLarge, SseEvent, SseReader

REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 5.0
#: A stream that carries nothing for this long is dead: an idle one has comments and bookmarks.
STREAM_IDLE_SECONDS = 45.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
Method: TypeAlias = Literal["GET", "POST"]
T = TypeVar("T")
_FIRST_ERROR = 400
# A peer whose machine is gone says nothing at all: the kernel asks after it. Not every system
# has all of these.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class ApiError(BasculeError):
    """What a server answered instead of doing what it was asked; ``code`` is the server's."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        body: Any = None,
    ) -> None:
        self.status = status
        self.code = code
        self.details = dict(details or {})
        #: The whole answer, for an address whose refusals say more.
        self.body = body
        super().__init__(message)


class Unreachable(BasculeError):
    """The server cannot be reached, or what answers there is not Bascule.

    Whether it has read what was sent cannot be told, unless it is ``NotSent``.
    """

    code = "unreachable"


class NotSent(Unreachable):
    """No server can have read the request: it may be sent again."""


class TooLate(Unreachable):
    """The answer did not come in time."""


class Answer(Struct, frozen=True):
    """What came back: ``body`` is None for 304 and for an empty answer."""

    status: int
    body: Any
    etag: str | None


class ApiClient(Lifetime):
    """Requests to one server. Use it with ``async with``, or call ``close``."""

    def __init__(self, url: str, token: str | None, *, tls: ssl.SSLContext | None = None) -> None:
        self.url = url.rstrip("/")
        self._headers = {"User-Agent": f"bascule/{__version__}", "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Let the connections go; the client may be used again."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> Answer:
        """Send one request, once; return the answer, or raise ApiError or Unreachable.

        ``body`` is written as JSON unless it is bytes already.
        """
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        async with self._send(method, path, query, body, headers, limits) as response:
            return self._read(response, await self._whole(response))

    async def events(  # noqa: PLR0913 - options, all by keyword
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        idle_seconds: float = STREAM_IDLE_SECONDS,
        method: Method = "GET",
        body: Any = None,
        seconds: float | None = None,
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> AsyncGenerator[SseEvent, None]:
        """Yield the events of a stream until it ends; close the generator to hang up.

        ``seconds`` bounds the stream as a whole.
        """
        limits = aiohttp.ClientTimeout(
            total=seconds, sock_connect=CONNECT_SECONDS, sock_read=idle_seconds
        )
        asked = {"Accept": "text/event-stream", **(headers or {})}
        async with self._send(method, path, query, body, asked, limits) as response:
            if response.status >= _FIRST_ERROR:
                self._read(response, await self._whole(response))
            if response.content_type != "text/event-stream":
                raise Unreachable(f"{self.url}: {response.content_type} in place of a stream")
            reader = SseReader(max_event_bytes)
            async for chunk in response.content.iter_any():
                for event in reader.feed(chunk):
                    yield event

    def shaped(self, body: Any, kind: type[T]) -> T:
        """Return an answer, or the bytes of an event, as what it should be."""
        try:
            if isinstance(body, bytes):
                return msgspec.json.decode(body, type=kind)
            return msgspec.convert(body, kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unreachable(f"{self.url}: an answer that cannot be read: {error}") from None

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        text = bytearray()
        async for chunk in response.content.iter_any():
            text += chunk
            if len(text) > MAX_ANSWER_BYTES:
                raise Unreachable(f"{self.url}: an answer of more than {MAX_ANSWER_BYTES} bytes")
        return bytes(text)

    @asynccontextmanager
    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        headers: Mapping[str, str] | None,
        limits: aiohttp.ClientTimeout,
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        given = dict(headers or {})
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        if data is not None:
            given.setdefault("Content-Type", "application/json")
        try:
            async with self._opened().request(
                method,
                f"{self.url}{path}",
                params=query,
                data=data,
                headers=given,
                timeout=limits,
                allow_redirects=False,
            ) as response:
                yield response
        except (TimeoutError, aiohttp.ClientError, EventTooLarge, OSError) as error:
            raise _unreachable(self.url, error) from error

    def _opened(self) -> aiohttp.ClientSession:
        """Return the session; it is made where the loop runs."""
        if self._session is None:
            connector = aiohttp.TCPConnector(
                ssl=True if self._tls is None else self._tls,
                limit=0,  # how much is done at once is for the server to say
                socket_factory=_watched_socket,
            )
            self._session = aiohttp.ClientSession(headers=self._headers, connector=connector)
        return self._session

    def _read(self, response: aiohttp.ClientResponse, text: bytes) -> Answer:
        body = self._parsed(response, text) if text else None
        if response.status >= _FIRST_ERROR:
            raise self.error(response.status, body)
        return Answer(response.status, body, response.headers.get("ETag"))

    def _parsed(self, response: aiohttp.ClientResponse, text: bytes) -> Any:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            raise Unreachable(
                f"{self.url}: status {response.status} and no JSON: is this Bascule?"
            ) from None

    def error(self, status: int, body: Any) -> BasculeError:
        """Return what a body in our shape of errors says; in any other it is not Bascule's."""
        error = body.get("error") if is_object(body) else None
        if not is_object(error):
            return Unreachable(f"{self.url}: status {status} in a shape that is not Bascule's")
        details = error.get("details")
        return ApiError(
            status,
            str(error.get("code", "internal")),
            str(error.get("message", "")),
            details if is_object(details) else None,
            body=body,
        )


def open_api(
    url: str, token: str | None, *, tls_ca: str | None = None, insecure: bool = False
) -> ApiClient:
    """Return a client for an address that somebody gave; raise InvalidRecord for a bad one.

    A token does not travel in the clear: plain HTTP is for this machine, unless ``insecure``.
    """
    parts = _parts(url)
    if parts.scheme == "http" and not insecure and not _is_here(parts.hostname or ""):
        raise InvalidRecord(
            [f"url: {url!r} would send the token in the clear: use https, or insecure=True"]
        )
    return ApiClient(url, token, tls=None if tls_ca is None else _trusting(tls_ca))


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


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _trusting(tls_ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=tls_ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidRecord([f"tls_ca: {tls_ca}: {error}"]) from error


def _unreachable(url: str, error: BaseException) -> Unreachable:
    """Say what became of a request that has no answer: at most once needs to know."""
    words = f"{url}: {_words(error)}"
    # The last is how aiohttp says that a kept connection had ended before the first byte.
    if isinstance(
        error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.InvalidURL
    ) or isinstance(error.__cause__, aiohttp.ClientConnectionResetError):
        return NotSent(words)
    return (TooLate if isinstance(error, TimeoutError) else Unreachable)(words)


def _watched_socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientSSLError):
        return str(error.os_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        # aiohttp's own words speak of its options; a name that is not found has a code below zero.
        code = error.errno or 0
        return os.strerror(code) if code > 0 else str(error.os_error)
    return str(error) or type(error).__name__
