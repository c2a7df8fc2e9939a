"""One kind of record over HTTP: list, get, create, replace, merge, delete, adopt.

Every kind has the same endpoints; servers show their status besides. The ETag of an object is the
revision that last changed it, that of a list the registry's; status moves neither, so whoever
follows status asks without If-None-Match.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.json import is_unchanged, json_response, make_etag, not_modified, read_object
from bascule.asgi.parameters import flag, only_parameters, word
from bascule.control.api import query
from bascule.control.api.presentation import shown
from bascule.control.api.tasks import one_form_of
from bascule.control.registry.merge import merged
from bascule.control.registry.offload import apart
from bascule.control.registry.service import RegistryService, Written
from bascule.control.registry.status import UNKNOWN, combined
from bascule.control.registry.store import Stored
from bascule.model.kinds import COLLECTIONS, KEY_FIELDS, PLATFORM, Kind
from bascule.wire.api.records import (
    LISTS,
    WRITTEN,
    Plain,
    RecordRemoved,
    own_fields,
)

#: The two answers of one address differ by who asks: a node sees literals.
_VARY = {"Vary": "Authorization"}
_CREATED = 201
_WRITING = ("strict", "defaults")


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
        listing = await self._service.list(self._kind)
        etag = make_etag(listing.store_id, listing.revision)
        if is_unchanged(request, etag):
            return not_modified(etag)
        found = [stored for stored in listing.items if cursor is None or stored.id > cursor]
        page = found[:limit]
        is_server = self._kind == "server"
        statuses = await self._service.statuses() if is_server else {}
        unknown = UNKNOWN if is_server else None
        asking = query.principal(request)

        def items() -> tuple[Plain, ...]:
            return tuple(
                shown(one, asking, statuses.get(one.id, unknown), defaults=defaults) for one in page
            )

        body = LISTS[self._kind](
            store_id=listing.store_id,
            revision=listing.revision,
            items=await apart(len(page), items),
            next_cursor=page[-1].id if len(page) < len(found) else None,
        )
        return json_response(body, etag=etag, headers=_VARY)

    async def get(self, request: Request) -> Response:
        """Answer with one record."""
        stored = await self._service.get(self._kind, self._key(request))
        etag = query.tag_of(stored)
        if is_unchanged(request, etag):
            return not_modified(etag)
        body = await self._shown(stored, request)
        return json_response(body, etag=etag, headers=_VARY)

    # --- writing

    async def create(self, request: Request) -> Response:
        """Add a record that names itself: 201, or 409 if there is one of that name."""
        only_parameters(request, *_WRITING)
        data = self._whole(await _fields(request), None)
        written = await self._service.create(
            self._kind, data, query.author(request), strict=flag(request, "strict")
        )
        return await self._answer(request, written, data[KEY_FIELDS[self._kind]], _CREATED)

    async def put(self, request: Request) -> Response:
        """Replace a record, or add it."""
        only_parameters(request, *_WRITING)
        key = self._key(request)
        old = self._service.view.get(self._kind, key)
        data = self._whole(await _fields(request), old)
        written = await self._service.put(
            self._kind,
            key,
            data,
            query.author(request),
            expected_revision=query.expected_revision(request, old),
            strict=flag(request, "strict"),
        )
        status = _CREATED if written.before.get(self._kind, key) is None else 200
        return await self._answer(request, written, key, status)

    async def patch(self, request: Request) -> Response:
        """Merge some fields into a record: null removes one, what is not named stays."""
        only_parameters(request, *_WRITING)
        key = self._key(request)
        old = self._service.view.get(self._kind, key)
        data = self._whole(await _fields(request), old)
        expected = query.expected_revision(request, old)
        # The platform record can be read before it is written, so it can be merged into as well.
        unwritten = self._kind == "platform" and old is None
        write = self._service.put if unwritten else self._service.patch
        written = await write(
            self._kind,
            key,
            merged(self._kind, {}, data) if unwritten else data,
            query.author(request),
            expected_revision=0 if unwritten and expected is None else expected,
            strict=flag(request, "strict"),
        )
        return await self._answer(request, written, key)

    async def delete(self, request: Request) -> Response:
        """Delete a record."""
        only_parameters(request)
        key = self._key(request)
        old = self._service.view.get(self._kind, key)
        written = await self._service.delete(
            self._kind,
            key,
            query.author(request),
            expected_revision=query.expected_revision(request, old),
        )
        return json_response(RecordRemoved(written.revision, key))

    async def adopt(self, request: Request) -> Response:
        """Take a record over from the file that owns it."""
        only_parameters(request, "defaults")
        key = self._key(request)
        written = await self._service.adopt(self._kind, key, query.author(request))
        return await self._answer(request, written, key)

    async def accept(self, request: Request) -> Response:
        """Let in what is proposed for a record."""
        only_parameters(request, "proposal", "defaults")
        key = self._key(request)
        written = await self._service.accept(
            self._kind, key, query.author(request), digest=word(request, "proposal")
        )
        status = _CREATED if written.before.get(self._kind, key) is None else 200
        return await self._answer(request, written, key, status)

    # --- shapes

    def _key(self, request: Request) -> str:
        return request.path_params.get("id", PLATFORM)

    def _whole(self, data: Mapping[str, Any], old: Stored | None) -> Mapping[str, Any]:
        """Return fields in the one form that counts, where a kind has two."""
        return one_form_of(data, old) if self._kind == "task" else data

    async def _shown(self, stored: Stored, request: Request) -> Plain:
        status = None
        if self._kind == "server":
            status = combined(stored.id, await self._service.nodes())
        defaults = flag(request, "defaults", default=True)
        return shown(stored, query.principal(request), status, defaults=defaults)

    async def _answer(
        self, request: Request, written: Written, key: str, status: int = 200
    ) -> Response:
        stored = written.stored(self._kind, key)
        body = WRITTEN[self._kind](
            revision=written.revision,
            changed=written.change is not None,
            record=await self._shown(stored, request),
            warnings=written.warnings,
        )
        address = self.address if self._kind == "platform" else f"{self.address}/{key}"
        place = {"Location": address} if status == _CREATED else {}
        return json_response(body, status, etag=query.tag_of(stored), headers=_VARY | place)


async def _fields(request: Request) -> Plain:
    return own_fields(await read_object(request))
