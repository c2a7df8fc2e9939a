"""Names for generated dataclasses and their fields: legal, readable, never twice the same.

A property keeps its name when Python can say it; any other gets the nearest identifier, and a
number where two would meet. The outcome depends on the set of names, never on their order.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Iterable

MAX_FIELD_NAME = 64
MAX_CLASS_NAME = 120

_WORDS = re.compile("[A-Za-z0-9]+")
_NOT_ASCII = re.compile("[^A-Za-z0-9]+")


def class_name(*parts: str) -> str:
    """Join words of any spelling: ``github``, ``create_issue``, ``Params`` in capitals."""
    words = [word for part in parts for word in _WORDS.findall(part[:MAX_CLASS_NAME])]
    name = "".join(word[0].upper() + word[1:] for word in words)
    return name if name and not name[0].isdigit() else f"T{name}"


def short_class_name(prefix: str, suffix: str) -> str:
    """Cut the middle out of a name that is too long; the suffix says what it is."""
    return prefix[: MAX_CLASS_NAME - len(suffix)] + suffix


def field_names(properties: Iterable[str]) -> dict[str, str]:
    """Map each property to a field name of its own."""
    names = list(dict.fromkeys(properties))
    fields = {name: name for name in names if is_usable(name)}
    taken = set(fields)
    counters: dict[str, int] = {}
    for name in sorted(set(names) - taken):
        fields[name] = unused(_nearest(name), taken, counters)
        taken.add(fields[name])
    return {name: fields[name] for name in names}


def unused(base: str, taken: set[str], counters: dict[str, int] | None = None) -> str:
    """Return the base, or the base with the first number that nobody has."""
    counters = {} if counters is None else counters
    name, number = base, counters.get(base, 1)
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    counters[base] = number
    return name


def is_usable(name: str) -> bool:
    """Say whether a property's name can be a field as it stands.

    A leading underscore is refused: dunder names have a meaning, and the initialiser that
    ``dataclasses`` writes keeps names with underscores for itself. So is a name which every class
    has already, and one which Python's parser would normalise into another.
    """
    return (
        len(name) <= MAX_FIELD_NAME
        and name.isidentifier()
        and not name.startswith("_")
        and not keyword.iskeyword(name)
        and not hasattr(type, name)
        and (name.isascii() or unicodedata.normalize("NFKC", name) == name)
    )


def _nearest(name: str) -> str:
    cut = unicodedata.normalize("NFKC", name[:MAX_FIELD_NAME])
    letters = "".join(c if f"a{c}".isidentifier() else "_" for c in cut)
    for candidate in (letters, _NOT_ASCII.sub("_", name)):
        plain = candidate.strip("_")[: MAX_FIELD_NAME - 8].strip("_")
        for spelling in (plain, f"{plain}_", f"field_{plain}"):
            if plain and is_usable(spelling):
                return spelling
    return "field"
