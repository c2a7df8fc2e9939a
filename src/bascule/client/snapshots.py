"""A registry in another process, as a node follows it: a snapshot of it, and every change after."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

from msgspec import convert, to_builtins
from msgspec.structs import replace

from bascule.client.http import ApiClient, ApiError
from bascule.errors import BasculeError
from bascule.model.json import JsonObject, is_object
from bascule.model.kinds import CLASSES, KINDS, Kind, Record, record_key
from bascule.model.snapshot import Position, Records, Snapshot, SnapshotChange, read_position
from bascule.model.status import ServerStatus
from bascule.wire.api.addresses import NODE_REPORT, SNAPSHOT, WATCH
from bascule.wire.api.nodes import MAX_SERVERS, MAX_TEXT, NodeState, NodeWords, ServerWords
from bascule.wire.api.records import own_fields
from bascule.wire.api.snapshot import SnapshotBody
from bascule.wire.api.watch import WatchEvent
from bascule.wire.records import decode
from bascule.wire.task_config import typed_form

_UNCHANGED = 304
_NOT_FOUND = 404
_KINDS: Mapping[str, Kind] = {kind: kind for kind in KINDS}


class HistoryParted(BasculeError):
    """The registry's store is the one that is known, and its history another one."""

    code = "store_changed"

    def __init__(self, known: Position, found: Position) -> None:
        super().__init__(
            f"the registry is at revision {found.revision} of store {found.store_id}, whose "
            f"revision {known.revision} is not the one that this node has: one of the two is a "
            "copy that was written to elsewhere"
        )


class Report(Protocol):
    """What a node says at one time."""

    @property
    def revision(self) -> int: ...

    @property
    def state(self) -> NodeState: ...

    @property
    def servers(self) -> Sequence[ServerStatus]: ...

    @property
    def reason(self) -> str | None: ...


class RegistrySnapshots:
    """A registry behind its REST API; made with a node's token, which sees literal values."""

    def __init__(self, api: ApiClient, node: str | None = None) -> None:
        """Read a registry; ``node`` is the name of the token, under which it reports."""
        self._api = api
        self._node = node
        self._has_spoken = False
        #: Whether the registry has no place for reports; it may have one when it comes back.
        self._is_deaf = False

    async def snapshot(
        self, known: Snapshot | None = None, *, at_least: int | None = None
    ) -> Snapshot:
        """Return everything at the newest revision, in one request; ``known`` if it is that.

        Raise HistoryParted where ``known`` is not in its past, and only the registry can tell.
        """
        etag = {} if known is None else {"If-None-Match": f'"{known.position}"'}
        query = {"at_least": at_least}
        answer = await self._api.request("GET", SNAPSHOT, query=query, headers=etag)
        if known is not None and answer.status == _UNCHANGED:
            return known
        body = self._api.shaped(answer.body, SnapshotBody)
        if known is not None and not body.follows:
            refuse_parted(known.position, Position(body.store_id, body.revision, body.mark))
        records = {
            **_records("server", body.servers),
            **_records("task", body.tasks),
            **_records("profile", body.profiles),
            **_records("platform", (body.platform,)),
            **_records("backend", body.backends),
            **_records("user", body.users),
        }
        change = SnapshotChange(body.store_id, body.revision, records, body.mark)
        return Snapshot(store_id=body.store_id, predecessor=body.predecessor).after(change)

    async def watch(self, since: Snapshot) -> AsyncGenerator[SnapshotChange, None]:
        """Return the changes after a snapshot; idle ones repeat the revision."""
        self._is_deaf = False
        place = {"since": str(since.revision), "store_id": since.store_id}
        marked = {"mark": since.mark} if since.mark else {}  # which an older registry never gave
        return self._changes({**place, **marked, "include_objects": "true"})

    async def report(self, report: Report) -> None:
        """Tell the registry how the node is; one of an older version is told no more."""
        if self._node is None or self._is_deaf:
            return
        words = tuple(map(words_of, report.servers[:MAX_SERVERS]))
        reason = shortened(report.reason)
        await self._say(NodeWords(self._node, report.state, report.revision, words, reason))

    async def leave(self) -> None:
        """Say goodbye, if the registry knows of this node."""
        if self._node is not None and self._has_spoken:
            await self._say(NodeWords(self._node, "ended"))

    async def _say(self, words: NodeWords) -> None:
        try:
            await self._api.request("POST", NODE_REPORT, body=to_builtins(words))
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            self._is_deaf = True
        else:
            self._has_spoken = True

    async def _changes(self, query: Mapping[str, str]) -> AsyncGenerator[SnapshotChange, None]:
        records: dict[tuple[Kind, str], Record | None] = {}
        async with aclosing(self._api.events(WATCH, query=query)) as events:
            async for event in events:
                if event.event == "error":
                    raise self._api.error(0, self._api.shaped(event.data, JsonObject))
                said = self._api.shaped(event.data, WatchEvent)
                records.update(_entries(said))
                place = read_position(event.id or "")
                # Only the last part of a revision has its id.
                if place is not None and place.revision == said.revision:
                    yield SnapshotChange(place.store_id, place.revision, records, place.mark)
                    records = {}


def refuse_parted(known: Position, found: Position) -> None:
    """Raise HistoryParted for a later revision of the same store; other cases can be seen."""
    if known.store_id == found.store_id and known.revision < found.revision:
        raise HistoryParted(known, found)


def words_of(status: ServerStatus) -> ServerWords:
    """Return a status as it is sent, its texts no longer than that."""
    sandbox = status.sandbox
    shorter = replace(
        status,
        last_error=shortened(status.last_error),
        starting=shortened(status.starting),
        sandbox=None if sandbox is None else replace(sandbox, why=sandbox.why[:MAX_TEXT]),
    )
    return convert(shorter, ServerWords, from_attributes=True)


def shortened(text: str | None) -> str | None:
    """Return a text as it is sent."""
    return None if text is None else text[:MAX_TEXT]


def _entries(said: WatchEvent) -> Records:
    """Return what an event says; a newer registry may have kinds that are not known here."""
    kind = _KINDS.get(said.kind)
    if kind is None:
        return {}
    deleted: Records = {(kind, key): None for key in said.deletes}
    return {**deleted, **_records(kind, [item for item in said.upserts if is_object(item)])}


def _records(kind: Kind, items: Sequence[JsonObject]) -> Records:
    records = [read_record(kind, item) for item in items]
    return {(kind, record_key(kind, record)): record for record in records}


def read_record(kind: Kind, shown: JsonObject) -> Record:
    """Read a record from what the registry shows; raise InvalidRecord for what is not one."""
    # A registry may be newer than its reader: what that cannot know must not cut it off.
    return decode(CLASSES[kind], typed_form(own_fields(shown)), lenient=True)[0]
