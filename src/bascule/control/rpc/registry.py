"""``McpRegistryService``: the records of every kind over gRPC, as the REST API has them.

Every kind has the same methods; there is one platform record, so it is read and not listed. A
change is encoded once for all who watch it alike.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias

from google.protobuf.message import Message
from msgspec.structs import replace

from bascule.asgi.errors import Refused
from bascule.auth.identity import Permission
from bascule.control.api.fresh import reached
from bascule.control.api.nodes import refuse_part
from bascule.control.api.presentation import beside, may_read_literals
from bascule.control.api.query import MAX_PAGE, author_of
from bascule.control.registry.encoded_events import EncodedEvents, Form
from bascule.control.registry.extra_fields import shown_extra
from bascule.control.registry.masks import masked
from bascule.control.registry.offload import apart
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Bookmark, Change, Event, Stored
from bascule.control.rpc.calls import Call, Service, Streaming, Unary
from bascule.model.kinds import COLLECTIONS, KEY_FIELDS, KINDS, PLATFORM, Kind
from bascule.model.snapshot import Position
from bascule.wire.pb import registry_pb2
from bascule.wire.protobuf import RecordMessage, record_message, record_plain
from bascule.wire.records import encode

NAME = "bascule.registry.v1.McpRegistryService"
#: How methods call one record of a kind, and many.
_NOUNS: Mapping[Kind, tuple[str, str]] = {
    "server": ("McpServer", "McpServers"),
    "task": ("Task", "Tasks"),
    "profile": ("Profile", "Profiles"),
    "platform": ("Platform", "Platform"),
    "backend": ("Backend", "Backends"),
    "user": ("User", "Users"),
}
_Handle: TypeAlias = Callable[[Kind, Any, Call], Awaitable[bytes]]
#: How many bytes of records a message of a watch has at most, but for a record that has more:
#: clients take four times that unless they say otherwise.
PART_BYTES = 1024 * 1024


class RegistryRpc:
    """The methods over one registry."""

    def __init__(self, service: RegistryService) -> None:
        self._service = service
        self._encoded = EncodedEvents(_encoded)
        #: The answer to who asks where the registry is, as thousands do, for either sight of it.
        self._platforms: dict[bool, tuple[object, bytes]] = {}

    def service(self) -> Service:
        """Return the service, for the port."""
        return Service(NAME, tuple(method for kind in KINDS for method in self._methods(kind)))

    def _methods(self, kind: Kind) -> Iterator[Unary[Any] | Streaming[Any]]:
        one, many = _NOUNS[kind]
        reading = f"Get{one}" if kind == PLATFORM else f"List{many}"
        read = self._get if kind == PLATFORM else self._list
        unary: list[tuple[str, Permission, _Handle]] = [
            (reading, "registry:read", read),
            (f"Upsert{one}", "registry:write", self._upsert),
            (f"Delete{one}", "registry:write", self._delete),
        ]
        for name, permission, handle in unary:
            yield Unary(name, _type(f"{name}Request"), permission, partial(handle, kind))
        name = f"Watch{many}"
        yield Streaming(name, _type(f"{name}Request"), "registry:read", partial(self._watch, kind))

    # --- reading

    async def _list(self, kind: Kind, request: Any, call: Call) -> bytes:
        refuse_part(self._service, call.principal)
        await self._reached(request)
        view = self._service.view
        page, cursor = _page(list(view.of_kind(kind)), request)
        literals = may_read_literals(call.principal)

        def answer() -> bytes:
            found = _type(f"List{_NOUNS[kind][1]}Response")(
                revision=view.revision,
                store_id=view.store_id,
                mark=view.mark,
                next_cursor=cursor,
                **{COLLECTIONS[kind]: [_record(one, literals=literals) for one in page]},
            )
            return found.SerializeToString()

        return await apart(len(page), answer)

    async def _get(self, kind: Kind, request: Any, call: Call) -> bytes:
        await self._reached(request)
        view, literals = self._service.view, may_read_literals(call.principal)
        of, answer = self._platforms.get(literals, (None, b""))
        if of == (view.position, view.predecessor):
            return answer
        found = _type(f"Get{_NOUNS[kind][0]}Response")(
            revision=view.revision,
            store_id=view.store_id,
            mark=view.mark,
            predecessor=view.predecessor,
            platform=_record(view.platform, literals=literals),
        )
        answer = found.SerializeToString()
        self._platforms[literals] = (view.position, view.predecessor), answer
        return answer

    async def _reached(self, request: Any) -> None:
        if request.HasField("at_least"):
            await reached(self._service, request.at_least)

    # --- writing

    async def _upsert(self, kind: Kind, request: Any, call: Call) -> bytes:
        if not request.HasField(kind):
            raise _wrong(kind, "is missing")
        data = record_plain(getattr(request, kind))
        key = PLATFORM if kind == PLATFORM else data.get(KEY_FIELDS[kind])
        if not isinstance(key, str):
            raise _wrong(f"{kind}.{KEY_FIELDS[kind]}", "is missing")
        written = await self._service.put(
            kind,
            key,
            data,
            author_of(call.principal),
            expected_revision=_expected(request),
            strict=request.strict,
        )
        literals = may_read_literals(call.principal)
        answer = _type(f"Upsert{_NOUNS[kind][0]}Response")(
            revision=written.revision,
            changed=written.change is not None,
            warnings=written.warnings,
            **{kind: _record(written.stored(kind, key), literals=literals)},
        )
        return answer.SerializeToString()

    async def _delete(self, kind: Kind, request: Any, call: Call) -> bytes:
        key = PLATFORM if kind == PLATFORM else getattr(request, KEY_FIELDS[kind])
        by, expected = author_of(call.principal), _expected(request)
        written = await self._service.delete(kind, key, by, expected_revision=expected)
        answer = _type(f"Delete{_NOUNS[kind][0]}Response")(revision=written.revision)
        return answer.SerializeToString()

    # --- watching

    async def _watch(self, kind: Kind, request: Any, call: Call) -> AsyncGenerator[bytes, None]:
        refuse_part(self._service, call.principal)
        form = Form(
            self._service.view.store_id,
            frozenset({kind}),
            records=request.include_objects,
            literals=request.include_objects and may_read_literals(call.principal),
        )
        if not request.send_initial:
            events = await self._service.watch(self._since(request), kinds=[kind])
            return self._events(events, form, call)
        if request.HasField("since_revision"):
            raise _wrong("since_revision", "cannot be given together with send_initial")
        view = self._service.view
        events = await self._service.watch(view.position, kinds=[kind])
        found = [view.platform] if kind == PLATFORM else list(view.of_kind(kind))
        parts = await apart(len(found), lambda: [*_initial(kind, found, view.position, form)])
        return self._events(events, form, call, parts)

    def _since(self, request: Any) -> Position:
        if not request.HasField("since_revision"):
            return replace(self._service.view.position, store_id=request.store_id)
        return Position(request.store_id, request.since_revision, request.mark)

    async def _events(
        self,
        events: AsyncGenerator[Event, None],
        form: Form,
        call: Call,
        first: Sequence[bytes] = (),
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(events):
            for part in first:
                yield part
            async for event in events:
                moment = isinstance(event, Bookmark), event.revision, event.mark
                await call.refuse_ended(moment)
                for part in await self._encoded.of(event, form):
                    yield part


def _encoded(event: Event, place: Position, form: Form) -> tuple[bytes, ...]:
    """Encode what an event did to records of a kind."""
    kind = next(iter(form.kinds or KINDS))
    where = {"revision": place.revision, "store_id": place.store_id, "mark": place.mark}
    response = _type(f"Watch{_NOUNS[kind][1]}Response")
    if not isinstance(event, Change):
        return (response(bookmark=True, **where).SerializeToString(),)
    upserts, deletes = event.upserts(kind), event.deletes(kind)
    *parts, last = _parts(kind, upserts, form)
    messages = [response(partial=True, **part, **where) for part in parts]
    messages.append(response(deletes=deletes, **last, **where))
    return tuple(message.SerializeToString() for message in messages)


def _initial(kind: Kind, found: Sequence[Stored], place: Position, form: Form) -> Iterator[bytes]:
    """Encode everything there is, and the bookmark that ends it."""
    where = {"revision": place.revision, "store_id": place.store_id, "mark": place.mark}
    response = _type(f"Watch{_NOUNS[kind][1]}Response")
    for part in _parts(kind, found, form) if found else ():
        yield response(initial=True, partial=True, **part, **where).SerializeToString()
    yield response(initial=True, bookmark=True, **where).SerializeToString()


def _parts(kind: Kind, stored: Sequence[Stored], form: Form) -> Iterator[dict[str, Any]]:
    """Yield ids and records as the fields of as many messages as they need, one at least."""
    ids, records, size = list[str](), list[RecordMessage](), 0
    for one in stored:
        record = _record(one, literals=form.literals) if form.records else None
        more = len(one.id) + (0 if record is None else record.ByteSize())
        if ids and size + more > PART_BYTES:
            yield {"upserts": ids, COLLECTIONS[kind]: records}
            ids, records, size = [], [], 0
        ids.append(one.id)
        records.extend([] if record is None else [record])
        size += more
    yield {"upserts": ids, COLLECTIONS[kind]: records}


def _record(stored: Stored, *, literals: bool) -> RecordMessage:
    plain = encode(stored.record) if literals else masked(stored.kind, stored.record)
    extra = stored.extra if literals else shown_extra(stored)
    return record_message(stored.kind, plain, beside=beside(stored), extra=extra)


def _page(found: Sequence[Stored], request: Any) -> tuple[Sequence[Stored], str]:
    """Return the records that a request wants, and where the next page begins."""
    if request.HasField("limit") and not 1 <= request.limit <= MAX_PAGE:
        raise _wrong("limit", f"must be a number from 1 to {MAX_PAGE}")
    after = [one for one in found if one.id > request.cursor]
    page = after[: request.limit] if request.HasField("limit") else after
    return page, page[-1].id if len(page) < len(after) else ""


def _expected(request: Any) -> int | None:
    return request.expected_revision if request.HasField("expected_revision") else None


def _wrong(field: str, words: str) -> Refused:
    return Refused("invalid_request", f"{field}: {words}", details={"field": field})


def _type(name: str) -> type[Any]:
    """Return the message of a name; the methods of all kinds differ by that alone."""
    found: type[Message] = getattr(registry_pb2, name)
    return found
