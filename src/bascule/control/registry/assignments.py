"""What each node is assigned, at hand in memory and kept beside the registry.

No revision moves by it. ``Assignments.share`` is the one answer to what a node serves: which
records it is sent, whose tokens, which secrets it is given and what it is asked to do. Replicas
share what is kept, and read what changed since they last read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol, TypeAlias

import msgspec
from msgspec import Struct

from bascule.audit.events import NodeAssigned
from bascule.control.registry.store import Author, View
from bascule.errors import refuse_any
from bascule.model.assignment import ALL, Assignment
from bascule.model.snapshot import Position
from bascule.policy.share import EVERYTHING, Share, Shares

#: A row as every store has it: the lists as JSON, None where they are absent.
Row: TypeAlias = tuple[str, str | None, str | None, str, float]
COLUMNS = ("node", "tasks", "labels", "actor", "at")


class Assigned(Struct, frozen=True, kw_only=True):
    """What a node is assigned, by whom, and when."""

    node: str
    assignment: Assignment
    actor: str
    at: float

    @property
    def row(self) -> Row:
        """Return it as it is kept."""
        given = self.assignment
        return self.node, _text(given.tasks), _text(given.labels), self.actor, self.at


def assigned_of(
    node: str, tasks: str | None, labels: str | None, actor: str, at: float
) -> Assigned:
    """Read a row."""
    given = Assignment(tasks=_names(tasks), labels=_names(labels))
    return Assigned(node=node, assignment=given, actor=actor, at=at)


class AssignmentStore(Protocol):
    """Where assignments are kept; one of all stays, so that whoever reads on hears of it."""

    async def keep(self, assigned: Assigned) -> None:
        """Keep what a node is assigned, in place of what it was before; durable on return."""
        ...

    async def kept(self, since: int) -> tuple[int, tuple[Assigned, ...]]:
        """Return what changed since a place, some perhaps again, and the next; 0 is the first."""
        ...


class MemoryAssignments:
    """Keeps them for as long as the process lives."""

    def __init__(self) -> None:
        self._kept: list[Assigned] = []

    async def keep(self, assigned: Assigned) -> None:
        """Keep one."""
        self._kept.append(assigned)

    async def kept(self, since: int) -> tuple[int, tuple[Assigned, ...]]:
        """Return what came after a place."""
        return len(self._kept), tuple(self._kept[since:])


class Assignments:
    """What every node is assigned, and what that comes to in the newest view."""

    def __init__(self, view: Callable[[], View]) -> None:
        self._store: AssignmentStore = MemoryAssignments()
        self._view = view
        self._place = 0
        self._assigned: dict[str, Assigned] = {}
        self._shares: tuple[Position, Shares, dict[Assignment, Share]] | None = None

    async def open(self, store: AssignmentStore | None) -> None:
        """Have what a store keeps, and keep what is assigned there; without one, in memory."""
        self._store = store or self._store
        await self.refresh()

    def __iter__(self) -> Iterator[Assigned]:
        yield from self._assigned.values()

    def get(self, node: str) -> Assigned | None:
        """Return what somebody assigned to a node; None where nobody has."""
        return self._assigned.get(node)

    def of(self, node: str) -> Assignment:
        """Return what a node is assigned: all, unless somebody said otherwise."""
        found = self._assigned.get(node)
        return ALL if found is None or found.assignment == ALL else found.assignment

    def share(self, node: str) -> Share:
        """Return what a node serves, by the newest records."""
        return self.share_at(self._view(), self.of(node))

    def share_at(self, view: View, assignment: Assignment) -> Share:
        """Return what an assignment comes to in a view; worked out once for all who have it."""
        if assignment == ALL:
            return EVERYTHING
        if self._shares is None or self._shares[0] != view.position:
            self._shares = view.position, Shares(view.snapshot()), {}
        _, shares, made = self._shares
        found = made.get(assignment)
        if found is None:
            found = made[assignment] = shares.of(assignment)
        return found

    async def refresh(self) -> bool:
        """Take in what was assigned elsewhere; say whether anything is. Raise StoreUnavailable."""
        self._place, found = await self._store.kept(self._place)
        changed = {one.node: one for one in found if self._assigned.get(one.node) != one}
        self._assigned |= changed
        return bool(changed)

    async def assign(
        self,
        node: str,
        assignment: Assignment,
        by: Author,
        *,
        at: float,
        note: Callable[[NodeAssigned], Awaitable[None]] | None,
    ) -> Assigned:
        """Keep what a node serves from now on, noted first; raise InvalidRecord."""
        known = self._view()
        missing = [name for name in assignment.tasks or () if known.get("task", name) is None]
        refuse_any([f"tasks: there is no task {name!r}" for name in missing])
        given = assignment.plain
        if note is not None:
            act = NodeAssigned(
                timestamp=at, by=by.actor, node=node, tasks=given.tasks, labels=given.labels
            )
            await note(act)
        made = Assigned(node=node, assignment=given, actor=by.actor, at=at)
        await self._store.keep(made)
        self._assigned[node] = made
        return made


def _text(names: tuple[str, ...] | None) -> str | None:
    return None if names is None else msgspec.json.encode(names).decode()


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else msgspec.json.decode(text, type=tuple[str, ...])
