"""The messages of a node's stream, read: what comes in several parts is one thing.

A registry may be newer than its reader, so what that cannot know is left aside; and it may send
anything, so what is gathered is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, TypeVar

from google.protobuf.message import DecodeError
from msgspec import Struct
from msgspec.structs import replace

from bascule.client.http import Unreachable
from bascule.client.snapshots import read_record
from bascule.errors import InvalidRecord
from bascule.model.kinds import KINDS, Kind, Record, record_key
from bascule.model.role import TokenRole
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Position, Snapshot, SnapshotChange
from bascule.wire.pb import node_pb2 as pb
from bascule.wire.protobuf import record_plain, struct_of

_KINDS: Mapping[str, Kind] = {kind: kind for kind in KINDS}


class Bounds(Struct, frozen=True, kw_only=True):
    """How much a registry may send as one thing, such as a snapshot."""

    #: Records, tokens and parts together.
    items: int = 200_000
    size: int = 64 * 1024 * 1024


class TooMuch(Unreachable):
    """The registry sends more than is taken; what there was stays."""

    code = "unreachable"


class Welcome(Struct, frozen=True):
    """Who the node is to its registry, and what it is given to serve.

    ``keys`` are derived ones, by label. ``tasks`` and ``labels`` are what it is assigned; None is
    all.
    """

    node: str
    bookmark_seconds: float
    keys: Mapping[str, bytes] = {}
    tasks: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    #: The time at the registry; 0 where it does not say.
    now: float = 0.0


class ClientToken(Struct, frozen=True, kw_only=True):
    """A token that a node may take, without the token itself."""

    id: str
    name: str
    role: TokenRole
    task_id: str | None = None
    person: str | None = None
    created_at: float
    expires_at: float | None = None
    digest: bytes
    acts_for_users: bool = False
    made_by: str | None = None
    tasks: tuple[str, ...] | None = None


class ClientTokens(Struct, frozen=True):
    """All tokens that a node may take, and what they are called together."""

    version: str
    tokens: tuple[ClientToken, ...]


class Bookmark(Struct, frozen=True):
    """All that happened up to a position has been said."""

    position: Position


class WorkOrder(Struct, frozen=True, kw_only=True):
    """Something to do once, within ``seconds``, and to answer; or to leave (``cancel``).

    ``problem`` says why it cannot be done: a registry may be newer than its node.
    """

    id: str
    seconds: float = 0.0
    job: Literal["test", "try_out", "preview", "cancel"] | None = None
    server_id: str = ""
    record: ServerRecord | None = None
    problem: str = ""


Said: TypeAlias = Welcome | Snapshot | SnapshotChange | ClientTokens | Bookmark | WorkOrder
S = TypeVar("S", bound=Said | None)


class FollowReader:
    """Reads one stream."""

    def __init__(self, place: str, bounds: Bounds, tokens: ClientTokens | None = None) -> None:
        """Read what comes from a place; ``tokens`` are those at hand."""
        self._place = place
        self._bounds = bounds
        self._items = self._size = 0
        self._records: dict[tuple[Kind, str], Record | None] = {}
        self._tokens = {} if tokens is None else {one.id: one for one in tokens.tokens}

    def read(self, data: bytes) -> Said | None:
        """Return what a message says; None where more of it follows, or nothing of it is known.

        Raise Unreachable for bytes that are no message, InvalidRecord for what is no record, and
        TooMuch.
        """
        try:
            message = pb.FollowResponse.FromString(data)
        except DecodeError:
            raise Unreachable(f"{self._place}: a message that cannot be read") from None
        self._count(1, len(data))
        match message.WhichOneof("said"):
            case "snapshot":
                return self._snapshot(message.snapshot)
            case "change":
                return self._change(message.change)
            case "tokens":
                return self._client_tokens(message.tokens)
            case kind:
                return self._whole(_one_message(message, kind))

    def _snapshot(self, part: pb.SnapshotPart) -> Snapshot | None:
        self._gather(part.records)
        if part.partial:
            return None
        at = _position(part.position)
        change = SnapshotChange(at.store_id, at.revision, self._records, at.mark)
        empty = Snapshot(store_id=at.store_id, predecessor=part.predecessor, part=part.part)
        return self._whole(empty.after(change))

    def _change(self, part: pb.Change) -> SnapshotChange | None:
        self._gather(part.upserts, part.deletes)
        if part.partial:
            return None
        at = _position(part.position)
        change = SnapshotChange(
            at.store_id,
            at.revision,
            self._records,
            at.mark,
            since=part.since if part.HasField("since") else at.revision - 1,
            part=part.part if part.HasField("part") else None,
        )
        return self._whole(change)

    def _gather(self, upserts: Iterable[pb.Record], deletes: Iterable[pb.RecordKey] = ()) -> None:
        for one in upserts:
            self._count(1)
            kind = _KINDS.get(one.WhichOneof("record") or "")
            if kind is not None:
                record = read_record(kind, record_plain(getattr(one, kind), lenient=True))
                self._records[kind, record_key(kind, record)] = record
        for key in deletes:
            self._count(1)
            if key.kind in _KINDS:
                self._records[_KINDS[key.kind], key.key] = None

    def _client_tokens(self, part: pb.ClientTokens) -> ClientTokens | None:
        if part.whole:
            self._tokens = {}
        for ended in part.deletes:
            self._tokens.pop(ended, None)
        for one in part.upserts:
            self._count(1)
            token = _token(one)
            if token is not None:
                self._tokens[token.id] = token
        self.refuse_too_much(len(self._tokens), 0)
        if part.partial:
            return None
        return self._whole(ClientTokens(part.version, (*self._tokens.values(),)))

    def _count(self, items: int, size: int = 0) -> None:
        self._items += items
        self._size += size
        self.refuse_too_much(self._items, self._size)

    def refuse_too_much(self, items: int, size: int) -> None:
        """Raise TooMuch for more than is taken as one thing."""
        most = self._bounds
        if items > most.items or size > most.size:
            raise TooMuch(
                f"{self._place}: the registry sends more than this node takes: {most.items} "
                f"records or tokens and {most.size} bytes"
            )

    def _whole(self, said: S) -> S:
        """Return what was said, and begin with what is said next."""
        self._items = self._size = 0
        self._records = {}
        return said


def _one_message(message: pb.FollowResponse, kind: str | None) -> Said | None:
    """Return what is never said in parts; None for what is of a newer kind."""
    match kind:
        case "welcome":
            return _welcome(message.welcome)
        case "work":
            return _order(message.work)
        case "bookmark":
            return Bookmark(_position(message.bookmark))
        case _:
            return None


def _welcome(said: pb.Welcome) -> Welcome:
    assigned = said.assignment
    return Welcome(
        said.node,
        said.bookmark_ms / 1000,
        dict(said.keys),
        tuple(assigned.tasks.values) if assigned.HasField("tasks") else None,
        tuple(assigned.labels.values) if assigned.HasField("labels") else None,
        said.now,
    )


def _order(said: pb.Work) -> WorkOrder:
    """Return what is to be done; a job of a newer kind is one that cannot be."""
    id, seconds = said.id, said.timeout_ms / 1000
    match said.WhichOneof("job"):
        case "test":
            return WorkOrder(id=id, seconds=seconds, job="test", server_id=said.test.server_id)
        case "preview":
            return WorkOrder(
                id=id, seconds=seconds, job="preview", server_id=said.preview.server_id
            )
        case "try_out":
            return _draft(said)
        case "cancel":
            return WorkOrder(id=id, job="cancel")
        case _:
            return WorkOrder(id=id, seconds=seconds, problem="this node does not know how")


def _draft(said: pb.Work) -> WorkOrder:
    order = WorkOrder(id=said.id, seconds=said.timeout_ms / 1000, job="try_out")
    try:
        record = read_record("server", record_plain(said.try_out.server, lenient=True))
    except InvalidRecord as error:
        return replace(order, job=None, problem=f"the record cannot be read: {error}")
    return replace(order, record=record if isinstance(record, ServerRecord) else None)


def _position(said: pb.Position) -> Position:
    return Position(said.store_id, said.revision, said.mark)


def _token(said: pb.ClientToken) -> ClientToken | None:
    """Return a token; None for one of a newer kind, which is nobody's here."""
    try:
        return struct_of(ClientToken, said)
    except InvalidRecord:
        return None
