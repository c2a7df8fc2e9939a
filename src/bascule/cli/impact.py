"""The registry of a running process as policy sees it, to say what a change comes to.

Literal values are masked, and policy asks for none of them. Below: the registry's client and
``bascule.policy``. Above: hints.
"""

from __future__ import annotations

from typing import TypeVar

from bascule.client.registry import RegistryClient
from bascule.errors import InvalidRecord
from bascule.model.json import JsonObject
from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Kind, Snapshot
from bascule.model.task import TaskRecord
from bascule.policy.compose import Effective, compose
from bascule.wire.records import decode

_BESIDE = ("status", "revision", "updated_at", "owner")
R = TypeVar("R", ServerRecord, TaskRecord, ProfileRecord, PlatformRecord)


async def read_snapshot(registry: RegistryClient) -> Snapshot:
    """Return the registry's records; one that this version cannot read is left out."""
    servers = await _all(registry, "server", ServerRecord)
    tasks = await _all(registry, "task", TaskRecord)
    profiles = await _all(registry, "profile", ProfileRecord)
    platform = _read(PlatformRecord, await registry.get("platform", "platform"))
    return Snapshot(
        servers={record.server_id: record for record in servers},
        tasks={record.task_id: record for record in tasks},
        profiles={record.name: record for record in profiles},
        platform=platform or PlatformRecord(),
    )


def session_of(snapshot: Snapshot, task: str) -> Effective:
    """Return what a session of a task may use that asks for nothing."""
    return compose(snapshot, snapshot.tasks[task])


def tasks_with(snapshot: Snapshot, server: str) -> list[str]:
    """Return the tasks whose sessions have a server, as far as the task decides."""
    return [task for task in snapshot.tasks if server in session_of(snapshot, task).requested]


async def _all(registry: RegistryClient, kind: Kind, form: type[R]) -> list[R]:
    found = [_read(form, plain) for plain in (await registry.list(kind)).items]
    return [record for record in found if record is not None]


def _read(form: type[R], plain: JsonObject) -> R | None:
    own = {name: value for name, value in plain.items() if name not in _BESIDE}
    if form is TaskRecord:
        own.pop("config", None)  # says the same as the typed object
    try:
        return decode(form, own)[0]
    except InvalidRecord:
        return None
