"""The body of an HTTP answer, gathered and decompressed within a limit."""

from __future__ import annotations

import zlib
from typing import NoReturn

from bascule.errors import MalformedReply
from bascule.model.whole_words import beginning

READ_BUFFER = 65_536
INFLATE_STEP = 65_536

_ENCODINGS = frozenset({"identity", "gzip", "x-gzip", "deflate"})


class Body:
    """A body being gathered and decompressed, never beyond its limit."""

    def __init__(self, encoding: str, limit: int) -> None:
        self._encoding = encoding.strip().lower() or "identity"
        if self._encoding not in _ENCODINGS:
            raise MalformedReply(
                f"a body in the encoding {beginning(encoding, 40)!r}, which is not known"
            )
        self._limit = limit
        self._taken = 0
        self._whole = bytearray()
        self._engine = zlib.decompressobj()
        self._begun = False

    def expect(self, length: int) -> None:
        """Take the announced length of what is not compressed; raise MalformedReply early."""
        if length > self._limit:
            self._too_large()

    def feed(self, data: bytes) -> None:
        """Take a piece; raise MalformedReply as soon as it is too much or makes no sense."""
        self._taken += len(data)
        if self._encoding == "identity":
            self._keep(data)
        elif self._taken > self._limit + READ_BUFFER:
            self._too_large()
        else:
            self._inflate(data)

    def whole(self) -> bytes:
        """Return the body once all of it is here."""
        if self._begun and not self._engine.eof:
            raise MalformedReply("a compressed body that ends early")
        return bytes(self._whole)

    def _inflate(self, data: bytes) -> None:
        """Decompress in steps, so that what is refused was never all in memory."""
        try:
            data = data.lstrip(b"\0") if self._engine.eof else data
            while data:
                data = self._inflate_member(data)
        except zlib.error:
            raise MalformedReply("a compressed body that cannot be read") from None

    def _inflate_member(self, data: bytes) -> bytes:
        """Return what follows the end of a member: gzip allows several, and zeros after them."""
        if not self._begun or self._engine.eof:
            self._engine = zlib.decompressobj(_window(self._encoding, data))
            self._begun = True
        more = True
        while more:
            piece = self._engine.decompress(data, INFLATE_STEP)
            self._keep(piece)
            data = self._engine.unconsumed_tail
            more = not self._engine.eof and (bool(data) or len(piece) == INFLATE_STEP)
        return self._engine.unused_data.lstrip(b"\0")

    def _keep(self, data: bytes) -> None:
        if len(self._whole) + len(data) > self._limit:
            self._too_large()
        self._whole += data

    def _too_large(self) -> NoReturn:
        raise MalformedReply(f"a body over the limit of {self._limit} bytes")


def _window(encoding: str, data: bytes) -> int:
    """Return what zlib calls the format; deflate is sent with and without its envelope."""
    if encoding != "deflate":
        return 16 + zlib.MAX_WBITS
    return zlib.MAX_WBITS if data[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS
