"""When the tokens of pages were used last: one that nobody uses for half an hour has ended."""

from __future__ import annotations

import math
from collections.abc import Collection

from bascule.clock import Clock

#: How long the token of a page may go unused.
IDLE_SECONDS = 1_800.0


class PageUses:
    """The uses of pages in one process, which knows them all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._used: dict[str, float] = {}

    def use(self, token_id: str) -> None:
        """Note that a page is used now."""
        self._used[token_id] = self._clock.now()

    def idles(self, token_id: str) -> bool:
        """Say whether a page was not used for too long, as far as is known here."""
        return self._used.get(token_id, math.inf) <= self._clock.now() - IDLE_SECONDS

    def end(self, token_id: str) -> None:
        """Have a page idle for good, whatever becomes of the clock."""
        self._used[token_id] = -math.inf

    def retain(self, token_ids: Collection[str]) -> None:
        """Know nothing more of other pages than these, unless they are in use."""
        kept = [one for one in self._used if one in token_ids or not self.idles(one)]
        self._used = {one: self._used[one] for one in kept}

    async def refresh(self, *token_ids: str) -> None:
        """Learn what other processes know of pages that seem idle here; there are none."""
