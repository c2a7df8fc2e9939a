"""One line on the terminal that says what is being waited for, and nothing anywhere else.

It is written to standard error, so that results can be piped, and is gone when the wait is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Generator
from typing import TextIO

from bascule.cli.table import paint
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.model.call import Progress
from bascule.policy.characters import render_safe

_FIRST_SECONDS = 0.4  # a wait shorter than this is not worth a line
_TICK_SECONDS = 0.2
_ERASE = "\r\x1b[K"


class StatusLine:
    """What is under way, redrawn in place."""

    def __init__(self, stream: TextIO | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._stream: TextIO = sys.stderr if stream is None else stream
        self._clock = clock
        self._text = ""
        self._drawn = False
        self._held = False
        self.visible = self._stream.isatty() and os.environ.get("TERM") != "dumb"

    def say(self, text: str) -> None:
        """Change the words; they are drawn with the next tick."""
        self._text = render_safe(text, one_line=True)

    def progress(self, progress: Progress) -> None:
        """Show how far a call has come, in its server's words."""
        share = f"{progress.progress:g}"
        if progress.total is not None:
            share += f" of {progress.total:g}"
        self.say(f"{share}  {progress.message}" if progress.message else share)

    @contextlib.asynccontextmanager
    async def waiting(self, text: str) -> AsyncGenerator[None]:
        """Show the line while the block runs."""
        self.say(text)
        ticking = asyncio.create_task(self._tick()) if self.visible else None
        try:
            yield
        finally:
            if ticking is not None:
                ticking.cancel()
            self._clear()

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Keep the line away while somebody is asked something."""
        self._clear()
        self._held = True
        try:
            yield
        finally:
            self._held = False

    async def _tick(self) -> None:
        started = self._clock.monotonic()
        await self._clock.sleep(_FIRST_SECONDS)
        while True:
            if not self._held:
                self._draw(self._clock.monotonic() - started)
            await self._clock.sleep(_TICK_SECONDS)

    def _draw(self, seconds: float) -> None:
        width = shutil.get_terminal_size().columns - 1
        line = f"{seconds:4.1f} s  {self._text}"[:width]
        self._stream.write(_ERASE + paint(line, "dim", self._stream))
        self._stream.flush()
        self._drawn = True

    def _clear(self) -> None:
        if self._drawn:
            self._stream.write(_ERASE)
            self._stream.flush()
            self._drawn = False
