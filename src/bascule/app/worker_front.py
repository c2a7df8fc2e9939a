"""What a worker does with a request that another process has to answer: it hands it over.

A request names its worker by the id of something that worker keeps; the guard has recognised its
caller by then. A worker of ``bascule up`` also gets what is asked of the control plane: that goes
there as it came, and is looked at there alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bascule.asgi.errors import ClientGone, Refused, error_response
from bascule.asgi.forwarding import Peer, PeerAway
from bascule.asgi.guard import GuardedRoute
from bascule.asgi.json import read_body
from bascule.doors.owners import METRICS, WORKER, Ownership, ownership_at
from bascule.wire.api.addresses import IDENTITY, INSTANCE

#: The scope's name for what sends to the caller itself: an answer that was handed over has all
#: the headers that it needs.
_SEND: Final = "send_to_caller"
PLANE_SOCKET = "plane"
#: What is about the process or the data directory, and not a door: the control plane's, if it is
#: of the same machine.
PROCESS_PATHS = frozenset({"/healthz", "/readyz", METRICS, INSTANCE, IDENTITY})


def worker_socket(folder: Path, number: int) -> Path:
    """Return where a worker takes what others hand over."""
    return folder / f"worker-{number}"


def peers_of(folder: Path, key: bytes, count: int, own: int) -> dict[int, Peer]:
    """Return the other workers, by number."""
    others = (number for number in range(1, count + 1) if number != own)
    return {number: Peer(worker_socket(folder, number), key) for number in others}


def hand_over_owned(
    routes: Sequence[GuardedRoute], peers: Mapping[int, Peer], count: int
) -> list[GuardedRoute]:
    """Have requests of these routes answered by the worker that they name."""
    for one in routes:
        ownership = ownership_at(one.path)
        if ownership is not None:
            one.app = _Owned(one.app, ownership, peers, count)
    return [*routes]


class _Owned:
    """An endpoint whose requests may be another worker's."""

    def __init__(
        self, app: ASGIApp, ownership: Ownership, peers: Mapping[int, Peer], count: int
    ) -> None:
        self._app = app
        self._ownership = ownership
        self._peers = peers
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or have it answered; whoever is not there has had nothing of the request."""
        owner, body = self._ownership.by_head(scope), b""
        if owner is None and self._ownership.needs_body(scope):
            body = await read_body(receive)
            owner, receive = self._ownership.by_body(body), _read_again(body, receive)
        if owner is not None and self._ownership.alone and owner > self._count:
            words = f"{WORKER}: there is no worker {owner}, but 1 to {self._count}"
            raise Refused("not_found", words, details={"parameter": WORKER})
        peer = None if owner is None else self._peers.get(owner)
        if peer is not None:
            try:
                await peer.forward(scope, receive, scope.get(_SEND, send))
            except PeerAway:
                if self._ownership.alone or self._ownership.lasting(body):
                    words = f"worker {owner} is not there now, and is started again"
                    raise Refused("store_unavailable", words) from None
            else:
                return
        await self._app(scope, receive, send)


def _read_again(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that begins with a body that was read already."""
    left = [body]

    async def again() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return again


class WorkerFront:
    """The first to see a request at a worker. ``plane`` answers whatever is not a door's."""

    def __init__(
        self, app: ASGIApp, routes: Sequence[GuardedRoute] = (), plane: Peer | None = None
    ) -> None:
        self._app = app
        self._plane = plane
        self._fixed = frozenset(one.path for one in routes if "{" not in one.path)
        self._varying = [one.path_regex for one in routes if "{" in one.path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand over what is the control plane's; look at the rest here."""
        if self._plane is None or scope["type"] != "http" or self._is_own(scope):
            scope[_SEND] = send
            await self._app(scope, receive, send)
            return
        try:
            await self._plane.forward(scope, receive, send)
        except ClientGone:
            return
        except (PeerAway, Refused) as error:
            away = Refused("store_unavailable", "the control plane does not answer now")
            refusal = error if isinstance(error, Refused) else away
            await error_response(refusal, scope)(scope, receive, send)

    def _is_own(self, scope: Scope) -> bool:
        path = scope["path"]
        if path in self._fixed or any(one.match(path) for one in self._varying):
            return True
        return path == METRICS and f"{WORKER}=".encode() in scope["query_string"]
