"""One kind of record over HTTP: list, get, create, replace, merge, delete, adopt.

Every kind has the same endpoints; servers show their status besides. The ETag of an object is the
revision that last changed it, that of a list the registry's; status moves neither, so whoever
follows status asks without If-None-Match. With ``?dry_run=true`` a write is checked as ever and
answered with what it would change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.accept import JSON, TOML, prefers
from bascule.asgi.json import is_unchanged, json_response, make_etag, not_modified, read_object
from bascule.asgi.parameters import flag, only_parameters, word
from bascule.control.api import query
from bascule.control.api.history import dry_run_response
from bascule.control.api.presentation import shown
from bascule.control.registry.merge import merged
from bascule.control.registry.offload import apart
from bascule.control.registry.plan import Edit
from bascule.control.registry.service import RegistryService, Written
from bascule.control.registry.status import UNKNOWN, CombinedStatus
from bascule.control.registry.store import Stored
from bascule.model.kinds import COLLECTIONS, KEY_FIELDS, PLATFORM, Kind
from bascule.wire.api.proposals import ProposalRefused
from bascule.wire.api.records import (
    LISTS,
    WRITTEN,
    Plain,
    RecordRemoved,
    own_fields,
)
from bascule.wire.record_toml import toml_of

#: The two answers of one address differ by who asks: a node sees literals.
_VARY = {"Vary": "Authorization"}
#: One record is also given as a file has it, to whoever prefers that.
_VARY_ONE = {"Vary": "Authorization, Accept"}
_CREATED = 201


class Records:
    """The endpoints of one kind."""

    def __init__(self, service: RegistryService, kind: Kind, prefix: str) -> None:
        self._service = service
        self._kind: Kind = kind
        self.address = f"{prefix}/{COLLECTIONS[kind]}"

    # --- reading

    async def list(self, request: Request) -> Response:
        """Answer with the records in the order of their keys, all of them or a page."""
        limit, cursor = query.limit(request), query.cursor(request)
        defaults = flag(request, "defaults", default=True)
        view, asking = self._service.view, query.principal(request)
        etag = make_etag(view.position)
        if is_unchanged(request, etag):
            return not_modified(etag)
        found = [one for one in view.of_kind(self._kind) if cursor is None or one.id > cursor]
        page = found[:limit]
        status_of = await self._statuses()

        def items() -> tuple[Plain, ...]:
            return tuple(shown(one, asking, status_of(one.id), defaults=defaults) for one in page)

        body = LISTS[self._kind](
            store_id=view.store_id,
            revision=view.revision,
            mark=view.mark,
            items=await apart(len(page), items),
            next_cursor=page[-1].id if len(page) < len(found) else None,
        )
        return json_response(body, etag=etag, headers=_VARY)

    async def get(self, request: Request) -> Response:
        """Answer with one record, as JSON or as TOML."""
        flag(request, "defaults")  # what is wrong is refused to whoever has the record, too
        stored = await self._service.get(self._kind, self._key(request))
        etag = query.tag_of(stored)
        if is_unchanged(request, etag):
            return not_modified(etag)
        body = self._shown(stored, request)
        if prefers(request, TOML, to=JSON):
            text = toml_of(body)
            return Response(text, media_type=TOML, headers={**_VARY_ONE, "ETag": etag})
        return json_response(body, etag=etag, headers=_VARY_ONE)

    # --- writing

    async def create(self, request: Request) -> Response:
        """Add a record that names itself: 201, or 409 if there is one of that name."""
        dry_run = _check_write(request, "strict")
        data = await read_object(request)
        strict, by = flag(request, "strict"), query.author(request)
        written = await self._service.create(self._kind, data, by, strict=strict, dry_run=dry_run)
        if dry_run:
            return await dry_run_response(self._service, written)
        return await self._answer(request, written, str(data[KEY_FIELDS[self._kind]]))

    async def put(self, request: Request) -> Response:
        """Replace a record, or add it."""
        return await self._edit(request, "put")

    async def patch(self, request: Request) -> Response:
        """Merge some fields into a record: null removes one, what is not named stays."""
        return await self._edit(request, "merge")

    async def _edit(self, request: Request, op: Literal["put", "merge"]) -> Response:
        dry_run = _check_write(request, "strict")
        key = self._key(request)
        old = self._service.view.get(self._kind, key)
        data = await read_object(request)
        expected = query.expected_revision(request, old)
        # The platform record can be read before it is written, so it can be merged into as well.
        if op == "merge" and self._kind == "platform" and old is None:
            op, data, expected = "put", merged(self._kind, {}, own_fields(data)), expected or 0
        edit = Edit(kind=self._kind, key=key, op=op, data=data, expected=expected)
        strict, by = flag(request, "strict"), query.author(request)
        written = await self._service.apply([edit], by, strict=strict, dry_run=dry_run)
        if dry_run:
            return await dry_run_response(self._service, written)
        return await self._answer(request, written, key)

    async def delete(self, request: Request) -> Response:
        """Delete a record."""
        only_parameters(request, "dry_run")
        dry_run, key = flag(request, "dry_run"), self._key(request)
        expected = query.expected_revision(request, self._service.view.get(self._kind, key))
        edit = Edit(kind=self._kind, key=key, op="delete", expected=expected)
        written = await self._service.apply([edit], query.author(request), dry_run=dry_run)
        if dry_run:
            return await dry_run_response(self._service, written)
        return json_response(RecordRemoved(written.revision, key))

    async def adopt(self, request: Request) -> Response:
        """Take a record over from the file that owns it."""
        _check_parameters(request)
        key = self._key(request)
        written = await self._service.adopt(self._kind, key, query.author(request))
        return await self._answer(request, written, key)

    async def accept(self, request: Request) -> Response:
        """Let in what is proposed for a record."""
        _check_parameters(request, "proposal")
        key, digest = self._key(request), word(request, "proposal")
        written = await self._service.accept(self._kind, key, query.author(request), digest=digest)
        return await self._answer(request, written, key)

    async def refuse(self, request: Request) -> Response:
        """Refuse what is proposed for a record; it is forgotten."""
        only_parameters(request, "proposal")
        key, digest = self._key(request), word(request, "proposal")
        await self._service.acceptance.refuse(self._service.view, (self._kind, key), digest)
        return json_response(ProposalRefused(self._kind, key))

    # --- shapes

    def _key(self, request: Request) -> str:
        return request.path_params.get("id", PLATFORM)

    async def _statuses(self) -> Callable[[str], CombinedStatus | None]:
        """Return what says how a server stands; other kinds have no status."""
        if self._kind != "server":
            return lambda _: None
        statuses = await self._service.statuses()
        return lambda server_id: statuses.get(server_id, UNKNOWN)

    def _shown(self, stored: Stored, request: Request) -> Plain:
        status = self._service.standing.status(stored.id) if self._kind == "server" else None
        defaults = flag(request, "defaults", default=True)
        return shown(stored, query.principal(request), status, defaults=defaults)

    async def _answer(self, request: Request, written: Written, key: str) -> Response:
        stored = written.stored(self._kind, key)
        body = WRITTEN[self._kind](
            revision=written.revision,
            changed=written.change is not None,
            record=self._shown(stored, request),
            warnings=written.warnings,
        )
        etag = query.tag_of(stored)
        if request.method == "PATCH" or written.before.get(self._kind, key) is not None:
            return json_response(body, etag=etag, headers=_VARY)
        address = self.address if self._kind == "platform" else f"{self.address}/{key}"
        return json_response(body, _CREATED, etag=etag, headers={**_VARY, "Location": address})


def _check_parameters(request: Request, *names: str) -> None:
    """Refuse what is wrong with the answer's own parameter before anything is written."""
    only_parameters(request, "defaults", *names)
    flag(request, "defaults")


def _check_write(request: Request, *names: str) -> bool:
    """Refuse what is wrong with a write's parameters; say whether it is a dry run."""
    _check_parameters(request, "dry_run", *names)
    return flag(request, "dry_run")
