"""Turns that wait for approval: what a conversation needs to go on when its caller comes back.

Kept in memory, or sealed in the ledger's database, where a restart finds them. They are bounded,
the oldest go first, and none is kept longer than its approvals can be used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, Protocol, TypeVar

from msgspec import Struct

from bascule.audit.approval_rows import Sealer
from bascule.audit.journaled_ledger import JournaledLedger
from bascule.audit.ledger_file import writing
from bascule.audit.upkeep import look_after
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.statements import Statements
from bascule.errors import BasculeError

logger = logging.getLogger("bascule.approvals")
T = TypeVar("T")
_SWEEP_SECONDS = 5.0
_WORDS = {
    "not_found": "you have no parked turn {id!r}: it was resumed to its end, or is too old",
    "wrong_conversation": "{id} was parked with other messages, another model or other tools",
    "in_use": "{id} is being resumed by another request",
}


class Place(Struct, frozen=True, kw_only=True):
    """Where a turn is parked: its id, whose it is, and the digest of its conversation."""

    id: str
    owner: str
    conversation: str


class Bounds(Struct, frozen=True, kw_only=True):
    """How much is kept, of one owner and in all."""

    turns_each: int = 100
    bytes_each: int = 8 * 1024 * 1024
    turns: int = 10_000
    bytes: int = 64 * 1024 * 1024


BOUNDS = Bounds()


class TurnRefused(BasculeError):
    """A turn that is not given out; ``code`` says why, and nothing has changed."""

    def __init__(self, code: Literal["not_found", "wrong_conversation", "in_use"], id: str) -> None:
        super().__init__(_WORDS[code].format(id=id))
        self.code = code


class TurnTooLarge(BasculeError):
    """A turn that is larger than all that may be kept for its owner."""


class ParkedTurns(Protocol):
    """What keeps turns."""

    async def keep(self, place: Place, body: bytes, until: float) -> None:
        """Park a turn, or renew one; it is durable on return, and as free or taken as before.

        ``until`` is the latest deadline of its approvals. Raise TurnTooLarge, LedgerUnavailable.
        """
        ...

    async def take(self, place: Place) -> bytes:
        """Return a turn, which nobody else gets until it is given back; raise TurnRefused.

        One that a process had when it died is free again.
        """
        ...

    async def give_back(self, place: Place) -> None:
        """Let others take a turn. Any number of times."""
        ...

    async def forget(self, place: Place) -> None:
        """Remove a turn. Any number of times."""
        ...

    async def run(self) -> None:
        """Remove what cannot be used any more, until cancelled."""
        ...


class _Row(Struct, frozen=True):
    """What the bounds are about."""

    id: str
    owner: str
    size: int


def _surplus(rows: Iterable[_Row], new: _Row, bounds: Bounds, taken: set[str]) -> Iterator[str]:
    """Return the ids that make room for another turn; the rows come with the oldest first."""
    if new.size > bounds.bytes_each:
        raise TurnTooLarge(f"a turn of {new.size} bytes is not parked: {bounds.bytes_each} at most")
    kept = [*rows, new]
    own = [row for row in kept if row.owner == new.owner]
    turns_each, bytes_each = len(own), sum(row.size for row in own)
    turns, size = len(kept), sum(row.size for row in kept)
    for row in kept[:-1]:
        if row.id in taken:
            continue
        theirs = turns_each > bounds.turns_each or bytes_each > bounds.bytes_each
        if (theirs and row.owner == new.owner) or turns > bounds.turns or size > bounds.bytes:
            yield row.id
            turns, size = turns - 1, size - row.size
            if row.owner == new.owner:
                turns_each, bytes_each = turns_each - 1, bytes_each - row.size


class MemoryTurns:
    """Turns of this process alone. ``grace`` is how long a yes can be used."""

    def __init__(
        self, clock: Clock = SYSTEM_CLOCK, *, grace: float = 0.0, bounds: Bounds = BOUNDS
    ) -> None:
        self._clock = clock
        self._grace = grace
        self._bounds = bounds
        self._kept: dict[str, tuple[Place, bytes, float]] = {}
        self._taken: set[str] = set()

    def __len__(self) -> int:
        return len(self._kept)

    async def keep(self, place: Place, body: bytes, until: float) -> None:
        """Park a turn, or renew one; see ``ParkedTurns``."""
        self._expire()
        rows = [
            _Row(id, other.owner, len(kept))
            for id, (other, kept, _) in self._kept.items()
            if id != place.id
        ]
        new = _Row(place.id, place.owner, len(body))
        for id in [*_surplus(rows, new, self._bounds, self._taken)]:
            del self._kept[id]
        self._kept.pop(place.id, None)  # the order is that of age
        self._kept[place.id] = place, body, until + self._grace

    async def take(self, place: Place) -> bytes:
        """Return a turn, which nobody else gets until it is given back; raise TurnRefused."""
        self._expire()
        found = self._kept.get(place.id)
        if found is None or found[0].owner != place.owner:
            raise TurnRefused("not_found", place.id)
        if found[0].conversation != place.conversation:
            raise TurnRefused("wrong_conversation", place.id)
        if place.id in self._taken:
            raise TurnRefused("in_use", place.id)
        self._taken.add(place.id)
        return found[1]

    async def give_back(self, place: Place) -> None:
        """Let others take a turn. Any number of times."""
        self._taken.discard(place.id)

    async def forget(self, place: Place) -> None:
        """Remove a turn. Any number of times."""
        self._kept.pop(place.id, None)
        self._taken.discard(place.id)

    async def run(self) -> None:
        """Remove what cannot be used any more, until cancelled."""
        while True:
            await self.sweep()
            await self._clock.sleep(_SWEEP_SECONDS)

    async def sweep(self) -> None:
        """Do that once."""
        self._expire()

    def _expire(self) -> None:
        now = self._clock.now()
        for id in [id for id, (_, _, until) in self._kept.items() if until <= now]:
            if id not in self._taken:
                del self._kept[id]


class LedgerTurns:
    """Turns in the ledger's database. ``grace`` is how long a yes can be used."""

    def __init__(
        self,
        ledger: JournaledLedger,
        sealer: Sealer,
        clock: Clock = SYSTEM_CLOCK,
        *,
        grace: float = 0.0,
        bounds: Bounds = BOUNDS,
    ) -> None:
        self._ledger = ledger
        self._sealer = sealer
        self._clock = clock
        self._grace = grace
        self._bounds = bounds
        #: What requests of this process have, with their owners; a row names its process.
        self._taken: set[tuple[str, str]] = set()
        self._forgot = False

    async def keep(self, place: Place, body: bytes, until: float) -> None:
        """Park a turn, or renew one; see ``ParkedTurns``."""
        plain = place.conversation.encode() + b"\n" + body
        taken, now = {id for id, _ in self._taken}, self._clock.now()
        holder = self._ledger.journal_id if place.id in taken else None

        def work(statements: Statements) -> int:
            sealed = self._sealer.seal(_name(place), plain)
            new = _Row(place.id, place.owner, len(sealed))
            removed = _expire(statements, now, taken) + _remove(statements, place.id)
            query = "SELECT id, owner, size FROM parked_turns ORDER BY parked_at, rowid"
            rows = [_Row(*row) for row in statements.execute(query).fetchall()]
            for id in _surplus(rows, new, self._bounds, taken):
                removed += _remove(statements, id)
            values = (new.id, new.owner, now, until + self._grace, new.size, sealed, holder)
            statements.execute("INSERT INTO parked_turns VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            return removed

        await self._write(work, after=self._note_removed)

    async def take(self, place: Place) -> bytes:
        """Return a turn, which nobody else gets until it is given back; raise TurnRefused."""
        mine = place.id, place.owner
        if mine in self._taken:
            raise TurnRefused("in_use", place.id)
        self._taken.add(mine)
        try:
            return await self._write(lambda found: self._take(found, place))
        except BaseException:
            self._taken.discard(mine)
            raise

    def _take(self, statements: Statements, place: Place) -> bytes:
        query = "SELECT sealed, holder, expires_at FROM parked_turns WHERE id = ? AND owner = ?"
        found = statements.execute(query, (place.id, place.owner)).fetchone()
        if found is None or found[2] <= self._clock.now():
            raise TurnRefused("not_found", place.id)
        plain, holder = self._sealer.unseal(_name(place), found[0]), found[1]
        if plain is None:
            raise TurnRefused("not_found", place.id)
        conversation, _, body = plain.partition(b"\n")
        if conversation != place.conversation.encode():
            raise TurnRefused("wrong_conversation", place.id)
        own = self._ledger.journal_id
        if holder not in (None, own) and self._ledger.is_live(holder, statements):
            raise TurnRefused("in_use", place.id)
        statements.execute("UPDATE parked_turns SET holder = ? WHERE id = ?", (own, place.id))
        return body

    async def give_back(self, place: Place) -> None:
        """Let others take a turn. Any number of times."""
        self._taken.discard((place.id, place.owner))
        query = "UPDATE parked_turns SET holder = NULL WHERE id = ? AND owner = ?"
        values = (place.id, place.owner)
        await self._write(lambda found: found.execute(query, values).rowcount)

    async def forget(self, place: Place) -> None:
        """Remove a turn. Any number of times."""
        await self._write(lambda found: _remove(found, place.id), self._note_removed)
        self._taken.discard((place.id, place.owner))

    async def run(self) -> None:
        """Remove what cannot be used any more, until cancelled."""
        await look_after("parked turns", self.sweep, _SWEEP_SECONDS, self._clock)

    async def sweep(self) -> None:
        """Do that once, and leave nothing behind in the write-ahead log."""
        taken, now = {id for id, _ in self._taken}, self._clock.now()
        if await self._ledger.database.read(lambda found: _due(found, now)):
            await self._write(lambda c: _expire(c, now, taken), self._note_removed)
        if self._forgot:
            self._forgot = False
            await self._ledger.database.forget_log()

    def _note_removed(self, count: int) -> None:
        self._forgot = self._forgot or count > 0

    async def _write(
        self,
        work: Callable[[Statements], T],
        after: Callable[[T], None] | None = None,
    ) -> T:
        with writing(self._ledger.database, "a parked turn"):
            return await self._ledger.database.write(work, after=after)


def _name(place: Place) -> str:
    """Return where a sealed turn belongs; moved to another row it cannot be read."""
    return f"parked turn {place.id} of {place.owner}"


def _remove(statements: Statements, id: str) -> int:
    return statements.execute("DELETE FROM parked_turns WHERE id = ?", (id,)).rowcount


def _due(statements: Statements, now: float) -> list[str]:
    query = "SELECT id FROM parked_turns WHERE expires_at <= ?"
    return [id for (id,) in statements.execute(query, (now,)).fetchall()]


def _expire(statements: Statements, now: float, taken: set[str]) -> int:
    return sum(_remove(statements, id) for id in _due(statements, now) if id not in taken)
