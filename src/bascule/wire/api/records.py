"""Records as the registry shows them: one, a list, and the answer to a write.

A record is plain values (masked, with the fields that this version does not know); what stands
beside its own fields is ``Beside`` and, for a server, ``status``. Lists and answers name their
records after the kind, so each kind has a struct of its own: ``LISTS`` and ``WRITTEN``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct, defstruct

from bascule.model.kinds import COLLECTIONS, KINDS, Kind
from bascule.model.snapshot import Position

Plain: TypeAlias = dict[str, Any]
B = TypeVar("B", bound=Struct)


class Beside(Struct, frozen=True, kw_only=True):
    """What is shown beside a record's own fields."""

    revision: int
    updated_at: str | None
    owner: str | None


#: What is left aside when a record comes back.
SHOWN_BESIDE = ("status", *Beside.__struct_fields__)


def own_fields(record: Mapping[str, Any]) -> Plain:
    """Return a record's fields without what was shown beside them."""
    return {name: value for name, value in record.items() if name not in SHOWN_BESIDE}


class RecordList(Struct, frozen=True, kw_only=True):
    """The records of a kind at one revision, in the order of their keys, all or a page."""

    store_id: str
    revision: int
    items: tuple[Plain, ...]
    next_cursor: str | None = None
    mark: str = ""

    @property
    def position(self) -> Position:
        """Return at which revision of which store the records were so."""
        return Position(self.store_id, self.revision, self.mark)


class RecordWritten(Struct, frozen=True, kw_only=True):
    """The registry's revision after a write, and the record as it is now.

    ``changed`` is false where the write made no difference, so that the revision did not move.
    """

    revision: int
    changed: bool = True
    record: Plain
    warnings: tuple[str, ...] = ()


class RecordRemoved(Struct, frozen=True):
    """The revision that took a record away."""

    revision: int
    deleted: str


def _renamed(base: type[B], kind: Kind, field: str, shown: str) -> type[B]:
    """Return a struct of one kind, whose ``field`` is called ``shown`` in JSON."""
    name = f"{kind.title()}{base.__name__.removeprefix('Record')}"
    own = [(field, base.__annotations__[field])]
    made: type[B] = defstruct(  # pyright: ignore[reportAssignmentType] - its bases are not typed
        name, own, bases=(base,), frozen=True, kw_only=True, rename={field: shown}, module=__name__
    )
    return made


LISTS: Mapping[Kind, type[RecordList]] = {
    kind: _renamed(RecordList, kind, "items", COLLECTIONS[kind]) for kind in KINDS
}
WRITTEN: Mapping[Kind, type[RecordWritten]] = {
    kind: _renamed(RecordWritten, kind, "record", kind) for kind in KINDS
}
