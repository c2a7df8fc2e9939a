"""What a store is: objects under one revision, and a log of changes.

Every write is one revision, whatever it holds; revisions have no gap and follow the order of
commits. ``sqlite_store.py`` implements it, and tests have a twin in memory; ``hub.py`` follows a
store, ``service.py`` plans what is written.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bascule.control.registry.errors import Compacted, Conflict, FutureRevision, HeadMoved
from bascule.control.registry.kinds import body_of
from bascule.model.json import JsonObject
from bascule.model.kinds import PLATFORM, Kind, Record
from bascule.model.platform import PlatformRecord
from bascule.model.snapshot import Position, Snapshot, SnapshotChange
from bascule.policy.pairs import Pair

Key: TypeAlias = tuple[Kind, str]
#: What waits beyond this is forgotten, the oldest first.
MAX_PROPOSALS = 50
#: Whoever has lost so many races against other writers has the next turn.
PATIENCE = 5


class Keyed(Struct, frozen=True):
    """Something about one record."""

    kind: Kind
    id: str

    @property
    def key(self) -> Key:
        """Return what the record is found by."""
        return self.kind, self.id


class Stored(Keyed, frozen=True):
    """A record as it is kept: with the revision that last changed it, when, and its owner.

    ``owner`` is the file that defines the record, or None for one that is edited here; ``extra``
    are fields of it that this version does not know.
    """

    record: Record
    revision: int
    updated_at: float
    owner: str | None = None
    extra: JsonObject = {}

    @property
    def body(self) -> str:
        """Return it as a store keeps it, with the fields that this version does not know."""
        return body_of(self.record, self.extra)


class Write(Keyed, frozen=True, kw_only=True):
    """One object to write, or to delete (``record`` is None).

    ``expected`` is the revision the object must have: 0 for one that must not exist.
    """

    record: Record | None
    owner: str | None = None
    expected: int | None = None
    extra: JsonObject = {}


class Author(Struct, frozen=True):
    """Who writes, and a word on why.

    ``trusted`` says that credentials may be given new targets: by an administrator, and by what
    the machine's owner wrote; ``governs`` that policy may be changed (``authority.py``). The faces
    say it of whoever asks. ``person`` may change their own choice in their own record. Whoever is
    ``unconfirmed`` loosens nothing.
    """

    actor: str
    note: str = ""
    trusted: bool = True
    governs: bool = True
    person: str | None = None
    unconfirmed: bool = False


class Proposal(Keyed, frozen=True, kw_only=True):
    """A record as an operator wants it and may not write it (``acceptance.py``).

    ``base`` is the revision that it is to replace; 0: there was no such record.
    """

    record: Record
    base: int
    actor: str
    at: float

    @property
    def digest(self) -> str:
        """Return a name for exactly this proposal."""
        return hashlib.sha256(f"{self.base} {body_of(self.record)}".encode()).hexdigest()[:16]


class Entry(Keyed, frozen=True):
    """What one change did to one object: ``stored`` is None where it was deleted."""

    stored: Stored | None


class Change(Struct, frozen=True, kw_only=True):
    """One revision: all that it changed, together.

    ``mark`` is random: two stores that were one have other marks from where they parted.
    """

    revision: int
    at: float
    actor: str
    note: str = ""
    entries: tuple[Entry, ...]
    mark: str = ""

    def only(self, kinds: frozenset[Kind] | None) -> Change | None:
        """Return the part about some kinds, or None if there is none."""
        if kinds is None or all(entry.kind in kinds for entry in self.entries):
            return self
        kept = tuple(entry for entry in self.entries if entry.kind in kinds)
        return replace(self, entries=kept) if kept else None

    def upserts(self, kind: Kind) -> tuple[Stored, ...]:
        """Return the objects of a kind as this change left them."""
        return tuple(e.stored for e in self.entries if e.kind == kind and e.stored is not None)

    def deletes(self, kind: Kind) -> tuple[str, ...]:
        """Return the keys of a kind that this change deleted."""
        return tuple(e.id for e in self.entries if e.kind == kind and e.stored is None)


class Bookmark(Struct, frozen=True):
    """Nothing to say, but that everything up to this revision has been said."""

    revision: int
    mark: str = ""


Event: TypeAlias = Change | Bookmark


class Head(Struct, frozen=True):
    """Where a store is: its identity, its newest revision, and the oldest it can go back to.

    ``predecessor`` is the store that it replaces: the one that was backed up, where it was
    restored, or the one that somebody announced; empty for none.
    """

    store_id: str
    revision: int
    floor: int
    mark: str = ""
    predecessor: str = ""

    @property
    def position(self) -> Position:
        """Return the place of the newest revision."""
        return Position(self.store_id, self.revision, self.mark)


class View(Struct, frozen=True):
    """Every object at one revision."""

    store_id: str
    revision: int
    objects: Mapping[Key, Stored]
    mark: str = ""
    predecessor: str = ""

    @property
    def position(self) -> Position:
        """Return where in the store's history it is."""
        return Position(self.store_id, self.revision, self.mark)

    def get(self, kind: Kind, key: str) -> Stored | None:
        """Return one object."""
        return self.objects.get((kind, key))

    def revision_of(self, key: Key) -> int:
        """Return the revision that last changed an object; 0 if it is not there."""
        found = self.objects.get(key)
        return 0 if found is None else found.revision

    @property
    def platform(self) -> Stored:
        """Return the platform record, which is there even before it is written."""
        found = self.get("platform", PLATFORM)
        return found or Stored("platform", PLATFORM, PlatformRecord(), 0, 0.0)

    def current(self, key: Key) -> Current | None:
        """Return what a write of an object is judged by."""
        found = self.objects.get(key)
        return found and Current(found.revision, found.owner, found.body)

    def of_kind(self, kind: Kind) -> tuple[Stored, ...]:
        """Return the objects of a kind, in the order of their keys."""
        found = [stored for stored in self.objects.values() if stored.kind == kind]
        return tuple(sorted(found, key=lambda stored: stored.id))

    def after(self, change: Change) -> View:
        """Return the view that a change leads to."""
        objects = dict(self.objects)
        for entry in change.entries:
            if entry.stored is None:
                objects.pop(entry.key, None)
            else:
                objects[entry.key] = entry.stored
        return replace(self, revision=change.revision, objects=objects, mark=change.mark)

    def planned(self, writes: Iterable[Write]) -> View:
        """Return the view that writes would lead to, as if they were revision ``revision + 1``."""
        return self.after(change_of(writes, revision=self.revision + 1, at=0.0, by=Author("")))

    def written(self, writes: Sequence[Write]) -> View:
        """Return the view that a store would have after writes, itself if nothing differs.

        Raise Conflict as a store does.
        """
        effective = [write for write, _ in effective_writes(writes, self.current)]
        return self.planned(effective) if effective else self

    def snapshot(self) -> Snapshot:
        """Return the records alone, as policy and nodes use them."""
        records = {key: stored.record for key, stored in self.objects.items()}
        return Snapshot(store_id=self.store_id, predecessor=self.predecessor).after(
            SnapshotChange(self.store_id, self.revision, records, self.mark)
        )


class Retention(Struct, frozen=True, kw_only=True):
    """How much of the past is kept: so many changes, and none older than that."""

    changes: int = 10_000
    seconds: float = 90 * 86_400.0


class Writer(Protocol):
    """How a store is written (``Store.write``)."""

    async def __call__(
        self, writes: Sequence[Write], by: Author, *, base: Position | None = None
    ) -> Change | None: ...


class Store(Protocol):
    """Where the registry is kept."""

    @property
    def refusal(self) -> str | None:
        """Say why writes are refused now, if they are, in words that anybody may read."""
        ...

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call ``listener`` on the event loop for every change, in order, before it is answered."""
        ...

    async def watch_others(self, ring: Callable[[], None]) -> None:
        """Call ``ring`` whenever others may have written, until cancelled.

        Return where nobody tells.
        """
        ...

    async def head(self) -> Head:
        """Return where the store is."""
        ...

    async def view(self, revision: int | None = None) -> View:
        """Return every object, now or at an older revision; raise Compacted, FutureRevision."""
        ...

    async def write(
        self, writes: Sequence[Write], by: Author, *, base: Position | None = None
    ) -> Change | None:
        """Write all or nothing as one revision, durable on return; None if nothing differs.

        Raise HeadMoved when the store is not at ``base``, Conflict when an object is not at the
        revision its write expects, StoreUnavailable when nothing can be written.
        """
        ...

    def reserved(self) -> AbstractAsyncContextManager[Writer]:
        """Keep others from writing until what is yielded has written, if a store can do that.

        It is for whoever loses race after race; the next write is theirs.
        """
        ...

    async def changes(self, since: int, limit: int = 256) -> tuple[Change, ...]:
        """Return the changes after a revision, the oldest first; raise Compacted."""
        ...

    async def history(self, before: int | None = None, limit: int = 50) -> tuple[Change, ...]:
        """Return the changes that are kept below a revision, the newest first."""
        ...

    async def mark_at(self, revision: int) -> str | None:
        """Return the mark of a revision; None where that is not kept."""
        ...

    async def compact(self, retention: Retention) -> int:
        """Forget what is too old; return the floor: the oldest revision to go back to."""
        ...

    async def announce(self, predecessor: str, renewed: str | None = None) -> None:
        """Name the store that this one replaces, in place of any other; no revision moves.

        ``renewed`` is its own id from now on, where it replaces another copy of itself.
        """
        ...

    async def kept_pairs(self) -> frozenset[Pair]:
        """Return the accepted pairs that were kept when records lost them."""
        ...

    async def keep_pairs(self, pairs: Iterable[Pair]) -> None:
        """Keep pairs beyond the records that have them."""
        ...

    async def forget_pairs(self, pairs: Iterable[Pair]) -> None:
        """Keep pairs no longer."""
        ...

    async def propose(self, proposals: Sequence[Proposal]) -> None:
        """Keep proposals, each in place of an older one for the same record."""
        ...

    async def proposals(self) -> tuple[Proposal, ...]:
        """Return what is proposed, the oldest first."""
        ...

    async def withdraw(self, key: Key) -> None:
        """Forget what is proposed for a record."""
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...


class Current(Struct, frozen=True):
    """What a store must know of an object to judge a write of it."""

    revision: int
    owner: str | None
    body: str


def effective_writes(
    writes: Sequence[Write], current: Callable[[Key], Current | None]
) -> list[tuple[Write, str | None]]:
    """Return the writes that change something, with their text; raise Conflict.

    One object may be written once only: two writes of it in one revision would hide one.
    """
    if len({write.key for write in writes}) != len(writes):
        raise ValueError("one object is written twice in one revision")
    found = [(write, current(write.key)) for write in writes]
    for write, now in found:
        _expect(write, now)
    texts = [(w, None if w.record is None else body_of(w.record, w.extra), now) for w, now in found]
    return [(write, body) for write, body, now in texts if _differs(write, body, now)]


def _expect(write: Write, now: Current | None) -> None:
    current = 0 if now is None else now.revision
    if write.expected is not None and write.expected != current:
        raise Conflict(write.kind, write.id, expected=write.expected, current=current)


def _differs(write: Write, body: str | None, now: Current | None) -> bool:
    if body is None or now is None:
        return (body is None) != (now is None)
    return (body, write.owner) != (now.body, now.owner)


def _as_stored(write: Write, revision: int, at: float) -> Stored | None:
    if write.record is None:
        return None
    return Stored(write.kind, write.id, write.record, revision, at, write.owner, write.extra)


def new_mark() -> str:
    """Return a mark for a revision that is about to be."""
    return secrets.token_hex(8)


def change_of(
    writes: Iterable[Write], *, revision: int, at: float, by: Author, mark: str = ""
) -> Change:
    """Return writes as the change they make."""
    entries = [Entry(w.kind, w.id, _as_stored(w, revision, at)) for w in writes]
    entries.sort(key=lambda entry: entry.key)
    return Change(
        revision=revision,
        at=at,
        actor=by.actor,
        note=by.note,
        entries=tuple(entries),
        mark=mark,
    )


def refuse_moved(base: Position | None, head: Position) -> None:
    """Raise HeadMoved for a write that was planned elsewhere than where the store is."""
    if base is not None and not base.agrees(head):
        raise HeadMoved(base.revision, head.revision)


def refuse_unreachable(revision: int, head: Head) -> None:
    """Raise Compacted or FutureRevision for a revision that cannot be gone back to."""
    if revision > head.revision:
        raise FutureRevision(revision, head.revision)
    if revision < head.floor:
        raise Compacted(revision, head.floor)
