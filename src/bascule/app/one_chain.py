"""The ledger of several replicas as ``ledger.db`` can have it, which has one chain.

One chain stays as it is, with its checkpoints. Several are joined to a new one in the order in
which their rows were committed: every event is there as it was written, and what signed the old
chains does not speak of the new one. It goes on after the rows that were cut off the longest front,
since events tell of those. Chains that nodes send stay what they are.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Mapping

from bascule.app.copy_tables import CHAINS, CHECKPOINTS, COUNT, EVENTS, NODE_CHAINS, Table
from bascule.app.copying import Batch, Rows, Values
from bascule.audit.chain import link

_NO_NODES: Mapping[int, int] = {}


class OneChain:
    """Rows with the ledger in one chain, beside those that nodes send."""

    def __init__(
        self, rows: Rows, chain: Values, *, joined: bool, nodes: Mapping[int, int] = _NO_NODES
    ) -> None:
        self.parts = rows.parts
        self._rows = rows
        self._chain = chain
        self._joined = joined
        #: The chains of nodes, with the numbers that they have then.
        self._nodes = nodes
        #: The last row of the chain that was read, by its number and its hash.
        self._number, self._hash = self._base()

    @classmethod
    async def of(cls, rows: Rows) -> Rows:
        """Return rows with one chain."""
        chains = [one async for batch in rows.read(CHAINS) for one in batch]
        if not chains:
            return rows
        numbers = [one[0] async for batch in rows.read(NODE_CHAINS) for one in batch]
        nodes = {number: place for place, number in enumerate(numbers, 2)}
        _, id, *more = max(chains, key=lambda chain: chain[CHAINS.columns.index("base_number")])
        joined = len(chains) > 1
        chain = (1, secrets.token_hex(8) if joined else id, *more)
        return cls(rows, chain, joined=joined, nodes=nodes)

    async def read(self, table: Table) -> AsyncIterator[Batch]:
        """Yield the rows of a table in its order, some at a time."""
        if table is CHAINS:
            yield [(*self._chain[:2], "", None, *self._chain[4:])]
        elif table is COUNT and not self._nodes:
            yield [(self._number, self._base()[0])]
        elif table is EVENTS:
            self._number, self._hash = self._base()
            async for batch in self._rows.read(EVENTS):
                yield list(self._linked(batch))
        elif table is CHECKPOINTS:
            async for batch in self._rows.read(CHECKPOINTS):
                yield list(self._kept(batch))
        elif table is NODE_CHAINS:
            async for batch in self._rows.read(NODE_CHAINS):
                yield [(self._nodes[number], *more) for number, *more in batch]
        else:
            async for batch in self._rows.read(table):
                yield batch

    def _base(self) -> tuple[int, bytes]:
        *_, number, digest = self._chain
        return number, bytes.fromhex(digest)

    def _kept(self, batch: Batch) -> Iterator[Values]:
        """Yield the checkpoints that speak of a chain that is there."""
        for chain, *more in batch:
            if chain in self._nodes:
                yield self._nodes[chain], *more
            elif not self._joined:
                yield 1, *more

    def _linked(self, batch: Batch) -> Iterator[Values]:
        """Yield rows as links of their chain; with rows of nodes between them, numbers stay."""
        for number, chain, place_in_chain, journal, place, body, digest in batch:
            if chain in self._nodes:
                node = self._nodes[chain]
                yield number, node, place_in_chain, journal, place, body, digest
                continue
            if self._joined:
                self._number += 1
                self._hash = link(self._hash, self._number, journal, place, body)
            else:
                self._number, self._hash = place_in_chain, digest
            among_all = number if self._nodes else self._number
            yield among_all, 1, self._number, journal, place, body, self._hash
