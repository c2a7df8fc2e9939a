"""What the streams of nodes say of records: everything, or what a node is assigned.

Who has everything is sent each revision as it happened. Who has a part is sent the way from what
it has to what it should have: over one revision, over several where it reads slowly, or over none
where it is assigned something else. A revision that does not concern it is a place to be at and
nothing more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from msgspec.structs import replace

from bascule.control.registry.encoded_events import EncodedEvents, Form
from bascule.control.registry.hub import Bell
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Bookmark, Change, Event, View
from bascule.control.rpc.node_parts import EncodedParts, Messages, Part
from bascule.control.rpc.told import EncodedSnapshot, bookmark_message, change_messages
from bascule.model.assignment import ALL, Assignment
from bascule.model.snapshot import Position


class NodeRecords:
    """The records of one registry, as bytes, for all streams."""

    def __init__(self, service: RegistryService) -> None:
        self._service = service
        self._events = EncodedEvents(change_messages)
        self._whole = EncodedSnapshot()
        self._parts = EncodedParts(service.assignments)
        #: Of those who have everything; thousands ask with every bookmark.
        self._form = Form("", records=True, literals=True)

    async def begun(self, node: str, since: Position | None, part: str) -> Telling:
        """Return how a stream begins; ``since`` and ``part`` are what the node has already.

        Raise as the registry's watch does.
        """
        assignment = self._service.assignments.of(node)
        known: Part | None = None
        if since is not None:
            bell = Bell()
            events = await self._service.watch(since, bell=bell)
            if part == assignment.part == ALL.part:
                return await self._after(node, since, events, bell)
            await events.aclose()
            if part == assignment.part:
                known = await self._known(since, assignment)
        return await self._at_head(node, assignment, known)

    async def _known(self, since: Position, assignment: Assignment) -> Part | None:
        """Return what a node has that was at a place, if that is still known."""
        view = self._service.view
        if since == view.position:
            return await self._parts.of(view, assignment)
        return self._parts.recalled(since, assignment)

    async def _after(
        self, node: str, since: Position, events: AsyncGenerator[Event, None], bell: Bell
    ) -> Telling:
        head = self._service.view.position
        telling = Telling(self, node, events, bell, head.store_id)
        if head.revision > since.revision:
            telling.head = head.revision
        else:
            telling.first = await self.all_of(Bookmark(head.revision, head.mark), head.store_id)
        return telling

    async def _at_head(self, node: str, assignment: Assignment, known: Part | None) -> Telling:
        """Begin with all that a node should have, or with the way there from what it has."""
        view, bell = self._service.view, Bell()
        events = await self._service.watch(view.position, bell=bell)
        telling = Telling(self, node, events, bell, view.store_id)
        if assignment == ALL:
            telling.first = await self._whole.of(view)
            return telling
        telling.part = part = await self._parts.of(view, assignment)
        if known is None:
            telling.first = await self._parts.snapshot(part, view.predecessor)
        else:
            way = () if known is part else await self._parts.way(known, part)
            telling.first = (*way, bookmark_message(view.position))
        return telling

    async def all_of(self, event: Event, store_id: str) -> Messages:
        """Return what a node is told of an event that has everything."""
        if self._form.store_id != store_id:
            self._form = replace(self._form, store_id=store_id)
        return await self._events.of(event, self._form)

    def is_whole(self, node: str) -> bool:
        """Say whether a node is assigned everything."""
        return self._service.assignments.of(node) is ALL

    async def moved(self, node: str, part: Part | None, event: Event) -> tuple[Part, Messages]:
        """Return what a node should have after an event, and the way there.

        ``part`` is what it has; None is all. One that has all is led elsewhere at the head.
        """
        assignment = self._service.assignments.of(node)
        if part is None:
            view = self._service.view
            at = Position(view.store_id, event.revision, event.mark)
            part = Part(assignment=ALL, position=at, records=view.objects)
            if at != view.position:
                return part, ()
        view = await self._onward(part.position)
        if part.position == view.position and part.assignment == assignment:
            return part, ()
        wanted = await self._parts.of(view, assignment)
        return wanted, await self._parts.way(part, wanted)

    async def _onward(self, place: Position) -> View:
        """Return the newest view; raise StoreChanged where a place is not in its past."""
        while True:
            view = self._service.view
            await self._service.check(place)
            if self._service.view.position == view.position:
                return view


class Telling:
    """What one stream says of records: ``first``, then what ``after`` returns for each event."""

    def __init__(
        self,
        records: NodeRecords,
        node: str,
        events: AsyncGenerator[Event, None],
        bell: Bell,
        store_id: str,
    ) -> None:
        self._records = records
        self._node = node
        self._store_id = store_id
        #: Up to where a node has everything that had a part before.
        self._reached = 0
        self.events = events
        #: Wakes this stream alone.
        self.bell = bell
        self.first: Messages = ()
        #: What the node has; None is all.
        self.part: Part | None = None
        #: Where all has been said that there was when it began.
        self.head: int | None = None

    @property
    def assignment(self) -> Assignment:
        """Return what the node is assigned, as far as it was told."""
        return ALL if self.part is None else self.part.assignment

    @property
    def tasks(self) -> frozenset[str] | None:
        """Return the tasks that it serves; None is all."""
        return None if self.part is None else self.part.tasks

    @property
    def secrets(self) -> frozenset[str] | None:
        """Return the secrets that its records name; None is all."""
        return None if self.part is None else self.part.secrets

    async def after(self, event: Event) -> Messages:
        """Return what there is to say of an event, and of another assignment."""
        had = self.part
        said = await self._of_all(event) if had is None else ()
        if had is None and self._records.is_whole(self._node):
            return said
        part, way = await self._records.moved(self._node, had, event)
        if part.assignment == ALL:
            self.part = None
            self._reached = max(self._reached, part.position.revision if had else 0)
        else:
            self.part = part
        if not way and self.part is not None and isinstance(event, Bookmark):
            return (bookmark_message(self.part.position),)
        return said + way

    async def _of_all(self, event: Event) -> Messages:
        if event.revision < self._reached or _is_had(event, self._reached):
            return ()
        messages = await self._records.all_of(event, self._store_id)
        if event.revision == self.head and isinstance(event, Change):
            bookmark = Bookmark(event.revision, event.mark)
            messages += await self._records.all_of(bookmark, self._store_id)
        return messages


def _is_had(event: Event, reached: int) -> bool:
    return isinstance(event, Change) and event.revision == reached
