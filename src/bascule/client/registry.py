"""The registry of a Bascule server, as a client has it: records, their past, their servers.

One method for each address of ``/admin/api/mcp`` and ``/api/v1/mcp``. Records are plain values, as
the server shows them, masked where it masks; everything around them is a struct of ``wire.api``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from urllib.parse import quote

from msgspec import to_builtins
from msgspec.structs import replace

from bascule.client.http import ApiClient, ApiError
from bascule.client.snapshots import RegistrySnapshots
from bascule.model.json import JsonObject, JsonValue
from bascule.model.kinds import COLLECTIONS, Kind
from bascule.model.snapshot import Snapshot
from bascule.wire.api.addresses import ADMIN, NODES, RESCAN, SECRETS, WATCH
from bascule.wire.api.errors import Error
from bascule.wire.api.history import (
    Announced,
    Announcement,
    HistoryPage,
    RecordName,
    RevisionDiff,
    Rollback,
    RolledBack,
)
from bascule.wire.api.imports import Imported, ImportMode, Rescanned
from bascule.wire.api.nodes import NewAssignment
from bascule.wire.api.overview import NodeDetail, NodeList, NodeShown
from bascule.wire.api.proposals import ProposalList, ProposalRefused, ProposalShown
from bascule.wire.api.records import (
    LISTS,
    WRITTEN,
    Plain,
    RecordList,
    RecordRemoved,
    RecordWritten,
)
from bascule.wire.api.secrets import SecretList, SecretShown
from bascule.wire.api.trials import ToolPreview, ToolPreviews, Trial
from bascule.wire.api.watch import WatchEvent
from bascule.wire.faults import face

#: Records are asked for as they were written: what is left at its default is not shown.
_AS_WRITTEN = {"defaults": False}
#: But for these, which every reader of a record looks for.
_LOOKED_FOR: Mapping[Kind, JsonObject] = {
    "server": {"display_name": "", "enabled": True, "tags": [], "allowed_tools": []},
    "task": {"name": "", "description": ""},
    "backend": {"enabled": True},
    "user": {"display_name": "", "enabled": True},
}
#: A trial starts a server, which may first be downloaded.
TRIAL_SECONDS = 120.0


class WatchedEvent(WatchEvent, frozen=True, kw_only=True):
    """An event of the watch; ``id`` is of the last revision that is whole, and resumes after it."""

    id: str | None = None


class RegistryClient:
    """The registry of one server, asked with a client's connections and token.

    A read with ``at_least`` gives no older revision than that, whichever replica answers; one that
    does not have it in time answers ``store_unavailable``.
    """

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    # --- reading

    async def list(self, kind: Kind, *, at_least: int | None = None) -> RecordList:
        """Return all records of a kind, from one snapshot."""
        query = {**_AS_WRITTEN, "at_least": at_least}
        found = await self._api.ask(LISTS[kind], "GET", _many(kind), query=query)
        return replace(found, items=tuple(_readable(kind, one) for one in found.items))

    async def get(self, kind: Kind, key: str, *, at_least: int | None = None) -> Plain:
        """Return a record with its revision, its owner and, for a server, its status."""
        query = {**_AS_WRITTEN, "at_least": at_least}
        found = await self._api.ask(Plain, "GET", _one(kind, key), query=query)
        return _readable(kind, found)

    async def snapshot(self, *, at_least: int | None = None) -> Snapshot:
        """Return every record, of one revision, in one request."""
        return await RegistrySnapshots(self._api).snapshot(at_least=at_least)

    async def secrets(self) -> tuple[SecretShown, ...]:
        """Return what is shown of the secrets, never a value."""
        return (await self._api.ask(SecretList, "GET", SECRETS)).secrets

    # --- writing

    async def create(
        self, kind: Kind, record: JsonObject, *, strict: bool = False
    ) -> RecordWritten:
        """Add a record that names itself; one that is there already is an error."""
        return await self._write(kind, "POST", _many(kind), record, strict=strict)

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
        path, headers = _one(kind, key), _expecting(expected_revision)
        return await self._write(kind, "PUT", path, record, strict=strict, headers=headers)

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
        path, headers = _one(kind, key), _expecting(expected_revision)
        return await self._write(kind, "PATCH", path, fields, strict=strict, headers=headers)

    async def delete(
        self, kind: Kind, key: str, *, expected_revision: int | None = None
    ) -> RecordRemoved:
        headers = _expecting(expected_revision)
        return await self._api.ask(RecordRemoved, "DELETE", _one(kind, key), headers=headers)

    async def adopt(self, kind: Kind, key: str) -> RecordWritten:
        """Take a record over from the file that owns it."""
        return await self._write(kind, "POST", f"{_one(kind, key)}/adopt")

    async def accept(self, kind: Kind, key: str, *, proposal: str | None = None) -> RecordWritten:
        """Let in what is proposed for a record; ``proposal`` says which one was looked at."""
        path, query = f"{_one(kind, key)}/accept", {"proposal": proposal}
        return self._written(kind, await self._api.ask(WRITTEN[kind], "POST", path, query=query))

    async def refuse(self, kind: Kind, key: str, *, proposal: str | None = None) -> ProposalRefused:
        """Refuse what is proposed for a record; ``proposal`` says which one was looked at."""
        path, query = f"{_one(kind, key)}/refuse", {"proposal": proposal}
        return await self._api.ask(ProposalRefused, "POST", path, query=query)

    async def proposals(self) -> tuple[ProposalShown, ...]:
        """Return what waits for an administrator, the oldest first."""
        return (await self._api.ask(ProposalList, "GET", f"{ADMIN}/proposals")).proposals

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
        query = {"strict": strict, "whole": whole}
        return await self._api.ask(Imported, "POST", f"{ADMIN}/import", query=query, body=body)

    # --- the past

    async def history(
        self, *, limit: int = 50, before: int | None = None, at_least: int | None = None
    ) -> HistoryPage:
        """Return changes, the newest first."""
        query = {"limit": limit, "before": before, "at_least": at_least}
        return await self._api.ask(HistoryPage, "GET", f"{ADMIN}/history", query=query)

    async def diff(
        self, old: int, new: int | None = None, *, environment: str | None = None
    ) -> RevisionDiff:
        """Compare two revisions; without ``new``, with now."""
        query = {"from": old, "to": new, "environment": environment}
        return await self._api.ask(RevisionDiff, "GET", f"{ADMIN}/diff", query=query)

    async def rollback(
        self, revision: int, *, only: Sequence[tuple[Kind, str]] | None = None, note: str = ""
    ) -> RolledBack:
        """Make the records, or only some, what they were at a revision, as a new revision."""
        names = None if only is None else tuple(RecordName(*key) for key in only)
        body = to_builtins(Rollback(revision=revision, only=names, note=note))
        return await self._api.ask(RolledBack, "POST", f"{ADMIN}/rollback", body=body)

    async def announce(self, succeeds: str) -> Announced:
        """Say that this registry replaces another store: nodes that follow that one take this."""
        body = to_builtins(Announcement(succeeds=succeeds))
        return await self._api.ask(Announced, "POST", f"{ADMIN}/announce", body=body)

    # --- nodes

    async def nodes(self) -> tuple[NodeShown, ...]:
        """Return the nodes, with what each is assigned."""
        return (await self._api.ask(NodeList, "GET", NODES)).nodes

    async def node(self, name: str) -> NodeDetail:
        """Return one node, with what it serves."""
        return await self._api.ask(NodeDetail, "GET", f"{NODES}/{quote(name, safe='')}")

    async def assign(self, name: str, assignment: NewAssignment) -> NodeDetail:
        """Say what a node serves from now on."""
        path, body = f"{NODES}/{quote(name, safe='')}/assignment", to_builtins(assignment)
        return await self._api.ask(NodeDetail, "PUT", path, body=body)

    # --- servers and files

    async def test(
        self, server_id: str, *, node: str | None = None, seconds: float = TRIAL_SECONDS
    ) -> Trial:
        """Have a node connect to a server and list its tools: that of a name, or any that can."""
        path, query = f"{_one('server', server_id)}/test", {"node": node}
        return await self._api.ask(Trial, "POST", path, query=query, seconds=seconds)

    async def test_draft(
        self, record: JsonObject, *, node: str | None = None, seconds: float = TRIAL_SECONDS
    ) -> Trial:
        """Have a node do the same with a record that is not written; nothing of it stays."""
        path, query = f"{_many('server')}/test", {"node": node}
        return await self._api.ask(Trial, "POST", path, query=query, body=record, seconds=seconds)

    async def tools(
        self, server_id: str, *, node: str | None = None, seconds: float = TRIAL_SECONDS
    ) -> tuple[ToolPreview, ...]:
        """Return every tool of a server with what is decided about it."""
        path, query = f"{_one('server', server_id)}/tools", {"node": node}
        found = await self._api.ask(ToolPreviews, "GET", path, query=query, seconds=seconds)
        return found.tools

    async def rescan(self, *, dry_run: bool = False) -> Rescanned:
        """Have the files of records loaded now, or find out what that would change."""
        return await self._api.ask(Rescanned, "POST", RESCAN, query={"dry_run": dry_run})

    async def watch(
        self,
        since: int | None = None,
        *,
        kinds: Sequence[Kind] | None = None,
        objects: bool = False,
        store_id: str | None = None,
        mark: str | None = None,
        last_event_id: str | None = None,
    ) -> AsyncGenerator[WatchedEvent, None]:
        """Yield the changes after a revision, until closed; raise ApiError when it is refused.

        ``objects`` gives whole records in ``upserts`` instead of their keys.
        """
        query = {
            "since": since,
            "kind": None if kinds is None else ",".join(kinds),
            "include_objects": objects or None,
            "store_id": store_id,
            "mark": mark,
        }
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

    async def _write(
        self,
        kind: Kind,
        method: str,
        path: str,
        body: JsonValue = None,
        *,
        strict: bool | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RecordWritten:
        query = {**_AS_WRITTEN, "strict": strict}
        written = await self._api.ask(
            WRITTEN[kind], method, path, query=query, body=body, headers=headers
        )
        return self._written(kind, written)

    def _written(self, kind: Kind, written: RecordWritten) -> RecordWritten:
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


def _expecting(revision: int | None) -> dict[str, str]:
    """Return the condition of a write: the record is at this revision; 0, there is none."""
    if revision is None:
        return {}
    return {"If-Match": f'"{revision}"'} if revision else {"If-None-Match": "*"}
