"""The overview and the nodes over HTTP: how things are going, and what needs attention."""

from __future__ import annotations

from collections import Counter
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
from bascule.control.registry.status import NodeReport
from bascule.wire.api.addresses import NODES, OVERVIEW
from bascule.wire.api.overview import NodeList, NodeShown, Overview


def overview_routes(
    watched: Watched,
    figures: RecentFigures,
    *,
    clock: Clock,
    versions: Mapping[str, str] | None = None,
) -> list[GuardedRoute]:
    """Return the routes; ``versions`` are those of nodes of which they are known."""
    desk = _Desk(watched, figures, clock, versions or {})
    return [
        route(OVERVIEW, desk.overview, ["GET"], permission="registry:read"),
        route(NODES, desk.nodes, ["GET"], permission="nodes:read"),
    ]


class _Desk:
    def __init__(
        self, watched: Watched, figures: RecentFigures, clock: Clock, versions: Mapping[str, str]
    ) -> None:
        self._watched = watched
        self._standing = watched.service.standing
        self._figures = figures
        self._clock = clock
        self._versions = versions

    async def overview(self, request: Request) -> Response:
        """Return the figures of the last two minutes, and what needs attention."""
        only_parameters(request)
        asking = query.principal(request)
        counts = asking.may("metrics:read")
        body = Overview(
            now=rfc3339(self._clock.now()) or "",
            window_seconds=WINDOW_SECONDS,
            figures=self._figures.seconds() if counts else (),
            servers=self._figures.servers() if counts else (),
            attention=await self._watched.attention(asking, self._nodes()),
        )
        return json_response(body)

    async def nodes(self, request: Request) -> Response:
        """List the nodes, with what each reported last."""
        only_parameters(request)
        return json_response(NodeList(self._nodes()))

    def _nodes(self) -> tuple[NodeShown, ...]:
        return tuple(self._shown(report) for report in self._standing.nodes())

    def _shown(self, report: NodeReport) -> NodeShown:
        states = Counter(status.state for status in report.servers)
        return NodeShown(
            name=report.node,
            state=self._standing.silence_of(report) or report.state,
            revision=report.revision,
            version=self._versions.get(report.node),
            last_seen=rfc3339(report.at),
            servers=dict(sorted(states.items())),
            doubled_at=rfc3339(self._standing.doubled.get(report.node)),
            reason=report.reason,
        )
