"""Whether the process is well: ``/healthz``, ``/readyz`` and ``/metrics``.

Health and readiness need no token, so they tell how many servers there are in which state and not
their names. A server that is down shows in health, as does a PostgreSQL that is away; the process
stays ready, since nobody is helped when it is taken out of service for it. One whose own store
refuses writes is not ready, and says why.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.guard import OPEN, GuardedRoute, route
from bascule.asgi.json import json_response
from bascule.audit.metrics import Metrics
from bascule.model.status import UNWELL
from bascule.wire.api.health import UNWELL_SERVERS, Health, Ready

_TEXT = "text/plain; version=1.0.0; charset=utf-8"


def health_of(
    revision: int,
    states: Iterable[str],
    *,
    following: bool,
    troubles: Mapping[str, str] | None = None,
) -> Health:
    """Return the health of a process at a revision, with its servers in these states.

    ``troubles`` are what else is wrong, by code.
    """
    counted = dict(sorted(Counter(states).items()))
    reasons = dict(troubles or {})
    if not following:
        reasons["not_following"] = "the node does not follow the registry; it serves what it knows"
    unwell = sum(count for state, count in counted.items() if state in UNWELL)
    if unwell:
        reasons[UNWELL_SERVERS] = f"{unwell} of {sum(counted.values())} servers are not well"
    return Health("degraded" if reasons else "ok", revision, counted, reasons)


def health_routes(
    health: Callable[[], Health],
    metrics: Metrics,
    refusal: Callable[[], str | None] = lambda: None,
) -> list[GuardedRoute]:
    """Return the routes of a process that serves; ``refusal`` says what it cannot write, if so."""

    async def healthz(request: Request) -> Response:
        """Say how the process is."""
        del request
        return json_response(health())

    async def readyz(request: Request) -> Response:
        """Say whether the process serves and can write."""
        del request
        reason = refusal()
        if reason is not None:
            raise Refused("store_unavailable", reason)
        return json_response(Ready())

    async def figures(request: Request) -> Response:
        """Give the figures."""
        del request
        metrics.degraded = tuple(health().reasons)
        return Response(await asyncio.to_thread(metrics.render), media_type=_TEXT)

    return [
        route("/healthz", healthz, ["GET"], permission=OPEN),
        route("/readyz", readyz, ["GET"], permission=OPEN),
        route("/metrics", figures, ["GET"], permission="metrics:read"),
    ]
