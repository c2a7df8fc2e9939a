"""What nodes are told, as bytes: encoded once, and the same for all who are told alike."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from google.protobuf.message import Message
from msgspec import to_builtins

from bascule.auth.keys import KeyLabel
from bascule.auth.token_record import TokenRecord
from bascule.control.registry.encoded_events import Form
from bascule.control.registry.offload import apart
from bascule.control.registry.store import Change, Event, Key, Stored, View
from bascule.model.assignment import ALL, Assignment
from bascule.model.snapshot import Position
from bascule.wire.pb import node_pb2 as pb
from bascule.wire.pb import records_pb2
from bascule.wire.protobuf import message_of, record_message
from bascule.wire.records import encode

M = TypeVar("M", bound=Message)
#: How many bytes of records or tokens a message has at most, but for one that has more by itself.
PART_BYTES = 1024 * 1024
#: What is kept of a token and is of no use at a node.
_KEPT = ("seal", "grants", "process")


def welcome(
    node: str,
    bookmark_seconds: float,
    keys: Mapping[KeyLabel, bytes],
    assignment: Assignment = ALL,
    *,
    now: float = 0.0,
) -> bytes:
    """Encode the first message of a stream, which is said again where a node is assigned anew."""
    said = pb.Welcome(
        node=node,
        bookmark_ms=int(bookmark_seconds * 1000),
        keys={**keys},
        now=now,
        assignment=pb.Assignment(
            tasks=_list(assignment.tasks),
            labels=_list(assignment.labels),
        ),
    )
    return pb.FollowResponse(welcome=said).SerializeToString()


def _list(names: tuple[str, ...] | None) -> records_pb2.StringList | None:
    return None if names is None else records_pb2.StringList(values=names)


def bookmark_message(place: Position) -> bytes:
    """Encode that all up to a place has been said."""
    return pb.FollowResponse(bookmark=_position(place)).SerializeToString()


def change_messages(event: Event, place: Position, form: Form) -> tuple[bytes, ...]:
    """Encode what an event did to any record, for nodes that have all of them."""
    del form
    if not isinstance(event, Change):
        return (bookmark_message(place),)
    upserts = [e.stored for e in event.entries if e.stored is not None]
    deletes = [e.key for e in event.entries if e.stored is None]
    return _changes(upserts, pb.Change(position=_position(place), deletes=_keys(deletes)))


def part_change(
    place: Position, since: int, part: str | None, upserts: Iterable[Stored], deletes: Iterable[Key]
) -> tuple[bytes, ...]:
    """Encode what leads from a part of the registry at a revision to one at a place."""
    where = _position(place)
    last = pb.Change(position=where, deletes=_keys(deletes), since=since, part=part)
    return _changes(upserts, last)


def _changes(upserts: Iterable[Stored], last: pb.Change) -> tuple[bytes, ...]:
    """Encode records in as many messages as they need; ``last`` has all the rest."""
    *parts, rest = in_parts(map(_record, upserts))
    changes = [pb.Change(position=last.position, upserts=part, partial=True) for part in parts]
    last.upserts.extend(rest)
    return tuple(pb.FollowResponse(change=one).SerializeToString() for one in (*changes, last))


def _keys(keys: Iterable[Key]) -> list[pb.RecordKey]:
    return [pb.RecordKey(kind=kind, key=key) for kind, key in keys]


def token_messages(version: str, records: Iterable[TokenRecord]) -> tuple[bytes, ...]:
    """Encode all tokens of a version, in place of those that a node has."""
    *parts, last = in_parts(map(token_message, records))
    whole = [
        pb.ClientTokens(version=version, whole=place == 0, upserts=part, partial=True)
        for place, part in enumerate(parts)
    ]
    whole.append(pb.ClientTokens(version=version, whole=not parts, upserts=last))
    return tuple(pb.FollowResponse(tokens=one).SerializeToString() for one in whole)


def token_message(record: TokenRecord) -> pb.ClientToken:
    """Return what a node is given of a token."""
    plain = to_builtins(record, builtin_types=(bytes,))
    return message_of(
        pb.ClientToken, {name: value for name, value in plain.items() if name not in _KEPT}
    )


class EncodedSnapshot:
    """The newest snapshot, for the many who begin at once."""

    def __init__(self) -> None:
        self._of: object = None
        self._messages: tuple[bytes, ...] = ()
        self._encoding = asyncio.Lock()

    async def of(self, view: View) -> tuple[bytes, ...]:
        """Return a view as messages."""
        async with self._encoding:
            if self._of != (view.position, view.predecessor):
                where, records = (view.position, view.predecessor), view.objects.values()
                encode = partial(part_snapshot, *where, ALL.part, records)
                self._messages = await apart(len(records), encode)
                self._of = view.position, view.predecessor
            return self._messages


def part_snapshot(
    place: Position, predecessor: str, part: str, records: Iterable[Stored]
) -> tuple[bytes, ...]:
    """Encode all records of a part of the registry; the part without a name is all of it."""
    return (*_snapshot(place, predecessor, part, records),)


def _snapshot(
    at: Position, predecessor: str, name: str, records: Iterable[Stored]
) -> Iterator[bytes]:
    *parts, last = in_parts(map(_record, records))
    for place, part in enumerate([*parts, last]):
        said = pb.SnapshotPart(
            position=_position(at),
            predecessor=predecessor,
            records=part,
            partial=place < len(parts),
            part=name,
        )
        yield pb.FollowResponse(snapshot=said).SerializeToString()


def in_parts(messages: Iterable[M]) -> Iterator[list[M]]:
    """Yield messages in as many lists as they need, one at least."""
    part, size = list[M](), 0
    for message in messages:
        more = message.ByteSize()
        if part and size + more > PART_BYTES:
            yield part
            part, size = [], 0
        part.append(message)
        size += more
    yield part


def _record(stored: Stored) -> pb.Record:
    """Return a record with its literal values: a node starts servers with them."""
    message = record_message(stored.kind, encode(stored.record), extra=stored.extra)
    return pb.Record(**{stored.kind: message})  # pyright: ignore[reportArgumentType] - of that kind


def _position(place: Position) -> pb.Position:
    return pb.Position(store_id=place.store_id, revision=place.revision, mark=place.mark)
