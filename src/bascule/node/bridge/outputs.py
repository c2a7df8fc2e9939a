"""Full outputs behind handles, for the life of a session and within a bound."""

from __future__ import annotations

from collections import OrderedDict

MAX_KEPT_BYTES = 16 * 1024 * 1024


class Outputs:
    """Texts by handle; the oldest go first when there is too much."""

    def __init__(self, prefix: str, limit: int = MAX_KEPT_BYTES) -> None:
        self._prefix = prefix
        self._limit = limit
        self._texts: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._last = 0

    @property
    def size(self) -> int:
        """Return how many bytes are kept."""
        return self._size

    def keep(self, text: str) -> str | None:
        """Keep a text and return its handle; None when it alone is over the bound."""
        raw = text.encode("utf-8", "replace")
        if len(raw) > self._limit:
            return None
        while self._size + len(raw) > self._limit:
            _, oldest = self._texts.popitem(last=False)
            self._size -= len(oldest)
        self._last += 1
        handle = f"{self._prefix}-out-{self._last}"
        self._texts[handle] = raw
        self._size += len(raw)
        return handle

    def read(self, handle: str, start: int, end: int | None) -> str:
        """Return bytes ``start`` to ``end`` of a text, without half characters."""
        raw = self._texts.get(handle)
        if raw is None:
            raise KeyError(f"no output is kept under {handle!r}")
        return raw[start:end].decode("utf-8", "ignore")

    def clear(self) -> None:
        """Forget everything."""
        self._texts.clear()
        self._size = 0
