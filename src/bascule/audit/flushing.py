"""A flush that all who wait for one share: those who come while it runs share the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bascule.audit.ledger import LedgerUnavailable


class Flushing:
    """Calls a slow function on another thread, for any number of waiters at once."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    def wait(self) -> Awaitable[None]:
        """Return what ends after a flush that begins from now on; it raises LedgerUnavailable."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._run(self._running))
        return asyncio.shield(self._next)

    async def _run(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._running, self._next = self._next, None
        try:
            await asyncio.to_thread(self._flush)
        except (OSError, RuntimeError) as error:  # there may be no threads any more
            problem = (error.strerror if isinstance(error, OSError) else None) or error
            words = f"the journal of the ledger cannot be flushed: {problem}"
            raise LedgerUnavailable(words) from error
