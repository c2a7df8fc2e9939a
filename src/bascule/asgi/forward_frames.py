"""What two processes of one machine say to each other about a request that one has and one answers.

Frames on a unix socket: a length, a kind and its payload. The messages are those of ASGI, so that
nothing about HTTP has to be said twice: what is about one connection stays at that connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from bascule.errors import BasculeError

#: A body goes in pieces of at most this many bytes.
PIECE_BYTES: Final = 256 * 1024
#: A head has less than this, and a piece too.
MAX_FRAME_BYTES: Final = 1024 * 1024
#: How long the other side may take to say that it listens, or what it wants.
GREETING_SECONDS: Final = 5.0

# --- from whoever has the caller
GREETING, REQUEST, MORE, LAST = b"G", b"R", b"M", b"L"
# --- from whoever answers
LISTENING, START, PIECE, END = b"K", b"S", b"P", b"E"

_LENGTH = struct.Struct("!I")
_HEADER_BYTES = _LENGTH.size + 1
_CREDENTIALS = struct.Struct("3i")
Header = tuple[bytes, bytes]
Address = tuple[str, int]


class ForwardedRequest(Struct, frozen=True, array_like=True):
    """The head of a request, and what only the connection with the caller knows of it."""

    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: list[Header]
    client: Address | None
    server: Address | None
    scheme: str
    http_version: str


class ForwardedStart(Struct, frozen=True, array_like=True):
    """The head of an answer. ``shown``: the caller has shown a valid token."""

    status: int
    headers: list[Header]
    shown: bool


class ForwardingFailed(BasculeError):
    """The other side says what it should not, or is none of ours."""


class FrameChannel:
    """One connection, for one request and its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._head: bytes | None = None

    def refuse_strangers(self) -> None:
        """Raise unless a process of the same user is at the other end, where the system tells."""
        if sys.platform != "linux":
            return
        own = self._writer.get_extra_info("socket")
        found = own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, user, _ = _CREDENTIALS.unpack(found)
        if user != os.geteuid():
            raise ForwardingFailed(f"user {user} is at the other end of a socket of ours")

    async def write(self, kind: bytes, payload: bytes = b"") -> None:
        """Send a frame; wait while the other side reads too slowly. Raise ConnectionError."""
        self._writer.write(_LENGTH.pack(len(payload)) + kind + payload)
        await self._writer.drain()

    async def write_body(self, body: bytes, more: bytes, last: bytes, *, is_last: bool) -> None:
        """Send a part of a body in pieces."""
        places = range(0, len(body) or 1, PIECE_BYTES)
        *pieces, final = (body[at : at + PIECE_BYTES] for at in places)
        for piece in pieces:
            await self.write(more, piece)
        await self.write(last if is_last else more, final)

    async def read(self) -> tuple[bytes, bytes] | None:
        """Return the next frame, None at the end; it may be cancelled and called again."""
        try:
            if self._head is None:
                self._head = await self._reader.readexactly(_HEADER_BYTES)
            (size,) = _LENGTH.unpack_from(self._head)
            if size > MAX_FRAME_BYTES:
                raise ForwardingFailed(f"a frame of {size} bytes: {MAX_FRAME_BYTES} at most")
            payload = await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        kind, self._head = self._head[_LENGTH.size :], None
        return kind, payload

    async def expect(self, kind: bytes) -> bytes:
        """Return the payload of the next frame, which is of a kind and comes soon."""
        async with asyncio.timeout(GREETING_SECONDS):
            frame = await self.read()
        if frame is None or frame[0] != kind:
            raise ForwardingFailed("the other side does not say what it should")
        return frame[1]

    async def ended(self) -> None:
        """Throw away what still comes: one that is closed meanwhile loses what it was sent."""
        with suppress(TimeoutError, ForwardingFailed):
            async with asyncio.timeout(GREETING_SECONDS):
                while await self.read() is not None:
                    pass

    def close(self) -> None:
        """Close once everything is sent."""
        self._writer.close()

    def abort(self) -> None:
        """Close now: the other side sees half of what it was told as half."""
        self._writer.transport.abort()


encode_frame = msgspec.msgpack.encode
decode_request = msgspec.msgpack.Decoder(ForwardedRequest).decode
decode_start = msgspec.msgpack.Decoder(ForwardedStart).decode
