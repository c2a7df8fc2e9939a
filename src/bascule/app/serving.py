"""How a process serves: its listener, what goes on beside it, and what is announced.

Everything is opened from below and closed in the opposite order: the server drains, what runs
beside it ends, sessions and connections are closed, then the stores.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct

from bascule.app.data_dir import SETUP_FILE, published
from bascule.app.settings import ServerSettings, Settings
from bascule.app.stores import Stores
from bascule.asgi.bounded_http import Limits
from bascule.asgi.connections import Caps
from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Serving, Tls
from bascule.audit.log_lines import say
from bascule.auth.links import make_link
from bascule.auth.token_request import TokenRequest
from bascule.auth.tokens import PROCESS, Tokens

Work: TypeAlias = Coroutine[object, object, None]
logger = logging.getLogger("bascule.up")


class Announce(Protocol):
    """Told what whoever started the process wants to know."""

    #: Whether a link to the admin page may be shown: to a person, never to a log.
    @property
    def shows_links(self) -> bool: ...

    def serving(
        self,
        url: str,
        setup_token: str | None,
        setup_file: Path,
        code: str | None,
        grpc: str | None,
    ) -> None:
        """Say that the process serves; a setup token is given once, on the first start.

        ``code`` opens the admin page, if links may be shown. ``grpc`` is where that is served.
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


async def serve(  # noqa: PLR0913 - the parts of a process
    settings: Settings,
    stores: Stores,
    app: GuardedApp,
    works: Iterable[Work],
    announce: Announce,
    orders: Orders,
    rpc: AbstractAsyncContextManager[str | None],
) -> None:
    """Serve until told to stop, with works beside it; ``rpc`` is what serves gRPC, if anything."""
    data = Path(settings.data_dir)
    listener = listening(app, settings.server, orders)
    async with beside(*works), rpc as grpc, listener as server:
        setup = await stores.tokens.first_start()  # before anybody is told where to use it
        stores.say_acts()
        with published(data, server.url):
            code = await _page_code(stores.tokens) if announce.shows_links else None
            announce.serving(server.url, setup, data / SETUP_FILE, code, grpc)
            say(logger, logging.INFO, f"serving at {server.url}", data_dir=str(data))
            await orders.stop.wait()
            if stores.approvals is not None:
                stores.approvals.stop()
            say(logger, logging.INFO, "stopping: no new requests, calls under way may end")


async def _page_code(tokens: Tokens) -> str:
    """Return the code of a link for whoever sits before the terminal, who owns the directory."""
    wanted = TokenRequest(name="link of admin", role="admin")
    return (await make_link(tokens, wanted, by=PROCESS)).token


def listening(app: GuardedApp, server: ServerSettings, orders: Orders) -> Serving:
    """Return the server of an application, to be entered."""
    tls = None
    if server.tls_certificate is not None and server.tls_key is not None:
        tls = Tls(certificate=server.tls_certificate, key=server.tls_key)
    caps = Caps(total=server.max_connections, strangers=server.max_connections_without_token)
    return Serving(
        app,
        server.host,
        server.port,
        tls=tls,
        insecure=server.insecure,
        limits=Limits(connections=caps, drain_seconds=server.drain_seconds),
        hurry=orders.hurry,
    )


@asynccontextmanager
async def beside(*works: Work) -> AsyncGenerator[None, None]:
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
