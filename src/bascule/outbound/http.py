"""The HTTP client of everything that Bascule reaches: MCP servers, model backends, its own API.

``HttpClient.send`` sends a request at most once and returns when the head of the answer is here;
the errors in ``failures`` say what is known when none comes. Only this module knows the engine
below it, which is aiohttp.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Self, TypeAlias

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from msgspec import Struct
from yarl import URL

from bascule import __version__
from bascule.errors import BasculeError, DeadlineExceeded
from bascule.outbound.body import READ_BUFFER, Body
from bascule.outbound.egress import EgressRules
from bascule.outbound.failures import BrokenAnswer, ConnectionGone, Unanswered, Unconnected, Why

CONNECTIONS = 256
KEEPALIVE_SECONDS = 15
HEADER_LINE = 8_190
_SHORTEST = 0.001
_SHOWN = 200  # how much of the engine's own words is kept

#: Returns the addresses of a host and port.
Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]

# What aiohttp raises when there is no connection; the first that fits counts.
_UNCONNECTED: tuple[tuple[type[Exception], Why], ...] = (
    (aiohttp.ConnectionTimeoutError, "late"),
    (aiohttp.InvalidURL, "url"),
    (aiohttp.ClientConnectorCertificateError, "certificate"),
    (aiohttp.ClientSSLError, "tls"),
    (aiohttp.ClientConnectorDNSError, "name"),
    (aiohttp.ClientConnectorError, "network"),
)
# The connection of the request that was sent last in this context.
_LINE: ContextVar[ResponseHandler | None] = ContextVar("line", default=None)


class HttpOptions(Struct, frozen=True, kw_only=True):
    """What one client may reach, and how.

    Without ``egress`` any address is reached, as the user of this process named it. ``insecure``
    allows plain http to other machines under egress rules. No ``connections`` are no limit.
    """

    connect_seconds: float
    egress: EgressRules | None
    insecure: bool = False
    tls: ssl.SSLContext | None = None
    resolve: Resolve | None = None
    connections: int = CONNECTIONS


class HttpRequest(Struct, frozen=True):
    """One request. ``deadline`` (in the loop's time) bounds the answer's head and body.

    ``idle_seconds`` bounds the silence between two pieces of the answer.
    """

    method: str
    url: URL
    headers: Mapping[str, str]
    body: bytes | None = None
    deadline: float | None = None
    idle_seconds: float | None = None


class HttpClient:
    """Kept connections under one set of rules. It opens when first used, also after ``close``.

    Redirects are not followed, cookies not kept, proxies of the environment not used, and what is
    compressed stays so until it is read.
    """

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._unbounded = aiohttp.ClientTimeout(total=None, sock_connect=options.connect_seconds)
        self._session: aiohttp.ClientSession | None = None

    @property
    def is_open(self) -> bool:
        """Whether connections may be held."""
        return self._session is not None

    async def send(self, request: HttpRequest) -> HttpAnswer:
        """Send a request and return the answer once its head is here; the caller closes it.

        Raises what ``failures`` lists. No cause is chained: aiohttp's errors hold what was sent.
        """
        session = self._session or self._opened()
        try:
            response = await session.request(
                request.method,
                request.url,
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
                timeout=self._timeout(request),
            )
        except (aiohttp.ClientError, OSError) as error:
            raise _unanswered(request.url, error) from None
        return HttpAnswer(response, _LINE.get())

    async def close(self) -> None:
        """End every connection and whatever is under way there."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            connector=_Connector(self._options),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            max_line_size=HEADER_LINE,
            max_field_size=HEADER_LINE,
            headers={"User-Agent": f"bascule/{__version__}"},
            skip_auto_headers=("Accept-Encoding",),
        )
        return self._session

    def _timeout(self, request: HttpRequest) -> aiohttp.ClientTimeout:
        if request.deadline is None and request.idle_seconds is None:
            return self._unbounded
        left = None
        if request.deadline is not None:
            left = max(request.deadline - asyncio.get_running_loop().time(), _SHORTEST)
        return aiohttp.ClientTimeout(
            total=left,
            sock_connect=self._options.connect_seconds,
            sock_read=request.idle_seconds,
        )


class HttpAnswer:
    """An answer whose head is here. Iterate over it for the pieces of its body as they come."""

    __slots__ = ("_line", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, line: ResponseHandler | None) -> None:
        self._response = response
        self._line = line
        self.status = response.status
        #: By names in any case.
        self.headers: Mapping[str, str] = response.headers

    @property
    def content_type(self) -> str:
        """Return the media type, in small letters and without parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def ended(self) -> bool:
        """Whether all of the body is here, read or not."""
        return self._response.content.is_eof()

    @property
    def connected(self) -> bool:
        """Whether the connection that the answer came by is still open."""
        return self._line is not None and self._line.is_connected()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            piece = await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise _broken_off(error) from None
        if not piece:
            raise StopAsyncIteration
        return piece

    async def read(self, limit: int) -> bytes:
        """Return the body, decompressed, of at most ``limit`` bytes, or raise MalformedReply.

        What is over the limit is neither kept nor decompressed, and the connection is closed.
        """
        encoding, length = self.headers.get("Content-Encoding", ""), self._response.content_length
        if not encoding and length is not None and length <= limit:
            try:
                return await self._response.read()
            except (aiohttp.ClientError, OSError) as error:
                raise _broken_off(error) from None
        try:
            body = Body(encoding, limit)
            async for piece in self:
                body.feed(piece)
            return body.whole()
        except BaseException:
            self.close()
            raise

    async def drain(self, seconds: float) -> None:
        """Drop the rest of the body, if it ends soon: only then does the connection serve again."""
        with contextlib.suppress(TimeoutError, BasculeError):
            async with asyncio.timeout(seconds):
                async for _ in self:
                    pass
        self.close()

    def release(self) -> None:
        """Let the connection serve others, if the body was read to its end."""
        self._response.release()

    def close(self) -> None:
        """Close the connection, unless the body was read to its end."""
        self._response.close()


class _Connector(aiohttp.TCPConnector):
    """Opens only connections that the rules allow, whoever asks and for whatever URL.

    Hosts written as addresses never reach a resolver, so the URL is checked here; names are
    resolved anew for each connection, and a connection in use needs no check.
    """

    def __init__(self, options: HttpOptions) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType] - a bare tuple in aiohttp
            ssl=True if options.tls is None else options.tls,
            resolver=_Resolver(options.egress, options.resolve or _addresses),
            use_dns_cache=False,
            limit=options.connections,
            keepalive_timeout=KEEPALIVE_SECONDS,
            socket_factory=_socket,
        )
        self._egress = options.egress
        self._insecure = options.insecure

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the signature is aiohttp's
    ) -> Connection:
        """Return a connection, kept or new, and note it: a short answer no longer knows."""
        connection = await super().connect(req, traces, timeout)
        _LINE.set(connection.protocol)
        return connection

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the signature is aiohttp's
    ) -> ResponseHandler:
        if self._egress is not None:
            self._egress.check_url(req.url, insecure=self._insecure)
        return await super()._create_connection(req, traces, timeout)


class _Resolver(AbstractResolver):
    """Resolves names to addresses that have passed; the connection goes to one of these."""

    def __init__(self, egress: EgressRules | None, resolve: Resolve) -> None:
        self._egress = egress
        self._resolve = resolve

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host, or refuse it."""
        del family
        found = await self._resolve(host, port)
        if not found:
            raise OSError(None, f"{host} has no address")
        if self._egress is not None:
            self._egress.check_addresses(host, found)
        return [_resolved(host, port, address) for address in found]

    async def close(self) -> None:
        """Nothing is held."""


async def _addresses(host: str, port: int) -> list[str]:
    """Ask the machine's own resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return [str(address[0]) for *_, address in found]


def _resolved(host: str, port: int, address: str) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=socket.AF_INET6 if ":" in address else socket.AF_INET,
        proto=0,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )


def _socket(info: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    """Return a socket that notices, within a minute, when the other machine is gone."""
    made = socket.socket(*info[:3])
    made.settimeout(0)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _unanswered(url: URL, error: Exception) -> BasculeError:
    """Return what became of a request without an answer: at most once rests on this."""
    why = _why(error)
    if why is not None:
        return Unconnected(_origin(url), why, _words(error))
    if isinstance(error, TimeoutError):
        return DeadlineExceeded("no answer in time")
    if isinstance(error.__cause__, aiohttp.ClientConnectionResetError):
        # So aiohttp says that it found the kept connection closed before it wrote the first byte.
        return ConnectionGone("the connection had been closed")
    if isinstance(error, aiohttp.ClientResponseError):
        return BrokenAnswer(f"the answer is not HTTP: {error.message[:_SHOWN]}")
    return Unanswered(f"the connection was lost: {_words(error)}")


def _broken_off(error: Exception) -> BasculeError:
    """Return what became of an answer that had begun."""
    if isinstance(error, TimeoutError):
        return DeadlineExceeded("no answer in time")
    return BrokenAnswer(f"the answer broke off: {_words(error)}")


def _why(error: Exception) -> Why | None:
    """Say what kept us from connecting, if that is what happened."""
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(
        error.os_error, ConnectionRefusedError
    ):
        return "refused"
    return next((why for kind, why in _UNCONNECTED if isinstance(error, kind)), None)


def _words(error: Exception) -> str:
    """Return what an error says, or at least what it is."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "no connection in time"
    if isinstance(error, aiohttp.InvalidURL):
        return "the URL cannot be used"
    if isinstance(error, aiohttp.ClientConnectorError):
        # aiohttp's own words speak of its options; a name that is not found has a code below zero.
        code = 0 if isinstance(error, aiohttp.ClientSSLError) else error.errno or 0
        return os.strerror(code) if code > 0 else str(error.os_error)
    return str(error)[:_SHOWN] or type(error).__name__


def _origin(url: URL) -> str:
    with contextlib.suppress(ValueError):
        return str(url.origin())
    return "an address without an origin"
