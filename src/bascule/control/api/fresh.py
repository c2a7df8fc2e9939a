"""A read that may not be older than a revision: ``at_least=REVISION``.

Whoever has written through one replica, or heard of a revision elsewhere, asks for no less at the
next one. A replica that is behind catches up first, or says that it cannot.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode

from starlette.requests import Request

from bascule.asgi.errors import Refused
from bascule.control.api import query
from bascule.control.registry.service import RegistryService
from bascule.db.errors import StoreUnavailable

NAME = "at_least"
#: How long a read waits for its revision.
CATCH_UP_SECONDS = 2.0


async def at_least(request: Request, service: RegistryService) -> Request:
    """Wait until the revision that a read asks for is here; return the read without it.

    Raise Refused if it does not come.
    """
    wanted = query.revision(request, NAME)
    if wanted is None:
        return request
    await reached(service, wanted)
    kept = [pair for pair in request.query_params.multi_items() if pair[0] != NAME]
    scope = {**request.scope, "query_string": urlencode(kept).encode()}
    return Request(scope, request.receive)


async def reached(service: RegistryService, wanted: int) -> None:
    """Wait until a revision is here; raise Refused if it does not come."""
    if service.view.revision >= wanted:
        return
    why = ""
    try:
        async with asyncio.timeout(CATCH_UP_SECONDS):
            await service.catch_up()
    except TimeoutError:
        why = f": it did not catch up within {CATCH_UP_SECONDS:g} s"
    except StoreUnavailable as error:
        why = f": {error}"
    here = service.view.revision
    if here < wanted:
        raise Refused(
            StoreUnavailable.code,
            f"{NAME}: this replica has revision {here}, and {wanted} is not here yet{why}",
            details={"parameter": NAME, "revision": here},
        )
