"""The events of the watch as they are sent, each encoded once for all who read it alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from bascule.control.registry.offload import apart
from bascule.control.registry.store import Bookmark, Event
from bascule.model.kinds import Kind
from bascule.model.snapshot import Position

#: How much is kept for readers that come later; the newest event is kept whatever its size.
MOST_BYTES = 4 * 1024 * 1024


class Form(Struct, frozen=True):
    """What a reader asked for: some kinds or all, keys or records, with literals or masked."""

    store_id: str
    kinds: frozenset[Kind] | None = None
    records: bool = False
    literals: bool = False


#: Makes an event, which stands at a place of the store's history, the messages of a form.
Encode: TypeAlias = Callable[[Event, Position, Form], tuple[bytes, ...]]
_Key: TypeAlias = tuple[Position, bool, Form]


class EncodedEvents:
    """The newest events, encoded."""

    def __init__(self, encode: Encode, most_bytes: int = MOST_BYTES) -> None:
        self._encode = encode
        self._most = most_bytes
        self._kept: dict[_Key, tuple[bytes, ...]] = {}
        self._size = 0
        self._encoding = asyncio.Lock()

    async def of(self, event: Event, form: Form) -> tuple[bytes, ...]:
        """Return an event as it stands in the stream of those who asked for a form."""
        place = Position(form.store_id, event.revision, event.mark)
        key = place, isinstance(event, Bookmark), form
        found = self._kept.get(key)
        if found is not None:
            return found
        async with self._encoding:  # whoever else wants the same waits, and finds it
            found = self._kept.get(key)
            if found is None:
                size = 0 if isinstance(event, Bookmark) else len(event.entries)
                found = await apart(size, lambda: self._encode(event, place, form))
                self._keep(key, found)
        return found

    def _keep(self, key: _Key, messages: tuple[bytes, ...]) -> None:
        self._kept[key] = messages
        self._size += _bytes(messages)
        while self._size > self._most and len(self._kept) > 1:
            self._size -= _bytes(self._kept.pop(next(iter(self._kept))))


def _bytes(messages: tuple[bytes, ...]) -> int:
    return sum(map(len, messages))
