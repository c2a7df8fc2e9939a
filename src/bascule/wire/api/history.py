"""The registry's past: what changed, how two revisions differ, and the way back."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from bascule.model.access_diff import AccessDiff
from bascule.model.json import JsonValue
from bascule.model.kinds import Kind
from bascule.model.snapshot import KindChange


class RecordName(Struct, frozen=True, forbid_unknown_fields=True):
    """Names one record."""

    kind: Kind
    id: str


class FieldChange(Struct, frozen=True):
    """One field of a record that was changed, literals masked; what is not set at all is None."""

    kind: Kind
    id: str
    field: str
    old: JsonValue
    new: JsonValue


class HistoryEntry(Struct, frozen=True, kw_only=True):
    """One revision: who, when, why, which records, which were new, and which fields changed."""

    revision: int
    at: str | None
    actor: str
    note: str
    upserts: tuple[RecordName, ...]
    deletes: tuple[RecordName, ...]
    created: tuple[RecordName, ...]
    fields: tuple[FieldChange, ...]


class HistoryPage(Struct, frozen=True, kw_only=True):
    """Changes, the newest first; ``next_before`` asks for the page after."""

    store_id: str
    revision: int
    floor: int
    changes: tuple[HistoryEntry, ...]
    next_before: int | None
    mark: str = ""
    #: The store that this one replaces: restored from it, or announced; empty for none.
    predecessor: str = ""


class TaskAccess(Struct, frozen=True):
    """How a task's access differs: by default, and at the most a session of it may ask for."""

    task: str
    default: AccessDiff
    most: AccessDiff

    def __bool__(self) -> bool:
        return bool(self.default) or bool(self.most)


class UserAccess(Struct, frozen=True):
    """How a person's access differs: at the most, in whichever task."""

    user: str
    most: AccessDiff


class AccessChanges(Struct, frozen=True):
    """How access differs: of the platform, and of each task and person whose access is another.

    Of people, those whose records are among what changed.
    """

    platform: AccessDiff
    tasks: tuple[TaskAccess, ...]
    users: tuple[UserAccess, ...] = ()


class RevisionDiff(Struct, frozen=True, kw_only=True, rename={"old": "from", "new": "to"}):
    """What differs between two revisions: the records, and what they let anybody use.

    ``fields`` are what was changed in records that were there before and after, ``reconnect`` the
    servers that need a new connection; ``text`` says all of it to people.
    """

    old: int
    new: int
    changes: tuple[KindChange, ...]
    fields: tuple[FieldChange, ...]
    reconnect: tuple[str, ...]
    access: AccessChanges
    text: str

    def __bool__(self) -> bool:
        return bool(self.changes)


class Rollback(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """To which revision to go back, with which records (all of them by default), and why."""

    revision: Annotated[int, Meta(ge=0)]
    only: tuple[RecordName, ...] | None = None
    note: str = ""


#: As stores are named in positions.
StoreId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]{1,64}$", description="the id of a store")]


class Announcement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says that the registry's store replaces another one."""

    succeeds: StoreId


class Announced(Struct, frozen=True, kw_only=True):
    """Which store the registry is, and which one it says that it replaces."""

    store_id: str
    revision: int
    predecessor: str


class DryRun(Struct, frozen=True, kw_only=True):
    """What a write would change. Nothing is written: ``revision`` is still the registry's."""

    revision: int
    diff: RevisionDiff
    warnings: tuple[str, ...] = ()


class RolledBack(Struct, frozen=True):
    """The revision that went back, and what that changed."""

    revision: int
    diff: RevisionDiff
