"""One HTTP request on its way: sent at most once, and the error says whether it left.

Above: the HTTP transports (``http``, ``sse``). Below: ``upstream``, ``bascule.wire.frames``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

import aiohttp
from yarl import URL

from bascule.clock import Clock
from bascule.errors import (
    BasculeError,
    MalformedReply,
    NotDelivered,
    OutcomeUnknown,
    RemoteError,
    ServerUnavailable,
)
from bascule.node.pool.transport.body import read_capped
from bascule.node.pool.transport.channel import ProgressTap
from bascule.node.pool.transport.credentials import Challenge
from bascule.node.pool.transport.upstream import Upstream
from bascule.wire import frames
from bascule.wire.era import UNSUPPORTED_VERSION, Era
from bascule.wire.frames import Fault

_ACCEPTED, _BAD_REQUEST, _UNAUTHORIZED, _FORBIDDEN = 202, 400, 401, 403
_NOT_FOUND, _SERVER_ERROR = 404, 500
_REFUSED = (_UNAUTHORIZED, _FORBIDDEN)
_NO_ENDPOINT = frozenset({404, 405})
_SAID = 200  # how much of a refusal's text is kept
_DRAIN_SECONDS = 1.0
_RESTART_PAUSES = 0.05, 0.1, 0.2, 0.4

Answer = TypeVar("Answer")


class HttpStatus(RemoteError):
    """An HTTP status that says no, without a JSON-RPC error to say more."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(frames.INVALID_REQUEST, f"HTTP {status}{': ' if text else ''}{text}")


class SessionLost(BasculeError):
    """The server has forgotten our session; what was sent was not carried out."""


class NobodyListens(NotDelivered):
    """The port is closed: the server is gone, or just being started again."""


async def patiently(clock: Clock, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
    """Make an attempt; wait a moment for a server that is just being started again."""
    for pause in _RESTART_PAUSES:
        try:
            return await attempt()
        except NobodyListens:
            await clock.sleep(pause)
    return await attempt()


async def deliver(
    upstream: Upstream,
    verb: str,
    body: bytes | None,
    headers: Mapping[str, str],
    *,
    url: URL | str | None = None,
) -> aiohttp.ClientResponse:
    """Send a request and return the answer once its head is here; the caller closes it.

    A credential that is refused (401, then perhaps 403) is renewed once for each, since nothing
    was carried out. Raises ``NotDelivered`` when no server can have read the request, else
    ``OutcomeUnknown``.
    """
    response = await _send(upstream, verb, body, headers, url)
    answered = 0
    while answered < response.status and response.status in _REFUSED:
        answered = response.status
        if not await _answered(upstream, response):
            break
        response = await _send(upstream, verb, body, headers, url)
    return response


async def _answered(upstream: Upstream, response: aiohttp.ClientResponse) -> bool:
    """Let the credential answer a refusal; the answer is let go when there is a second try."""
    challenge = Challenge(response.status, response.headers)
    try:
        worthwhile = await upstream.refused(response.request_info.headers, challenge)
    except BaseException:
        response.close()
        raise
    if worthwhile:
        response.release()
    return worthwhile


async def _send(
    upstream: Upstream,
    verb: str,
    body: bytes | None,
    headers: Mapping[str, str],
    url: URL | str | None,
) -> aiohttp.ClientResponse:
    constant = upstream.constant
    complete = {**(await upstream.headers() if constant is None else constant), **headers}
    if upstream.session.closed:
        raise NotDelivered("the connection is closed")
    try:
        return await upstream.send(verb, body, complete, url=url)
    except aiohttp.ClientConnectorError as error:
        refused = isinstance(error.os_error, ConnectionRefusedError)
        message = f"cannot connect to {upstream.origin}: {words(error)}"
        raise (NobodyListens if refused else NotDelivered)(message) from error
    except aiohttp.ConnectionTimeoutError as error:
        raise NotDelivered(f"cannot connect to {upstream.origin} in time") from error
    except aiohttp.InvalidURL as error:
        raise NotDelivered("the URL cannot be used") from error
    except (aiohttp.ClientError, OSError) as error:
        if isinstance(error.__cause__, aiohttp.ClientConnectionResetError):
            # aiohttp found the kept connection closed before it wrote the first byte.
            raise NotDelivered(f"the connection had been closed: {words(error)}") from error
        raise OutcomeUnknown(f"the connection was lost: {words(error)}") from error


def words(error: BaseException) -> str:
    """Return what an error says, or at least what it is."""
    if isinstance(error, aiohttp.ClientSSLError):
        return str(error.os_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        # aiohttp's own words speak of its options; a name that is not found has a code below zero.
        code = error.errno or 0
        return os.strerror(code) if code > 0 else str(error.os_error)
    return str(error)[:200] or type(error).__name__


class HttpCall(NamedTuple):
    """A request in flight."""

    id: int
    method: str
    name: str | None
    params: bytes
    headers: Mapping[str, str]
    progress: ProgressTap | None


class Refusal(NamedTuple):
    """What a status other than success means, and what the server said with it."""

    error: BasculeError
    said: str = ""


async def refusal(
    response: aiohttp.ClientResponse, limit: int, *, in_session: bool = False
) -> Refusal:
    """Read an answer that is none; ``in_session`` says that it was asked for in a session."""
    status = response.status
    if status == _ACCEPTED:
        return Refusal(MalformedReply("the server accepted the request and promised no answer"))
    body = await read_capped(response, limit)
    if status == _NOT_FOUND and in_session:
        return Refusal(SessionLost())
    frame = frames.read(body) if body[:1] == b"{" else None
    if isinstance(frame, Fault):
        return Refusal(RemoteError(frame.code, frame.message, frame.data))
    text = body[:_SAID].decode("utf-8", "replace")
    return Refusal(_meaning(response, text), f"HTTP {status} {text}".strip())


def _meaning(response: aiohttp.ClientResponse, text: str) -> BasculeError:
    status = response.status
    if status >= _SERVER_ERROR:
        return OutcomeUnknown(f"the server failed: HTTP {status}")
    if status in (_UNAUTHORIZED, _FORBIDDEN):
        origin = response.url.origin()
        return ServerUnavailable(f"{origin} refuses our credential: HTTP {status}")
    return HttpStatus(status, text)


def replaced(spoken: Era, response: aiohttp.ClientResponse, error: BasculeError) -> bool:
    """Say whether a refusal means that the server we negotiated with is there no more."""
    if isinstance(error, HttpStatus):
        return error.status in _NO_ENDPOINT
    if not isinstance(error, RemoteError):
        return False
    legacy_words = error.rpc_code == frames.INVALID_REQUEST or -32020 < error.rpc_code <= -32000
    of_old = spoken == "modern" and response.status == _BAD_REQUEST and legacy_words
    return of_old or error.rpc_code == UNSUPPORTED_VERSION


async def drained(response: aiohttp.ClientResponse) -> None:
    """Let a stream that has given its answer end by itself: its connection then serves again."""
    with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in response.content.iter_any():
                pass
    response.close()
