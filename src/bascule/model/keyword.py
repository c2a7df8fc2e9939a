"""Keywords of functions that pass them on: one that is unknown is an error, never dropped.

Below: nothing. Above: whatever takes ``**options``. A misspelt restriction would be a missing one.
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
