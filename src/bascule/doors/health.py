"""Whether the process is well: ``/healthz``, ``/readyz`` and ``/metrics``.

Health and readiness need no token, so they tell how many servers there are in which state and not
their names, and what kind of trouble there is. The words of a trouble name hosts and replicas: they
are for those who may read the metrics, and for the owner of the data directory. A server that is
down shows in health, as does a PostgreSQL that is away; the process stays ready, since nobody is
helped when it is taken out of service for it. One whose own store refuses writes is not ready, and
says why.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.guard import OPEN, GuardedRoute, route
from bascule.asgi.json import json_response
from bascule.audit.metrics import Metrics
from bascule.auth.identity import Principal
from bascule.model.status import UNWELL
from bascule.wire.api.health import (
    NODE_REFUSED,
    NOT_FOLLOWING,
    STALE,
    UNWELL_SERVERS,
    Health,
    Ready,
)

#: Troubles whose own words name nothing, and what anybody may read of the others.
_NAMELESS = frozenset({UNWELL_SERVERS})
_OPEN_WORDS: Mapping[str, str] = {
    NOT_FOLLOWING: "the node does not follow the registry; it serves what it knows",
    STALE: "the node has not heard from its control plane for too long, and calls nothing",
    NODE_REFUSED: "the control plane refuses the node, which calls nothing any more",
    "registry_unwritable": "the registry cannot be written to",
    "ledger_unwritable": "the ledger cannot be written to, and calls that write do not leave",
    "ledger_behind": "the database of the ledger does not take what happens",
    "snapshot_unwritable": "what the node knows cannot be kept for its next start",
    "files_differ": "the files of this replica are not those that count",
    "backends_differ": "the backends of this replica's settings are not those that count",
}
_TEXT = "text/plain; version=1.0.0; charset=utf-8"


def health_of(
    revision: int,
    states: Iterable[str],
    *,
    following: bool,
    problem: str | None = None,
    troubles: Mapping[str, str] | None = None,
) -> Health:
    """Return the health of a process at a revision, with its servers in these states.

    ``problem`` is why it does not follow its registry, ``troubles`` what else is wrong, by code.
    """
    counted = dict(sorted(Counter(states).items()))
    reasons = dict(troubles or {})
    if not following:
        words = _OPEN_WORDS[NOT_FOLLOWING]
        reasons[NOT_FOLLOWING] = words if problem is None else f"{words}: {problem}"
    unwell = sum(count for state, count in counted.items() if state in UNWELL)
    if unwell:
        reasons[UNWELL_SERVERS] = f"{unwell} of {sum(counted.values())} servers are not well"
    return Health("degraded" if reasons else "ok", revision, counted, reasons)


def in_the_open(health: Health) -> Health:
    """Return what anybody may know of a process's health."""
    words = {
        code: said if code in _NAMELESS else _OPEN_WORDS.get(code, "see: bascule doctor")
        for code, said in health.reasons.items()
    }
    return replace(health, reasons=words)


def health_routes(
    health: Callable[[], Health],
    metrics: Metrics,
    refusal: Callable[[], str | None] = lambda: None,
    by_owner: Callable[[Request], bool] = lambda _: False,
) -> list[GuardedRoute]:
    """Return the routes of a process that serves; ``refusal`` says what it cannot write, if so.

    ``by_owner`` says who is told everything without a token.
    """

    async def healthz(request: Request) -> Response:
        """Say how the process is."""
        asking: Principal | None = request.scope["principal"]
        told = asking is not None and asking.may("metrics:read")
        return json_response(health() if told or by_owner(request) else in_the_open(health()))

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
        now = health()
        metrics.degraded, metrics.revision = tuple(now.reasons), now.revision
        metrics.nodes = metrics.count_nodes()
        return Response(await asyncio.to_thread(metrics.render), media_type=_TEXT)

    return [
        route("/healthz", healthz, ["GET"], permission=OPEN),
        route("/readyz", readyz, ["GET"], permission=OPEN),
        route("/metrics", figures, ["GET"], permission="metrics:read"),
    ]
