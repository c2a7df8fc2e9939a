"""The overview and the nodes over HTTP: how things are going, and what needs attention."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.guard import GuardedRoute, route
from bascule.asgi.json import json_response
from bascule.asgi.parameters import only_parameters
from bascule.audit.figures import WINDOW_SECONDS, RecentFigures
from bascule.clock import Clock, rfc3339
from bascule.control.api import query
from bascule.control.api.attention import Watched
from bascule.control.api.fleet import Fleet
from bascule.control.api.nodes import refuse_part
from bascule.wire.api.addresses import OVERVIEW
from bascule.wire.api.overview import Overview


def overview_routes(
    watched: Watched,
    figures: RecentFigures,
    *,
    clock: Clock,
    versions: Mapping[str, str] | None = None,
) -> list[GuardedRoute]:
    """Return the routes; ``versions`` are those of nodes of which they are known."""
    fleet = Fleet(watched.service, clock, versions or {})
    desk = _Desk(watched, figures, clock, fleet)
    return [
        route(OVERVIEW, desk.overview, ["GET"], permission="registry:read"),
        *fleet.routes(),
    ]


class _Desk:
    def __init__(
        self, watched: Watched, figures: RecentFigures, clock: Clock, fleet: Fleet
    ) -> None:
        self._watched = watched
        self._figures = figures
        self._clock = clock
        self._fleet = fleet

    async def overview(self, request: Request) -> Response:
        """Return the figures of the last two minutes, and what needs attention."""
        only_parameters(request)
        asking = query.principal(request)
        refuse_part(self._watched.service, asking)
        counts = asking.may("metrics:read")
        body = Overview(
            now=rfc3339(self._clock.now()) or "",
            window_seconds=WINDOW_SECONDS,
            figures=self._figures.seconds() if counts else (),
            servers=self._figures.servers() if counts else (),
            attention=await self._watched.attention(asking, self._fleet.nodes()),
        )
        return json_response(body)
