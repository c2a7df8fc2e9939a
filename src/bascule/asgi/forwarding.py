"""Hands a request to another process of this machine, and its answer back to the caller.

Nothing is sent before the other side has said that it listens. So whoever is not there has had
nothing of a request, and somebody else may answer it; what was handed over is handed over once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from starlette.types import Receive, Scope, Send

from bascule.asgi.connections import SHOWN
from bascule.asgi.errors import ClientGone, Refused
from bascule.asgi.forward_frames import (
    END,
    GREETING,
    GREETING_SECONDS,
    LAST,
    LISTENING,
    MORE,
    PIECE,
    REQUEST,
    START,
    ForwardedRequest,
    ForwardingFailed,
    FrameChannel,
    decode_start,
    encode_frame,
)
from bascule.asgi.presence import first_of
from bascule.asgi.sse import ABORT
from bascule.errors import BasculeError


class PeerAway(BasculeError):
    """Nobody took a request: nothing of it was delivered."""


class Peer:
    """A process that takes requests at a unix socket (``ForwardedRequests`` serves there)."""

    def __init__(self, path: Path, key: bytes) -> None:
        self._path = path
        self._key = key

    async def forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a request answered there; raise PeerAway where it was not delivered."""
        channel = await self._reached()
        try:
            await _Forwarding(channel, scope, send).run(receive)
        finally:
            channel.abort()

    async def _reached(self) -> FrameChannel:
        channel: FrameChannel | None = None
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                channel = FrameChannel(*await asyncio.open_unix_connection(str(self._path)))
                channel.refuse_strangers()
                await channel.write(GREETING, self._key)
                await channel.expect(LISTENING)
        except (OSError, TimeoutError, ForwardingFailed) as error:
            if channel is not None:
                channel.abort()
            raise PeerAway(f"{self._path.name}: nobody answers: {error}") from error
        except BaseException:
            if channel is not None:
                channel.abort()
            raise
        return channel


class _Forwarding:
    """One request on its way."""

    def __init__(self, channel: FrameChannel, scope: Scope, send: Send) -> None:
        self._channel = channel
        self._scope = scope
        self._send = send
        self._started = self._ended = False

    async def run(self, receive: Receive) -> None:
        """Hand over until the answer is complete; raise as the caller or the body does."""
        try:
            await self._channel.write(REQUEST, encode_frame(request_of(self._scope)))
            await first_of(self._answer(), self._hand_over(receive))
        except (ConnectionError, ForwardingFailed):
            self._lost()
        if not self._ended:
            raise ClientGone("the caller hung up")

    async def _hand_over(self, receive: Receive) -> None:
        """Send the body as it comes; return when the caller hangs up.

        Whoever takes no more of it may have answered already: the answer tells.
        """
        is_taken = True
        while (message := await receive())["type"] != "http.disconnect":
            is_last = not message.get("more_body", False)
            body: bytes = message.get("body", b"")
            try:
                if is_taken:
                    await self._channel.write_body(body, MORE, LAST, is_last=is_last)
            except ConnectionError:
                is_taken = False

    async def _answer(self) -> None:
        while not self._ended:
            frame = await self._channel.read()
            if frame is None:
                self._lost()
                return
            await self._pass_on(*frame)

    async def _pass_on(self, kind: bytes, payload: bytes) -> None:
        if kind == START and not self._started:
            start = decode_start(payload)
            self._started = True
            if start.shown and SHOWN in self._scope:
                self._scope[SHOWN]()
            message = {"status": start.status, "headers": start.headers}
            await self._send({"type": "http.response.start", **message})
        elif kind in (PIECE, END) and self._started:
            more = kind == PIECE
            await self._send({"type": "http.response.body", "body": payload, "more_body": more})
            self._ended = not more
        else:
            raise ForwardingFailed("a frame out of turn")

    def _lost(self) -> None:
        """Tell the caller that whoever had the request is gone: nobody knows how far it got."""
        self._ended = True
        if not self._started:
            words = "the process that had the request ended; what became of it is not known"
            raise Refused("shutting_down", words)
        self._scope[ABORT]()


def request_of(scope: Scope) -> ForwardedRequest:
    """Return a request as it is handed over."""
    return ForwardedRequest(
        method=scope["method"],
        path=scope["path"],
        raw_path=scope.get("raw_path") or scope["path"].encode(),
        query=scope["query_string"],
        headers=[*scope["headers"]],
        client=_address(scope.get("client")),
        server=_address(scope.get("server")),
        scheme=scope["scheme"],
        http_version=scope["http_version"],
    )


def _address(given: tuple[str, int | None] | None) -> tuple[str, int] | None:
    return None if given is None else (given[0], given[1] or 0)
