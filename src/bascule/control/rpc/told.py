"""What nodes are told, as bytes: encoded once, and the same for all who are told alike."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from google.protobuf.message import Message
from msgspec import to_builtins

from bascule.auth.keys import KeyLabel
from bascule.auth.token_record import TokenRecord
from bascule.control.registry.encoded_events import Form
from bascule.control.registry.offload import apart
from bascule.control.registry.store import Change, Event, Stored, View
from bascule.model.snapshot import Position
from bascule.wire.pb import node_pb2 as pb
from bascule.wire.protobuf import message_of, record_message
from bascule.wire.records import encode

M = TypeVar("M", bound=Message)
#: How many bytes of records or tokens a message has at most, but for one that has more by itself.
PART_BYTES = 1024 * 1024
#: What is kept of a token and is of no use at a node.
_KEPT = ("seal", "grants", "process")


def welcome(node: str, bookmark_seconds: float, keys: Mapping[KeyLabel, bytes]) -> bytes:
    """Encode the first message of a stream; every node is assigned all, for now."""
    said = pb.Welcome(node=node, bookmark_ms=int(bookmark_seconds * 1000), keys={**keys})
    return pb.FollowResponse(welcome=said).SerializeToString()


def change_messages(event: Event, place: Position, form: Form) -> tuple[bytes, ...]:
    """Encode what an event did to any record; every node is told the same."""
    del form
    where = _position(place)
    if not isinstance(event, Change):
        return (pb.FollowResponse(bookmark=where).SerializeToString(),)
    upserts = [_record(e.stored) for e in event.entries if e.stored is not None]
    deletes = [pb.RecordKey(kind=e.kind, key=e.id) for e in event.entries if e.stored is None]
    *parts, last = in_parts(upserts)
    changes = [pb.Change(position=where, upserts=part, partial=True) for part in parts]
    changes.append(pb.Change(position=where, upserts=last, deletes=deletes))
    return tuple(pb.FollowResponse(change=one).SerializeToString() for one in changes)


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
                self._messages = await apart(len(view.objects), lambda: (*_snapshot(view),))
                self._of = view.position, view.predecessor
            return self._messages


def _snapshot(view: View) -> Iterator[bytes]:
    where = _position(view.position)
    *parts, last = in_parts(_record(one) for one in view.objects.values())
    for place, part in enumerate([*parts, last]):
        said = pb.SnapshotPart(
            position=where,
            predecessor=view.predecessor,
            records=part,
            partial=place < len(parts),
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
