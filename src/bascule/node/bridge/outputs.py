"""Full outputs behind handles, for the life of a session and within a bound.

An output is cleaned as far as it is read, slice by slice. Until then it is kept as it came, where
nothing else reads it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from bascule.errors import BasculeError

MAX_KEPT_BYTES = 16 * 1024 * 1024


class _Output:
    """One output: what is cleaned of it, and what is still to come."""

    __slots__ = ("_refusal", "_size", "_slices", "cleaned")

    def __init__(self, slices: Iterator[str], size: int) -> None:
        self.cleaned = bytearray()
        self._slices: Iterator[str] | None = slices
        self._size = size
        self._refusal: BasculeError | None = None

    @property
    def size(self) -> int:
        """Return how many bytes it is counted with: those that came, or more if more are kept."""
        return max(len(self.cleaned), 0 if self._slices is None else self._size)

    def advance(self, end: int | None) -> bool:
        """Clean one slice more; False when there is enough. Raise what a slice is refused with."""
        if self._refusal is not None and (end is None or end > len(self.cleaned)):
            raise self._refusal
        if self._slices is None or (end is not None and end <= len(self.cleaned)):
            return False
        try:
            piece = next(self._slices, None)
        except BasculeError as refusal:
            self._refusal, self._slices = refusal, None
            raise
        if piece is None:
            self._slices = None
            return False
        self.cleaned += piece.encode("utf-8", "replace")
        return True


class Outputs:
    """Texts by handle; the oldest go first when there is too much."""

    def __init__(self, prefix: str, limit: int = MAX_KEPT_BYTES) -> None:
        self._prefix = prefix
        self._limit = limit
        self._outputs: OrderedDict[str, _Output] = OrderedDict()
        self._size = 0
        self._last = 0

    def __len__(self) -> int:
        return len(self._outputs)

    @property
    def size(self) -> int:
        """Return how many bytes are kept."""
        return self._size

    def keep(self, slices: Iterator[str], size: int) -> str | None:
        """Keep a text of this size that is to come in slices, and return its handle.

        None when it alone is over the bound.
        """
        if size > self._limit:
            return None
        self._last += 1
        handle = f"{self._prefix}-out-{self._last}"
        self._outputs[handle] = _Output(slices, size)
        self._grow(size)
        return handle

    def advance(self, handle: str, start: int, end: int | None) -> bool:
        """Clean one slice more for whoever reads these bytes; False when there is enough.

        Raise what the slice is refused with, or KeyError when nothing is kept.
        """
        output = self._outputs.get(handle)
        if output is None:
            raise KeyError(f"no output is kept under {handle!r}")
        before = output.size
        more = output.advance(None if start < 0 or (end or 0) < 0 else end)
        self._grow(output.size - before)
        return more

    def read(self, handle: str, start: int, end: int | None) -> str:
        """Return bytes ``start`` to ``end`` of a text, without half characters."""
        while self.advance(handle, start, end):
            pass
        return self._outputs[handle].cleaned[start:end].decode("utf-8", "ignore")

    def clear(self) -> None:
        """Forget everything."""
        self._outputs.clear()
        self._size = 0

    def _grow(self, size: int) -> None:
        """Make room; an output that outgrows the bound while it is cleaned goes as well."""
        self._size += size
        while self._size > self._limit:
            _, oldest = self._outputs.popitem(last=False)
            self._size -= oldest.size
