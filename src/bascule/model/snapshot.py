"""A snapshot of the registry: every record of every kind at one revision.

Below: the records. Above: policy composes from it, the control plane serves it, a node swaps
it atomically. Two snapshots differ by what was added, changed and removed, kind by kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from bascule.model.backend import BackendRecord
from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import ServerRecord
from bascule.model.task import TaskRecord

Record: TypeAlias = ServerRecord | TaskRecord | ProfileRecord | PlatformRecord | BackendRecord
Kind = Literal["server", "task", "profile", "platform", "backend"]
KINDS: tuple[Kind, ...] = ("server", "task", "profile", "platform", "backend")


class Snapshot(Struct, frozen=True, kw_only=True):
    """One consistent view of a registry."""

    store_id: str = ""
    revision: int = 0
    servers: Mapping[str, ServerRecord] = {}
    tasks: Mapping[str, TaskRecord] = {}
    profiles: Mapping[str, ProfileRecord] = {}
    platform: PlatformRecord = PlatformRecord()
    backends: Mapping[str, BackendRecord] = {}

    def items(self, kind: Kind) -> Mapping[str, Record]:
        """Return the records of a kind by key; the platform record has the key ``platform``."""
        by_kind: dict[Kind, Mapping[str, Record]] = {
            "server": self.servers,
            "task": self.tasks,
            "profile": self.profiles,
            "platform": {"platform": self.platform},
            "backend": self.backends,
        }
        return by_kind[kind]


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
