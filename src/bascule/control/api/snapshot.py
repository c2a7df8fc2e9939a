"""The whole registry in one answer, of one revision."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.json import is_unchanged, json_response, make_etag, not_modified
from bascule.asgi.parameters import only_parameters
from bascule.control.api import query
from bascule.control.api.presentation import shown
from bascule.control.registry.errors import FutureRevision, StoreChanged
from bascule.control.registry.offload import apart
from bascule.control.registry.service import RegistryService
from bascule.db.errors import StoreUnavailable
from bascule.model.kinds import COLLECTIONS, KEY_FIELDS
from bascule.model.snapshot import Position, read_position
from bascule.wire.api.snapshot import SnapshotBody


class Whole:
    """The endpoint of the snapshot."""

    def __init__(self, service: RegistryService) -> None:
        self._service = service

    async def snapshot(self, request: Request) -> Response:
        """Answer with every record; its ETag is the position."""
        only_parameters(request)
        asking, known = query.principal(request), _known(request)
        follows = known is None or await self._follows(known)
        view = self._service.view
        etag = make_etag(view.position)
        # A reader that knows no marks has a tag without one.
        same = known is not None and known.store_id and known.agrees(view.position)
        if same or is_unchanged(request, etag):
            return not_modified(etag)

        def body() -> SnapshotBody:
            return SnapshotBody(
                store_id=view.store_id,
                revision=view.revision,
                mark=view.mark,
                predecessor=view.predecessor,
                follows=follows,
                platform=shown(view.platform, asking),
                **{
                    COLLECTIONS[kind]: tuple(shown(stored, asking) for stored in view.of_kind(kind))
                    for kind in KEY_FIELDS
                },
            )

        return json_response(
            await apart(len(view.objects), body), etag=etag, headers={"Vary": "Authorization"}
        )

    async def _follows(self, known: Position) -> bool:
        """Say whether a position is in the past of the newest revision, as far as that is kept."""
        try:
            await self._service.check(known)
        except (StoreChanged, FutureRevision):
            return False
        except StoreUnavailable:
            return True  # what is in memory is served, and nobody can say more
        return True


def _known(request: Request) -> Position | None:
    """Return the position that a reader has, as the ETag of an earlier answer named it."""
    return read_position(request.headers.get("if-none-match", "").strip('"'))
