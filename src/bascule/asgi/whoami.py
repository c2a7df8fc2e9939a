"""``GET /api/v1/identity``: whose token a token is, and which registry stands behind the server.

A client of ours asks it first: the role says what there is to do, the task what may be used. Any
valid token may ask, about itself alone. Below: ``guard.py``. Above: whoever serves callers with
tokens mounts the route.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.guard import GuardedRoute, route
from bascule.asgi.json import json_response
from bascule.auth.identity import Principal, Role

PATH = "/api/v1/identity"


class Position(Struct, frozen=True):
    """Where a registry stands."""

    store_id: str
    revision: int


class Identity(Struct, frozen=True):
    """Who asks, and where the registry stands; ``task`` is for client tokens."""

    name: str
    role: Role
    task: str | None
    store_id: str
    revision: int


def identity_route(position: Callable[[], Position]) -> GuardedRoute:
    """Return the route, for everybody whose token is valid."""

    async def identity(request: Request) -> Response:
        who: Principal = request.scope["principal"]  # the guard lets nobody else come here
        at = position()
        return json_response(Identity(who.name, who.role, who.task_id, at.store_id, at.revision))

    return route(PATH, identity, ["GET"], permission="identity:read")
