"""Whether one glob leaves anything of another, judged by their texts alone.

Both answers take no longer than matching a name: callers send long lists of patterns.
"""

from __future__ import annotations

import re
from functools import lru_cache

from bascule.model.pattern import translate

_WILD = frozenset("*?")
#: The wildcards of the narrower glob as characters that only the wider one's wildcards take.
_MARKS = str.maketrans({"*": "\0", "?": "\1"})


def covers(wide: str, narrow: str) -> bool:
    """Say whether every name of one glob is one of the other."""
    return _over_globs(wide).fullmatch(narrow.translate(_MARKS)) is not None


def overlaps(one: str, other: str) -> bool:
    """Say whether some name may be covered by both: two globs are told apart by their ends."""
    if _WILD.isdisjoint(one) or _WILD.isdisjoint(other):
        return covers(one, other) or covers(other, one)
    return _agree(one, other) and _agree(one[::-1], other[::-1])


def _agree(one: str, other: str) -> bool:
    for a, b in zip(one, other, strict=False):
        if "*" in (a, b):
            return True
        if a != b and "?" not in (a, b):
            return False
    return True


@lru_cache(maxsize=4096)
def _over_globs(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob, one="[^\0]"), re.DOTALL)
