"""Literal values that only a node may see: shown as ``***``, and kept when they come back so.

Masked are the literal values of a server's env and headers, of a backend's headers and of a
task's environment, and literal credentials where a reference is expected. A reference names a
secret and is none, so it is shown. A value that is kept stays with the address it was given for:
else whoever may edit a record, and not see its literals, would send them to a server of their own
and read them there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import TypeAlias, TypeGuard

from bascule.errors import refuse_any
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.kinds import Kind, Record
from bascule.model.reference import (
    Stored,
    looks_like_a_credential,
    names_a_credential,
    parse_reference,
    parse_value,
)
from bascule.model.server import ServerRecord
from bascule.model.task import TaskRecord
from bascule.policy.pairs import command_line
from bascule.wire.records import encode

MASK = "***"
MOVED = "was given for another address; give it again, or better a reference"

#: What may stand beside a reference and be shown with it: punctuation, the word that opens a
#: credential, the beginning of a URL, a path. Any other text may be half a secret.
_HARMLESS = re.compile(r"\W*(?:(?:apikey|basic|bearer|token)\s+|https?://)?|\W?/[\w./:-]*", re.I)

_MAPS: Mapping[Kind, tuple[tuple[str, ...], ...]] = {
    "server": (("stdio", "env"), ("http", "headers")),
    "task": (("executable", "env"),),
    "backend": (("headers",),),
}
_VALUES: Mapping[Kind, tuple[tuple[str, ...], ...]] = {
    "server": (("http", "auth_ref"), ("http", "auth", "ref")),
    "backend": (("key_ref",),),
}

#: What is no secret, whatever the variable is called.
_SETTING = re.compile(
    r"|true|false|yes|no|on|off|none|null|auto|trace|debug|info|warn|warning|error|fatal|"
    r"prod|production|dev|development|test|staging|stdio|json|text|utf-?8|utc|[0-9]{1,5}",
    re.IGNORECASE,
)

#: Where the values above are sent to. A program is no address: who may name one may read anything.
_ADDRESSES: Mapping[Kind, tuple[tuple[str, ...], ...]] = {
    "server": (("http", "url"), ("http", "auth", "token_url")),
    "backend": (("base_url",),),
}
_ORIGIN = re.compile(r"[^:/?#]*://[^/?#]*")

#: Where a value stands: the table that holds it, its name there, its whole path.
Place: TypeAlias = tuple[dict[str, JsonValue], str, tuple[str, ...]]


def masked(kind: Kind, record: Record) -> dict[str, JsonValue]:
    """Return a record as plain values, with its literals hidden."""
    plain = deepcopy(encode(record))
    for holder, name, path in _places(kind, plain):
        if _is_hidden(kind, path, holder[name]):
            holder[name] = MASK
    return plain


def unmasked(kind: Kind, new: JsonObject, old: Record | None) -> dict[str, JsonValue]:
    """Return plain values with every ``***`` replaced by what is stored there.

    Raise InvalidRecord where nothing is stored, for the mask is nobody's value.
    """
    if not any(holder[name] == MASK for holder, name, _ in _places(kind, new)):
        return dict(new)  # most edits bring no mask, and nothing of them is changed
    plain = deepcopy(dict(new))
    stored = {} if old is None else {path: h[n] for h, n, path in _places(kind, encode(old))}
    hidden = [place for place in _places(kind, plain) if place[0][place[1]] == MASK]
    refuse_any(
        [
            f"{'.'.join(path)}: is masked ({MASK!r}), but there is no stored value to keep"
            for _, _, path in hidden
            if path not in stored
        ]
    )
    for holder, name, path in hidden:
        holder[name] = stored[path]
    return plain


def refuse_moved(kind: Kind, given: JsonObject, new: JsonObject, old: Record | None) -> None:
    """Raise InvalidRecord where an edit keeps a literal and gives it a new address.

    ``given`` is the edit as it came, ``new`` what the record is to be.
    """
    if old is None:
        return
    before = encode(old)
    if _origins(kind, new) <= _origins(kind, before):
        return
    stored = {path: holder[name] for holder, name, path in _places(kind, before)}
    afresh = {path for h, name, path in _places(kind, given) if h[name] != MASK}
    refuse_any(
        [
            f"{'.'.join(path)}: {MOVED}"
            for holder, name, path in _places(kind, new)
            if path[0] != "stdio" and path not in afresh and holder[name] == stored.get(path)
            if _is_hidden(kind, path, holder[name])
        ]
    )


def refuse_moved_process(given: JsonObject, new: Record, old: Record | None) -> None:
    """Raise InvalidRecord where an operator keeps a hidden literal for another command line.

    An administrator may: the literals of a process stay with its record. So does, for everybody,
    what nobody would hide.
    """
    before, after = _process(old), _process(new)
    if before is None or after is None or before[:2] == after[:2]:
        return
    section, _, kept = before
    afresh = _at(given, (section, "env"))
    refuse_any(
        [
            f"{section}.env.{name}: {MOVED}"
            for name, value in after[2].items()
            if value == kept.get(name) and afresh.get(name, MASK) == MASK
            if is_literal(value) and (names_a_credential(name) or not _SETTING.fullmatch(value))
        ]
    )


def _process(record: Record | None) -> tuple[str, object, Mapping[str, str]] | None:
    """Return what a record starts: the section that says it, the target, the variables."""
    if isinstance(record, ServerRecord) and record.stdio is not None:
        return "stdio", command_line(record.stdio), record.stdio.env
    if isinstance(record, TaskRecord) and record.executable is not None:
        program = record.executable
        return "executable", (program.path, program.checksum_sha256, program.args), program.env
    return None


def origin_of(url: str) -> str:
    """Return the part of a URL that says whose server it is, as it is written."""
    found = _ORIGIN.match(url)
    return url if found is None else found[0].lower()


def _origins(kind: Kind, plain: JsonObject) -> set[str]:
    places = _members(plain, _ADDRESSES.get(kind, ()))
    found = (holder[name] for holder, name, _ in places)
    return {origin_of(url) for url in found if isinstance(url, str)}


def _is_hidden(kind: Kind, path: tuple[str, ...], value: JsonValue) -> bool:
    """Say whether a value may be a secret itself; a bare name for a secret is none."""
    if not isinstance(value, str):
        return False
    if path not in _VALUES.get(kind, ()):
        return is_literal(value)
    try:
        return not isinstance(parse_reference(value), Stored) and is_literal(value)
    except ValueError:
        return True


def is_literal(text: str) -> bool:
    """Say whether a value holds anything but references: text that may be a secret."""
    try:
        value = parse_value(text)
    except ValueError:
        return True
    if isinstance(value, Stored):
        return False
    if not value.variables or any(variable.default for variable in value.variables):
        return bool(text)
    beside = [part for part in value.parts if isinstance(part, str)]
    return looks_like_a_credential(text) or not all(map(_HARMLESS.fullmatch, beside))


def _places(kind: Kind, plain: JsonObject) -> Iterator[Place]:
    """Yield every value that may be masked."""
    for path in _MAPS.get(kind, ()):
        found = _at(plain, path)
        yield from ((found, name, (*path, name)) for name in list(found))
    yield from _members(plain, _VALUES.get(kind, ()))


def _members(plain: JsonObject, paths: Iterable[tuple[str, ...]]) -> Iterator[Place]:
    for path in paths:
        found = _at(plain, path[:-1])
        if path[-1] in found:
            yield found, path[-1], path


def _at(plain: JsonValue, path: tuple[str, ...]) -> dict[str, JsonValue]:
    """Return the table at a path; an empty one where there is none."""
    for step in path:
        plain = plain.get(step) if is_object(plain) else None
    return plain if _is_dict(plain) else {}


def _is_dict(value: object) -> TypeGuard[dict[str, JsonValue]]:
    return isinstance(value, dict)
