"""The ledger of several replicas as ``ledger.db`` can have it, which has one chain.

One chain stays as it is, with its checkpoints. Several are joined to a new one in the order in
which their rows were committed: every event is there as it was written, and what signed the old
chains does not speak of the new one. It goes on after the rows that were cut off the longest front,
since events tell of those.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator

from bascule.app.copy_tables import CHAINS, CHECKPOINTS, COUNT, EVENTS, Table
from bascule.app.copying import Batch, Rows, Values
from bascule.audit.chain import link


class OneChain:
    """Rows with the ledger in one chain."""

    def __init__(self, rows: Rows, chain: Values, *, joined: bool) -> None:
        self.parts = rows.parts
        self._rows = rows
        self._chain = chain
        self._joined = joined
        #: The last row that was read, by its number and its hash.
        self._number, self._hash = self._base()

    @classmethod
    async def of(cls, rows: Rows) -> Rows:
        """Return rows with one chain."""
        chains = [one async for batch in rows.read(CHAINS) for one in batch]
        if not chains:
            return rows
        _, id, *more = max(chains, key=lambda chain: chain[CHAINS.columns.index("base_number")])
        joined = len(chains) > 1
        return cls(rows, (1, secrets.token_hex(8) if joined else id, *more), joined=joined)

    async def read(self, table: Table) -> AsyncIterator[Batch]:
        """Yield the rows of a table in its order, some at a time."""
        if table is CHAINS:
            yield [(*self._chain[:2], "", None, *self._chain[4:])]
        elif table is COUNT:
            yield [(self._number, self._base()[0])]
        elif table is EVENTS:
            self._number, self._hash = self._base()
            async for batch in self._rows.read(EVENTS):
                yield list(self._linked(batch))
        elif not (table is CHECKPOINTS and self._joined):
            async for batch in self._rows.read(table):
                yield [(1, *row[1:]) for row in batch] if table is CHECKPOINTS else batch

    def _base(self) -> tuple[int, bytes]:
        *_, number, digest = self._chain
        return number, bytes.fromhex(digest)

    def _linked(self, batch: Batch) -> Iterator[Values]:
        """Yield rows as links of the chain."""
        for _, _, place_in_chain, journal, place, body, digest in batch:
            if self._joined:
                self._number += 1
                self._hash = link(self._hash, self._number, journal, place, body)
            else:
                self._number, self._hash = place_in_chain, digest
            yield self._number, 1, self._number, journal, place, body, self._hash
