"""What a result has besides its content: ``_meta``, and fields that nobody here knows.

It is cleaned as the content is, and gets the room under the output cap that the content leaves:
member by member, those of ``_meta`` first and each by itself. What does not fit is left out
whole, and a warning says so; nothing is cut. Of ``_meta``, what is between the server and us stays
here, and so do marks like our own, which no server may forge. A ``_meta`` that is no object means
nothing, and is left out.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.node.bridge.refusal import leak_blocked
from bascule.node.bridge.table import Target
from bascule.policy.cleaning import clean_value, told_of
from bascule.policy.copies import json_bytes
from bascule.policy.leaks import Scanner
from bascule.wire.era import META

#: The members of a result that are something else in an outcome.
CONTENT = frozenset({"content", "structuredContent", "isError", "resultType"})
_META = "_meta"
_NOT_PASSED_ON = (META, "bascule/")
# Nobody has so many; each costs time, however small it is.
_MOST_MEMBERS = 1000


class Extra(NamedTuple):
    """What is kept, how many bytes of JSON it is, and what is to be said about the rest."""

    members: JsonObject
    size: int
    warnings: tuple[str, ...] = ()


NOTHING = Extra({}, 0)


def extra_of(raw: JsonObject, room: int, target: Target, scanner: Scanner | None) -> Extra:
    """Return what a result has besides its content, cleaned and within the room."""
    all_there_is = _passed_on(raw)
    if not all_there_is.number:
        return NOTHING
    cleaned = clean_value(_fitting(all_there_is, room).joined, scanner)
    if cleaned.leaks.total and target.leaks == "block":
        raise leak_blocked(target.server_id, target.tool, f"the result ({cleaned.leaks})")
    warnings = [told_of(cleaned.characters)] if cleaned.characters else []
    if cleaned.leaks.total:
        warnings.append(f"credentials masked besides the content: {cleaned.leaks}")
    kept = _passed_on(cleaned.value)  # a name may be another without its hidden characters
    size = len(json_bytes(kept.joined)) if kept.number else 0
    if size > room:  # a mask may be longer than what it hides
        kept, size = _NONE, 0
    left_out = all_there_is.number - kept.number
    if left_out:
        warnings.append(
            f"{left_out} members of the result besides its content were left out: "
            "they do not fit the output cap, or stand for Bascule's own"
        )
    return Extra(kept.joined, size, tuple(warnings))


class _Besides(NamedTuple):
    """The members of a result's ``_meta``, and its other fields."""

    meta: JsonObject
    fields: JsonObject

    @property
    def number(self) -> int:
        return len(self.fields) + len(self.meta)

    @property
    def joined(self) -> JsonObject:
        return {**self.fields, _META: self.meta} if self.meta else self.fields


_NONE = _Besides({}, {})


def _passed_on(result: JsonObject) -> _Besides:
    """Return what a result has besides its content, as far as it is for others."""
    fields = {name: value for name, value in result.items() if name not in CONTENT}
    meta = fields.pop(_META, None)
    if not is_object(meta):
        return _Besides({}, fields)
    passed = {name: v for name, v in meta.items() if not name.startswith(_NOT_PASSED_ON)}
    return _Besides(passed, fields)


def _fitting(besides: _Besides, room: int) -> _Besides:
    """Return the members that fit into the room."""
    if len(json_bytes(besides.joined)) <= room:
        return besides
    left = room - len(json_bytes({_META: {}}))
    kept: tuple[dict[str, JsonValue], dict[str, JsonValue]] = ({}, {})
    members = ((where, *one) for where, held in enumerate(besides) for one in held.items())
    for where, name, value in islice(members, _MOST_MEMBERS):
        size = len(json_bytes({name: value})) - len("{}") + len(",")
        if size <= left:
            left -= size
            kept[where][name] = value
    return _Besides(*kept)
