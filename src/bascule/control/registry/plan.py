"""From edits to writes: what a change of the registry would write, and what forbids it.

Pure functions of a view, so that they can be run again when another process wrote first, or run
without writing at all. Below: ``kinds.py`` validates, ``merging.py`` and ``masking.py`` complete
what was left out. Above: ``service.py`` commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from bascule.control.registry.advice import unknown_servers
from bascule.control.registry.carryover import Brings, kept
from bascule.control.registry.errors import NotFound, OwnedByFile
from bascule.control.registry.extra_fields import merged_extra, texts_of, without_kept
from bascule.control.registry.kinds import read_record
from bascule.control.registry.masks import refuse_moved, refuse_moved_process, unmasked
from bascule.control.registry.merge import merged
from bascule.control.registry.store import Stored, View, Write
from bascule.errors import InvalidRecord
from bascule.model.json import is_array, is_object
from bascule.model.kinds import KEY_FIELDS, PLATFORM, SECTIONS, Kind, Record, record_key
from bascule.model.server import ServerRecord
from bascule.wire.api.imports import ImportMode
from bascule.wire.record_rules import refuse_visible_credentials
from bascule.wire.records import encode


class Edit(Struct, frozen=True, kw_only=True):
    """One edit as a face gives it: a whole record, some fields to merge, or a deletion.

    ``key`` may be left out for a whole record, which names itself. ``***`` stands for the value
    that is stored.
    """

    kind: Kind
    key: str | None = None
    op: Literal["put", "merge", "delete"] = "put"
    data: Mapping[str, Any] = {}
    expected: int | None = None


class Draft(Struct, frozen=True):
    """Writes that were planned, and what is to be said about them."""

    writes: tuple[Write, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def draft_of(
    view: View, edits: Sequence[Edit], *, strict: bool = False, trusted: bool = True
) -> Draft:
    """Plan edits; raise InvalidRecord, NotFound. ``trusted`` is the author's."""
    writes: list[Write] = []
    warnings: list[str] = []
    for edit in edits:
        write, found = _planned(view, edit, strict=strict, trusted=trusted)
        writes.append(write)
        warnings += found
    _refuse_repeats(writes)
    if strict:
        _refuse_unknown_servers(view, writes)
    return Draft(tuple(writes), tuple(warnings))


def _refuse_unknown_servers(view: View, writes: Sequence[Write]) -> None:
    found = unknown_servers(view.planned(writes).snapshot(), [write.record for write in writes])
    if found:
        raise InvalidRecord(found)


def _planned(
    view: View, edit: Edit, *, strict: bool, trusted: bool
) -> tuple[Write, tuple[str, ...]]:
    if edit.op == "delete":
        return _deletion(view, edit), ()
    record, extra, warnings = _record(view, edit, strict=strict, trusted=trusted)
    key = record_key(edit.kind, record)
    write = Write(kind=edit.kind, id=key, record=record, expected=edit.expected, extra=extra)
    return write, warnings


def _deletion(view: View, edit: Edit) -> Write:
    key = edit.key or ""
    # With an expected revision the store answers: what is gone is not at that revision.
    if view.get(edit.kind, key) is None and not edit.expected:
        raise NotFound(edit.kind, key, view.objects)
    return Write(kind=edit.kind, id=key, record=None, expected=edit.expected)


def _record(
    view: View, edit: Edit, *, strict: bool, trusted: bool
) -> tuple[Record, Mapping[str, Any], tuple[str, ...]]:
    """Return the record that an edit comes to, what is kept beside it, and warnings."""
    if not is_object(edit.data):
        raise InvalidRecord(["must be a table of fields"])
    stored = _stored(view, edit)
    old = None if stored is None else stored.record
    if edit.op == "merge":
        if stored is None:
            raise NotFound(edit.kind, edit.key or "", view.objects)
        data, extra = merged_extra(edit.kind, edit.data, stored)
        data = merged(edit.kind, encode(stored.record), data)
    else:
        data, extra = without_kept(edit.data, stored)
    whole = unmasked(edit.kind, data, old)
    refuse_moved(edit.kind, edit.data, whole, old)
    record, warnings = read_record(
        edit.kind, whole, key=edit.key, strict=strict, familiar=texts_of(old)
    )
    refuse_visible_credentials(record, old)
    if not trusted:
        refuse_moved_process(edit.data, record, old)
    return record, extra, warnings


def _stored(view: View, edit: Edit) -> Stored | None:
    field = KEY_FIELDS.get(edit.kind, "")
    named = edit.data.get(field, PLATFORM) if edit.key is None else edit.key
    return view.get(edit.kind, named) if isinstance(named, str) else None


def _refuse_repeats(writes: Iterable[Write]) -> None:
    seen: set[tuple[Kind, str]] = set()
    for write in writes:
        if write.key in seen:
            raise InvalidRecord([f"{write.kind} {write.id!r} is given twice; keep one of them"])
        seen.add(write.key)


def draft_import(
    view: View,
    records: Sequence[tuple[Kind, Mapping[str, Any]]],
    mode: ImportMode,
    *,
    brings: Brings = "records",
    strict: bool = False,
    trusted: bool = True,
) -> Draft:
    """Plan an import; raise InvalidRecord with the problems of all its records."""
    writes: list[Write] = []
    warnings: list[str] = []
    problems: list[str] = []
    for number, (kind, data) in enumerate(records):
        where = f"{kind}[{number}]"
        try:
            edit = _brought(view, Edit(kind=kind, data=data), brings)
            write, found = _planned(view, edit, strict=strict, trusted=trusted)
        except InvalidRecord as error:
            problems += [f"{where}.{problem}" for problem in error.problems]
            continue
        writes.append(write)
        warnings += [f"{where}.{warning}" for warning in found]
    if problems:
        raise InvalidRecord(problems)
    _refuse_repeats(writes)
    if mode == "replace":
        writes += _superseded(view, writes)
    if strict:
        _refuse_unknown_servers(view, writes)
    return Draft(tuple(writes), tuple(warnings))


def _brought(view: View, edit: Edit, brings: Brings) -> Edit:
    if not is_object(edit.data):
        return edit
    stored = _stored(view, edit)
    old = None if stored is None else stored.record
    return replace(edit, data=kept(edit.data, old, brings))


def _superseded(view: View, writes: Sequence[Write]) -> list[Write]:
    kept = {write.key for write in writes}
    kinds = {write.kind for write in writes}
    return [
        Write(kind=stored.kind, id=stored.id, record=None)
        for stored in view.objects.values()
        if stored.kind in kinds and stored.owner is None and stored.key not in kept
    ]


def records_of(data: Mapping[str, Any]) -> list[tuple[Kind, Mapping[str, Any]]]:
    """Take a text of many records apart: ``{"servers": [...], "tasks": [...], ...}``.

    A text without those sections is one server record.
    """
    sections = [name for name in data if name in SECTIONS and not isinstance(data[name], str)]
    found: list[tuple[Kind, Mapping[str, Any]]] = []
    for name in sections:
        items = data[name] if is_array(data[name]) else [data[name]]
        found.extend((SECTIONS[name], item) for item in items)
    if not sections:
        found.append(("server", data))
    return found


def refuse_owned(view: View, writes: Iterable[Write]) -> None:
    """Raise OwnedByFile where a write would change what a file owns."""
    owned: list[tuple[Kind, str, str]] = [
        (stored.kind, stored.id, stored.owner)
        for write in writes
        if (stored := view.objects.get(write.key)) is not None and stored.owner is not None
    ]
    if owned:
        raise OwnedByFile(owned)


def refuse_conflicts(view: View, writes: Sequence[Write]) -> None:
    """Raise InvalidRecord where a written server would claim another's tool namespace."""
    written = [write.record for write in writes if isinstance(write.record, ServerRecord)]
    if not written:
        return
    claims = Namespaces(stored.record for stored in view.planned(writes).objects.values())
    problems = [
        f"{record.server_id}.{problem}" if len(writes) > 1 else problem
        for record in written
        if (problem := claims.problem(record)) is not None
    ]
    if problems:
        raise InvalidRecord(problems)


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


def _claimed(record: ServerRecord) -> str:
    return record.tool_namespace.casefold()
