"""The seam above which all transports are alike.

A channel carries requests to one server and brings back one answer each. It promises: every request
ends by its deadline; a request is sent at most once, and the error says whether it left; one
caller's trouble is not another's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

from bascule.errors import NotDelivered, RemoteError
from bascule.node.pool.transport.taps import Logs, Tap
from bascule.wire import frames
from bascule.wire.api.trials import Step
from bascule.wire.era import Peer
from bascule.wire.frames import Request
from bascule.wire.rpc_codes import METHOD_NOT_FOUND
from bascule.wire.strict_json import JsonValue, dumps

# A request that the peer must not be told to forget: legacy servers exit on anything unexpected
# before the handshake, and the handshake itself may not be cancelled.
NEVER_CANCELLED = frozenset({"initialize", "server/discover"})


class Outdated(NotDelivered):
    """The server refused a secret that is another by now: a new connection has the new one."""


def nobody_renews() -> None:
    """Nobody has another connection."""


def _ignore_notification(_method: str, _params: JsonValue) -> None:
    """Nobody listens."""


def _ignore_loss(_reason: str) -> None:
    """Nobody minds."""


def ignore_pause(_seconds: float) -> None:
    """Nobody counts."""


def ignore_step(_step: Step) -> None:
    """Nobody follows."""


def ignore_words(_words: str) -> None:
    """Nobody reads."""


class Events(msgspec.Struct, frozen=True):
    """What a channel reports unasked.

    ``on_closed`` is called once, when the connection is lost and not when it was closed by us.
    ``on_pause`` tells for how many seconds reading paused because the server floods.
    ``on_outdated`` is called once, when the server refused a secret that is another by now.
    ``on_step`` is called when a step of the opening begins, ``on_said`` with what is said in one
    before there is a server to say anything.
    ``secrets_read`` gets the names of the secrets that were asked for to open the channel.
    ``on_request`` answers what the server asks, or raises RemoteError to refuse; without it every
    request of the server but ``ping`` is refused. ``logs`` has those who hear what is logged.
    """

    on_notification: Callable[[str, JsonValue], None] = _ignore_notification
    on_closed: Callable[[str], None] = _ignore_loss
    on_pause: Callable[[float], None] = ignore_pause
    on_request: Callable[[str, JsonValue], Awaitable[JsonValue]] | None = None
    on_outdated: Callable[[], None] = nobody_renews
    on_step: Callable[[Step], None] = ignore_step
    on_said: Callable[[str], None] = ignore_words
    secrets_read: set[str] = msgspec.field(default_factory=set[str])
    logs: Logs = msgspec.field(default_factory=Logs)


async def reply_to(request: Request, events: Events) -> bytes:
    """Return the frame that answers a server's request, or refuses it."""
    if request.method == "ping":
        return frames.response(request.id, b"{}")
    if events.on_request is None:
        message = f"{request.method[:80]} was not offered"
        return frames.error_response(request.id, METHOD_NOT_FOUND, message)
    try:
        result = await events.on_request(request.method, request.params)
    except RemoteError as error:
        return frames.error_response(request.id, error.rpc_code, error.message)
    return frames.response(request.id, dumps(result))


class Counters(msgspec.Struct):
    """What was dropped or refused so far, for the curious and for tests."""

    late: int = 0
    foreign: int = 0
    noise: int = 0
    broken: int = 0
    notices: int = 0
    unheard: int = 0
    refused: int = 0
    pauses: int = 0


class Channel(Protocol):
    """One connection to one server."""

    @property
    def alive(self) -> bool:
        """Whether a request may still be answered."""
        ...

    @property
    def apart(self) -> bool:
        """Whether each answer has a stream of its own, and what comes there is about its call."""
        ...

    async def request(
        self,
        method: str,
        params: bytes,
        *,
        deadline: float,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        tap: Tap | None = None,
    ) -> JsonValue:
        """Send a request and wait for its result; ``deadline`` is absolute, in ``loop.time()``.

        ``name`` is what a transport with headers calls it (a tool's name), ``headers`` are what
        the tool wants repeated there, ``tap`` is told what the server says meanwhile. Raises
        ``NotDelivered`` when not one byte left, ``OutcomeUnknown`` when it left and the
        connection was lost, ``DeadlineExceeded``, ``RemoteError`` or ``MalformedReply``.
        """
        ...

    def settle(self, peer: Peer) -> None:
        """Take the verdict of the negotiation, where later requests depend on it."""
        ...

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification, or drop it when the server does not read."""
        ...

    def diagnosis(self) -> str:
        """The last the server said outside the protocol."""
        ...

    async def close(self) -> None:
        """End the connection and what belongs to it; calls in flight fail."""
        ...
