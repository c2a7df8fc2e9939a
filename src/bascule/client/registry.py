"""The registry of a Bascule server, as a client has it: records, their past, their servers.

One method for each address of ``/admin/api/mcp`` and ``/api/v1/mcp``. Records are plain values, as
the server shows them, masked where it masks; everything around them is a struct of ``wire.api``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar
from urllib.parse import quote

from msgspec import to_builtins
from msgspec.structs import replace

from bascule.client.http import Answer, ApiClient, ApiError
from bascule.client.snapshots import RegistrySnapshots
from bascule.model.json import JsonObject, JsonValue
from bascule.model.kinds import COLLECTIONS, Kind
from bascule.model.snapshot import Snapshot
from bascule.wire.api.addresses import ADMIN, RESCAN, WATCH
from bascule.wire.api.errors import Error
from bascule.wire.api.history import HistoryPage, RecordName, RevisionDiff, Rollback, RolledBack
from bascule.wire.api.imports import Imported, ImportMode, Rescanned
from bascule.wire.api.proposals import ProposalList, ProposalShown
from bascule.wire.api.records import (
    LISTS,
    WRITTEN,
    Plain,
    RecordList,
    RecordRemoved,
    RecordWritten,
)
from bascule.wire.api.trials import ToolPreview, ToolPreviews, Trial
from bascule.wire.api.watch import WatchEvent
from bascule.wire.faults import face

#: Records are asked for as they were written: what is left at its default is not shown.
_AS_WRITTEN = {"defaults": "false"}
#: But for these, which every reader of a record looks for.
_LOOKED_FOR: Mapping[Kind, Mapping[str, Any]] = {
    "server": {"display_name": "", "enabled": True, "tags": [], "allowed_tools": []},
    "task": {"name": "", "description": ""},
    "backend": {"enabled": True},
}
#: A trial starts a server, which may first be downloaded.
TRIAL_SECONDS = 120.0

T = TypeVar("T")


class WatchedEvent(WatchEvent, frozen=True, kw_only=True):
    """An event of the watch; ``id`` is of the last revision that is whole, and resumes after it."""

    id: str | None = None


class RegistryClient:
    """The registry of one server, asked with a client's connections and token."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    # --- reading

    async def list(self, kind: Kind) -> RecordList:
        """Return all records of a kind, from one snapshot."""
        asked = self._api.request("GET", _many(kind), query=_AS_WRITTEN)
        found = await self._answer(LISTS[kind], asked)
        return replace(found, items=tuple(_readable(kind, one) for one in found.items))

    async def get(self, kind: Kind, key: str) -> Plain:
        """Return a record with its revision, its owner and, for a server, its status."""
        asked = self._api.request("GET", _one(kind, key), query=_AS_WRITTEN)
        return _readable(kind, await self._answer(Plain, asked))

    async def snapshot(self) -> Snapshot:
        """Return every record, of one revision, in one request."""
        return await RegistrySnapshots(self._api).snapshot()

    # --- writing

    async def create(
        self, kind: Kind, record: JsonObject, *, strict: bool = False
    ) -> RecordWritten:
        """Add a record that names itself; one that is there already is an error."""
        asked = self._api.request(
            "POST", _many(kind), query=_AS_WRITTEN | _strict(strict), body=record
        )
        return await self._written(kind, asked)

    async def put(
        self,
        kind: Kind,
        key: str,
        record: JsonValue,
        *,
        expected_revision: int | None = None,
        strict: bool = False,
    ) -> RecordWritten:
        """Replace a record, or add it; ``expected_revision`` 0: it must not be there."""
        asked = self._api.request(
            "PUT",
            _one(kind, key),
            query=_AS_WRITTEN | _strict(strict),
            body=record,
            headers=_expecting(expected_revision),
        )
        return await self._written(kind, asked)

    async def patch(
        self,
        kind: Kind,
        key: str,
        fields: JsonObject,
        *,
        expected_revision: int | None = None,
        strict: bool = False,
    ) -> RecordWritten:
        """Merge some fields into a record; None takes a field away."""
        asked = self._api.request(
            "PATCH",
            _one(kind, key),
            query=_AS_WRITTEN | _strict(strict),
            body=fields,
            headers=_expecting(expected_revision),
        )
        return await self._written(kind, asked)

    async def delete(
        self, kind: Kind, key: str, *, expected_revision: int | None = None
    ) -> RecordRemoved:
        """Delete a record."""
        headers = _expecting(expected_revision)
        asked = self._api.request("DELETE", _one(kind, key), headers=headers)
        return await self._answer(RecordRemoved, asked)

    async def adopt(self, kind: Kind, key: str) -> RecordWritten:
        """Take a record over from the file that owns it."""
        asked = self._api.request("POST", f"{_one(kind, key)}/adopt", query=_AS_WRITTEN)
        return await self._written(kind, asked)

    async def accept(self, kind: Kind, key: str, *, proposal: str | None = None) -> RecordWritten:
        """Let in what is proposed for a record; ``proposal`` says which one was looked at."""
        path = f"{_one(kind, key)}/accept"
        asked = self._api.request("POST", path, query=_given(proposal=proposal))
        return await self._written(kind, asked)

    async def proposals(self) -> tuple[ProposalShown, ...]:
        """Return what waits for an administrator, the oldest first."""
        asked = self._api.request("GET", f"{ADMIN}/proposals")
        return (await self._answer(ProposalList, asked)).proposals

    async def take_in(
        self,
        records: JsonValue,
        mode: ImportMode = "upsert",
        *,
        allow: Sequence[str] = (),
        whole: bool = False,
        strict: bool = False,
    ) -> Imported:
        """Import many records, or a client's file, as one revision: all or none.

        A server that exists keeps what is not named, or of a client's file all but how it is
        started or reached; with ``whole`` records replace what is there. ``allow`` are the tools
        of a client's servers that may be used, where they are new.
        """
        body = {"mode": mode, "records": records} | ({"allow": [*allow]} if allow else {})
        query = {**_strict(strict), **({"whole": "true"} if whole else {})}
        asked = self._api.request("POST", f"{ADMIN}/import", query=query, body=body)
        return await self._answer(Imported, asked)

    # --- the past

    async def history(self, *, limit: int = 50, before: int | None = None) -> HistoryPage:
        """Return changes, the newest first."""
        query = {"limit": str(limit), **_given(before=before)}
        asked = self._api.request("GET", f"{ADMIN}/history", query=query)
        return await self._answer(HistoryPage, asked)

    async def diff(
        self, old: int, new: int | None = None, *, environment: str | None = None
    ) -> RevisionDiff:
        """Compare two revisions; without ``new``, with now."""
        query = {"from": str(old), **_given(to=new, environment=environment)}
        asked = self._api.request("GET", f"{ADMIN}/diff", query=query)
        return await self._answer(RevisionDiff, asked)

    async def rollback(
        self, revision: int, *, only: Sequence[tuple[Kind, str]] | None = None, note: str = ""
    ) -> RolledBack:
        """Make the records, or only some, what they were at a revision, as a new revision."""
        names = None if only is None else tuple(RecordName(*key) for key in only)
        body = to_builtins(Rollback(revision=revision, only=names, note=note))
        asked = self._api.request("POST", f"{ADMIN}/rollback", body=body)
        return await self._answer(RolledBack, asked)

    # --- servers and files

    async def test(self, server_id: str, *, seconds: float = TRIAL_SECONDS) -> Trial:
        """Have a node connect to a server and list its tools."""
        path = f"{_one('server', server_id)}/test"
        return await self._answer(Trial, self._api.request("POST", path, seconds=seconds))

    async def tools(
        self, server_id: str, *, seconds: float = TRIAL_SECONDS
    ) -> tuple[ToolPreview, ...]:
        """Return every tool of a server with what is decided about it."""
        path = f"{_one('server', server_id)}/tools"
        asked = self._api.request("GET", path, seconds=seconds)
        return (await self._answer(ToolPreviews, asked)).tools

    async def rescan(self, *, dry_run: bool = False) -> Rescanned:
        """Have the files of records loaded now, or find out what that would change."""
        query = {"dry_run": "true" if dry_run else "false"}
        return await self._answer(Rescanned, self._api.request("POST", RESCAN, query=query))

    async def watch(
        self,
        since: int | None = None,
        *,
        kinds: Sequence[Kind] | None = None,
        objects: bool = False,
        store_id: str | None = None,
        last_event_id: str | None = None,
    ) -> AsyncGenerator[WatchedEvent, None]:
        """Yield the changes after a revision, until closed; raise ApiError when it is refused.

        ``objects`` gives whole records in ``upserts`` instead of their keys.
        """
        query = _given(
            since=since,
            kind=None if kinds is None else ",".join(kinds),
            include="objects" if objects else None,
            store_id=store_id,
        )
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        async with aclosing(self._api.events(WATCH, query=query, headers=headers)) as events:
            async for event in events:
                yield self._event(event.event, event.data, event.id)

    # --- shapes

    def _event(self, name: str, data: bytes, event_id: str | None) -> WatchedEvent:
        if name == "error":
            words = self._api.shaped(data, Error).error
            # The status that the refusal would have had before the stream began.
            raise ApiError(face(words.code).http, words.code, words.message, words.details)
        return replace(self._api.shaped(data, WatchedEvent), id=event_id)

    async def _answer(self, kind: type[T], asked: Awaitable[Answer]) -> T:
        return self._api.shaped((await asked).body, kind)

    async def _written(self, kind: Kind, asked: Awaitable[Answer]) -> RecordWritten:
        written = await self._answer(WRITTEN[kind], asked)
        return replace(written, record=_readable(kind, written.record))


def _readable(kind: Kind, record: Plain) -> Plain:
    """Return a record with what every reader looks for."""
    whole = {**record, **{k: v for k, v in _LOOKED_FOR.get(kind, {}).items() if k not in record}}
    if kind == "task":
        whole["mcp"] = {"enabled": False, **record.get("mcp", {})}
    return whole


def _many(kind: Kind) -> str:
    return f"{ADMIN}/{COLLECTIONS[kind]}"


def _one(kind: Kind, key: str) -> str:
    return _many(kind) if kind == "platform" else f"{_many(kind)}/{quote(key, safe='')}"


def _strict(strict: bool) -> dict[str, str]:  # noqa: FBT001 - the option's own name
    return {"strict": "true"} if strict else {}


def _expecting(revision: int | None) -> dict[str, str]:
    """Return the condition of a write: the record is at this revision; 0, there is none."""
    if revision is None:
        return {}
    return {"If-Match": f'"{revision}"'} if revision else {"If-None-Match": "*"}


def _given(**values: object) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}
