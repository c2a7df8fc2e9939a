"""``bascule up``: the registry, its API and a node, joined in one process.

Everything is opened from below and closed in the opposite order: the server drains, what runs
beside it ends, sessions and connections are closed, then the stores. The command line reads the
settings, passes on what is announced, and owns the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

from bascule import __version__
from bascule.app.data_dir import (
    HOMES_FOLDER,
    SETUP_FILE,
    published,
)
from bascule.app.guest_processes import GuestProcesses
from bascule.app.instance import instance_routes
from bascule.app.local_node import NODE_NAME, LocalNode, LocalSource
from bascule.app.logs import hide, process_log
from bascule.app.settings import ServerSettings, Settings
from bascule.app.stored_records import with_servers
from bascule.app.stores import Demo, Stores, open_stores
from bascule.asgi.bounded_http import Limits
from bascule.asgi.connections import Caps
from bascule.asgi.guard import LOOPBACK_HOSTS, GuardedApp, GuardedRoute, GuardRules
from bascule.asgi.reference import reference_routes
from bascule.asgi.serve import Serving, Tls
from bascule.audit.events import AccessRefused
from bascule.audit.figures import RecentFigures
from bascule.audit.log_lines import say, say_approval, say_refused
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.audit.trail import LedgerTrail
from bascule.auth.links import Links, make_link
from bascule.auth.token_request import TokenRequest
from bascule.auth.tokens import PROCESS, Tokens
from bascule.clock import SYSTEM_CLOCK
from bascule.control.api.approvals import approval_routes
from bascule.control.api.attention import Watched
from bascule.control.api.audit import audit_routes
from bascule.control.api.live import Live
from bascule.control.api.login import login_routes
from bascule.control.api.overview import overview_routes
from bascule.control.api.rest import registry_routes
from bascule.control.api.secrets import secret_routes
from bascule.control.api.tokens import token_routes
from bascule.control.approval_hook import ApprovalHook, open_hook
from bascule.control.envelope import OuterKey
from bascule.control.web.page import page_routes
from bascule.db.errors import StoreUnavailable
from bascule.demo.rehearsal import REHEARSAL, Rehearsal
from bascule.doors.agents.api import agents_routes
from bascule.doors.chat.api import ChatParts, chat_routes
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.gateway import Gateway
from bascule.doors.health import health_of, health_routes
from bascule.doors.hostcalls.api import GuestRules, guest_routes
from bascule.doors.hostcalls.module_cache import MODULES_FOLDER
from bascule.doors.hostcalls.orders import KeptModules
from bascule.doors.sessions import Sessions
from bascule.doors.tools.api import tools_routes
from bascule.loop.backends import Backends
from bascule.loop.budgets import DEFAULT_SETTINGS, LoopSettings
from bascule.node.assembly import Bridge, BridgeOptions
from bascule.node.sync.follower import Follower
from bascule.policy.compose import admitted
from bascule.wire.api.health import Health

if TYPE_CHECKING:
    from bascule.manager.fleet import AgentFleet

Work: TypeAlias = Coroutine[object, object, None]
logger = logging.getLogger("bascule.up")


class Announce(Protocol):
    """Told what whoever started the process wants to know."""

    #: Whether a link to the admin page may be shown: to a person, never to a log.
    @property
    def shows_links(self) -> bool: ...

    def serving(
        self, url: str, setup_token: str | None, setup_file: Path, code: str | None
    ) -> None:
        """Say that the process serves; a setup token is given once, on the first start.

        ``code`` opens the admin page, if links may be shown.
        """
        ...

    def problems(self, problems: Sequence[str]) -> None:
        """Say which records were left out, and why, and what is doubtful about the others."""
        ...


class Orders(Struct, frozen=True):
    """What signals ask for."""

    stop: asyncio.Event
    reload: asyncio.Event
    #: After ``stop``: do not wait for calls under way.
    hurry: asyncio.Event


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
            await _serve(settings, stores, announce, orders)
        say(logger, logging.INFO, "ended")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the routes of the process speak to."""

    stores: Stores
    bridge: Bridge
    sessions: Sessions
    follower: Follower
    backends: Backends
    data: Path
    links: Links
    loop: LoopSettings = DEFAULT_SETTINGS
    #: Whose pages may use the gateway.
    origins: tuple[str, ...] = ()
    agents: AgentFleet | None = None
    hook: ApprovalHook | None = None
    figures: RecentFigures
    live: Live
    guests: GuestProcesses
    guest_rules: GuestRules

    def turned_away(self, event: AccessRefused) -> None:
        """Count and say that a request got no further than the guard."""
        self.bridge.metrics.turned_away(event.code)
        say_refused(event)

    def unwritable(self) -> str | None:
        """Say what cannot be written now, if anything."""
        registry, kept = self.stores.service.refusal, self.stores.kept
        words = None if registry is None else f"the registry cannot be written to: {registry}"
        trouble = None if kept is None else kept.trouble
        return "; ".join(filter(None, (words, trouble))) or None


async def _serve(settings: Settings, stores: Stores, announce: Announce, orders: Orders) -> None:
    data = Path(settings.data_dir)
    rules = GuardRules(hosts=(*LOOPBACK_HOSTS, *settings.server.names))
    async with parts_of(settings, stores) as parts:
        app = GuardedApp(
            all_routes(parts),
            stores.tokens,
            rules,
            on_refused=parts.turned_away,
            confirms=parts.links.confirms if settings.server.beyond_loopback else None,
        )
        parts.guests.app = app
        async with (
            _beside(*_works(parts, orders)),
            _serving(app, settings.server, orders) as server,
        ):
            setup = await stores.tokens.first_start()  # before anybody is told where to use it
            stores.say_acts()
            with published(data, server.url):
                code = await _page_code(stores.tokens) if announce.shows_links else None
                announce.serving(server.url, setup, data / SETUP_FILE, code)
                say(logger, logging.INFO, f"serving at {server.url}", data_dir=str(data))
                await orders.stop.wait()
                if stores.approvals is not None:
                    stores.approvals.stop()
                say(logger, logging.INFO, "stopping: no new requests, calls under way may end")
    with suppress(StoreUnavailable):  # what it said last is replaced at the next start
        await stores.service.forget_node(NODE_NAME)


@asynccontextmanager
async def parts_of(settings: Settings, stores: Stores) -> AsyncGenerator[Parts, None]:
    """Open the node over a registry; what is opened last is closed first."""
    service, tokens, secrets = stores.service, stores.tokens, stores.secrets
    options = _bridge_options(settings, stores)
    bridge = Bridge.open(service.snapshot(), **options)
    hide(lambda: bridge.caller.reference_values)
    if secrets is not None:
        hide(lambda: secrets.known_values)
    bridge.metrics.ledger = stores.kept
    async with AsyncExitStack() as stack:
        if stores.approvals is not None:
            moved = bridge.metrics.approval_moved
            stack.callback(stores.approvals.subscribe(lambda one: moved(one.state)))
            stack.callback(stores.approvals.subscribe(say_approval))
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
        tokens.standing = lambda person: admitted(service.snapshot(), None, person)
        agents = None if settings.agents is None else _fleet(settings.agents, options)
        if agents is not None:
            hide(lambda: agents.reference_values)
            if secrets is not None:
                secrets.records = lambda: with_servers(service.snapshot(), agents.secret_users())
            await stack.enter_async_context(agents)
        if secrets is not None:
            for users in filter(None, (bridge, backends, agents)):
                stack.callback(secrets.subscribe(users.renew_secret))
        figures, live = _watching(stores, bridge)
        yield Parts(
            stores=stores,
            bridge=bridge,
            sessions=sessions,
            follower=Follower(
                LocalSource(service, SYSTEM_CLOCK, live.note_report), bridge, own_registry=True
            ),
            backends=backends,
            data=Path(settings.data_dir),
            links=Links(tokens),
            loop=settings.chat.loop(),
            origins=settings.gateway.origins,
            agents=agents,
            hook=open_hook(stores.approvals, settings.rules(), Path(settings.data_dir)),
            figures=figures,
            live=live,
            guests=await stack.enter_async_context(
                GuestProcesses(bridge.ledger, _modules(settings, tokens), settings.chat.loop())
            ),
            guest_rules=_guest_rules(settings),
        )


def _watching(stores: Stores, bridge: Bridge) -> tuple[RecentFigures, Live]:
    """Return what those who watch the process are shown."""
    clock, approvals = SYSTEM_CLOCK, stores.approvals
    figures = RecentFigures(bridge.metrics, clock=clock, running=lambda: bridge.running)
    live = Live(stores.service, figures, clock=clock, approvals=approvals, ledger=stores.ledger)
    return figures, live


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
        parts.figures.run(),
        parts.live.run(),
        parts.stores.files.on_order(orders.reload),
        parts.stores.files.on_change(SYSTEM_CLOCK),
        parts.stores.files.now_and_then(SYSTEM_CLOCK),
        *([] if parts.stores.approvals is None else [parts.stores.approvals.run()]),
        *([] if parts.hook is None else [parts.hook.run()]),
        *([] if parts.stores.parked is None else [parts.stores.parked.run()]),
        *([] if parts.agents is None else [parts.agents.follow()]),
        *([] if parts.stores.secrets is None else [parts.stores.secrets.follow(SYSTEM_CLOCK)]),
    ]


def all_routes(parts: Parts) -> list[GuardedRoute]:
    """Return every route of the process."""
    bridge, follower = parts.bridge, parts.follower

    def health() -> Health:
        states = (status.state for status in bridge.statuses())
        return health_of(follower.revision, states, following=follower.state == "ok")

    node = LocalNode(bridge, SYSTEM_CLOCK, catch_up=follower.catch_up)
    service, tokens = parts.stores.service, parts.stores.tokens
    service.known_tools = bridge.known_tools
    bridge.metrics.gateway = gateway = Gateway(parts.sessions, tokens.key_for)
    return [
        *registry_routes(service, clock=SYSTEM_CLOCK, node=node, environment=bridge.environment),
        *parts.stores.files.routes(),
        *token_routes(tokens, service),
        *login_routes(tokens, parts.links),
        *page_routes(),
        *([] if parts.stores.secrets is None else secret_routes(parts.stores.secrets)),
        *_approval_routes(parts.stores),
        *_audit_routes(parts.stores.kept),
        *_overview_routes(parts.stores, parts.figures),
        *parts.live.routes(),
        *tools_routes(parts.sessions, parts.stores.approvals, serves=_served(parts)),
        *guest_routes(parts.sessions, parts.guests, parts.guest_rules),
        *gateway_routes(gateway, parts.origins),
        *chat_routes(parts.sessions, parts.backends, _chat_parts(parts)),
        *([] if parts.agents is None else agents_routes(parts.agents)),
        *instance_routes(parts.data),
        *health_routes(health, bridge.metrics, parts.unwritable),
        *reference_routes(),
    ]


def _served(parts: Parts) -> list[str]:
    """Return the names of those parts that a process may be without and this one has."""
    optional = {
        "agents": parts.agents,
        "approvals": parts.stores.approvals,
        "secrets": parts.stores.secrets,
    }
    return [name for name, part in optional.items() if part is not None]


def _approval_routes(stores: Stores) -> list[GuardedRoute]:
    if stores.approvals is None:
        return []

    def people() -> int:
        return len(stores.service.snapshot().users)

    return approval_routes(stores.approvals, people=people, clock=SYSTEM_CLOCK)


def _overview_routes(stores: Stores, figures: RecentFigures) -> list[GuardedRoute]:
    watched = Watched(
        service=stores.service,
        tokens=stores.tokens,
        approvals=stores.approvals,
        ledger=stores.kept,
        problems=lambda: stores.files.problems,
    )
    versions = {NODE_NAME: __version__}
    return overview_routes(watched, figures, clock=SYSTEM_CLOCK, versions=versions)


def _chat_parts(parts: Parts) -> ChatParts:
    return ChatParts(
        settings=parts.loop,
        metrics=parts.bridge.metrics,
        parked=parts.stores.parked,
        questions=parts.stores.approvals,
    )


def _audit_routes(ledger: SqliteLedger | None) -> list[GuardedRoute]:
    return audit_routes(None if ledger is None else LedgerTrail(ledger), clock=SYSTEM_CLOCK)


async def _page_code(tokens: Tokens) -> str:
    """Return the code of a link for whoever sits before the terminal, who owns the directory."""
    wanted = TokenRequest(name="link of admin", role="admin")
    return (await make_link(tokens, wanted, by=PROCESS)).token


def _serving(app: GuardedApp, server: ServerSettings, orders: Orders) -> Serving:
    tls = None
    if server.tls_certificate is not None and server.tls_key is not None:
        tls = Tls(certificate=server.tls_certificate, key=server.tls_key)
    return Serving(
        app,
        server.host,
        server.port,
        tls=tls,
        insecure=server.insecure,
        limits=limits_of(server),
        hurry=orders.hurry,
    )


def limits_of(server: ServerSettings) -> Limits:
    """Return what the server waits for, with as many connections as the settings say."""
    caps = Caps(total=server.max_connections, strangers=server.max_connections_without_token)
    return Limits(connections=caps)


@asynccontextmanager
async def _beside(*works: Work) -> AsyncGenerator[None, None]:
    """Run works for as long as the block; one that fails ends the block, and is what is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
            yield
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
        raise first from first.__cause__
