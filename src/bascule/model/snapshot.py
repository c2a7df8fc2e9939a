"""A snapshot of the registry, every record of every kind at one revision, and its changes.

A node swaps snapshots atomically. ``Snapshot.after`` is the only way from one revision to the next.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bascule.model.backend import BackendRecord
from bascule.model.kinds import KINDS, PLATFORM, Kind, Record
from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import ServerRecord
from bascule.model.task import TaskRecord
from bascule.model.user import UserRecord

Records: TypeAlias = Mapping[tuple[Kind, str], Record | None]


class Position(Struct, frozen=True):
    """A place in a registry's history. A revision whose mark differs is not the same revision.

    An empty store or mark is not known, and is not compared.
    """

    store_id: str = ""
    revision: int = 0
    mark: str = ""

    def __str__(self) -> str:
        """Return it as ids of events and tags of answers have it."""
        return "-".join(part for part in (self.store_id, str(self.revision), self.mark) if part)

    def is_of(self, store_id: str) -> bool:
        """Say whether it may be a place in the history of a store."""
        return not (self.store_id and store_id) or self.store_id == store_id

    def fits(self, mark: str | None) -> bool:
        """Say whether its revision may be the one with this mark."""
        return not (self.mark and mark) or self.mark == mark

    def agrees(self, other: Position) -> bool:
        """Say whether both are one place, as far as either is known."""
        same = self.is_of(other.store_id) and self.fits(other.mark)
        return same and self.revision == other.revision


_POSITION = re.compile(
    r"(?:(?P<store>[^-]*)-)?(?P<revision>[0-9]{1,15})(?:-(?P<mark>[0-9a-f]{1,64}))?", re.ASCII
)


def read_position(text: str) -> Position | None:
    """Read a position as ``str`` writes it, with or without store and mark; None for no such."""
    found = _POSITION.fullmatch(text)
    if found is None:
        return None
    return Position(found["store"] or "", int(found["revision"]), found["mark"] or "")


class SnapshotChange(Struct, frozen=True):
    """What one revision did: the records as it left them, None for those it deleted.

    Without any records it says only that everything up to the revision has been said. Where its
    reader has a part of the registry, it says which revision it follows, ``since``, for those
    between did nothing to that part; and which ``part`` it leads to, where that is another.
    """

    store_id: str
    revision: int
    records: Records = {}
    mark: str = ""
    since: int | None = None
    part: str | None = None

    @property
    def position(self) -> Position:
        """Return where it leads to."""
        return Position(self.store_id, self.revision, self.mark)


class Snapshot(Struct, frozen=True, kw_only=True):
    """One consistent view of a registry. ``predecessor`` is the store that its own replaced.

    ``part`` is what the part of the registry is called that a node was given; empty is all of it.
    """

    store_id: str = ""
    revision: int = 0
    mark: str = ""
    predecessor: str = ""
    part: str = ""
    servers: Mapping[str, ServerRecord] = {}
    tasks: Mapping[str, TaskRecord] = {}
    profiles: Mapping[str, ProfileRecord] = {}
    platform: PlatformRecord = PlatformRecord()
    backends: Mapping[str, BackendRecord] = {}
    users: Mapping[str, UserRecord] = {}

    @property
    def position(self) -> Position:
        """Return where in the registry's history it is."""
        return Position(self.store_id, self.revision, self.mark)

    def items(self, kind: Kind) -> Mapping[str, Record]:
        """Return the records of a kind by key; the platform record has the key ``platform``."""
        by_kind: dict[Kind, Mapping[str, Record]] = {
            "server": self.servers,
            "task": self.tasks,
            "profile": self.profiles,
            "platform": {PLATFORM: self.platform},
            "backend": self.backends,
            "user": self.users,
        }
        return by_kind[kind]

    def is_followed_by(self, change: SnapshotChange) -> bool:
        """Say whether a change is the next one, with nothing missing between."""
        since = change.since
        if since is None and change.records:
            since = change.revision - 1
        return (change.store_id, since) == (self.store_id, self.revision)

    def is_at(self, other: Snapshot) -> bool:
        """Say whether both are the same part of one registry, at one place in its history."""
        return self.part == other.part and self.position.agrees(other.position)

    def is_beyond(self, other: Snapshot | SnapshotChange) -> bool:
        """Say whether it is further on in the same store."""
        return self.store_id == other.store_id and self.revision > other.revision

    def after(self, change: SnapshotChange) -> Snapshot:
        """Return the snapshot that a change leads to, its records in the order of their keys."""
        kept = {kind: dict(self.items(kind)) for kind in KINDS if kind in _touched(change)}
        for (kind, key), record in change.records.items():
            if record is None:
                kept[kind].pop(key, None)
            else:
                kept[kind][key] = record
        platform = kept.pop(PLATFORM, {PLATFORM: self.platform})
        return replace(
            self,
            revision=change.revision,
            mark=change.mark,
            part=self.part if change.part is None else change.part,
            platform=platform.get(PLATFORM, PlatformRecord()),
            **{f"{kind}s": dict(sorted(records.items())) for kind, records in kept.items()},
        )


def _touched(change: SnapshotChange) -> frozenset[Kind]:
    return frozenset(kind for kind, _ in change.records)


class KindChange(Struct, frozen=True):
    """What happened to the records of one kind."""

    kind: Kind
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


class SnapshotDiff(Struct, frozen=True):
    """The way from one snapshot to another."""

    changes: tuple[KindChange, ...]
    reconnect: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        signs = (("+", "added"), ("~", "changed"), ("-", "removed"))
        lines = [
            f"{sign} {change.kind} {key}"
            for change in self.changes
            for sign, name in signs
            for key in getattr(change, name)
        ]
        return "\n".join(lines) or "no change"


def diff_snapshots(old: Snapshot, new: Snapshot) -> SnapshotDiff:
    """Return what changed, and which kept servers need a new connection."""
    changes = [_kind_change(kind, old.items(kind), new.items(kind)) for kind in KINDS]
    kept = old.servers.keys() & new.servers.keys()
    moved = [s for s in kept if old.servers[s].connection() != new.servers[s].connection()]
    return SnapshotDiff(tuple(c for c in changes if c), tuple(sorted(moved)))


def _kind_change(kind: Kind, old: Mapping[str, Record], new: Mapping[str, Record]) -> KindChange:
    return KindChange(
        kind,
        added=tuple(sorted(new.keys() - old.keys())),
        changed=tuple(sorted(k for k in new.keys() & old.keys() if old[k] != new[k])),
        removed=tuple(sorted(old.keys() - new.keys())),
    )
