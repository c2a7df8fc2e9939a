"""One connection to a Bascule server: requests with a token, errors as they were raised there.

Below: aiohttp, the SSE reader of ``bascule.wire``. Above: ``registry.py``, ``tools.py``. Whatever
the server refuses comes back as ``ApiError`` with the server's own code, message and details; a
server that cannot be reached, or does not speak our shape, is ``Unreachable``.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson
from msgspec import Struct

from bascule import __version__
from bascule.errors import BasculeError
from bascule.model.json import is_object
from bascule.wire.sse import EventTooLarge, SseEvent, SseReader

REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 5.0
#: A stream that carries nothing for this long is dead: an idle one has comments and bookmarks.
STREAM_IDLE_SECONDS = 45.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
_FIRST_ERROR = 400


class ApiError(BasculeError):
    """What a server answered instead of doing what it was asked; ``code`` is the server's."""

    def __init__(
        self, status: int, code: str, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        self.status = status
        self.code = code
        self.details = dict(details or {})
        super().__init__(message)


class Unreachable(BasculeError):
    """The server cannot be reached, or what answers there is not Bascule."""

    code = "unreachable"


class Answer(Struct, frozen=True):
    """What came back: ``body`` is None for 304 and for an empty answer."""

    status: int
    body: Any
    etag: str | None


class ApiClient:
    """Requests to one server. Use it with ``async with``, or call ``close``."""

    def __init__(self, url: str, token: str | None, *, tls: ssl.SSLContext | None = None) -> None:
        self.url = url.rstrip("/")
        self._headers = {"User-Agent": f"bascule/{__version__}", "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

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
        """Send one request; return the answer, or raise ApiError or Unreachable."""
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        async with self._send(method, path, query, body, headers, limits) as response:
            return self._read(response, await self._whole(response))

    async def events(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        idle_seconds: float = STREAM_IDLE_SECONDS,
    ) -> AsyncGenerator[SseEvent, None]:
        """Yield the events of a stream until it ends; close the generator to hang up."""
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=idle_seconds
        )
        asked = {"Accept": "text/event-stream", **(headers or {})}
        async with self._send("GET", path, query, None, asked, limits) as response:
            if response.status >= _FIRST_ERROR:
                self._read(response, await self._whole(response))
            reader = SseReader()
            async for chunk in response.content.iter_any():
                for event in reader.feed(chunk):
                    yield event

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
        data = None if body is None else orjson.dumps(body)
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
            raise Unreachable(f"{self.url}: {_words(error)}") from error

    def _opened(self) -> aiohttp.ClientSession:
        """Return the session; it is made where the loop runs."""
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=True if self._tls is None else self._tls)
            self._session = aiohttp.ClientSession(headers=self._headers, connector=connector)
        return self._session

    def _read(self, response: aiohttp.ClientResponse, text: bytes) -> Answer:
        body = self._parsed(response, text) if text else None
        if response.status >= _FIRST_ERROR:
            raise self._error(response.status, body)
        return Answer(response.status, body, response.headers.get("ETag"))

    def _parsed(self, response: aiohttp.ClientResponse, text: bytes) -> Any:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            raise Unreachable(
                f"{self.url}: status {response.status} and no JSON: is this Bascule?"
            ) from None

    def _error(self, status: int, body: Any) -> BasculeError:
        error = body.get("error") if is_object(body) else None
        if not is_object(error):
            return Unreachable(f"{self.url}: status {status} in a shape that is not Bascule's")
        details = error.get("details")
        return ApiError(
            status,
            str(error.get("code", "internal")),
            str(error.get("message", "")),
            details if is_object(details) else None,
        )


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
