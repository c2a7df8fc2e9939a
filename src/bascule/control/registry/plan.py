"""From edits to writes: what a change of the registry would write, and what forbids it.

Pure functions of a view, so that they can be run again when another process wrote first, or run
without writing at all; ``service.py`` commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bascule.control.registry.advice import unknown_servers
from bascule.control.registry.carryover import Brings, kept
from bascule.control.registry.errors import NotFound, OwnedByFile
from bascule.control.registry.extra_fields import merged_extra, texts_of, without_kept
from bascule.control.registry.kinds import read_record
from bascule.control.registry.masks import refuse_moved, refuse_moved_process, unmasked
from bascule.control.registry.merge import merged
from bascule.control.registry.store import Key, Stored, View, Write
from bascule.control.registry.task_forms import one_form_of
from bascule.errors import InvalidRecord, refuse_any
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.kinds import KEY_FIELDS, PLATFORM, SECTIONS, Kind, Record, record_key
from bascule.model.server import ServerRecord
from bascule.wire.api.imports import ImportMode
from bascule.wire.api.records import own_fields
from bascule.wire.record_rules import refuse_visible_credentials
from bascule.wire.records import encode

#: One of many records, as it comes.
KindData: TypeAlias = tuple[Kind, JsonValue]


class Edit(Struct, frozen=True, kw_only=True):
    """One edit as a face gives it: a whole record, some fields to merge, or a deletion.

    ``key`` may be left out for a whole record, which names itself. A record may come back as it
    was shown: ``***`` stands for the value that is stored, and what was shown beside it is left
    aside.
    """

    kind: Kind
    key: str | None = None
    op: Literal["put", "merge", "delete"] = "put"
    data: JsonObject = {}
    expected: int | None = None


class Draft(Struct, frozen=True):
    """Writes that were planned, and what is to be said about them."""

    writes: tuple[Write, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class _Planning:
    """Plans edits on a view, one by one; ``trusted`` is the author's."""

    def __init__(self, view: View, *, strict: bool, trusted: bool) -> None:
        self._view = view
        self._strict = strict
        self._trusted = trusted
        self._writes: dict[Key, Write] = {}
        self._repeated: Write | None = None
        self._warnings: list[str] = []

    def add(self, edit: Edit, where: str = "") -> None:
        """Plan an edit; raise InvalidRecord, NotFound."""
        write = self._deletion(edit) if edit.op == "delete" else self._upsert(edit, where)
        if self._writes.setdefault(write.key, write) is not write:
            self._repeated = self._repeated or write

    def draft(self, *, replacing: bool = False) -> Draft:
        """Return what is planned; ``replacing`` deletes what else there is of these kinds."""
        if (twice := self._repeated) is not None:
            raise InvalidRecord([f"{twice.kind} {twice.id!r} is given twice; keep one of them"])
        writes = [*self._writes.values(), *(self._superseded() if replacing else ())]
        if self._strict:
            planned = self._view.planned(writes).snapshot()
            refuse_any(unknown_servers(planned, [write.record for write in writes]))
        return Draft(tuple(writes), tuple(self._warnings))

    def _deletion(self, edit: Edit) -> Write:
        key = edit.key or ""
        # With an expected revision the store answers: what is gone is not at that revision.
        if self._view.get(edit.kind, key) is None and not edit.expected:
            raise NotFound(edit.kind, key, self._view.objects)
        return Write(kind=edit.kind, id=key, record=None, expected=edit.expected)

    def _upsert(self, edit: Edit, where: str) -> Write:
        stored = _stored(self._view, edit)
        old = None if stored is None else stored.record
        given = own_fields(edit.data)
        if edit.kind == "task":
            given = one_form_of(given, stored)
        if edit.op == "merge":
            if stored is None:
                raise NotFound(edit.kind, edit.key or "", self._view.objects)
            data, extra = merged_extra(edit.kind, given, stored)
            data = merged(edit.kind, encode(stored.record), data)
        else:
            data, extra = without_kept(given, stored)
        whole = unmasked(edit.kind, data, old)
        refuse_moved(edit.kind, given, whole, old)
        record, warnings = read_record(
            edit.kind, whole, key=edit.key, strict=self._strict, familiar=texts_of(old)
        )
        refuse_visible_credentials(record, old)
        if not self._trusted:
            refuse_moved_process(given, record, old)
        self._warnings += [f"{where}{warning}" for warning in warnings]
        key = record_key(edit.kind, record)
        return Write(kind=edit.kind, id=key, record=record, expected=edit.expected, extra=extra)

    def _superseded(self) -> Iterator[Write]:
        kinds = {kind for kind, _ in self._writes}
        for stored in self._view.objects.values():
            if stored.kind in kinds and stored.owner is None and stored.key not in self._writes:
                yield Write(kind=stored.kind, id=stored.id, record=None)


def draft_of(
    view: View, edits: Iterable[Edit], *, strict: bool = False, trusted: bool = True
) -> Draft:
    """Plan edits; raise InvalidRecord, NotFound."""
    planning = _Planning(view, strict=strict, trusted=trusted)
    for edit in edits:
        planning.add(edit)
    return planning.draft()


def _stored(view: View, edit: Edit) -> Stored | None:
    field = KEY_FIELDS.get(edit.kind, "")
    named = edit.data.get(field, PLATFORM) if edit.key is None else edit.key
    return view.get(edit.kind, named) if isinstance(named, str) else None


def draft_import(
    view: View,
    records: Iterable[KindData],
    mode: ImportMode,
    *,
    brings: Brings = "records",
    strict: bool = False,
    trusted: bool = True,
) -> Draft:
    """Plan an import; raise InvalidRecord with the problems of all its records."""
    planning = _Planning(view, strict=strict, trusted=trusted)
    problems: list[str] = []
    for number, (kind, data) in enumerate(records):
        where = f"{kind}[{number}]."
        try:
            planning.add(_brought(view, kind, data, brings), where)
        except InvalidRecord as error:
            problems += [f"{where}{problem}" for problem in error.problems]
    refuse_any(problems)
    return planning.draft(replacing=mode == "replace")


def _brought(view: View, kind: Kind, data: JsonValue, brings: Brings) -> Edit:
    if not is_object(data):
        raise InvalidRecord(["must be a table of fields"])
    edit = Edit(kind=kind, data=data)
    stored = _stored(view, edit)
    old = None if stored is None else stored.record
    return replace(edit, data=kept(data, old, brings))


def records_of(data: JsonObject) -> list[KindData]:
    """Take a text of many records apart: ``{"servers": [...], "tasks": [...], ...}``.

    A text without those sections is one server record.
    """
    sections = [name for name in data if name in SECTIONS and not isinstance(data[name], str)]
    if not sections:
        return [("server", data)]
    found: list[KindData] = []
    for name in sections:
        kind, value = SECTIONS[name], data[name]
        found.extend((kind, item) for item in (value if is_array(value) else [value]))
    return found


def planned(plan: Callable[[View], Draft], before: View, *, as_owner: bool) -> Draft:
    """Return what is to be written, refused if need be."""
    draft = plan(before)
    if not as_owner:
        _refuse_owned(before, draft.writes)
    _refuse_conflicts(before, draft.writes)
    return draft


def _refuse_owned(view: View, writes: Iterable[Write]) -> None:
    """Raise OwnedByFile where a write would change what a file owns."""
    owned: list[tuple[Kind, str, str]] = [
        (stored.kind, stored.id, stored.owner)
        for write in writes
        if (stored := view.objects.get(write.key)) is not None and stored.owner is not None
    ]
    if owned:
        raise OwnedByFile(owned)


def _refuse_conflicts(view: View, writes: Sequence[Write]) -> None:
    """Raise InvalidRecord where a written server would claim another's tool namespace."""
    written = [write.record for write in writes if isinstance(write.record, ServerRecord)]
    if all(_has_claimed(view, record) for record in written):
        return  # as every write of a server that keeps its namespace: nobody else is looked at
    keys, wanted = {write.key for write in writes}, {*map(_claimed, written)}
    others = [
        stored.record
        for key, stored in view.objects.items()
        if isinstance(stored.record, ServerRecord)
        and _claimed(stored.record) in wanted
        and key not in keys
    ]
    claims = Namespaces([*others, *written])
    refuse_any(
        [
            f"{record.server_id}.{problem}" if len(writes) > 1 else problem
            for record in written
            if (problem := claims.problem(record)) is not None
        ]
    )


class Namespaces:
    """Which servers claim which tool namespace, found by its name: records may be many."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._claims: dict[str, list[str]] = {}
        for record in records:
            if isinstance(record, ServerRecord):
                self._claims.setdefault(_claimed(record), []).append(record.server_id)

    def problem(self, record: ServerRecord) -> str | None:
        """Say whose tool namespace a server claims, if it is another's."""
        claims = self._claims.get(_claimed(record), ())
        other = next((server_id for server_id in claims if server_id != record.server_id), None)
        if other is None:
            return None
        taken = f"{record.tool_namespace!r} is already the namespace of server"
        return f"tool_namespace: {taken} {other!r}"


def _has_claimed(view: View, record: ServerRecord) -> bool:
    """Say whether a server has the namespace already that it claims."""
    old = view.get("server", record.server_id)
    kept = None if old is None else old.record
    return isinstance(kept, ServerRecord) and _claimed(kept) == _claimed(record)


def _claimed(record: ServerRecord) -> str:
    return record.tool_namespace.casefold()
