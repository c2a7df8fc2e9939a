"""The registry of a Bascule server, as a client has it: records, their past, their servers.

One method for each address of ``/admin/api/mcp`` and ``/api/v1/mcp`` (docs/openapi.json). Records
are plain values, as the server shows them, masked where it masks; everything around them has a
type. Below: ``http.py``. Above: the command line, and whoever manages a registry from elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote

from msgspec import Struct

from bascule.client.http import REQUEST_SECONDS, ApiClient
from bascule.model.json import is_object
from bascule.model.kinds import COLLECTIONS, Kind
from bascule.wire.faults import face

#: Records are asked for as they were written: what is left at its default is not shown.
_AS_WRITTEN = {"defaults": "false"}
#: But for these, which every reader of a record looks for.
_LOOKED_FOR: Mapping[Kind, Mapping[str, Any]] = {
    "server": {"display_name": "", "enabled": True, "tags": [], "allowed_tools": []},
    "task": {"name": "", "description": ""},
    "backend": {"enabled": True},
}
ADMIN = "/admin/api/mcp"
PUBLIC = "/api/v1/mcp"
#: Where the records of a kind are; there is one platform record, so its collection is itself.
#: What stands beside a record's own fields when it is read.
BESIDE = ("status", "revision", "updated_at", "owner")
#: A trial starts a server, which may first be downloaded.
TRIAL_SECONDS = 120.0

Plain: TypeAlias = dict[str, Any]
ImportMode: TypeAlias = Literal["preview", "upsert", "replace"]
T = TypeVar("T")


class Listing(Struct, frozen=True):
    """The records of a kind at one revision, in the order of their keys."""

    store_id: str
    revision: int
    items: tuple[Plain, ...]


class Written(Struct, frozen=True):
    """The registry's revision after a write, and the record as it is now.

    ``changed`` is false where the write made no difference, so that the revision did not move.
    """

    revision: int
    record: Plain
    warnings: tuple[str, ...] = ()
    changed: bool = True


class Removed(Struct, frozen=True):
    """The revision that took a record away."""

    revision: int
    deleted: str


class Diff(Struct, frozen=True, rename={"old": "from", "new": "to"}):
    """What differs between two revisions; ``text`` says it to people."""

    old: int
    new: int
    changes: list[Plain]
    reconnect: list[str]
    access: Plain
    text: str
    fields: list[Plain] = []


class Imported(Struct, frozen=True):
    """What an import changed, or would change (``mode`` preview)."""

    mode: ImportMode
    revision: int
    diff: Diff
    warnings: list[str]


class RolledBack(Struct, frozen=True):
    """The revision that went back, and what that changed."""

    revision: int
    diff: Diff


class Named(Struct, frozen=True):
    """One record of a change."""

    kind: str
    id: str


class Changed(Struct, frozen=True):
    """A field that a change gave another value; literals of environments are masked."""

    kind: str
    id: str
    field: str
    old: Any = None
    new: Any = None


class Change(Struct, frozen=True):
    """One revision: who, when, why, which records, which were new, and which fields changed."""

    revision: int
    at: str | None
    actor: str
    note: str
    upserts: list[Named]
    deletes: list[Named]
    created: list[Named] = []
    fields: list[Changed] = []


class HistoryPage(Struct, frozen=True):
    """Changes, the newest first; ``next_before`` asks for the page after."""

    store_id: str
    revision: int
    floor: int
    changes: list[Change]
    next_before: int | None


class Trial(Struct, frozen=True):
    """How a server did when a node tried it."""

    ok: bool
    duration_ms: float
    protocol: str | None = None
    tool_count: int | None = None
    tools: list[str] = []
    error: str | None = None


class ToolVerdict(Struct, frozen=True):
    """One tool of a server, and what record and platform say about it."""

    tool: str
    name: str
    allowed: bool
    layer: str
    reason: str
    #: The server's own word, which nobody trusts; None where it says nothing.
    claims_read_only: bool | None = None


class Rescanned(Struct, frozen=True):
    """What loading the files anew did, or would do; ``problems`` are what was left out.

    ``diff`` has the lines of a text for people.
    """

    revision: int
    changed: bool
    diff: list[str]
    problems: list[str]
    warnings: list[str]


class WatchEvent(Struct, frozen=True):
    """What one revision did to one kind; ``kind`` is ``bookmark`` where nothing happened.

    ``id`` is of the last revision that is whole, and resumes after it.
    """

    revision: int
    kind: str
    upserts: list[Any] = []
    deletes: list[str] = []
    id: str | None = None


class ProposedPair(Struct, frozen=True):
    """A credential and where it would go."""

    reference: str
    target: str


class Proposal(Struct, frozen=True):
    """A write that waits for an administrator; ``proposal`` is the name of exactly this one."""

    kind: Kind
    id: str
    proposal: str
    actor: str
    at: str | None
    base: int
    pairs: tuple[ProposedPair, ...]
    record: Plain


class _Tools(Struct, frozen=True):
    server_id: str
    tools: list[ToolVerdict]


class RegistryClient:
    """The registry of one server, asked with a client's connections and token."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    # --- reading

    async def list(self, kind: Kind) -> Listing:
        """Return all records of a kind, from one snapshot."""
        answer = await self._ask("GET", _many(kind), query=_AS_WRITTEN)
        items = self._typed(answer.get(COLLECTIONS[kind]), tuple[Plain, ...])
        head = self._typed(answer, _Head)
        return Listing(head.store_id, head.revision, tuple(_readable(kind, one) for one in items))

    async def get(self, kind: Kind, key: str) -> Plain:
        """Return a record with its revision, its owner and, for a server, its status."""
        return _readable(kind, await self._ask("GET", _one(kind, key), query=_AS_WRITTEN))

    # --- writing

    async def create(
        self, kind: Kind, record: Mapping[str, Any], *, strict: bool = False
    ) -> Written:
        """Add a record that names itself; one that is there already is an error."""
        answer = await self._ask(
            "POST", _many(kind), query=_AS_WRITTEN | _strict(strict), body=record
        )
        return self._written(kind, answer)

    async def put(
        self,
        kind: Kind,
        key: str,
        record: Mapping[str, Any],
        *,
        expected_revision: int | None = None,
        strict: bool = False,
    ) -> Written:
        """Replace a record, or add it; ``expected_revision`` 0: it must not be there."""
        answer = await self._ask(
            "PUT",
            _one(kind, key),
            query=_AS_WRITTEN | _strict(strict),
            body=record,
            headers=_expecting(expected_revision),
        )
        return self._written(kind, answer)

    async def patch(
        self,
        kind: Kind,
        key: str,
        fields: Mapping[str, Any],
        *,
        expected_revision: int | None = None,
        strict: bool = False,
    ) -> Written:
        """Merge some fields into a record; None takes a field away."""
        answer = await self._ask(
            "PATCH",
            _one(kind, key),
            query=_AS_WRITTEN | _strict(strict),
            body=fields,
            headers=_expecting(expected_revision),
        )
        return self._written(kind, answer)

    async def delete(
        self, kind: Kind, key: str, *, expected_revision: int | None = None
    ) -> Removed:
        """Delete a record."""
        headers = _expecting(expected_revision)
        answer = await self._ask("DELETE", _one(kind, key), headers=headers)
        return self._typed(answer, Removed)

    async def adopt(self, kind: Kind, key: str) -> Written:
        """Take a record over from the file that owns it."""
        answer = await self._ask("POST", f"{_one(kind, key)}/adopt", query=_AS_WRITTEN)
        return self._written(kind, answer)

    async def accept(self, kind: Kind, key: str, *, proposal: str | None = None) -> Written:
        """Let in what is proposed for a record; ``proposal`` says which one was looked at."""
        path = f"{_one(kind, key)}/accept"
        return self._written(kind, await self._ask("POST", path, query=_given(proposal=proposal)))

    async def proposals(self) -> tuple[Proposal, ...]:
        """Return what waits for an administrator, the oldest first."""
        answer = await self._ask("GET", f"{ADMIN}/proposals")
        return self._typed(answer.get("proposals"), tuple[Proposal, ...])

    async def take_in(
        self,
        records: Any,
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
        answer = await self._ask("POST", f"{ADMIN}/import", query=query, body=body)
        return self._typed(answer, Imported)

    # --- the past

    async def history(self, *, limit: int = 50, before: int | None = None) -> HistoryPage:
        """Return changes, the newest first."""
        query = {"limit": str(limit), **_given(before=before)}
        return self._typed(await self._ask("GET", f"{ADMIN}/history", query=query), HistoryPage)

    async def diff(
        self, old: int, new: int | None = None, *, environment: str | None = None
    ) -> Diff:
        """Compare two revisions; without ``new``, with now."""
        query = {"from": str(old), **_given(to=new, environment=environment)}
        return self._typed(await self._ask("GET", f"{ADMIN}/diff", query=query), Diff)

    async def rollback(
        self, revision: int, *, only: Sequence[tuple[Kind, str]] | None = None, note: str = ""
    ) -> RolledBack:
        """Make the records, or only some, what they were at a revision, as a new revision."""
        body: Plain = {"revision": revision, "note": note}
        if only is not None:
            body["only"] = [{"kind": kind, "id": key} for kind, key in only]
        return self._typed(await self._ask("POST", f"{ADMIN}/rollback", body=body), RolledBack)

    # --- servers and files

    async def test(self, server_id: str, *, seconds: float = TRIAL_SECONDS) -> Trial:
        """Have a node connect to a server and list its tools."""
        path = f"{_one('server', server_id)}/test"
        return self._typed(await self._ask("POST", path, seconds=seconds), Trial)

    async def tools(
        self, server_id: str, *, seconds: float = TRIAL_SECONDS
    ) -> tuple[ToolVerdict, ...]:
        """Return every tool of a server with what is decided about it."""
        path = f"{_one('server', server_id)}/tools"
        return tuple(self._typed(await self._ask("GET", path, seconds=seconds), _Tools).tools)

    async def rescan(self, *, dry_run: bool = False) -> Rescanned:
        """Have the files of records loaded now, or find out what that would change."""
        query = {"dry_run": "true" if dry_run else "false"}
        return self._typed(await self._ask("POST", f"{ADMIN}/rescan", query=query), Rescanned)

    async def watch(
        self,
        since: int | None = None,
        *,
        kinds: Sequence[Kind] | None = None,
        objects: bool = False,
        store_id: str | None = None,
        last_event_id: str | None = None,
    ) -> AsyncGenerator[WatchEvent, None]:
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
        async with aclosing(
            self._api.events(f"{PUBLIC}/watch", query=query, headers=headers)
        ) as events:
            async for event in events:
                yield self._event(event.event, event.data, event.id)

    # --- shapes

    def _event(self, name: str, data: bytes, event_id: str | None) -> WatchEvent:
        plain = self._api.shaped(data, Plain)
        if name == "error":
            raise self._api.error(_status(plain), plain)
        return self._typed({**plain, "id": event_id}, WatchEvent)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> Plain:
        answer = await self._api.request(
            method, path, query=query, body=body, headers=headers, seconds=seconds
        )
        return self._typed(answer.body, Plain)

    def _written(self, kind: Kind, answer: Plain) -> Written:
        record = _readable(kind, self._typed(answer.get(kind), Plain))
        revision = self._typed(answer.get("revision"), int)
        warnings = self._typed(answer.get("warnings", []), tuple[str, ...])
        return Written(revision, record, warnings, self._typed(answer.get("changed", True), bool))

    def _typed(self, value: Any, form: type[T]) -> T:
        return self._api.shaped(value, form)


def _readable(kind: Kind, record: Plain) -> Plain:
    """Return a record with what every reader looks for."""
    whole = {**record, **{k: v for k, v in _LOOKED_FOR.get(kind, {}).items() if k not in record}}
    if kind == "task":
        whole["mcp"] = {"enabled": False, **record.get("mcp", {})}
    return whole


class _Head(Struct, frozen=True):
    store_id: str
    revision: int


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


def _status(body: Plain) -> int:
    """Return the status that a refusal would have had before the stream began."""
    error = body.get("error")
    return face(str(error.get("code"))).http if is_object(error) else 0
