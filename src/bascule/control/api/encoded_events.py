"""The events of the watch as they are sent, each encoded once for all who read it alike."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct

from bascule.asgi import sse
from bascule.control.api.presentation import shown_as
from bascule.control.registry.offload import apart
from bascule.control.registry.store import Bookmark, Change, Event
from bascule.model.kinds import KINDS, Kind
from bascule.model.snapshot import Position
from bascule.wire.api.watch import WatchEvent

#: How much is kept for readers that come later; the newest event is kept whatever its size.
MOST_BYTES = 4 * 1024 * 1024


class Form(Struct, frozen=True):
    """What a reader asked for: some kinds or all, keys or records, with literals or masked."""

    store_id: str
    kinds: frozenset[Kind] | None = None
    records: bool = False
    literals: bool = False


_Key: TypeAlias = tuple[str, bool, Form]


class EncodedEvents:
    """The newest events, encoded."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._kept: dict[_Key, bytes] = {}
        self._size = 0
        self._encoding = asyncio.Lock()

    async def of(self, event: Event, form: Form) -> bytes:
        """Return an event as it stands in the stream of those who asked for a form.

        One revision may be several events, of which only the last has an id.
        """
        place = str(Position(form.store_id, event.revision, event.mark))
        key = place, isinstance(event, Bookmark), form
        found = self._kept.get(key)
        if found is not None:
            return found
        async with self._encoding:  # whoever else wants the same waits, and finds it
            found = self._kept.get(key)
            if found is None:
                size = 0 if isinstance(event, Bookmark) else len(event.entries)
                found = await apart(size, lambda: _encoded(event, place, form))
                self._keep(key, found)
        return found

    def _keep(self, key: _Key, text: bytes) -> None:
        self._kept[key] = text
        self._size += len(text)
        while self._size > self._most and len(self._kept) > 1:
            self._size -= len(self._kept.pop(next(iter(self._kept))))


def _encoded(event: Event, place: str, form: Form) -> bytes:
    if isinstance(event, Bookmark):
        said = WatchEvent(revision=event.revision, kind="bookmark")
        return sse.encode(sse.Event(event="bookmark", id=place, data=said))
    *parts, last = _parts(event, form)
    events = [*(sse.Event(data=part) for part in parts), sse.Event(id=place, data=last)]
    return b"".join(map(sse.encode, events))


def _parts(change: Change, form: Form) -> Iterator[WatchEvent]:
    """Yield what a change did, kind by kind."""
    for kind in KINDS:
        upserts, deletes = change.upserts(kind), change.deletes(kind)
        if upserts or deletes:
            found = tuple(
                shown_as(one, literals=form.literals) if form.records else one.id for one in upserts
            )
            yield WatchEvent(revision=change.revision, kind=kind, upserts=found, deletes=deletes)
