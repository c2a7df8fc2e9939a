"""One HTTP request on its way: sent at most once, and the error says whether it left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

from bascule.clock import Clock
from bascule.errors import (
    BasculeError,
    MalformedReply,
    OutcomeUnknown,
    RemoteError,
    ServerUnavailable,
)
from bascule.model.whole_words import beginning
from bascule.node.pool.transport.taps import NO_TAP, Tap
from bascule.node.pool.transport.upstream import Upstream
from bascule.outbound.credentials import Challenge
from bascule.outbound.failures import Unconnected
from bascule.outbound.http import HttpAnswer
from bascule.outbound.url import Url
from bascule.wire import frames
from bascule.wire.era import Era
from bascule.wire.frames import Fault
from bascule.wire.rpc_codes import INVALID_REQUEST, UNSUPPORTED_VERSION

_ACCEPTED, _BAD_REQUEST, _NOT_FOUND, _SERVER_ERROR = 202, 400, 404, 500
_REFUSED = (401, 403)
_NO_ENDPOINT = frozenset({404, 405})
_SAID = 200  # how much of a refusal's text is kept
_RESTART_PAUSES = 0.05, 0.1, 0.2, 0.4

Answer = TypeVar("Answer")
#: What has come of a request that was sent already, if it was.
First: TypeAlias = HttpAnswer | BaseException | None


class HttpStatus(RemoteError):
    """An HTTP status that says no, without a JSON-RPC error to say more."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(INVALID_REQUEST, f"HTTP {status}{': ' if text else ''}{text}")


class SessionLost(BasculeError):
    """The server has forgotten our session; what was sent was not carried out."""


async def patiently(clock: Clock, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
    """Make an attempt; wait a moment for a server that is just being started again."""
    for pause in _RESTART_PAUSES:
        try:
            return await attempt()
        except Unconnected as error:
            if error.why != "refused":
                raise
            await clock.sleep(pause)
    return await attempt()


async def deliver(
    upstream: Upstream,
    verb: str,
    body: bytes | None,
    headers: Mapping[str, str],
    *,
    url: Url | None = None,
    first: HttpAnswer | None = None,
) -> HttpAnswer:
    """Send a request and return the answer once its head is here; the caller closes it.

    A credential that is refused (401, then perhaps 403) is renewed once for each, since nothing
    was carried out. Raises ``NotDelivered`` when no server can have read the request, else
    ``OutcomeUnknown``. ``first`` is the answer to this very request, if it was sent before.
    """
    answered = 0
    while True:
        complete = {**await upstream.headers(), **headers}
        answer = await upstream.send(verb, body, complete, url=url, first=first)
        first = None
        if answer.status not in _REFUSED or answer.status <= answered:
            return answer
        answered = answer.status
        if not await _answered(upstream, complete, answer):
            return answer


async def _answered(upstream: Upstream, used: Mapping[str, str], answer: HttpAnswer) -> bool:
    """Let the credential answer a refusal; the answer is let go when there is a second try."""
    try:
        worthwhile = await upstream.refused(used, Challenge(answer.status, answer.headers))
    except BaseException:
        answer.close()
        raise
    if worthwhile:
        answer.close()
    return worthwhile


def in_hand(first: First) -> HttpAnswer | None:
    """Return the answer that has come, if one has; raise what went wrong.

    A server where nobody listens may be being started again: it is waited for.
    """
    if isinstance(first, BaseException):
        if not isinstance(first, Unconnected) or first.why != "refused":
            raise first
        return None
    return first


class HttpCall(NamedTuple):
    """A request in flight."""

    id: int
    method: str
    name: str | None
    params: bytes
    headers: Mapping[str, str]
    tap: Tap = NO_TAP
    #: The session it was sent in at first.
    session: str | None = None

    def __repr__(self) -> str:
        return f"HttpCall({self.id}, {self.method!r})"


class Refusal(NamedTuple):
    """What a status other than success means, and what the server said with it."""

    error: BasculeError
    said: str = ""


async def refusal(
    answer: HttpAnswer, limit: int, origin: str, *, in_session: bool = False
) -> Refusal:
    """Read an answer that is none; ``in_session`` says that it was asked for in a session."""
    status = answer.status
    if status == _ACCEPTED:
        return Refusal(MalformedReply("the server accepted the request and promised no answer"))
    body = await answer.read(limit)
    if status == _NOT_FOUND and in_session:
        return Refusal(SessionLost())
    frame = frames.read(body) if body[:1] == b"{" else None
    if isinstance(frame, Fault):
        return Refusal(RemoteError(frame.code, frame.message, frame.data))
    text = beginning(body[: _SAID + 1].decode("utf-8", "replace"), _SAID)
    return Refusal(_meaning(status, text, origin), f"HTTP {status} {text}".strip())


def _meaning(status: int, text: str, origin: str) -> BasculeError:
    if status >= _SERVER_ERROR:
        return OutcomeUnknown(f"the server failed: HTTP {status}")
    if status in _REFUSED:
        return ServerUnavailable(f"{origin} refuses our credential: HTTP {status}")
    return HttpStatus(status, text)


def replaced(spoken: Era | None, status: int, error: BasculeError) -> bool:
    """Say whether a refusal means that the server we negotiated with is there no more."""
    if spoken is None:
        return False
    if isinstance(error, HttpStatus):
        return error.status in _NO_ENDPOINT
    if not isinstance(error, RemoteError):
        return False
    legacy_words = error.rpc_code == INVALID_REQUEST or -32020 < error.rpc_code <= -32000
    of_old = spoken == "modern" and status == _BAD_REQUEST and legacy_words
    return of_old or error.rpc_code == UNSUPPORTED_VERSION
