"""Short ways to make records, registries and watchers for tests of the registry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from bascule.control.registry.kinds import read_record
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Author, Bookmark, Change, Event, Write
from bascule.model.kinds import Kind
from bascule.model.snapshot import SnapshotDiff
from bascule.wire.api.history import RevisionDiff
from tests.waits import SOON_SECONDS

BY = Author("ada", "for the test")


def server(server_id: str = "fs", **fields: Any) -> dict[str, Any]:
    """Make the plain values of a server."""
    plain = {"server_id": server_id, "transport": "stdio", "stdio": {"command": "true"}}
    return plain | {"allowed_tools": ["*"]} | fields


PLAIN: dict[Kind, tuple[str, dict[str, Any]]] = {
    "server": ("fs", server("fs")),
    "task": ("review", {"task_id": "review", "mcp": {"enabled": True}}),
    "profile": ("code", {"name": "code", "tool_denylist": ["delete_*"]}),
    "platform": ("platform", {"tool_denylist": ["shell_*"]}),
    "backend": ("local", {"name": "local", "base_url": "https://example.org/v1"}),
    "user": ("alice", {"user_id": "alice", "groups": ["writers"]}),
}


def write(key: str = "fs", *, kind: Kind = "server", **fields: Any) -> Write:
    """Make a write of a record; ``expected`` and ``owner`` may be given beside its fields."""
    options = {name: fields.pop(name) for name in ("expected", "owner") if name in fields}
    plain = server(key) if kind == "server" else {**PLAIN[kind][1]}
    record, _ = read_record(kind, plain | fields)
    return Write(kind=kind, id=key, record=record, **options)


def gone(key: str = "fs", *, kind: Kind = "server", expected: int | None = None) -> Write:
    return Write(kind=kind, id=key, record=None, expected=expected)


async def take(events: AsyncGenerator[Event, None], count: int) -> list[Event]:
    """Take so many events, within bounds."""
    async with asyncio.timeout(SOON_SECONDS):
        return [await anext(events) for _ in range(count)]


async def changes(events: AsyncGenerator[Event, None], up_to: int) -> list[Change]:
    """Take the changes up to a revision."""
    found: list[Change] = []
    async with asyncio.timeout(10):
        async for event in events:
            if isinstance(event, Change):
                found.append(event)
            if event.revision >= up_to:
                return found
    raise AssertionError("the watch ended")


async def idle(events: AsyncGenerator[Event, None], service: RegistryService) -> Event:
    """Take the event of a watch that has nothing to say."""
    waiting = asyncio.ensure_future(anext(events))
    try:
        await asyncio.wait([waiting], timeout=0)
        assert not waiting.done()
        service._hub.tick()
        async with asyncio.timeout(SOON_SECONDS):
            return await waiting
    finally:
        waiting.cancel()


def names(event: Event) -> list[tuple[str, str, bool]]:
    """Say what an event is about: kind, key, and whether it is there now."""
    assert not isinstance(event, Bookmark)
    return [(entry.kind, entry.id, entry.stored is not None) for entry in event.entries]


def changed(diff: RevisionDiff) -> str:
    """Return the records that differ, a line for each."""
    return str(SnapshotDiff(diff.changes, diff.reconnect))
