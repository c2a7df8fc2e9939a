"""The watch as server-sent events: every change after a revision, in order, once.

One revision may touch several kinds; it is then several events, of which only the last carries an
id, so that a reader who resumes by Last-Event-ID never skips half a revision. The id names store
and mark as well: after a restore, and in another copy of the store, the same number is another
revision. Nothing is sent to a token that was revoked meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from bascule.asgi import sse
from bascule.asgi.parameters import flag, word, wrong
from bascule.asgi.token_looks import TokenLooks
from bascule.clock import Clock
from bascule.control.api import query
from bascule.control.api.presentation import may_read_literals, shown_as
from bascule.control.registry.encoded_events import EncodedEvents, Form
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Bookmark, Change, Event
from bascule.model.kinds import KINDS
from bascule.model.snapshot import Position, read_position
from bascule.wire.api.watch import WatchEvent


class Watch:
    """The endpoint of the watch."""

    def __init__(self, service: RegistryService, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._texts = EncodedEvents(sse_events)
        self._tokens = TokenLooks(clock)

    async def watch(self, request: Request) -> Response:
        """Stream changes; what cannot be followed is refused before the stream begins."""
        since, kinds = self._position(request), query.kinds(request)
        records, asking = _with_records(request), query.principal(request)
        events = await self._service.watch(since, kinds=kinds)
        form = Form(
            self._service.view.store_id,
            None if kinds is None else frozenset(kinds),
            records=records,
            literals=records and may_read_literals(asking),
        )
        return sse.EventStream(self._source(events, form, request.scope), self._clock)

    def _position(self, request: Request) -> Position:
        """Return where to begin: after the last event that was seen, since R, or now."""
        store_id, mark = word(request, "store_id") or "", word(request, "mark") or ""
        last = request.headers.get("last-event-id")
        if last:
            seen = read_position(last)
            if seen is None:
                raise wrong("Last-Event-ID", "must be the id of an event of this watch")
            return replace(seen, store_id=seen.store_id or store_id)
        since = query.revision(request, "since")
        if since is None:
            return replace(self._service.view.position, store_id=store_id)
        return Position(store_id, since, mark)

    async def _source(
        self, events: AsyncGenerator[Event, None], form: Form, scope: Scope
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(events):
            async for event in events:
                moment = isinstance(event, Bookmark), event.revision, event.mark
                await self._tokens.refuse_ended(scope, moment)
                for text in await self._texts.of(event, form):
                    yield text


def _with_records(request: Request) -> bool:
    include = word(request, "include")  # the older spelling
    if include not in (None, "ids", "objects"):
        raise wrong("include", "must be ids or objects")
    return flag(request, "include_objects") or include == "objects"


def sse_events(event: Event, place: Position, form: Form) -> tuple[bytes, ...]:
    """Encode an event: one for each kind that a revision touched, of which the last has an id."""
    if isinstance(event, Bookmark):
        said = WatchEvent(revision=event.revision, kind="bookmark")
        return (sse.encode(sse.Event(event="bookmark", id=str(place), data=said)),)
    *parts, last = _parts(event, form)
    events = [*(sse.Event(data=part) for part in parts), sse.Event(id=str(place), data=last)]
    return (b"".join(map(sse.encode, events)),)


def _parts(change: Change, form: Form) -> Iterator[WatchEvent]:
    """Yield what a change did, kind by kind."""
    for kind in KINDS:
        upserts, deletes = change.upserts(kind), change.deletes(kind)
        if upserts or deletes:
            found = tuple(
                shown_as(one, literals=form.literals) if form.records else one.id for one in upserts
            )
            yield WatchEvent(revision=change.revision, kind=kind, upserts=found, deletes=deletes)
