"""Small things that are kept for each token under a key, within bounds: the oldest go first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class PerToken(Generic[V]):
    """Values by token and key, as many for each token and for as many tokens as there may be."""

    def __init__(self, *, most: int, tokens: int) -> None:
        self._most = most
        self._tokens = tokens
        self._kept: OrderedDict[str, OrderedDict[bytes | str, V]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def __bool__(self) -> bool:
        return bool(self._kept)

    def keep(self, token: str, key: bytes | str, value: V) -> None:
        """Keep a value, in place of what was kept under the key."""
        own = self._kept.setdefault(token, OrderedDict())
        self._kept.move_to_end(token)
        own[key] = value
        own.move_to_end(key)
        if len(own) > self._most:
            own.popitem(last=False)
        if len(self._kept) > self._tokens:
            self._kept.popitem(last=False)

    def get(self, token: str, key: bytes | str) -> V | None:
        """Return what is kept under a key."""
        own = self._kept.get(token)
        return None if own is None else own.get(key)

    def drop(self, token: str, key: bytes | str) -> None:
        """Keep a value no longer."""
        own = self._kept.get(token)
        if own is not None:
            own.pop(key, None)
            if not own:
                del self._kept[token]
