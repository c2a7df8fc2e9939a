"""Keywords of functions and records made in code: what is misspelt is an error, never dropped.

A restriction that is misspelt would be a missing one, and so would a text in the place of a list:
``"read_*"`` has the letter ``*``.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def refuse_unknown(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError, as Python does, for a keyword that is none; name the nearest."""
    names = list(known)
    for name in given:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{meant}")


def refuse_text(owner: str, **lists: object) -> None:
    """Raise TypeError for a text where a list belongs; its letters would be the entries."""
    for name, value in lists.items():
        if isinstance(value, str | bytes):
            raise TypeError(f"{owner}: {name} must be a list, not a text: {name}=[{value!r}]")
