"""A store in memory: the twin of the one on SQLite. Going back means playing changes again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from msgspec.structs import replace

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.control.registry.errors import Compacted
from bascule.control.registry.history_clock import SteadyClock
from bascule.control.registry.store import (
    MAX_PROPOSALS,
    Author,
    Change,
    Head,
    Key,
    Proposal,
    Retention,
    View,
    Write,
    Writer,
    change_of,
    effective_writes,
    new_mark,
    refuse_moved,
    refuse_unreachable,
)
from bascule.model.snapshot import Position
from bascule.policy.pairs import Pair


class MemoryStore:
    """A ``Store`` that lasts as long as its process."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._age = SteadyClock(clock)
        self._oldest = View(secrets.token_hex(8), 0, {}, new_mark())  # the state at the floor
        self._newest = self._oldest
        self._log: list[Change] = []
        self._listeners: list[Callable[[Change], None]] = []
        self._pairs: frozenset[Pair] = frozenset()
        self._proposals: dict[Key, Proposal] = {}

    def become(self, other: MemoryStore, *, predecessor: str | None = None) -> None:
        """Have what another store has; one that names a predecessor was restored from it."""
        named = (
            {}
            if predecessor is None
            else {"store_id": secrets.token_hex(8), "predecessor": predecessor}
        )
        self._oldest, self._newest = [replace(v, **named) for v in (other._oldest, other._newest)]
        self._log = list(other._log)

    @property
    def refusal(self) -> str | None:
        """Return None: memory takes every write."""
        return None

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call ``listener`` for every change."""
        self._listeners.append(listener)

    async def watch_others(self, ring: Callable[[], None]) -> None:
        """Return: there are no others."""

    def reserved(self) -> AbstractAsyncContextManager[Writer]:
        """Reserve nothing: there are no others."""
        return nullcontext(self.write)

    async def head(self) -> Head:
        """Return where the store is."""
        now = self._newest
        return Head(now.store_id, now.revision, self._oldest.revision, now.mark, now.predecessor)

    async def view(self, revision: int | None = None) -> View:
        """Return every object, now or at an older revision."""
        if revision is None:
            return self._newest
        refuse_unreachable(revision, await self.head())
        view = self._oldest
        for change in self._log[: revision - self._oldest.revision]:
            view = view.after(change)
        return view

    async def write(
        self, writes: Sequence[Write], by: Author, *, base: Position | None = None
    ) -> Change | None:
        """Write all or nothing as one revision."""
        refuse_moved(base, self._newest.position)
        effective = effective_writes(writes, self._newest.current)
        if not effective:
            return None
        change = change_of(
            (write for write, _ in effective),
            revision=self._newest.revision + 1,
            at=self._clock.now(),
            by=by,
            mark=new_mark(),
        )
        self._log.append(change)
        self._newest = self._newest.after(change)
        for listener in self._listeners:
            listener(change)
        return change

    async def announce(self, predecessor: str, renewed: str | None = None) -> None:
        """Name the store that this one replaces."""
        both, store_id = (self._oldest, self._newest), renewed or self._newest.store_id
        self._oldest, self._newest = [
            replace(view, predecessor=predecessor, store_id=store_id) for view in both
        ]

    async def changes(self, since: int, limit: int = 256) -> tuple[Change, ...]:
        """Return the changes after a revision, the oldest first."""
        floor = self._oldest.revision
        if since < floor:
            raise Compacted(since, floor)
        return tuple(self._log[since - floor : since - floor + limit])

    async def history(self, before: int | None = None, limit: int = 50) -> tuple[Change, ...]:
        """Return the changes that are kept below a revision, the newest first."""
        found = [c for c in reversed(self._log) if before is None or c.revision < before]
        return tuple(found[:limit])

    async def mark_at(self, revision: int) -> str | None:
        """Return the mark of a revision; None where that is not kept."""
        if revision == self._oldest.revision:
            return self._oldest.mark
        return next((one.mark for one in self._log if one.revision == revision), None)

    async def compact(self, retention: Retention) -> int:
        """Forget what is too old."""
        cutoff = self._age.now() - retention.seconds
        newest, oldest = self._newest.revision, self._oldest.revision
        fresh = next((change.revision for change in self._log if change.at >= cutoff), newest + 1)
        floor = max(newest - retention.changes, fresh - 1, oldest)
        view = await self.view(floor)
        self._log = self._log[floor - self._oldest.revision :]
        self._oldest = view
        return floor

    async def kept_pairs(self) -> frozenset[Pair]:
        """Return the accepted pairs that were kept."""
        return self._pairs

    async def keep_pairs(self, pairs: Iterable[Pair]) -> None:
        """Keep pairs."""
        self._pairs |= frozenset(pairs)

    async def forget_pairs(self, pairs: Iterable[Pair]) -> None:
        """Keep pairs no longer."""
        self._pairs -= frozenset(pairs)

    async def propose(self, proposals: Sequence[Proposal]) -> None:
        """Keep proposals."""
        for proposal in proposals:
            self._proposals.pop(proposal.key, None)
            self._proposals[proposal.key] = proposal
        for key in list(self._proposals)[:-MAX_PROPOSALS]:
            del self._proposals[key]

    async def proposals(self) -> tuple[Proposal, ...]:
        """Return what is proposed."""
        return tuple(self._proposals.values())

    async def withdraw(self, key: Key) -> None:
        """Forget what is proposed for a record."""
        self._proposals.pop(key, None)

    async def close(self) -> None:
        """Do nothing: there is nothing to let go of."""
