"""What is doubtful about a task or profile in view of the other records.

Each record is right in itself, so none of this refuses a write: a server may be added after the
task that uses it. Below: ``bascule.policy.selection``. Above: ``service.py``, beside each write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bascule.model.profile import ProfileRecord
from bascule.model.snapshot import Snapshot
from bascule.model.task import Selection, TaskRecord
from bascule.policy.selection import default_warnings, task_bounds
from bascule.wire.records import Record


def advice(registry: Snapshot, written: Iterable[Record | None]) -> tuple[str, ...]:
    """Return what people should know of records as they now stand in the registry."""
    return tuple(dict.fromkeys(said for record in written for said in _on(registry, record)))


def needs_advice(record: Record | None) -> bool:
    """Say whether there is anything that could be doubtful about a record."""
    return isinstance(record, TaskRecord | ProfileRecord)


def _on(registry: Snapshot, record: Record | None) -> Iterator[str]:
    if isinstance(record, TaskRecord):
        said = (*_task(registry, record), *_parts(registry, record))
        yield from (f"task {record.task_id!r}: {text}" for text in said)
    elif isinstance(record, ProfileRecord):
        parts = [record, *record.environments.values()]
        said = [text for part in parts for text in _unknown(registry, part)]
        said += [f"default server {s!r} is outside the allowed servers" for s in _outside(record)]
        yield from (f"profile {record.name!r}: {text}" for text in said)


def _task(registry: Snapshot, record: TaskRecord) -> Iterator[str]:
    """Say what keeps a task from having what it seems to have."""
    profile = record.mcp.profile
    if profile is not None and profile not in registry.profiles:
        yield f"there is no profile {profile!r} yet"
    yield from default_warnings(record.mcp, task_bounds(registry, record.mcp, None))


def _parts(registry: Snapshot, record: TaskRecord) -> Iterator[str]:
    for part in (record.mcp, record.mcp.profile_overrides):
        if part is not None:
            yield from _unknown(registry, part)


def _unknown(registry: Snapshot, part: Selection) -> Iterator[str]:
    named = (*(part.default_server_ids or ()), *(part.allowed_server_ids or ()))
    for server in dict.fromkeys(named):
        if server not in registry.servers:
            yield f"there is no server {server!r} yet"


def _outside(part: Selection) -> Iterator[str]:
    allowed = part.allowed_server_ids
    for server in part.default_server_ids or ():
        if allowed is not None and server not in allowed:
            yield server
