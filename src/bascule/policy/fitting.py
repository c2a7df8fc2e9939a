"""A value made smaller that is still what its schema says.

Strings are shortened, arrays lose items from their end, and objects share the room among their
members, the small ones first. Where the schema objects to what became of a place, that place is
kept whole or left out, and if that will not do, the place around it, up to the whole. Then strings
are left as they are, and what comes first has the room. The work is bounded by the room and by a
number of tries, and not by what a server sent. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from bascule.model.json import JsonValue, is_array, is_object
from bascule.policy.copies import json_bytes

#: Makes a string so short that its JSON is within so many bytes.
Shorten = Callable[[str, int], str]
#: A place in a value: the names and indices that lead there.
Place = tuple[str | int, ...]

_TRIES = 8
# A string up to this size is taken before what may have to be cut.
_SHORT = 128
# What a member takes at the least: a name of no letters, a colon, a digit and a comma.
_LEAST = 5
_MOST_MEMBERS = 4096
_CUT = "…"


class Judge(Protocol):
    """Says where a value is not what it should be."""

    def misfits(self, value: object) -> Sequence[Place] | None:
        """Return the places that are wrong; none when all is well, None when nobody can say."""
        ...


class _Whole(dict[str | int, "_Whole"]):
    """Places that are kept whole or left out, under those that lead to them."""

    here = False

    def add(self, place: Place) -> bool:
        """Add a place, or the nearest around it that is new; False when that is the whole."""
        steps: list[_Whole] = [self]
        for step in place:
            steps.append(steps[-1].setdefault(step, _Whole()))
        new = next((at for at in reversed(steps) if not at.here), self)
        new.here = True
        return new is not self


_FREE = _Whole()
_GONE: Any = object()


def fitted(value: JsonValue, judge: Judge, limit: int) -> JsonValue:
    """Return as much of a value as is right and at most so many bytes of JSON; None if none is.

    What comes back is right by the judge's word, and within the limit.
    """
    found = _fitted(value, judge, limit, shortened)
    return _fitted(value, judge, limit, None) if found is None else found


def _fitted(value: JsonValue, judge: Judge, limit: int, shorten: Shorten | None) -> JsonValue:
    whole = _Whole()
    for _ in range(_TRIES):
        smaller, _size = _trimmed(value, limit, whole, shorten)
        if smaller is _GONE:
            return None
        wrong = judge.misfits(smaller)
        if wrong is None:
            return None
        if not wrong:
            return smaller if len(json_bytes(smaller)) <= limit else None
        new = [whole.add(place) for place in wrong]
        if not all(new):
            return None
    return None


def trimmed(value: JsonValue, room: int, shorten: Shorten) -> JsonValue:
    """Return as much of a value as fits into so many bytes of JSON; None if nothing does."""
    smaller, _ = _trimmed(value, room, _FREE, shorten)
    return None if smaller is _GONE else smaller


def shortened(text: str, room: int) -> str:
    """Return the start of a text whose JSON is within so many bytes, with a sign that it was cut.

    Where there is no room for the sign, nothing is left.
    """
    kept = text[: max(0, room)]
    while kept and (size := len(json_bytes(kept + _CUT))) > room:
        kept = kept[: min(len(kept) - 1, len(kept) * max(0, room - 8) // size)]
    return kept + _CUT if kept else ""


def _trimmed(
    value: JsonValue, room: int, whole: _Whole, shorten: Shorten | None
) -> tuple[Any, int]:
    """Return a value, or what fits of it, and a bound of its size; the same object when whole."""
    if not whole.here:
        if is_object(value):
            return _trimmed_object(value, room, whole, shorten)
        if isinstance(value, str):
            return _trimmed_string(value, room, shorten)
        if is_array(value):
            return _trimmed_array(value, room, whole, shorten)
    size = len(json_bytes(value))
    return (value, size) if size <= room else (_GONE, 0)


def _trimmed_string(value: str, room: int, shorten: Shorten | None) -> tuple[Any, int]:
    if len(value) <= room and (size := len(json_bytes(value))) <= room:
        return value, size
    if shorten is None or room < len('""'):
        return _GONE, 0
    kept = shorten(value, room)
    return kept, len(json_bytes(kept))


def _trimmed_array(
    value: Sequence[JsonValue], room: int, whole: _Whole, shorten: Shorten | None
) -> tuple[Any, int]:
    """Return the first items, each whole; only the very first may have to be cut."""
    left = room - len("[]")
    if left < 0:
        return _GONE, 0
    items: list[JsonValue] = []
    for index, item in enumerate(value):
        kept, size = _trimmed(item, left - bool(items), whole.get(index, _FREE), shorten)
        if kept is _GONE or (items and kept is not item):
            break
        left -= size + bool(items)
        items.append(kept)
        if kept is not item:
            break
    same = len(items) == len(value) and (not items or items[0] is value[0])
    return (value if same else items), room - left


def _trimmed_object(
    value: Mapping[str, JsonValue], room: int, whole: _Whole, shorten: Shorten | None
) -> tuple[Any, int]:
    """Return the members that there is room for; those that are large share what is left."""
    left = room - len("{}")
    if left < 0:
        return _GONE, 0
    names = list(islice(value, min(left // _LEAST + 1, _MOST_MEMBERS)))
    kept: dict[str, JsonValue] = {}
    waiting = sorted(names, key=lambda name: _urgency(value[name], whole.get(name, _FREE)))
    for place, name in enumerate(waiting):
        member, free = value[name], whole.get(name, _FREE)
        around = len(json_bytes(name)) + len(":,")
        first = shorten is None or _urgency(member, free)[0] < _LARGE
        share = (left if first else left // (len(waiting) - place)) - around
        found, size = _trimmed(member, share, free, shorten)
        if found is not _GONE:
            kept[name] = found
            left -= size + around
    same = len(kept) == len(value) and all(kept[name] is value[name] for name in names)
    return (value if same else {name: kept[name] for name in names if name in kept}), room - left


_LARGE = 2


def _urgency(value: JsonValue, whole: _Whole) -> tuple[int, int]:
    """Say what is taken first: what is small, what must be whole, then what has the least in it."""
    if isinstance(value, str):
        small, length = len(value) <= _SHORT, len(value)
    elif is_object(value) or is_array(value):
        small, length = not value, len(value)
    else:
        small, length = True, 0
    return (0 if small else 1 if whole.here else _LARGE), length
