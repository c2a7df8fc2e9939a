"""The uses of pages that are open at every replica: told through the database, once a minute."""

from __future__ import annotations

import math
from contextlib import suppress

from bascule.auth.page_uses import PageUses
from bascule.clock import Clock
from bascule.db.errors import StoreUnavailable
from bascule.db.postgres import Postgres

#: How often a page that is used all the time is written down.
SAVE_SECONDS = 60.0
_READ = """SELECT id, greatest(used_at, created_at) AS used FROM bascule_tokens
    WHERE id = ANY($1) AND digest IS NOT NULL"""
#: It moves no revision: nobody has to follow it.
_SAVE = """UPDATE bascule_tokens SET used_at = greatest(used_at, seen.at)
    FROM unnest($1::text[], $2::float8[]) AS seen (id, at)
    WHERE bascule_tokens.id = seen.id AND digest IS NOT NULL"""


class PostgresPageUses(PageUses):
    """The uses of pages at all replicas."""

    def __init__(self, postgres: Postgres, clock: Clock) -> None:
        super().__init__(clock)
        self._postgres = postgres
        #: When each page was written down, of those used here.
        self._saved: dict[str, float] = {}

    async def refresh(self, *token_ids: str) -> None:
        """Learn when pages that seem idle here, or are not known, were used elsewhere.

        While the database is away nothing is learned, and a page that is not known here goes on.
        """
        asked = [one for one in token_ids if one not in self._used or self._may_live(one)]
        if not asked:
            return
        with suppress(StoreUnavailable):
            for row in await self._postgres.fetch(_READ, asked):
                self._used[row["id"]] = max(self._used.get(row["id"], -math.inf), row["used"])

    def _may_live(self, token_id: str) -> bool:
        return self.idles(token_id) and self._used[token_id] != -math.inf

    async def save(self) -> None:
        """Write down what was used here, each page once a minute at most."""
        due = {
            one: used
            for one, used in self._used.items()
            if math.isfinite(used) and used - self._saved.get(one, -math.inf) >= SAVE_SECONDS
        }
        if due:
            await self._postgres.statement(_SAVE, list(due), list(due.values()))
            both = {**self._saved, **due}
            self._saved = {one: at for one, at in both.items() if one in self._used}
