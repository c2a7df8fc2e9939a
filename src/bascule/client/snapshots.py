"""A whole registry from another process: one consistent snapshot, and news of the next.

The kinds are read one after the other and count only when the registry's revision is the same
before and after. Below: ``http.py``, the validator of records. Above: a node follows a registry
through this (``bascule.node.sync.ports.RegistrySource``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from msgspec import Struct

from bascule.client.http import ApiClient
from bascule.errors import BasculeError
from bascule.model.backend import BackendRecord
from bascule.model.json import is_object
from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskRecord
from bascule.wire.records import decode
from bascule.wire.task_config import PREFIX

SERVERS = "/api/v1/mcp/servers"
WATCH = "/api/v1/mcp/watch"
ADMIN = "/admin/api/mcp"
#: How often a registry may change under the reader before it is asked to come back later.
ATTEMPTS = 8
#: What the registry shows beside a record's own fields.
_BESIDE = frozenset({"status", "revision", "updated_at", "owner"})
_UNCHANGED = 304

R = TypeVar("R", ServerRecord, TaskRecord, ProfileRecord, PlatformRecord, BackendRecord)


class Restless(BasculeError):
    """A registry that changes faster than it can be read."""

    code = "unreachable"


class RegistrySnapshots:
    """A registry behind its REST API; made with a node's token, which sees literal values."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def snapshot(self) -> Snapshot:
        """Return everything at the newest revision."""
        first = await self._list("servers", SERVERS)
        for _ in range(ATTEMPTS):
            found = await self._rest(first)
            again = await self._list("servers", SERVERS, unless=first)
            if found is not None and again.position == first.position:
                return found
            first = again
        raise Restless(f"{self._api.url}: the registry did not hold still to be read")

    async def watch(self, since: Snapshot) -> AsyncGenerator[int, None]:
        """Return the revisions after a snapshot, idle ones repeated."""
        query = {"since": str(since.revision), "store_id": since.store_id}
        return self._revisions(query)

    async def report(self, report: object) -> None:
        """Tell nobody: the registry's API has no address yet for what a node says."""
        del report

    async def _revisions(self, query: Mapping[str, str]) -> AsyncGenerator[int, None]:
        async with aclosing(self._api.events(WATCH, query=query)) as events:
            async for event in events:
                if event.event == "error":
                    raise self._api.error(0, self._api.shaped(event.data, dict[str, Any]))
                yield self._api.shaped(event.data, _Moment).revision

    async def _rest(self, servers: _List) -> Snapshot | None:
        """Read the other kinds; None when the registry has moved on meanwhile."""
        tasks = await self._list("tasks", f"{ADMIN}/tasks")
        profiles = await self._list("profiles", f"{ADMIN}/profiles")
        backends = await self._list("backends", f"{ADMIN}/backends")
        if {tasks.position, profiles.position, backends.position} != {servers.position}:
            return None
        shown = (await self._api.request("GET", f"{ADMIN}/platform")).body
        platform = self._api.shaped(shown, dict[str, Any])
        return Snapshot(
            store_id=servers.store_id,
            revision=servers.revision,
            servers={record.server_id: record for record in _records(ServerRecord, servers.items)},
            tasks={record.task_id: record for record in _records(TaskRecord, tasks.items)},
            profiles={record.name: record for record in _records(ProfileRecord, profiles.items)},
            platform=_record(PlatformRecord, platform),
            backends={record.name: record for record in _records(BackendRecord, backends.items)},
        )

    async def _list(self, name: str, path: str, *, unless: _List | None = None) -> _List:
        """Read a kind, or return what was read before where that still holds."""
        headers = {"If-None-Match": unless.etag} if unless is not None and unless.etag else {}
        answer = await self._api.request("GET", path, headers=headers)
        if unless is not None and answer.status == _UNCHANGED:
            return unless
        head = self._api.shaped(answer.body, _Head)
        items = self._api.shaped(answer.body.get(name), tuple[dict[str, Any], ...])
        return _List(head.store_id, head.revision, items, answer.etag)


class _Head(Struct, frozen=True):
    store_id: str
    revision: int


class _Moment(Struct, frozen=True):
    revision: int


class _List(Struct, frozen=True):
    """The records of a kind as plain values, and when they were so."""

    store_id: str
    revision: int
    items: tuple[dict[str, Any], ...]
    etag: str | None

    @property
    def position(self) -> tuple[str, int]:
        return self.store_id, self.revision


def _records(kind: type[R], items: Sequence[Mapping[str, Any]]) -> list[R]:
    return [_record(kind, item) for item in items]


def _record(kind: type[R], shown: Mapping[str, Any]) -> R:
    """Read a record from what the registry shows; raise InvalidRecord for one that is none."""
    own = {name: value for name, value in shown.items() if name not in _BESIDE}
    config = own.get("config")
    if kind is TaskRecord and "mcp" in own and is_object(config):
        # A task is shown in both of its forms; one of them is enough.
        own["config"] = {k: v for k, v in config.items() if not k.startswith(PREFIX)}
    # A registry may be newer than its reader: what that cannot know must not cut it off.
    return decode(kind, own, lenient=True)[0]
