"""The watch as server-sent events: every change after a revision, in order, once.

One revision may touch several kinds; it is then several events, of which only the last carries an
id, so that a reader who resumes by Last-Event-ID never skips half a revision. The id names the
store as well: after a restore the old revisions mean nothing. Nothing is sent to a token that was
revoked meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi import sse
from bascule.asgi.guard import STILL
from bascule.asgi.parameters import flag, word, wrong
from bascule.auth.identity import Principal
from bascule.clock import Clock
from bascule.control.api import query
from bascule.control.api.presentation import shown
from bascule.control.registry.offload import apart
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Bookmark, Change, Event
from bascule.model.kinds import KINDS
from bascule.wire.api.watch import WatchEvent


class Watch:
    """The endpoint of the watch."""

    def __init__(self, service: RegistryService, clock: Clock) -> None:
        self._service = service
        self._clock = clock

    async def watch(self, request: Request) -> Response:
        """Stream changes; what cannot be followed is refused before the stream begins."""
        since, store_id = self._position(request)
        with_objects = _with_objects(request)
        events = await self._service.watch(since, kinds=query.kinds(request), store_id=store_id)
        asking = query.principal(request) if with_objects else None
        source = self._source(events, asking, request.scope[STILL])
        return sse.EventStream(source, self._clock)

    def _position(self, request: Request) -> tuple[int, str | None]:
        """Return where to begin: after the last event that was seen, since R, or now."""
        store_id = word(request, "store_id")
        last = request.headers.get("last-event-id")
        if last:
            seen, _, number = last.rpartition("-")
            return query.revision_of(number, "Last-Event-ID"), seen or store_id
        since = query.revision(request, "since")
        return self._service.view.revision if since is None else since, store_id

    async def _source(
        self,
        events: AsyncGenerator[Event, None],
        asking: Principal | None,
        still: Callable[[], Awaitable[Principal | None]],
    ) -> AsyncGenerator[sse.Event, None]:
        store_id = self._service.view.store_id
        async with aclosing(events):
            async for event in events:
                await still()
                for one in await _shown(event, store_id, asking):
                    yield one


def _with_objects(request: Request) -> bool:
    include = word(request, "include")  # the older spelling
    if include not in (None, "ids", "objects"):
        raise wrong("include", "must be ids or objects")
    return flag(request, "include_objects") or include == "objects"


async def _shown(event: Event, store_id: str, asking: Principal | None) -> list[sse.Event]:
    position = f"{store_id}-{event.revision}"
    if isinstance(event, Bookmark):
        said = WatchEvent(revision=event.revision, kind="bookmark")
        return [sse.Event(event="bookmark", id=position, data=said)]
    *parts, last = await apart(len(event.entries), lambda: list(_parts(event, asking)))
    return [*(sse.Event(data=part) for part in parts), sse.Event(id=position, data=last)]


def _parts(change: Change, asking: Principal | None) -> Iterator[WatchEvent]:
    """Yield what a change did, kind by kind; ``asking`` gets whole records."""
    for kind in KINDS:
        upserts, deletes = change.upserts(kind), change.deletes(kind)
        if upserts or deletes:
            found = tuple(one.id if asking is None else shown(one, asking) for one in upserts)
            yield WatchEvent(revision=change.revision, kind=kind, upserts=found, deletes=deletes)
