"""Requests that pass: sent upstream as they came, and answered byte for byte.

For callers whose task has no MCP, and for requests that switch it off.
"""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from bascule.asgi.errors import ClientGone
from bascule.asgi.presence import disconnected, first_of
from bascule.asgi.sse import writing
from bascule.loop.backend import ChatUpstream, RawAnswer

# The length is the server's to say again, and an encoding would have been undone on the way.
_NOT_PASSED = frozenset({"content-length", "transfer-encoding", "connection"})
# Every answer of ours has an id of its own, and clients would read two as one.
_RENAMED = {"x-request-id": "x-upstream-request-id"}


class Passing:
    """The answer to a request that is only passed on."""

    def __init__(self, upstream: ChatUpstream, body: bytes) -> None:
        self._upstream = upstream
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the request, and its answer as it arrives; a caller who hangs up ends it."""
        self._answered = False
        await first_of(self._pass(scope, send), disconnected(receive))
        if not self._answered:
            raise ClientGone("the caller hung up")

    async def _pass(self, scope: Scope, send: Send) -> None:
        async with writing(scope, send) as out, self._upstream.forward(self._body) as answer:
            await out.start(answer.status, _headers(answer))
            async for piece in answer.chunks:
                await out.write(piece)
            await out.close()
        self._answered = True


def _headers(answer: RawAnswer) -> list[tuple[bytes, bytes]]:
    given = {name.lower(): value for name, value in answer.headers.items()}
    return [
        (_RENAMED.get(name, name).encode("latin-1"), value.encode("latin-1"))
        for name, value in given.items()
        if name not in _NOT_PASSED
    ]
