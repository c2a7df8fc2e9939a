"""A long answer of lines, sent as its source gives them; a reader that stops is let go."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bascule.asgi.presence import disconnected, first_of
from bascule.asgi.sse import STALLED_SECONDS, Out, writing


class LinesAnswer(Response):
    """An answer of JSON lines. When its source fails the connection is cut: half is seen as half.

    The source is closed when the reader hangs up and when anything fails.
    """

    media_type = "application/jsonl"

    def __init__(
        self, source: AsyncGenerator[bytes, None], *, stalled_seconds: float = STALLED_SECONDS
    ) -> None:
        super().__init__(status_code=200)
        del self.headers["content-length"]
        self._source = source
        self._stalled_seconds = stalled_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the headers, then the lines."""
        async with writing(scope, send, self._stalled_seconds) as out, aclosing(self._source):
            await out.start(self.status_code, self.raw_headers)
            if scope["method"] != "HEAD":
                await first_of(self._pump(out), disconnected(receive))
            await out.close()

    async def _pump(self, out: Out) -> None:
        async for lines in self._source:
            await out.write(lines)
