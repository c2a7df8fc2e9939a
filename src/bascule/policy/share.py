"""Which part of a registry a node serves, by its assignment, and is therefore sent.

A share has all that decides about sessions of its tasks, so that a node which has no more decides
as one that has everything: the tasks, the servers that they may ever reach, their profiles, who may
use them, the backends, and the platform. Labels take servers away from that, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct

from bascule.model.assignment import ALL, Assignment
from bascule.model.kinds import PLATFORM, Kind
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskRecord
from bascule.policy.selection import task_bounds

Keys = frozenset[tuple[Kind, str]]


class Share(Struct, frozen=True):
    """What a node serves: the keys of its records, None for every one."""

    assignment: Assignment
    keys: Keys | None = None

    def serves(self, kind: Kind, key: str) -> bool:
        """Say whether a record is the node's to have."""
        return self.keys is None or (kind, key) in self.keys

    @property
    def tasks(self) -> frozenset[str] | None:
        """Return the tasks that it has; None is all."""
        return self._of("task")

    @property
    def servers(self) -> frozenset[str] | None:
        """Return the servers that it has; None is all."""
        return self._of("server")

    def _of(self, kind: Kind) -> frozenset[str] | None:
        if self.keys is None:
            return None
        return frozenset(key for found, key in self.keys if found == kind)


#: What a node serves that is assigned everything.
EVERYTHING = Share(ALL)


class Shares:
    """The shares of one registry; what each task reaches is worked out once."""

    def __init__(self, registry: Snapshot) -> None:
        self._registry = registry
        self._reached: dict[str, frozenset[str]] = {}

    def of(self, assignment: Assignment) -> Share:
        """Return what a node with an assignment serves."""
        if assignment == ALL:
            return EVERYTHING
        tasks = self._tasks(assignment)
        servers = {server for task in tasks for server in self._reach(task, assignment)}
        keys: dict[Kind, Iterable[str]] = {
            "platform": (PLATFORM,),
            "task": (task.task_id for task in tasks),
            "server": servers,
            "profile": self._profiles(tasks),
            "user": self._users(tasks),
            # A task names none: whoever may chat in it may name the model of any.
            "backend": self._registry.backends if tasks else (),
        }
        return Share(assignment, frozenset((kind, key) for kind in keys for key in keys[kind]))

    def _tasks(self, assignment: Assignment) -> list[TaskRecord]:
        """Return the tasks that are named; where none are, those with a server left to them."""
        found = self._registry.tasks
        if assignment.tasks is not None:
            return [found[name] for name in assignment.tasks if name in found]
        return [task for task in found.values() if self._reach(task, assignment)]

    def _reach(self, task: TaskRecord, assignment: Assignment) -> frozenset[str]:
        """Return the servers of a task that an assignment leaves."""
        reached = self._reached.get(task.task_id)
        if reached is None:
            reached = self._reached[task.task_id] = reach(self._registry, task)
        return reached if assignment.labels is None else reached & self._labelled(assignment.labels)

    def _labelled(self, labels: Iterable[str]) -> frozenset[str]:
        return frozenset[str]().union(*(self._by_tag.get(label, ()) for label in labels))

    @cached_property
    def _by_tag(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for record in self._registry.servers.values():
            for tag in record.tags:
                found.setdefault(tag, set()).add(record.server_id)
        return found

    def _profiles(self, tasks: Iterable[TaskRecord]) -> set[str]:
        named = {task.mcp.profile for task in tasks}
        return {name for name in named if name is not None and name in self._registry.profiles}

    def _users(self, tasks: Iterable[TaskRecord]) -> Iterable[str]:
        """Return who may use a task, or is refused by their own record."""
        bound = [task.mcp.allowed_groups for task in tasks]
        if None in bound:
            return self._registry.users
        groups = {group for some in bound for group in some or ()}
        return [u.user_id for u in self._registry.users.values() if groups & set(u.groups)]


def reach(registry: Snapshot, task: TaskRecord) -> frozenset[str]:
    """Return the servers that a session of a task may have, in any environment.

    An environment narrows its profile and never adds to it.
    """
    if not task.mcp.enabled:
        return frozenset()
    allowed = task_bounds(registry, task.mcp, None).allowed or frozenset[str]()
    return allowed & registry.servers.keys()
