"""``bascule registry serve``: the control plane alone, for nodes and people elsewhere.

It holds no connection to a server and has no door through which a tool is called. What only a node
can answer, it asks one that follows it; without any, its API answers with ``no_node``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from bascule.app.control_plane import (
    ControlPlane,
    guarded,
    open_plane,
    plane_routes,
    plane_works,
    process_routes,
    served_parts,
)
from bascule.app.logs import process_log
from bascule.app.rpc import rpc_served
from bascule.app.serving import Announce, Orders, logger, serve
from bascule.app.settings import Settings
from bascule.app.stores import open_stores
from bascule.asgi.guard import GuardedRoute
from bascule.asgi.whoami import Position, identity_route
from bascule.audit.log_lines import say
from bascule.audit.metrics import Metrics
from bascule.control.envelope import OuterKey
from bascule.doors.agents.api import agents_routes
from bascule.doors.agents.ports import Agents
from bascule.doors.health import health_of
from bascule.wire.api.health import Health


async def serve_registry(
    settings: Settings,
    announce: Announce,
    orders: Orders,
    *,
    new_registry: bool = False,
    secrets_key: OuterKey | None = None,
) -> None:
    """Serve until told to stop, and say on standard error what happens meanwhile."""
    with process_log(settings.log):
        unused = [*_unused(settings)]
        if unused:
            announce.problems(unused)
        async with open_stores(
            settings,
            None,
            announce.problems,
            new_registry=new_registry,
            secrets_key=secrets_key,
        ) as stores:
            with open_plane(settings, stores, Metrics()) as plane:
                app, works = (
                    guarded(settings, plane, registry_only(plane)),
                    plane_works(plane, orders),
                )
                rpc = rpc_served(settings, plane, announce, by_default=True)
                await serve(settings, stores, app, works, announce, orders, rpc)
        say(logger, logging.INFO, "ended")


def _unused(settings: Settings) -> Iterator[str]:
    """Yield which settings have no meaning without a node, of those that look as if they had."""
    if settings.agents is not None:
        yield "agents: a control plane alone connects no servers, so this file is not read"
    if settings.node.workers > 1:
        yield "node.workers: a control plane alone is one process, and has no workers"


def registry_only(
    plane: ControlPlane,
    others: Callable[[], Mapping[str, str]] = dict,
    agents: Agents | None = None,
) -> list[GuardedRoute]:
    """Return every route of a control plane alone; ``others`` are troubles beside its own.

    Only one with workers has ``agents``.
    """
    service = plane.stores.service

    def health() -> Health:
        troubles = {**plane.troubles(), **others()}
        return health_of(service.view.revision, (), following=True, troubles=troubles)

    def position() -> Position:
        return Position(service.view.store_id, service.view.revision)

    return [
        *plane_routes(plane),
        *([] if agents is None else agents_routes(agents)),
        identity_route(position, served_parts(plane.stores, agents=agents), plane.node_url),
        *process_routes(plane, health),
    ]
