"""Fan-out of changes: one shared ring, and a cursor for each watcher.

A watcher has no queue, so a slow one costs nothing and delays nobody. One that has fallen off the
ring is served from the store's log; below the log's floor it is told so (``Compacted``) and has
to list anew. There is never a silent gap: what a watcher gets next is always the revision after
its cursor. Idle watchers get bookmarks, which also show that the stream lives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence

from bascule.control.registry.errors import Compacted, StoreChanged
from bascule.control.registry.store import (
    Bookmark,
    Change,
    Event,
    Store,
    View,
    refuse_unreachable,
)
from bascule.model.kinds import Kind

CAPACITY = 1_024
BATCH = 64


class Hub:
    """Holds the newest view and everything watchers need to follow it."""

    def __init__(self, store: Store, view: View, *, capacity: int = CAPACITY) -> None:
        self._store = store
        self._capacity = capacity
        self._ring: deque[Change] = deque()
        self._view = view
        self._ticks = 0
        self._news = asyncio.Event()
        self._closed = False
        self._catching_up = asyncio.Lock()

    @property
    def view(self) -> View:
        """Return every object, as far as this hub has heard."""
        return self._view

    def publish(self, change: Change) -> None:
        """Take a change in. One that does not follow is left to ``catch_up``."""
        if change.revision != self._view.revision + 1:
            return
        self._ring.append(change)
        if len(self._ring) > self._capacity:
            self._ring.popleft()
        self._view = self._view.after(change)
        self._wake()

    async def catch_up(self) -> None:
        """Take in what other processes wrote."""
        async with self._catching_up:
            try:
                while page := await self._store.changes(self._view.revision):
                    for change in page:
                        self.publish(change)
            except Compacted:
                self._ring.clear()
                self._view = await self._store.view()
                self._wake()

    def tick(self) -> None:
        """Let idle watchers send a bookmark."""
        self._ticks += 1
        self._wake()

    def close(self) -> None:
        """End every watch."""
        self._closed = True
        self._wake()

    async def watch(
        self, since: int, *, kinds: Iterable[Kind] | None = None, store_id: str | None = None
    ) -> AsyncGenerator[Event, None]:
        """Return every change after a revision: in order, once, each whole; then go on.

        Raise Compacted, FutureRevision or StoreChanged at once; Compacted may also come later, to
        a watcher that was too slow.
        """
        if store_id is not None and store_id != self._view.store_id:
            raise StoreChanged(store_id, self._view.store_id)
        if since > self._view.revision:
            await self.catch_up()
        if not self._in_ring(since):
            refuse_unreachable(since, await self._store.head())
        return self._events(since, None if kinds is None else frozenset(kinds))

    async def _events(
        self, cursor: int, kinds: frozenset[Kind] | None
    ) -> AsyncGenerator[Event, None]:
        said_at = self._ticks
        while not self._closed:
            # Taken before looking, so that what is published after looking is not slept through.
            news = self._news
            batch = await self._after(cursor)
            for change in batch:
                cursor = change.revision
                shown = change.only(kinds)
                if shown is not None:
                    said_at = self._ticks
                    yield shown
            if batch:
                continue
            if said_at != self._ticks:
                said_at = self._ticks
                yield Bookmark(cursor)
            else:
                await news.wait()

    def _in_ring(self, since: int) -> bool:
        return self._view.revision - len(self._ring) <= since <= self._view.revision

    async def _after(self, cursor: int) -> Sequence[Change]:
        """Return some of the changes after a revision, from the ring or from the log."""
        if not self._in_ring(cursor):
            return await self._store.changes(cursor, BATCH)
        behind = min(self._view.revision - cursor, len(self._ring))
        return [self._ring[-place] for place in range(behind, max(0, behind - BATCH), -1)]

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
