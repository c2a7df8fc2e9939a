"""``bascule up``: the control plane and a node, joined in one process.

The command line reads the settings, passes on what is announced, and owns the process.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bascule import __version__
from bascule.app.agents import bridge_options, open_agents
from bascule.app.control_plane import (
    ControlPlane,
    guarded,
    open_plane,
    plane_routes,
    plane_works,
    process_routes,
    served_parts,
)
from bascule.app.doors import Doors, Means, open_doors
from bascule.app.isolation_notice import noticed
from bascule.app.local_node import LocalNode, LocalSource
from bascule.app.logs import process_log
from bascule.app.rpc import rpc_served
from bascule.app.serving import Announce, Orders, Work, listening, logger, serve
from bascule.app.settings import Settings
from bascule.app.stores import Demo, Stores, open_stores
from bascule.asgi.guard import GuardedRoute
from bascule.audit.log_lines import say
from bascule.clock import SYSTEM_CLOCK
from bascule.control.envelope import OuterKey
from bascule.db.errors import StoreUnavailable
from bascule.doors.agents.api import agents_routes
from bascule.doors.health import health_of
from bascule.node.assembly import Bridge
from bascule.node.sync.follower import Follower
from bascule.wire.api.health import Health

if TYPE_CHECKING:
    from bascule.manager.fleet import AgentFleet


async def up(
    settings: Settings,
    announce: Announce,
    orders: Orders,
    demo: Demo,
    *,
    new_registry: bool = False,
    secrets_key: OuterKey | None = None,
) -> None:
    """Serve until told to stop, and say on standard error what happens meanwhile.

    ``new_registry`` begins with an empty registry where the one of these tokens is missing.
    """
    with process_log(settings.log):
        async with open_stores(
            settings,
            demo,
            announce.problems,
            new_registry=new_registry,
            secrets_key=secrets_key,
        ) as stores:
            async with parts_of(settings, stores) as parts:
                parts.doors.guests.app = app = guarded(settings, parts.plane, all_routes(parts))
                works = _works(parts, orders)
                rpc = rpc_served(settings, parts.plane, announce)
                listener = noticed(listening(app, settings.server, orders), parts.doors.bridge)
                await serve(settings, stores, app, works, announce, orders, rpc, listener)
            with suppress(StoreUnavailable):  # what it said last is replaced at the next start
                await stores.service.standing.forget_node(stores.node)
        say(logger, logging.INFO, "ended")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the routes of the process speak to."""

    plane: ControlPlane
    doors: Doors
    follower: Follower
    agents: AgentFleet | None = None

    @property
    def stores(self) -> Stores:
        return self.plane.stores


@asynccontextmanager
async def parts_of(settings: Settings, stores: Stores) -> AsyncGenerator[Parts, None]:
    """Open the node over a registry; what is opened last is closed first."""
    service, tokens, secrets = stores.service, stores.tokens, stores.secrets
    bridge = Bridge.open(service.snapshot(), **bridge_options(settings, stores))
    service.known_tools = bridge.known_tools
    means = Means(
        rules=settings.rules(),
        secrets=secrets,
        module_key=tokens.key_for("wasm-cache"),
        records=service.snapshot,
    )
    async with AsyncExitStack() as stack:
        plane = stack.enter_context(
            open_plane(settings, stores, bridge.metrics, running=lambda: bridge.running)
        )
        doors = await stack.enter_async_context(open_doors(settings, bridge, tokens, means))
        if stores.approvals is not None:
            stores.approvals.living = doors.sessions.living
        agents = await stack.enter_async_context(open_agents(settings, stores))
        if secrets is not None:
            for users in (bridge, doors.backends):
                stack.callback(secrets.subscribe(users.renew_secret))
        source = LocalSource(service, SYSTEM_CLOCK, stores.node)
        yield Parts(
            plane=plane,
            doors=doors,
            follower=Follower(source, bridge, remedy=None),
            agents=agents,
        )


def _works(parts: Parts, orders: Orders) -> list[Work]:
    """Return what goes on for as long as the process serves."""
    return [
        parts.follower.run(),
        parts.doors.sessions.keep_clean(),
        *plane_works(parts.plane, orders),
        *([] if parts.agents is None else [parts.agents.follow()]),
    ]


def all_routes(parts: Parts) -> list[GuardedRoute]:
    """Return every route of the process."""
    doors, follower, stores = parts.doors, parts.follower, parts.stores
    bridge = doors.bridge

    def health() -> Health:
        states = (status.state for status in bridge.statuses())
        following = follower.state == "ok"
        troubles = parts.plane.troubles()
        return health_of(follower.revision, states, following=following, troubles=troubles)

    node = LocalNode(bridge, SYSTEM_CLOCK, catch_up=follower.catch_up)
    return [
        *plane_routes(parts.plane, node=node, versions={stores.node: __version__}),
        *doors.routes(
            stores.tokens.key_for,
            approvals=stores.approvals,
            parked=stores.parked,
            serves=served_parts(stores, agents=parts.agents),
        ),
        *([] if parts.agents is None else agents_routes(parts.agents)),
        *process_routes(parts.plane, health),
    ]
