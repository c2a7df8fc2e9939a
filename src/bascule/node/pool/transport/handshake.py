"""What no request over HTTP may overtake: a greeting, and a call not the stream of its session."""

from __future__ import annotations

import asyncio
import contextlib

from bascule.node.pool.transport.delivery import HttpCall


class Handshake:
    """How far our session with a server is opened.

    A legacy server may ask or tell something on the GET stream while it carries out a call, and
    what it says before there is one is lost. A server that does not answer the GET is not waited
    for any longer, in this session, once the first call has waited.
    """

    def __init__(self, listen_seconds: float) -> None:
        self._listen_seconds = listen_seconds
        self.renewal: asyncio.Task[None] | None = None
        self.welcome: asyncio.Task[None] | None = None
        #: Set when the GET has been answered, whatever the answer, and where there is none to send.
        self.listening = asyncio.Event()
        self.listening.set()

    def is_before(self, call: HttpCall) -> bool:
        """Whether a request has to wait."""
        renewing = self.renewal is not None and not self.renewal.done()
        return renewing or self.welcome is not None or self._leaves_deaf(call)

    async def let_pass(self, call: HttpCall) -> None:
        """Wait until a request may be sent."""
        await self.greeted()
        if self._leaves_deaf(call):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._listen_seconds):
                    await self.listening.wait()
            self.listening.set()

    async def greeted(self) -> None:
        """Wait for what is under way of a greeting."""
        for task in (self.renewal, self.welcome):
            if task is not None and not task.done():
                await asyncio.wait({task})
        self.welcome = None

    def _leaves_deaf(self, call: HttpCall) -> bool:
        return call.method == "tools/call" and not self.listening.is_set()
