"""The whole registry in one answer, of one revision."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.json import is_unchanged, json_response, make_etag, not_modified
from bascule.asgi.parameters import only_parameters
from bascule.control.api import query
from bascule.control.api.presentation import shown
from bascule.control.registry.offload import apart
from bascule.control.registry.service import RegistryService
from bascule.model.kinds import COLLECTIONS, KEY_FIELDS
from bascule.wire.api.snapshot import SnapshotBody


class Whole:
    """The endpoint of the snapshot."""

    def __init__(self, service: RegistryService) -> None:
        self._service = service

    async def snapshot(self, request: Request) -> Response:
        """Answer with every record; its ETag is the store's id and the revision."""
        only_parameters(request)
        view, asking = self._service.view, query.principal(request)
        etag = make_etag(view.store_id, view.revision)
        if is_unchanged(request, etag):
            return not_modified(etag)

        def body() -> SnapshotBody:
            return SnapshotBody(
                store_id=view.store_id,
                revision=view.revision,
                platform=shown(view.platform, asking),
                **{
                    COLLECTIONS[kind]: tuple(shown(stored, asking) for stored in view.of_kind(kind))
                    for kind in KEY_FIELDS
                },
            )

        return json_response(
            await apart(len(view.objects), body), etag=etag, headers={"Vary": "Authorization"}
        )
