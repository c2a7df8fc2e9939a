"""Fan-out of changes: one shared ring, and a cursor for each watcher.

A watcher has no queue, so a slow one costs nothing and delays nobody. One that has fallen off the
ring is served from the store's log; below the log's floor it is told so (``Compacted``) and has
to list anew. There is never a silent gap: what a watcher gets next is always the revision after
its cursor. Idle watchers get bookmarks, which also show that the stream lives.

A store may be replaced under a process that serves it. The hub asks by the store's id, its head and
the mark at its own revision; when these do not fit, every watch ends with ``StoreChanged``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence

from msgspec.structs import replace

from bascule.audit.log_lines import say
from bascule.control.registry.errors import Compacted, FutureRevision, StoreChanged
from bascule.control.registry.store import (
    Bookmark,
    Change,
    Event,
    Head,
    Store,
    View,
    refuse_unreachable,
)
from bascule.model.kinds import Kind
from bascule.model.snapshot import Position

logger = logging.getLogger("bascule.registry")

CAPACITY = 1_024
BATCH = 64


class _History:
    """What a watch follows, until another one has taken its place."""

    #: Where it was left, and where the other one stands.
    over: tuple[Position, Position] | None = None

    def refuse_over(self) -> None:
        """Raise StoreChanged once it is over."""
        if self.over is not None:
            raise StoreChanged(*self.over)


class Bell:
    """Wakes one watch alone, which then says a bookmark, however little has changed."""

    __slots__ = ("is_rung", "waiting")

    def __init__(self) -> None:
        self.is_rung = False
        #: What the watch waits for now.
        self.waiting: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Have the watch say something."""
        self.is_rung = True
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)


class _News:
    """What watches wait for: an event that all hear, or one of them alone by its bell."""

    def __init__(self) -> None:
        self._is_told = False
        self._waiting: set[asyncio.Future[None]] = set()

    def tell(self) -> None:
        self._is_told = True
        for one in self._waiting:
            if not one.done():
                one.set_result(None)

    async def wait(self, bell: Bell | None) -> None:
        if self._is_told or (bell is not None and bell.is_rung):
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        if bell is not None:
            bell.waiting = waiting
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)


class Hub:
    """Holds the newest view and everything watchers need to follow it."""

    def __init__(self, store: Store, view: View, *, capacity: int = CAPACITY) -> None:
        self._store = store
        self._capacity = capacity
        self._ring: deque[Change] = deque()
        self._view = view
        self._history = _History()
        self._ticks = 0
        self._news = _News()
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
        """Take in what other processes wrote, and another store in the place of this one."""
        async with self._catching_up:
            while await self._advance():
                pass

    async def _advance(self) -> bool:
        """Take some changes in; say whether there may be more."""
        known, head = self._view.position, await self._store.head()
        if head.position == known:
            # Which store it replaces is announced without a revision.
            self._view = replace(self._view, predecessor=head.predecessor)
            return False
        try:
            page = await self._store.changes(known.revision)
        except Compacted:
            page = None
        # Asked after they were read, so that they are not another store's.
        if await self._parted(known, await self._store.head()):
            await self._change_store(known)
            return True
        if page is None:
            self._begin(await self._store.view())
            return True
        for change in page:
            self.publish(change)
        return bool(page)

    async def _parted(self, known: Position, head: Head) -> bool:
        """Say whether a store is not the one that was once at a position."""
        if not known.is_of(head.store_id) or head.revision < known.revision:
            return True
        return not known.fits(await self._store.mark_at(known.revision))

    async def _change_store(self, known: Position) -> None:
        """Serve what is in the store's place now, and end every watch of what was there."""
        view = await self._store.view()
        over = known, view.position
        say(logger, logging.WARNING, f"every watch ends: {StoreChanged(*over)}")
        self._history.over, self._history = over, _History()
        self._begin(view)

    def _begin(self, view: View) -> None:
        self._ring.clear()
        self._view = view
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
        self,
        since: Position | int,
        *,
        kinds: Iterable[Kind] | None = None,
        bell: Bell | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Return every change after a position: in order, once, each whole; then go on.

        A number alone is a revision of whichever store this is. Raise Compacted, FutureRevision or
        StoreChanged at once. Compacted may also come later, to a watcher that was too slow, and
        StoreChanged to all of them. A ``bell`` of its own wakes this watch alone.
        """
        at = Position(revision=since) if isinstance(since, int) else since
        cursor, history = await self.check(at), self._history
        if not self._in_ring(at.revision):
            refuse_unreachable(at.revision, await self._store.head())
        wanted = None if kinds is None else frozenset(kinds)
        # A tick before the first event is asked for is told of too.
        return self._events(cursor, wanted, history, self._ticks, bell)

    async def check(self, position: Position) -> Position:
        """Return a position with store and mark; raise StoreChanged if it is of another history.

        The mark is empty where it is not kept: nobody knows then. Raise FutureRevision for a
        number that is too high and may have been made up.
        """
        found = await self._found(position)
        if found is None or not found.mark:  # it may be this hub that is behind
            await self.catch_up()
            found = await self._found(position)
        if found is not None:
            return found
        now = self._view.position
        if position.is_of(now.store_id) and not position.mark:
            raise FutureRevision(position.revision, now.revision)
        raise StoreChanged(position, now)

    async def _found(self, position: Position) -> Position | None:
        now = self._view.position
        if not position.is_of(now.store_id) or position.revision > now.revision:
            return None
        mark = await self._mark_at(position.revision)
        place = Position(now.store_id, position.revision, mark or "")
        return place if position.fits(mark) else None

    async def _mark_at(self, revision: int) -> str | None:
        behind = self._view.revision - revision
        if behind == 0:
            return self._view.mark
        if 0 < behind < len(self._ring):
            return self._ring[-1 - behind].mark
        return await self._store.mark_at(revision)

    async def _events(
        self,
        cursor: Position,
        kinds: frozenset[Kind] | None,
        history: _History,
        said_at: int,
        bell: Bell | None,
    ) -> AsyncGenerator[Event, None]:
        while not self._closed:
            # Taken before looking, so that what is published after looking is not slept through.
            news = self._news
            batch = await self._after(cursor)
            history.refuse_over()
            for change in batch:
                history.refuse_over()
                cursor = replace(cursor, revision=change.revision, mark=change.mark)
                shown = change.only(kinds)
                if shown is not None:
                    said_at = self._ticks
                    yield shown
            if batch:
                continue
            if said_at != self._ticks or (bell is not None and bell.is_rung):
                said_at = self._ticks
                if bell is not None:
                    bell.is_rung = False
                yield Bookmark(cursor.revision, cursor.mark)
            else:
                await news.wait(bell)

    def _in_ring(self, since: int) -> bool:
        return self._view.revision - len(self._ring) <= since <= self._view.revision

    async def _after(self, cursor: Position) -> Sequence[Change]:
        """Return some of the changes after a position, from the ring or from the log."""
        if not self._in_ring(cursor.revision):
            page = await self._store.changes(cursor.revision, BATCH)
            if not cursor.fits(await self._store.mark_at(cursor.revision)):
                raise StoreChanged(cursor, self._view.position)
            return page
        behind = min(self._view.revision - cursor.revision, len(self._ring))
        return [self._ring[-place] for place in range(behind, max(0, behind - BATCH), -1)]

    def _wake(self) -> None:
        news, self._news = self._news, _News()
        news.tell()
