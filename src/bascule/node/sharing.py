"""Who shares a connection: all sessions, those of a task, those of one person there, or one.

A connection has a process of its own, and that a HOME. Sessions without a task are one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from bascule.model.server import SHARINGS, ServerRecord, Sharing
from bascule.model.status import Change, ConnectionStatus, ServerStatus
from bascule.model.task import TaskRecord

#: What all sessions share.
SHARED = ""


class Belonging(Struct, frozen=True):
    """Whose a session is: its task, and who uses it there.

    Empty is nobody's: sessions that a program opens without a task share what they have.
    """

    task: str = ""
    user: str = ""


NOBODY = Belonging()


class Sharer(Struct, frozen=True):
    """Who has a connection: ``key`` tells connections apart, ``home`` their HOMEs.

    A session that answers a server's questions has a connection for itself, and yet the HOME that
    its record says. ``task`` is whose limit of processes counts.
    """

    key: str = SHARED
    home: str = SHARED
    task: str = ""
    #: Whether one session has it.
    alone: bool = False


ALL = Sharer()


def sharer_of(record: ServerRecord, session_id: str, whose: Belonging, *, alone: bool) -> Sharer:
    """Return who shares the connection of a session; ``alone``: nobody else, whatever is said."""
    shared = sharing_key(record.sharing, session_id, whose)
    alone = alone or (record.sharing == "session" and session_id != SHARED)
    key = session_id if alone else shared
    return Sharer(key, shared, whose.task if key else "", alone)


def sharing_key(sharing: Sharing, session_id: str, whose: Belonging) -> str:
    """Return what sessions have in common that share a connection."""
    if sharing == "session":
        return session_id
    if sharing == "shared" or not whose.task:
        return SHARED
    if sharing == "user" and whose.user:
        return f"user:{whose.task}\n{whose.user}"
    return f"task:{whose.task}"


def keys_of(session_id: str, whose: Belonging) -> frozenset[str]:
    """Return every key under which a session may have a connection."""
    return frozenset(sharing_key(kind, session_id, whose) for kind in SHARINGS)


class Shares:
    """The connections that one session may have, alone or with others."""

    def __init__(self, session_id: str, task_id: str | None, user: str) -> None:
        self.whose = NOBODY if task_id is None else Belonging(task_id, user)
        self._keys = keys_of(session_id, self.whose)

    def hears(self, change: Change) -> bool:
        """Say whether a change is of a connection that the session may have."""
        return change.session_id in self._keys

    def own(self, statuses: Iterable[ServerStatus]) -> list[ServerStatus]:
        """Return how its servers stand for a session: others' connections are not its business."""
        every = list(statuses)
        own = [one for one in every if self._has(one)]
        known = {one.server_id for one in own}
        others = {one.server_id: None for one in every if one.server_id not in known}
        own += [ServerStatus(server_id=server, state="disconnected") for server in others]
        return sorted(own, key=lambda one: one.server_id) if others else own

    def _has(self, status: ServerStatus) -> bool:
        return not isinstance(status, ConnectionStatus) or status.sharer in self._keys


def foreseen(record: ServerRecord, tasks: Mapping[str, TaskRecord]) -> Iterable[Sharer]:
    """Return who will want a server that is to be connected at the start.

    Of those that tasks do not share, the tasks that name it; people and sessions come as they come.
    """
    if record.sharing == "shared":
        return (ALL,)
    if record.sharing != "task":
        return ()
    return [
        sharer_of(record, SHARED, Belonging(task=task_id), alone=False)
        for task_id, task in tasks.items()
        if task.mcp.enabled and record.server_id in (task.mcp.default_server_ids or ())
    ]
