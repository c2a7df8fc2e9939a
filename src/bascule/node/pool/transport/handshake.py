"""What no request over HTTP may overtake: a greeting, and a call not the stream of its session."""

from __future__ import annotations

import asyncio

_CALL = "tools/call"


class Handshake:
    """How far our session with a server is opened.

    A legacy server may ask or tell something on the GET stream while it carries out a call, and
    what it says before there is one is lost. A server that does not answer the GET is not waited
    for any longer, in this session, once the first call has waited.
    """

    def __init__(self, listen_seconds: float) -> None:
        self._listen_seconds = listen_seconds
        self._deaf: asyncio.Event | None = None
        self.renewal: asyncio.Task[None] | None = None
        self.welcome: asyncio.Task[None] | None = None

    def listen(self) -> None:
        """The GET of a session is about to be sent."""
        self._deaf = asyncio.Event()

    def heard(self) -> None:
        """The GET was answered, whatever the answer, or will not be."""
        if self._deaf is not None:
            self._deaf.set()
            self._deaf = None

    def is_before(self, method: str) -> bool:
        """Whether a request has to wait."""
        renewing = self.renewal is not None and not self.renewal.done()
        deaf = self._deaf is not None and method == _CALL
        return renewing or deaf or self.welcome is not None

    async def let_pass(self, method: str) -> None:
        """Wait until a request may be sent."""
        await self.greeted()
        if self._deaf is not None and method == _CALL:
            try:
                async with asyncio.timeout(self._listen_seconds):
                    await self._deaf.wait()
            except TimeoutError:
                self.heard()

    async def greeted(self) -> None:
        """Wait for what is under way of a greeting."""
        for task in (self.renewal, self.welcome):
            if task is not None and not task.done():
                await asyncio.wait({task})
        self.welcome = None
