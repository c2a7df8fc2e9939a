"""The headers of a request, read once: what is asked of them later is a lookup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from starlette.types import Scope

#: The scope's name for its head.
HEAD: Final = "head"
#: Where these are, every check has something to look at.
_RARE = frozenset({b"origin", b"sec-fetch-site", b"transfer-encoding", b"content-encoding"})
_NARROWING = b"x-bascule-"


class Head:
    """Headers by name, as bytes; of one that is there twice, the first.

    ``usual`` says that none is there twice, and none that only some requests have and a check
    must look at. ``repeated`` names those that are there twice.
    """

    __slots__ = ("fields", "repeated", "usual")

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        self.fields = dict(raw)
        self.repeated: frozenset[bytes] = frozenset()
        self.usual = len(self.fields) == len(raw) and _RARE.isdisjoint(self.fields)
        if len(self.fields) != len(raw):
            self.fields = dict(reversed(raw))
            names = Counter(name for name, _ in raw)
            self.repeated = frozenset(name for name, times in names.items() if times > 1)

    @property
    def narrows(self) -> bool:
        """Say whether a header may narrow the session; one that only looks so does no harm."""
        return _NARROWING in b" ".join(self.fields)

    def accepts(self, media_type: bytes) -> bool:
        """Say whether the caller names a type of answer."""
        return media_type in self.fields.get(b"accept", b"")


def head_of(scope: Scope) -> Head:
    """Return the head of a request, which the guard has read."""
    head = scope.get(HEAD)
    return head if isinstance(head, Head) else read_head(scope)


def read_head(scope: Scope) -> Head:
    """Read the headers of a request."""
    raw = scope["headers"] = list(scope["headers"])
    head = scope[HEAD] = Head(raw)
    return head
