"""The audit trail over HTTP: searched, followed, taken away as lines, verified, signed.

What a filter says is a restriction, so one that cannot be understood is refused, never left out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Protocol, get_args

import msgspec
from msgspec.structs import asdict, fields, replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from bascule.asgi import sse
from bascule.asgi.errors import Refused
from bascule.asgi.guard import STILL, GuardedRoute, route
from bascule.asgi.head import head_of
from bascule.asgi.json import json_response, read_as
from bascule.asgi.lines import LinesAnswer
from bascule.asgi.parameters import number, number_of, only_parameters, word, wrong
from bascule.audit.search import EVENTS, LedgerReader, SeenFilters
from bascule.audit.verification import Told, Verification
from bascule.auth.identity import Principal
from bascule.clock import Clock, seconds_of
from bascule.control.api import query
from bascule.model.code import CallStatus, ErrorCode
from bascule.wire.api.addresses import AUDIT
from bascule.wire.api.audit import (
    AuditFilters,
    Bookmark,
    CheckpointMade,
    NewCheckpoint,
    VerifyProgress,
)

STATES: tuple[str, ...] = (*get_args(CallStatus), "running")
BOOKMARK_SECONDS = 10.0
PROGRESS_SECONDS = 0.25
_PAGE = 50
_STRETCH = 200
_DIGITS = 15
LONGEST = 256
#: A time in RFC 3339, or seconds since 1970.
TIME = (
    r"^([0-9]{1,11}(\.[0-9]{1,9})?"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2}))$"
)
_ROW = "the number of a row, 0 or more"
_TIME = "a time such as 2026-01-31T12:00:00Z, or seconds since 1970"
TIMES = ("since", "until")
FILTERS = tuple(field.name for field in fields(AuditFilters))
#: What some filters may be.
CHOICES: Mapping[str, Sequence[str]] = {
    "event": EVENTS,
    "status": STATES,
    "code": get_args(ErrorCode),
}
Still = Callable[[], Awaitable[Principal | None]]


class AuditTrail(Protocol):
    """The ledger, for those who look."""

    @property
    def reader(self) -> LedgerReader: ...

    async def catch_up(self) -> None:
        """Have what was written before be found; not at any price."""
        ...

    async def newer_than(self, number: int, seconds: float) -> bool:
        """Wait until the chain is longer than this; say whether it is."""
        ...

    def verify(self, told: Told) -> Verification:
        """Verify the whole chain; it takes long, and is called on a thread of its own."""
        ...

    async def checkpoint(self, *, new_key: bool) -> bytes | None:
        """Sign what is written up to now; return the anchor, or None if nothing is new."""
        ...


def audit_routes(trail: AuditTrail | None, *, clock: Clock) -> list[GuardedRoute]:
    """Return the routes of the audit trail; without one, each says that nothing is kept."""
    audit = _NoAudit() if trail is None else _Audit(trail, clock)
    return [
        route(AUDIT, audit.search, ["GET"], permission="audit:read"),
        route(f"{AUDIT}/watch", audit.watch, ["GET"], permission="audit:read"),
        route(f"{AUDIT}/export", audit.export, ["GET"], permission="audit:read"),
        route(f"{AUDIT}/verify", audit.verify, ["POST"], permission="audit:read"),
        route(f"{AUDIT}/checkpoint", audit.checkpoint, ["POST"], permission="audit:checkpoint"),
        route(f"{AUDIT}/{{request_id}}", audit.life, ["GET"], permission="audit:read"),
    ]


class _NoAudit:
    async def refuse(self, _: Request) -> Response:
        """Say that nothing is written down here."""
        raise Refused("store_unavailable", "the ledger is off: ledger.enabled is false")

    search = life = watch = export = verify = checkpoint = refuse


class _Audit:
    def __init__(self, trail: AuditTrail, clock: Clock) -> None:
        self._trail = trail
        self._reader = trail.reader
        self._clock = clock
        self._verifying = asyncio.Lock()

    async def search(self, request: Request) -> Response:
        """List what happened, the newest first; ``next_before`` asks for the page after."""
        only_parameters(request, *FILTERS, "before", "limit")
        before = number(request, "before", digits=_DIGITS, wanted=_ROW)
        limit = query.limit(request) or _PAGE
        await self._trail.catch_up()
        return json_response(await self._reader.search(_filters(request), before, limit))

    async def life(self, request: Request) -> Response:
        """Return everything that was written about one call, in order, and how it stands."""
        only_parameters(request)
        request_id: str = request.path_params["request_id"]
        await self._trail.catch_up()
        found = await self._reader.life(request_id, _seen(request))
        if found is None:
            raise Refused("not_found", f"nothing is written about a call {request_id!r}")
        return json_response(found)

    async def watch(self, request: Request) -> Response:
        """Stream what happens, each call when it has ended, after a row or from now on."""
        only_parameters(request, *FILTERS, "after")
        filters, start = _filters(request), await self._start(request)
        source = self._followed(start, filters, request.scope[STILL])
        return sse.EventStream(source, self._clock)

    async def export(self, request: Request) -> ASGIApp:
        """Stream every row as a line: all that its hash covers, and the hash."""
        only_parameters(request, *FILTERS)
        return LinesAnswer(self._exported(_filters(request), request.scope[STILL]))

    async def verify(self, request: Request) -> Response:
        """Verify the whole chain, and say what is wrong and how far it is protected.

        Whoever accepts ``text/event-stream`` is told how far it is, and ends it by hanging up.
        """
        only_parameters(request)
        if head_of(request.scope).accepts(b"text/event-stream"):
            return sse.EventStream(self._verified(request.scope[STILL]), self._clock)
        async with self._verifying:  # it reads every row: one at a time is enough
            return json_response(await asyncio.to_thread(self._trail.verify, _Steps().take))

    async def checkpoint(self, request: Request) -> Response:
        """Sign what is written up to now; the next checkpoints with a new key, if so asked."""
        only_parameters(request)
        wanted = await read_as(request, NewCheckpoint)
        anchor = await self._trail.checkpoint(new_key=wanted.new_key)
        return json_response(CheckpointMade(None if anchor is None else anchor.decode()))

    async def _start(self, request: Request) -> int:
        """Return the row to begin after: the last that was seen, the one asked for, or the last."""
        name, given = "Last-Event-ID", request.headers.get("last-event-id")
        if not given:
            name, given = "after", word(request, "after")
        cut, tip = await self._reader.bounds()
        if given is None:
            return tip
        start = number_of(given, name, digits=_DIGITS, wanted=_ROW)
        if start > tip:
            raise wrong(name, f"is beyond the last row, {tip}")
        if start < cut:
            raise Refused("compacted", f"the rows up to {cut} were cut off; begin after={cut}")
        return start

    async def _followed(
        self, number: int, filters: AuditFilters, still: Still
    ) -> AsyncGenerator[sse.Event, None]:
        while True:
            found = await self._reader.after(number, filters, _STRETCH)
            await still()
            for entry in found.entries:
                yield sse.Event(id=str(entry.number), data=entry)
            if found.upto > number:
                number = found.upto
            elif not await self._trail.newer_than(number, BOOKMARK_SECONDS):
                yield sse.Event(event="bookmark", id=str(number), data=Bookmark(number))

    async def _verified(self, still: Still) -> AsyncGenerator[sse.Event, None]:
        async with self._verifying:
            cut, tip = await self._reader.bounds()
            steps = _Steps()
            running = asyncio.ensure_future(asyncio.to_thread(self._trail.verify, steps.take))
            try:
                while not running.done():
                    await still()
                    told = VerifyProgress(checked=steps.checked, total=tip - cut)
                    yield sse.Event(event="progress", data=told)
                    await asyncio.wait({running}, timeout=PROGRESS_SECONDS)
                yield sse.Event(event="result", data=running.result())
            finally:
                steps.wanted = False
                with suppress(_NotWanted):
                    await running

    async def _exported(self, filters: AuditFilters, still: Still) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._reader.export(filters)) as pages:
            async for lines in pages:
                await still()
                yield lines


class _NotWanted(Exception):
    """Nobody waits for the verification any more."""


class _Steps:
    """How far a verification is, on its thread, and whether anybody still wants it."""

    def __init__(self) -> None:
        self.checked = 0
        self.wanted = True

    def take(self, checked: int) -> None:
        self.checked = checked
        if not self.wanted:
            raise _NotWanted


def _filters(request: Request) -> SeenFilters:
    """Read what an entry must be; refuse what no entry can be."""
    given = {name: word(request, name) for name in FILTERS}
    values = {name: _value(name, text) for name, text in given.items() if text is not None}
    return replace(_seen(request), **asdict(msgspec.convert(values, AuditFilters)))


def _seen(request: Request) -> SeenFilters:
    """Return what whoever asks may see: of some tasks alone, if their token is limited to them."""
    return SeenFilters(tasks=query.principal(request).tasks)


def _value(name: str, text: str) -> str | float:
    if name in TIMES:
        return _seconds(name, text)
    if name in CHOICES and text not in CHOICES[name]:
        raise wrong(name, f"must be one of: {', '.join(CHOICES[name])}")
    if not 1 <= len(text) <= LONGEST:
        raise wrong(name, f"must have 1 to {LONGEST} characters")
    return text


def _seconds(name: str, text: str) -> float:
    with suppress(ValueError, OverflowError):
        if re.fullmatch(TIME, text, re.ASCII):
            return seconds_of(text)
    raise wrong(name, f"must be {_TIME}")
