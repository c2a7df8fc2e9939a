"""The parts of a registry that nodes are assigned, as bytes: encoded once for all who have one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import TypeAlias, TypeVar

from bascule.control.registry.assignments import Assignments
from bascule.control.registry.offload import apart
from bascule.control.registry.store import Key, Stored, View
from bascule.control.rpc.told import part_change, part_snapshot
from bascule.control.secret_listing import secret_names
from bascule.model.assignment import ALL, Assignment
from bascule.model.backend import BackendRecord
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Position

Messages: TypeAlias = tuple[bytes, ...]
#: How many parts, snapshots of them and ways between them are kept for further streams.
MOST_KEPT = 256
K = TypeVar("K")
V = TypeVar("V")


class Part:
    """The records of an assignment at one place of a registry's history."""

    def __init__(
        self,
        *,
        assignment: Assignment,
        position: Position,
        records: Mapping[Key, Stored],
        tasks: frozenset[str] | None = None,
    ) -> None:
        self.assignment = assignment
        self.position = position
        self.records = records
        #: The tasks in it; None is all.
        self.tasks = tasks

    @cached_property
    def secrets(self) -> frozenset[str]:
        """Return the secrets that its servers and backends name."""
        found = [stored.record for stored in self.records.values()]
        users = (one for one in found if isinstance(one, ServerRecord | BackendRecord))
        return frozenset[str]().union(*map(secret_names, users))


class EncodedParts:
    """The parts that streams are at, or were a short while ago."""

    def __init__(self, assignments: Assignments) -> None:
        self._assignments = assignments
        self._parts: dict[tuple[Position, Assignment], Part] = {}
        self._snapshots: dict[tuple[Part, str], Messages] = {}
        self._ways: dict[tuple[Part, Part], Messages] = {}
        self._encoding = asyncio.Lock()

    async def of(self, view: View, assignment: Assignment) -> Part:
        """Return what an assignment comes to in a view."""
        async with self._encoding:
            found = self._parts.get((view.position, assignment))
            if found is None:
                found = _part(view, assignment, self._assignments)
                if assignment != ALL:
                    _keep(self._parts, (view.position, assignment), found)
            return found

    def recalled(self, place: Position, assignment: Assignment) -> Part | None:
        """Return what an assignment came to at a place, where that was not long ago."""
        return self._parts.get((place, assignment))

    async def snapshot(self, part: Part, predecessor: str) -> Messages:
        """Return all of a part."""
        async with self._encoding:
            found = self._snapshots.get((part, predecessor))
            if found is None:
                name = part.assignment.part
                records = [*part.records.values()]
                found = await apart(
                    len(records),
                    lambda: part_snapshot(part.position, predecessor, name, records),
                )
                _keep(self._snapshots, (part, predecessor), found)
            return found

    async def way(self, old: Part, new: Part) -> Messages:
        """Return what leads from one part to another."""
        async with self._encoding:
            found = self._ways.get((old, new))
            if found is None:
                size = len(old.records) + len(new.records)
                found = await apart(size, lambda: _way(old, new))
                _keep(self._ways, (old, new), found)
            return found


def _part(view: View, assignment: Assignment, assignments: Assignments) -> Part:
    share = assignments.share_at(view, assignment)
    objects = view.objects
    if share.keys is None:
        records = objects
    else:
        records = {key: objects[key] for key in sorted(share.keys) if key in objects}
    return Part(assignment=assignment, position=view.position, records=records, tasks=share.tasks)


def _way(old: Part, new: Part) -> Messages:
    had, has = old.records, new.records
    upserts = [one for key, one in has.items() if _differ(had.get(key), one)]
    deletes = [key for key in had if key not in has]
    name = None if old.assignment == new.assignment else new.assignment.part
    return part_change(new.position, old.position.revision, name, upserts, deletes)


def _differ(one: Stored | None, other: Stored) -> bool:
    return one is not other and one != other


def _keep(kept: dict[K, V], key: K, value: V) -> None:
    kept[key] = value
    while len(kept) > MOST_KEPT:
        del kept[next(iter(kept))]
