"""Answers the requests that other processes of this machine hand over, at a unix socket.

The socket is the user's own, in a folder of the user's own, and whoever connects shows the key that
all of them were given. The application is the one that callers reach directly: what a request may
do is decided again by its own token.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from hmac import compare_digest
from pathlib import Path

import msgspec
from starlette.types import ASGIApp, Message, Scope

from bascule.asgi.bounded_http import DEFAULT_LIMITS
from bascule.asgi.connections import SHOWN
from bascule.asgi.forward_frames import (
    END,
    GREETING,
    LAST,
    LISTENING,
    MORE,
    PIECE,
    REQUEST,
    START,
    ForwardedRequest,
    ForwardedStart,
    ForwardingFailed,
    FrameChannel,
    decode_request,
    encode_frame,
)
from bascule.asgi.sse import ABORT, DRAINING
from bascule.lifetime import Lifetime

logger = logging.getLogger(__name__)

_ASGI = {"version": "3.0", "spec_version": "2.3"}
_MODE = 0o600
_CANCEL_SECONDS = 5.0
#: How long whoever has greeted may take to say what it wants.
_REQUEST_SECONDS = 30.0


class ForwardedRequests(Lifetime):
    """Serves an application to the processes that know the key, while the block runs.

    Once ``draining`` is set, streams end. At the end of the block calls may take ``drain_seconds``
    to finish, unless ``hurry`` is set.
    """

    def __init__(
        self,
        app: ASGIApp,
        path: Path,
        key: bytes,
        *,
        draining: asyncio.Event,
        hurry: asyncio.Event,
        drain_seconds: float = DEFAULT_LIMITS.drain_seconds,
    ) -> None:
        self._app = app
        self._path = path
        self._key = key
        self._draining = draining
        self._hurry = hurry
        self._drain_seconds = drain_seconds
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen; the socket of a process that was killed makes room."""
        if self._server is not None:
            return
        self._path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(str(self._path))
            self._path.chmod(_MODE)
            self._server = await asyncio.start_unix_server(self._connected, sock=listening)
        except BaseException:
            listening.close()
            raise

    async def close(self) -> None:
        """Take no more; end what is under way when its time is over."""
        server, self._server = self._server, None
        if server is None:
            return
        self._path.unlink(missing_ok=True)
        server.close()
        if self._tasks:
            hurried = asyncio.create_task(self._hurry.wait())
            finished = asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.wait(
                {hurried, finished},
                timeout=self._drain_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            hurried.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CANCEL_SECONDS)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(FrameChannel(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, channel: FrameChannel) -> None:
        try:
            request = await self._greeted(channel)
            if request is not None:
                await self._answer(_Exchange(channel), request)
                await channel.ended()
        except (ForwardingFailed, TimeoutError, ConnectionError) as error:
            logger.warning("a request that was handed over is not taken: %s", error)
        finally:
            channel.close()

    async def _greeted(self, channel: FrameChannel) -> ForwardedRequest | None:
        """Return what is asked; None of whoever leaves before that."""
        channel.refuse_strangers()
        if not compare_digest(await channel.expect(GREETING), self._key):
            raise ForwardingFailed("it was asked with another key")
        await channel.write(LISTENING)
        async with asyncio.timeout(_REQUEST_SECONDS):
            frame = await channel.read()
        if frame is None:
            return None
        if frame[0] != REQUEST:
            raise ForwardingFailed("a frame out of turn")
        try:
            return decode_request(frame[1])
        except msgspec.DecodeError as error:
            raise ForwardingFailed(f"a request that cannot be read: {error}") from error

    async def _answer(self, exchange: _Exchange, request: ForwardedRequest) -> None:
        scope = {**_scope(request), DRAINING: self._draining, **exchange.own}
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:
            logger.exception("a request that was handed over failed")
        finally:
            if not exchange.complete:
                exchange.abort()


def _scope(request: ForwardedRequest) -> Scope:
    return {
        "type": "http",
        "asgi": _ASGI,
        "http_version": request.http_version,
        "method": request.method,
        "scheme": request.scheme,
        "server": request.server,
        "client": request.client,
        "root_path": "",
        "path": request.path,
        "raw_path": request.raw_path,
        "query_string": request.query,
        "headers": request.headers,
        "state": {},
    }


class _Exchange:
    """ASGI's two functions over a channel."""

    def __init__(self, channel: FrameChannel) -> None:
        self._channel = channel
        self._has_body = self._shown = False
        self.complete = False
        self.own: Scope = {SHOWN: self._show, ABORT: self.abort}

    def _show(self) -> None:
        self._shown = True

    def abort(self) -> None:
        """End it without the rest of an answer."""
        self._channel.abort()

    async def receive(self) -> Message:
        """Return the next part of the body, or that the caller is gone."""
        frame = await self._channel.read()
        if frame is None:
            return {"type": "http.disconnect"}
        kind, body = frame
        if self._has_body or kind not in (MORE, LAST):
            raise ForwardingFailed("a frame out of turn")
        self._has_body = kind == LAST
        return {"type": "http.request", "body": body, "more_body": kind == MORE}

    async def send(self, message: Message) -> None:
        """Send a part of the answer; nobody is told who has hung up."""
        with suppress(ConnectionError):
            if message["type"] == "http.response.start":
                headers = [(bytes(name), bytes(value)) for name, value in message["headers"]]
                start = ForwardedStart(message["status"], headers, self._shown)
                await self._channel.write(START, encode_frame(start))
                return
            is_last = not message.get("more_body", False)
            self.complete = is_last
            body: bytes = message.get("body", b"")
            await self._channel.write_body(body, PIECE, END, is_last=is_last)
