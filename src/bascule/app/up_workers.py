"""``bascule up --workers N``: the control plane in this process, and N nodes beside it.

The workers have the port. What they are asked and only the control plane knows, they hand over to
it; it follows no registry, and holds no connection itself but those of agents (``--agents``).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from bascule.app.agents import open_agents
from bascule.app.control_plane import ControlPlane, guarded, open_plane, plane_works
from bascule.app.logs import process_log
from bascule.app.registry_serve import registry_only
from bascule.app.rpc import rpc_for_workers, rpc_served
from bascule.app.serving import Announce, Orders, logger, serve
from bascule.app.settings import Settings
from bascule.app.stores import Demo, open_stores
from bascule.app.worker_front import PLANE_SOCKET
from bascule.app.worker_link import Crew, SentNode
from bascule.app.workers import Meeting, SharedPort, Workers, orders_for
from bascule.app.workers_token import WorkersToken
from bascule.asgi.forwarded import ForwardedRequests
from bascule.asgi.guard import GuardedApp
from bascule.audit.log_lines import say
from bascule.audit.metrics import Metrics
from bascule.control.envelope import OuterKey
from bascule.node.leftovers import owned_folder

if TYPE_CHECKING:
    from bascule.manager.fleet import AgentFleet

RPC_SOCKET = "grpc"


async def up_with_workers(
    settings: Settings,
    announce: Announce,
    orders: Orders,
    demo: Demo,
    *,
    new_registry: bool = False,
    secrets_key: OuterKey | None = None,
) -> None:
    """Serve until told to stop, and say on standard error what happens meanwhile."""
    with process_log(settings.log):
        async with open_stores(
            settings,
            demo,
            announce.problems,
            new_registry=new_registry,
            secrets_key=secrets_key,
        ) as stores:
            with open_plane(settings, stores, Metrics()) as plane:
                async with open_agents(settings, stores) as agents:
                    await _serve(settings, plane, announce, orders, agents)
        say(logger, logging.INFO, "ended")


async def _serve(
    settings: Settings,
    plane: ControlPlane,
    announce: Announce,
    orders: Orders,
    agents: AgentFleet | None,
) -> None:
    crew = Crew()
    app = guarded(settings, plane, registry_only(plane, crew.troubles, agents))
    works = [*plane_works(plane, orders), *([] if agents is None else [agents.follow()])]
    rpc = rpc_served(settings, plane, announce)
    listener = _listening(settings, plane, app, orders, crew)
    await serve(settings, plane.stores, app, works, announce, orders, rpc, listener)


@asynccontextmanager
async def _listening(
    settings: Settings, plane: ControlPlane, app: GuardedApp, orders: Orders, crew: Crew
) -> AsyncGenerator[Workers, None]:
    """Have workers serve; what is opened last is closed first."""
    tokens = WorkersToken(plane.stores.node)
    plane.stores.service.standing.own.add(plane.stores.node)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        meeting = Meeting(stack.enter_context(owned_folder("workers-")))
        port = await enter(SharedPort(settings.server))
        address = await enter(rpc_for_workers(plane, meeting.folder / RPC_SOCKET, tokens))
        node = SentNode(registry=address, token=tokens.token)
        orders_of = orders_for(settings, node, port, meeting, has_plane=True)
        workers = Workers(orders_of, port, orders, settings.node.workers, crew)
        await enter(_plane_requests(app, meeting, orders, port.drain_seconds))
        yield await enter(workers)


def _plane_requests(
    app: GuardedApp, meeting: Meeting, orders: Orders, seconds: float
) -> ForwardedRequests:
    """Return what takes the requests that workers hand over, to be entered."""
    place, stop, hurry = meeting.folder / PLANE_SOCKET, orders.stop, orders.hurry
    return ForwardedRequests(
        app, place, meeting.key, draining=stop, hurry=hurry, drain_seconds=seconds
    )
