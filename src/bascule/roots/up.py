"""``bascule up``: the registry, its API and a node, joined in one process.

Everything is opened from below and closed in the opposite order: the server drains, what runs
beside it ends, sessions and connections are closed, then the stores. Below: all the parts. Above:
the command line reads the settings, passes on what is announced, and owns the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from bascule.asgi.guard import LOOPBACK_HOSTS, GuardedApp, GuardedRoute, GuardRules
from bascule.asgi.serve import Serving, Tls
from bascule.asgi.tokens import Tokens
from bascule.clock import SYSTEM_CLOCK
from bascule.control.api.rest import registry_routes
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.token_store import open_tokens
from bascule.db.sqlite import StoreUnavailable
from bascule.doors.health import Health, health_of, health_routes
from bascule.doors.tools.api import tools_routes
from bascule.doors.tools.sessions import Sessions
from bascule.node.assembly import Bridge
from bascule.node.sync.follower import Follower
from bascule.roots.data_dir import SETUP_FILE, STORE_FILE, published, served_alone
from bascule.roots.local import NODE_NAME, LocalNode, LocalSource
from bascule.roots.reloading import Reloading
from bascule.roots.settings import ServerSettings, Settings


class Announce(Protocol):
    """Told what whoever started the process wants to know."""

    def serving(self, url: str, setup_token: str | None, setup_file: Path) -> None:
        """Say that the process serves; a setup token is given once, on the first start."""
        ...

    def problems(self, problems: Sequence[str]) -> None:
        """Say which records were left out, and why."""
        ...


class Orders(Struct, frozen=True):
    """What signals ask for."""

    stop: asyncio.Event
    reload: asyncio.Event


async def up(
    settings: Settings,
    announce: Announce,
    orders: Orders,
    demo: Callable[[Path], Path | None],
) -> None:
    """Serve until told to stop.

    ``demo`` is given the data directory and returns a folder of records besides one's own.
    """
    data = Path(settings.data_dir)
    async with open_tokens(data) as tokens:
        with served_alone(data):
            folder = await asyncio.to_thread(demo, data)
            store = await SqliteStore(data / STORE_FILE).open()
            async with open_registry(store) as service:
                files = Reloading(service, settings, folder, announce.problems)
                await files.start()
                await _serve(settings, service, files, tokens, announce, orders)


async def _serve(
    settings: Settings,
    service: RegistryService,
    files: Reloading,
    tokens: Tokens,
    announce: Announce,
    orders: Orders,
) -> None:
    data = Path(settings.data_dir)
    bridge = Bridge.open(service.snapshot(), rules=settings.node, environment=settings.environment)
    async with bridge, Sessions(bridge, tokens) as sessions:
        follower = Follower(LocalSource(service, SYSTEM_CLOCK), bridge)
        routes = all_routes(service, files, bridge, sessions, follower)
        rules = GuardRules(hosts=(*LOOPBACK_HOSTS, *settings.server.hosts))
        beside = _beside(
            follower.run(),
            sessions.keep_clean(),
            files.on_order(orders.reload),
            files.now_and_then(SYSTEM_CLOCK),
        )
        async with beside, _serving(GuardedApp(routes, tokens, rules), settings.server) as server:
            with published(data, server.url):
                setup = await tokens.first_start(data / SETUP_FILE)
                announce.serving(server.url, setup, data / SETUP_FILE)
                await orders.stop.wait()
    with suppress(StoreUnavailable):  # what it said last is replaced at the next start
        await service.forget_node(NODE_NAME)


def all_routes(
    service: RegistryService,
    files: Reloading,
    bridge: Bridge,
    sessions: Sessions,
    follower: Follower,
) -> list[GuardedRoute]:
    """Return every route of the process."""

    def health() -> Health:
        states = (status.state for status in bridge.statuses())
        return health_of(follower.revision, states, following=follower.state == "ok")

    node = LocalNode(bridge, SYSTEM_CLOCK)
    return [
        *registry_routes(service, clock=SYSTEM_CLOCK, node=node),
        *files.routes(),
        *tools_routes(sessions),
        *health_routes(health, bridge.metrics),
    ]


def _serving(app: GuardedApp, server: ServerSettings) -> Serving:
    tls = None
    if server.tls_certificate is not None and server.tls_key is not None:
        tls = Tls(certificate=server.tls_certificate, key=server.tls_key)
    return Serving(app, server.host, server.port, tls=tls, insecure=server.insecure)


@asynccontextmanager
async def _beside(*works: Coroutine[Any, Any, None]) -> AsyncGenerator[None, None]:
    """Run works for as long as the block; one that fails ends the block, and is what is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
            yield
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors
