"""The past over HTTP: what changed, how two revisions differ, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.json import json_response, read_as
from bascule.asgi.parameters import flag, only_parameters, word, wrong
from bascule.clock import rfc3339
from bascule.control.api import query
from bascule.control.registry.changes import Touched, touched
from bascule.control.registry.offload import apart
from bascule.control.registry.service import RegistryService, Written
from bascule.control.registry.store import Change, Key
from bascule.model.kinds import KINDS, Kind
from bascule.wire.api.history import (
    Announced,
    Announcement,
    DryRun,
    HistoryEntry,
    HistoryPage,
    RecordName,
    Rollback,
    RolledBack,
)

_PAGE = 50


class History:
    """The endpoints of the past."""

    def __init__(self, service: RegistryService) -> None:
        self._service = service

    async def history(self, request: Request) -> Response:
        """List changes, the newest first; ``next_before`` asks for the page after.

        With ``kind`` and ``id``, those among them that are about one record.
        """
        only_parameters(request, "limit", "before", "kind", "id")
        limit, record = query.limit(request) or _PAGE, _record(request)
        changes = await self._service.history(before=query.revision(request, "before"), limit=limit)
        head = await self._service.head()
        told = await self._touched(changes, head.floor)
        page = HistoryPage(
            store_id=head.store_id,
            revision=head.revision,
            floor=head.floor,
            mark=head.mark,
            predecessor=head.predecessor,
            changes=tuple(
                _entry(one, told[one.revision])
                for one in changes
                if record is None or any(entry.key == record for entry in one.entries)
            ),
            next_before=changes[-1].revision if len(changes) == limit else None,
        )
        return json_response(page)

    async def _touched(self, changes: Sequence[Change], floor: int) -> dict[int, Touched]:
        """Return what the changes did, as far back as records are kept."""
        if not changes:
            return {}
        start = changes[-1].revision - 1
        before = await self._service.snapshot_at(start) if start >= floor else None
        size = 0 if before is None else len(before.servers)
        return await apart(size, partial(touched, before, changes[::-1]))

    async def diff(self, request: Request) -> Response:
        """Compare two revisions in records and in access; without ``to``, with now."""
        old = query.revision(request, "from")
        if old is None:
            raise wrong("from", "is required: a revision number")
        diff = await self._service.diff(
            old, query.revision(request, "to"), environment=word(request, "environment")
        )
        return json_response(diff)

    async def announce(self, request: Request) -> Response:
        """Say which store this one replaces."""
        only_parameters(request)
        wanted = await read_as(request, Announcement)
        head = await self._service.announce(wanted.succeeds, query.author(request))
        return json_response(
            Announced(store_id=head.store_id, revision=head.revision, predecessor=head.predecessor)
        )

    async def rollback(self, request: Request) -> Response:
        """Make the records what they were at a revision, as a new revision."""
        only_parameters(request, "dry_run")
        dry_run = flag(request, "dry_run")
        wanted = await read_as(request, Rollback)
        only: set[Key] | None = None
        if wanted.only is not None:
            only = {(name.kind, name.id) for name in wanted.only}
        by = query.author(request, wanted.note or f"back to revision {wanted.revision}")
        written = await self._service.rollback(wanted.revision, by, only=only, dry_run=dry_run)
        if dry_run:
            return await dry_run_response(self._service, written)
        diff = await self._service.diff_of(written)
        return json_response(RolledBack(written.revision, diff))


async def dry_run_response(service: RegistryService, written: Written) -> Response:
    """Answer with what a write would change, had it not been on trial."""
    diff = await service.diff_of(written)
    answer = DryRun(revision=written.revision, diff=diff, warnings=written.warnings)
    return json_response(answer)


def _record(request: Request) -> Key | None:
    """Return the one record that is asked about, if any."""
    kind, key = word(request, "kind"), word(request, "id")
    if (kind is None) != (key is None):
        raise wrong("id" if key is None else "kind", "is required: kind and id go together")
    if kind is None or key is None:
        return None
    known: Kind | None = next((one for one in KINDS if one == kind), None)
    if known is None:
        raise wrong("kind", f"must be one of: {', '.join(KINDS)}")
    return known, key


def _entry(change: Change, touched: Touched) -> HistoryEntry:
    return HistoryEntry(
        revision=change.revision,
        at=rfc3339(change.at),
        actor=change.actor,
        note=change.note,
        upserts=_names(change, kept=True),
        deletes=_names(change, kept=False),
        created=tuple(RecordName(*key) for key in touched.created),
        fields=touched.fields,
    )


def _names(change: Change, *, kept: bool) -> tuple[RecordName, ...]:
    found = (one for one in change.entries if (one.stored is not None) == kept)
    return tuple(RecordName(one.kind, one.id) for one in found)
