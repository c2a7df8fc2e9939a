"""What is doubtful about a task, a profile or a person in view of the other records.

Each record is right in itself, so none of this refuses a write: a server may be added after the
task that uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from bascule.model.kinds import Record
from bascule.model.profile import ProfileRecord
from bascule.model.snapshot import Snapshot
from bascule.model.task import Selection, TaskRecord
from bascule.model.user import UserFilters, UserRecord
from bascule.policy.selection import default_warnings, task_bounds


def advice(registry: Snapshot, written: Iterable[Record | None]) -> tuple[str, ...]:
    """Return what people should know of records as they now stand in the registry."""
    return tuple(dict.fromkeys(said for record in written for said in _on(registry, record)))


def unknown_servers(registry: Snapshot, written: Iterable[Record | None]) -> list[str]:
    """Return which servers tasks, profiles and people name that the registry does not have."""
    parts = [(record, part) for record in written for part in _selections(record)]
    return [
        f"{_name(record)}: {text}" for record, part in parts for text in _unknown(registry, part)
    ]


def needs_advice(record: Record | None) -> bool:
    """Say whether there is anything that could be doubtful about a record."""
    return isinstance(record, TaskRecord | ProfileRecord | UserRecord)


def _on(registry: Snapshot, record: Record | None) -> Iterator[str]:
    said = [text for part in _selections(record) for text in _unknown(registry, part)]
    if isinstance(record, TaskRecord):
        said += _task(registry, record)
    elif isinstance(record, ProfileRecord):
        said += [f"default server {s!r} is outside the allowed servers" for s in _outside(record)]
    yield from (f"{_name(record)}: {text}" for text in said)


def _name(record: Record | None) -> str:
    if isinstance(record, TaskRecord):
        return f"task {record.task_id!r}"
    if isinstance(record, UserRecord):
        return f"user {record.user_id!r}"
    return f"profile {record.name!r}" if isinstance(record, ProfileRecord) else ""


def _selections(record: Record | None) -> tuple[Selection | UserFilters, ...]:
    """Return the parts of a record that name servers."""
    if isinstance(record, ProfileRecord):
        return record, *record.environments.values()
    if isinstance(record, TaskRecord):
        overrides = record.mcp.profile_overrides
        return (record.mcp,) if overrides is None else (record.mcp, overrides)
    if isinstance(record, UserRecord):
        return (record,) if record.own is None else (record, record.own)
    return ()


def _task(registry: Snapshot, record: TaskRecord) -> Iterator[str]:
    """Say what keeps a task from having what it seems to have."""
    profile = record.mcp.profile
    if profile is not None and profile not in registry.profiles:
        yield f"there is no profile {profile!r} yet"
    yield from default_warnings(record.mcp, task_bounds(registry, record.mcp, None))
    groups = {group for user in registry.users.values() for group in user.groups}
    for group in record.mcp.allowed_groups or ():
        if group not in groups:
            yield f"nobody is in group {group!r} yet"


def _named(part: Selection | UserFilters) -> tuple[str, ...]:
    if isinstance(part, UserFilters):
        return part.enabled_server_ids or ()
    return (*(part.default_server_ids or ()), *(part.allowed_server_ids or ()))


def _unknown(registry: Snapshot, part: Selection | UserFilters) -> Iterator[str]:
    for server in dict.fromkeys(_named(part)):
        if server not in registry.servers:
            yield f"there is no server {server!r}{_near(server, registry)}"


def _near(server: str, registry: Snapshot) -> str:
    near = get_close_matches(server, registry.servers, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _outside(part: Selection) -> Iterator[str]:
    allowed = part.allowed_server_ids
    for server in part.default_server_ids or ():
        if allowed is not None and server not in allowed:
            yield server
