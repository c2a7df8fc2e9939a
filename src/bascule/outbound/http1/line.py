"""One connection: a request at a time, its answer parsed strictly as it comes.

Whatever could be read in two ways ends the connection.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import Callable

import httptools

from bascule.errors import BasculeError, DeadlineExceeded
from bascule.outbound.failures import BrokenAnswer, Unanswered
from bascule.outbound.http1.answer import HttpAnswer
from bascule.outbound.http1.head import RequestHead

HEAD_BYTES = 64 * 1024
HEADER_COUNT = 256
INTERIM_ANSWERS = 16
_OVERHEAD = 8  # bytes of framing for each byte of the body, beyond the first HEAD_BYTES
_FIRST_STATUS, _SWITCHING, _FIRST_FINAL, _LAST_STATUS = 100, 101, 200, 599
_OLD, _NEW = "1.0", "1.1"
_OK = 200
_SHOWN = 200


class Line(asyncio.Protocol):
    """A connection to one origin. ``free`` and ``gone`` tell whoever keeps it."""

    __slots__ = (
        "_answer",
        "_coding",
        "_encoding",
        "_excess",
        "_free",
        "_gone",
        "_interim",
        "_keep",
        "_last",
        "_length",
        "_media_type",
        "_overhead",
        "_parser",
        "_paused",
        "_problem",
        "_raw",
        "_skip_body",
        "_taken",
        "_transport",
        "adopted",
        "heard",
        "is_open",
        "loop",
        "origin",
        "poll",
    )

    def __init__(
        self,
        origin: str,
        sock: socket.socket,
        free: Callable[[Line], None],
        gone: Callable[[Line], None],
    ) -> None:
        self.origin = origin
        watch = select.poll()
        watch.register(sock, select.POLLIN)
        #: Says at once whether anything has come, be it the end, that the loop has yet to notice. A
        #: request that is written to a connection which the server has closed is lost, and nobody
        #: could tell whether it was carried out.
        self.poll = watch.poll
        self._free = free
        self._gone = gone
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self.is_open = True
        #: Whether it is counted by whoever keeps it.
        self.adopted = False
        self._answer: HttpAnswer | None = None
        self._paused = self._skip_body = self._excess = self._keep = self._last = False
        self._problem = ""
        #: When bytes last came, where somebody asks; else when the line was last used.
        self.heard = self.loop.time()
        self._overhead = self._taken = self._interim = 0
        self.on_message_begin()

    @property
    def answer(self) -> HttpAnswer | None:
        """The answer that is awaited, or still coming."""
        return self._answer

    def ask(self, head: RequestHead, body: bytes | None, answer: HttpAnswer) -> None:
        """Write a request; the answer is told what comes."""
        self._answer = answer
        self._last = head.last
        self._skip_body = head.method == "HEAD"
        self._overhead = self._taken = self._interim = 0
        if answer.idle_seconds is not None:
            self.heard = self.loop.time()
        if self._transport is not None:
            self._transport.write(head.with_body(body))

    def close(self) -> None:
        """Close the connection at once; an answer that is under way fails."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
        self._fail(Unanswered("the connection was closed here"))

    def expire(self) -> None:
        """End what took too long."""
        self._fail(DeadlineExceeded("no answer in time"))
        self.close()

    def pause(self) -> None:
        if not self._paused and self.is_open and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused and self.is_open and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    # -- told by the loop --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - a stream's, which uvloop's is by its methods alone
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            self.close()  # bytes that nobody asked for
            return
        if answer.idle_seconds is not None:
            self.heard = self.loop.time()
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._problem = self._problem or f"not HTTP: {str(error)[:_SHOWN]}"
        if self._overhead > HEAD_BYTES + _OVERHEAD * self._taken:
            self._problem = self._problem or "mostly framing, or has too long a head"
        answer.wake()
        if self._answer is None and (self._problem or self._excess):
            answer.ended = False
            answer.fail(BrokenAnswer("the answer is followed by what nobody asked for"))
            self.close()
        elif self._answer is None and self._keep and self.is_open:
            if self._paused:
                self.resume()
            self._free(self)
        elif self._answer is None:
            self.close()
        elif self._problem:
            self._refuse(self._problem)

    def eof_received(self) -> None:
        answer = self._answer
        if answer is None or not answer.status or not self._until_close:
            return
        if self._ended_properly():
            self._keep, self._answer = False, None
            answer.ended = True
            answer.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        why = "the server closed it" if exc is None else str(exc)[:_SHOWN] or type(exc).__name__
        if self._overhead:
            self._fail(BrokenAnswer(f"the answer broke off: {why}"))
        elif isinstance(exc, ssl.SSLError):
            self._fail(Unanswered(f"TLS failed: {why}"))
        else:
            self._fail(Unanswered(f"the connection was lost: {why}"))
        self._gone(self)

    # -- told by the parser ------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._raw: list[tuple[bytes, bytes]] = []
        self._media_type = self._encoding = self._coding = b""
        self._length: int | None = None
        self._excess = self._answer is None

    def on_header(self, name: bytes, value: bytes) -> None:
        self._raw.append((name, value))
        size = len(name)
        if size == 12 and name.lower() == b"content-type":
            self._media_type = _joined(self._media_type, value)
        elif size == 14 and name.lower() == b"content-length":
            self._length = int(value)
        elif size == 16 and name.lower() == b"content-encoding":
            self._encoding = _joined(self._encoding, value)
        elif size == 17 and name.lower() == b"transfer-encoding":
            self._coding = _joined(self._coding, value)

    def on_headers_complete(self) -> None:
        answer, status = self._answer, self._parser.get_status_code()
        if answer is None:
            return
        if status != _OK or self._coding or self._overhead > HEAD_BYTES or self._is_odd():
            self._problem = self._objection(status)
            if self._problem or status < _FIRST_FINAL:
                return
        answer.begin(status, self._raw, self._media_type, self._encoding, self._length)
        self._raw = []  # what follows the body is not a header of the answer
        if self._skip_body:
            self.on_message_complete()

    def on_body(self, body: bytes) -> None:
        self._overhead -= len(body)
        self._taken += len(body)
        if self._answer is not None and not self._problem:
            self._answer.feed(body)

    def on_message_complete(self) -> None:
        answer = self._answer
        if answer is None or not answer.status or self._problem:
            return
        if self._raw and self._oversized():
            self._problem = "followed by too many trailers"
            return
        self._keep = not self._last and not self._skip_body and self._parser.should_keep_alive()
        self._answer = None
        answer.ended = True

    # -- one answer --------------------------------------------------------------------------

    @property
    def _until_close(self) -> bool:
        return self._length is None and not self._coding and not self._skip_body

    def _ended_properly(self) -> bool:
        """Say whether it was the server that ended an answer: under TLS, others can only cut it."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        if not isinstance(tls, ssl.SSLObject):
            return True
        try:
            return not tls.read(1)
        except ssl.SSLError:
            return False

    def _is_odd(self) -> bool:
        """Say whether there is anything to look at in the head of a plain answer."""
        if self._parser.get_http_version() != _NEW or len(self._raw) > HEADER_COUNT:
            return True
        return self._transport is None or self._transport.get_write_buffer_size() > 0

    def _objection(self, status: int) -> str:
        """Say what is wrong with a head that the parser lets pass."""
        self._interim += status < _FIRST_FINAL
        wrong, version = "", self._parser.get_http_version()
        if version not in (_OLD, _NEW):
            wrong = "not HTTP/1.1"
        elif self._oversized():
            wrong = f"one with more than {HEADER_COUNT} headers, or more than {HEAD_BYTES} bytes"
        elif self._coding and (self._coding.lower() != b"chunked" or version == _OLD):
            wrong = "in a transfer encoding other than chunked, or of HTTP/1.0"
        elif self._transport is not None and self._transport.get_write_buffer_size():
            wrong = "here before the request was complete"
        elif self._interim > INTERIM_ANSWERS:
            wrong = f"preceded by more than {INTERIM_ANSWERS} interim ones"
        elif status == _SWITCHING or not _FIRST_STATUS <= status <= _LAST_STATUS:
            wrong = f"one of the status {status}"
        return wrong

    def _oversized(self) -> bool:
        """Say whether headers, or trailers, are too many or too long, even in a single read."""
        if len(self._raw) > HEADER_COUNT:
            return True
        if self._overhead <= HEAD_BYTES:
            return False
        return sum(len(name) + len(value) + 4 for name, value in self._raw) > HEAD_BYTES

    def _refuse(self, problem: str) -> None:
        self._fail(BrokenAnswer(f"the answer is {problem}"))
        self.close()

    def _fail(self, error: BasculeError) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.fail(error)


def _joined(before: bytes, value: bytes) -> bytes:
    """Return a header that may have come before: what is said twice is two words, and no good."""
    return b"%b, %b" % (before, value) if before else value
