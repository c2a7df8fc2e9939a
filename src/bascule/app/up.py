"""``bascule up``: the control plane and a node, joined in one process.

The command line reads the settings, passes on what is announced, and owns the process.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bascule import __version__
from bascule.app.control_plane import (
    ControlPlane,
    guarded,
    open_plane,
    plane_routes,
    plane_works,
    process_routes,
    served_parts,
)
from bascule.app.data_dir import HOMES_FOLDER
from bascule.app.guest_processes import GuestProcesses
from bascule.app.local_node import LocalNode, LocalSource
from bascule.app.logs import hide, process_log
from bascule.app.serving import Announce, Orders, Work, logger, serve
from bascule.app.settings import Settings
from bascule.app.stored_records import with_servers
from bascule.app.stores import Demo, Stores, open_stores
from bascule.asgi.guard import GuardedRoute
from bascule.audit.log_lines import say
from bascule.auth.tokens import Tokens
from bascule.clock import SYSTEM_CLOCK
from bascule.control.envelope import OuterKey
from bascule.db.errors import StoreUnavailable
from bascule.demo.rehearsal import REHEARSAL, Rehearsal
from bascule.doors.agents.api import agents_routes
from bascule.doors.chat.api import ChatParts, chat_routes
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.gateway import Gateway
from bascule.doors.health import health_of
from bascule.doors.hostcalls.api import GuestRules, guest_routes
from bascule.doors.hostcalls.module_cache import MODULES_FOLDER
from bascule.doors.hostcalls.orders import KeptModules
from bascule.doors.sessions import Sessions
from bascule.doors.tools.api import tools_routes
from bascule.loop.backends import Backends
from bascule.loop.budgets import DEFAULT_SETTINGS, LoopSettings
from bascule.node.assembly import Bridge, BridgeOptions
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
                parts.guests.app = app = guarded(settings, parts.plane, all_routes(parts))
                works = _works(parts, orders)
                await serve(settings, stores, app, works, announce, orders)
            with suppress(StoreUnavailable):  # what it said last is replaced at the next start
                await stores.service.standing.forget_node(stores.node)
        say(logger, logging.INFO, "ended")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the routes of the process speak to."""

    plane: ControlPlane
    bridge: Bridge
    sessions: Sessions
    follower: Follower
    backends: Backends
    loop: LoopSettings = DEFAULT_SETTINGS
    #: Whose pages may use the gateway.
    origins: tuple[str, ...] = ()
    agents: AgentFleet | None = None
    guests: GuestProcesses
    guest_rules: GuestRules

    @property
    def stores(self) -> Stores:
        return self.plane.stores


@asynccontextmanager
async def parts_of(settings: Settings, stores: Stores) -> AsyncGenerator[Parts, None]:
    """Open the node over a registry; what is opened last is closed first."""
    service, tokens, secrets = stores.service, stores.tokens, stores.secrets
    options = _bridge_options(settings, stores)
    bridge = Bridge.open(service.snapshot(), **options)
    service.known_tools = bridge.known_tools
    hide(lambda: bridge.caller.reference_values)
    async with AsyncExitStack() as stack:
        plane = stack.enter_context(
            open_plane(settings, stores, bridge.metrics, running=lambda: bridge.running)
        )
        await stack.enter_async_context(bridge)
        sessions = await stack.enter_async_context(Sessions(bridge, tokens))
        if stores.approvals is not None:
            stores.approvals.living = sessions.living
        backends = Backends(
            service.snapshot,
            rules=settings.rules(),
            built_in={REHEARSAL: Rehearsal()},
            secrets=secrets,
        )
        hide(lambda: backends.known_values)
        stack.push_async_callback(backends.close)
        agents = None if settings.agents is None else _fleet(settings.agents, options)
        if agents is not None:
            hide(lambda: agents.reference_values)
            if secrets is not None:
                secrets.records = lambda: with_servers(service.snapshot(), agents.secret_users())
            await stack.enter_async_context(agents)
        if secrets is not None:
            for users in filter(None, (bridge, backends, agents)):
                stack.callback(secrets.subscribe(users.renew_secret))
        source = LocalSource(service, SYSTEM_CLOCK, stores.node)
        yield Parts(
            plane=plane,
            bridge=bridge,
            sessions=sessions,
            follower=Follower(source, bridge, own_registry=True),
            backends=backends,
            loop=settings.chat.loop(),
            origins=settings.gateway.origins,
            agents=agents,
            guests=await stack.enter_async_context(
                GuestProcesses(bridge.ledger, _modules(settings, tokens), settings.chat.loop())
            ),
            guest_rules=_guest_rules(settings),
        )


def _bridge_options(settings: Settings, stores: Stores) -> BridgeOptions:
    return {
        "rules": settings.rules(),
        "environment": settings.environment,
        "settings": settings.node.limits(),
        "ledger": stores.ledger,
        "homes": Path(settings.data_dir) / HOMES_FOLDER,
        "secrets": stores.secrets,
        "approver": stores.approvals,
    }


def _guest_rules(settings: Settings) -> GuestRules:
    node = settings.node
    return GuestRules(
        lists=settings.rules(),
        most=node.max_guests,
        seconds=node.guest_seconds,
        memory_bytes=node.guest_memory_mb * 1024 * 1024,
    )


def _modules(settings: Settings, tokens: Tokens) -> KeptModules:
    folder = Path(settings.data_dir).resolve() / MODULES_FOLDER
    return KeptModules(str(folder), tokens.key_for("wasm-cache"))


def _fleet(file: str, options: BridgeOptions) -> AgentFleet:
    from bascule.manager.fleet import AgentFleet  # noqa: PLC0415 - few processes have agents

    return AgentFleet(file, **options)


def _works(parts: Parts, orders: Orders) -> list[Work]:
    """Return what goes on for as long as the process serves."""
    return [
        parts.follower.run(),
        parts.sessions.keep_clean(),
        *plane_works(parts.plane, orders),
        *([] if parts.agents is None else [parts.agents.follow()]),
    ]


def all_routes(parts: Parts) -> list[GuardedRoute]:
    """Return every route of the process."""
    bridge, follower, stores = parts.bridge, parts.follower, parts.stores

    def health() -> Health:
        states = (status.state for status in bridge.statuses())
        following = follower.state == "ok"
        troubles = parts.plane.troubles()
        return health_of(follower.revision, states, following=following, troubles=troubles)

    node = LocalNode(bridge, SYSTEM_CLOCK, catch_up=follower.catch_up)
    bridge.metrics.gateway = gateway = Gateway(parts.sessions, stores.tokens.key_for)
    serves = served_parts(stores, agents=parts.agents)
    return [
        *plane_routes(parts.plane, node=node, versions={stores.node: __version__}),
        *tools_routes(parts.sessions, stores.approvals, serves=serves),
        *guest_routes(parts.sessions, parts.guests, parts.guest_rules),
        *gateway_routes(gateway, parts.origins),
        *chat_routes(parts.sessions, parts.backends, _chat_parts(parts)),
        *([] if parts.agents is None else agents_routes(parts.agents)),
        *process_routes(parts.plane, health),
    ]


def _chat_parts(parts: Parts) -> ChatParts:
    return ChatParts(
        settings=parts.loop,
        metrics=parts.bridge.metrics,
        parked=parts.stores.parked,
        questions=parts.stores.approvals,
    )
