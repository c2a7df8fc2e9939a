"""``GET /api/v1/identity``: whose token a token is, and which registry stands behind the server.

A client of ours asks it first: the role says what there is to do, the task what may be used. Any
valid token may ask, about itself alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.guard import GuardedRoute, route
from bascule.asgi.json import json_response
from bascule.auth.identity import Principal
from bascule.model.snapshot import Position
from bascule.wire.api.addresses import IDENTITY
from bascule.wire.api.tokens import Identity


def identity_route(
    position: Callable[[], Position], serves: Sequence[str] = (), node_url: str | None = None
) -> GuardedRoute:
    """Return the route, for everybody whose token is valid; ``node_url`` is where nodes are."""

    async def identity(request: Request) -> Response:
        """Say whose token this is, and where the registry stands."""
        who: Principal = request.scope["principal"]  # the guard guarantees a principal
        at = position()
        shown = Identity(
            who.name,
            who.role,
            who.task_id,
            at.store_id,
            at.revision,
            person=who.person,
            acts_for_users=who.acts_for_users,
            permissions=who.permissions,
            serves=tuple(serves),
            mark=at.mark,
            node_url=node_url,
        )
        return json_response(shown)

    return route(IDENTITY, identity, ["GET"], permission="identity:read")
