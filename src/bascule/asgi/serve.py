"""Run an application on uvicorn inside the caller's own event loop.

The address is bound before anything is said to run, port 0 included; without TLS only loopback is
served unless that is asked for. At the end the server drains: no new connections, streams are told
to end, calls under way may finish, and what is left then is cancelled. Signals are the caller's.
Uvicorn is bounded by ``bounded_http.py`` in what it will wait for.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from starlette.types import ASGIApp
from uvicorn import Config, Server

from bascule.asgi.bounded_http import DEFAULT_LIMITS, BoundedHttp, Limits
from bascule.asgi.connections import Connections
from bascule.asgi.turnstile import Turnstile
from bascule.errors import BasculeError

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_CANCEL_SECONDS = 5.0
_DATE_SECONDS = 1.0


class CannotServe(BasculeError):
    """The address cannot be served, or must not be."""


class NeedsTls(CannotServe):
    """Other machines could listen in on the address."""


class Tls(Struct, frozen=True, kw_only=True):
    """PEM files: a certificate and its key; with ``client_ca`` callers must show one too."""

    certificate: str
    key: str
    client_ca: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return what the server's handshakes need."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            raise CannotServe(f"{Path(self.certificate)}: {error}") from error
        return context


class Serving:
    """An application that is served while the block runs: ``async with Serving(app) as server``."""

    def __init__(  # noqa: PLR0913 - options, all by keyword
        self,
        app: ASGIApp,
        host: str = LOOPBACK,
        port: int = 0,
        *,
        tls: Tls | None = None,
        insecure: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        hurry: asyncio.Event | None = None,
        shared: bool = False,
    ) -> None:
        """Serve an application; ``shared``: other processes of ours listen on the same port."""
        self._app = app
        self._shared = shared
        self._host = host
        self._port = port
        self._tls = tls
        self._insecure = insecure
        self._limits = limits
        self._draining = asyncio.Event()
        #: Set: what is under way when the server ends is not awaited any longer.
        self._hurry = hurry or asyncio.Event()
        self._held = Connections(limits.connections, limits.sweep_seconds)
        self.url = ""
        self.port = 0

    @property
    def connections(self) -> int:
        """Say how many connections are held."""
        return len(self._held)

    async def __aenter__(self) -> Serving:
        exposed = self._tls is not None or self._insecure
        listening = await bound(self._host, self._port, exposed=exposed, shared=self._shared)
        host, self.port = listening.getsockname()[:2]
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"
        try:
            self._server = _Server(self._config(), self._limits, self._held, self._hurry)
        except CannotServe:
            listening.close()
            raise
        self._task = asyncio.create_task(self._server.serve([listening]))
        ready = asyncio.create_task(self._server.ready.wait())
        try:
            await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                await self._task
        except BaseException:
            await _end({self._task})
            listening.close()
            raise
        finally:
            ready.cancel()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._draining.set()
        self._server.leave()
        state = self._server.server_state
        try:
            await self._task
        finally:
            await _end({self._task, *state.tasks})
            for connection in list(state.connections):
                connection.transport.abort()

    def _config(self) -> Config:
        context = None if self._tls is None else self._tls.context()
        own = {
            "limits": self._limits,
            "connections_held": self._held,
            "turnstile": Turnstile(),
            "draining": self._draining,
        }
        return Config(
            self._app,
            interface="asgi3",
            http=type("Http", (BoundedHttp,), own),
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            # Its warnings are about strangers' bytes: anybody could fill a log with them.
            log_level="error",
            access_log=False,
            # Who trusts a header about the caller's address must say so; nobody does yet.
            proxy_headers=False,
            server_header=False,
            ssl_context_factory=None if context is None else partial(_given, context),
        )


async def bound(host: str, port: int, *, exposed: bool, shared: bool = False) -> socket.socket:
    """Return a bound socket, or raise CannotServe with what is wrong with the address.

    Where others than this machine's users reach it, it must be ``exposed``: on purpose. Several
    processes of one user may have it where all of them want it ``shared``.
    """
    family, address = await address_of(host, port, exposed=exposed)
    # The protocol is named so that asyncio, which looks at it, turns Nagle's delay off.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise CannotServe(f"cannot listen on {host}:{port}: {error}") from error
    listening.settimeout(0)
    return listening


async def address_of(host: str, port: int, *, exposed: bool) -> tuple[int, tuple[Any, ...]]:
    """Return family and address of a host; raise CannotServe, also where it must not be served."""
    if not host:
        raise CannotServe("give an address to listen on")
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotServe(f"{host} is not an address of this machine: {error}") from error
    family, _, _, _, address = found[0]
    if not exposed and not _is_loopback(str(address[0])):
        raise NeedsTls(
            f"{host} can be reached from other machines: give a certificate and key, or allow "
            "plain HTTP"
        )
    return family, address


def _given(context: ssl.SSLContext, *_: object) -> ssl.SSLContext:
    return context


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel what outlived the drain, each once (uvicorn may have), and wait until it is gone."""
    left = {task for task in tasks if not task.done()}
    for task in left:
        if not task.cancelling():
            task.cancel()
    if left:
        await asyncio.wait(left, timeout=_CANCEL_SECONDS)


class _Server(Server):
    """Uvicorn's server without its hold on signals, and with a word when it is ready.

    It wakes once a second, for the date in answers, where uvicorn would ten times, and at once when
    it is to end, and when the last connection has gone.
    """

    def __init__(
        self, config: Config, limits: Limits, held: Connections, hurry: asyncio.Event
    ) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._limits = limits
        self._held = held
        self._hurry = hurry
        self._leaving = asyncio.Event()

    def capture_signals(self) -> AbstractContextManager[None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Leave signals to whoever owns the process."""
        return nullcontext()

    def leave(self) -> None:
        """End, once what is under way has ended."""
        self.should_exit = True
        self._leaving.set()

    async def main_loop(self) -> None:
        """Keep the date until it is time to end."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_DATE_SECONDS):
                    await self._leaving.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so. Uvicorn would wait a minute for each TLS handshake."""
        config, loop = self.config, asyncio.get_running_loop()
        handshake = self._limits.head_seconds if config.ssl is not None else None
        self.servers = [
            await loop.create_server(
                self._protocol,
                sock=one,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=handshake,
            )
            for one in sockets or ()
        ]
        self.started = True
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take in nobody else, and give what is under way the time that it has."""
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        for connection in tuple(self.server_state.connections):
            connection.shutdown()
        awaited = {asyncio.create_task(self._idle()), asyncio.create_task(self._hurry.wait())}
        try:
            seconds = self._limits.drain_seconds
            done, _ = await asyncio.wait(
                awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if not done and (running := len(self.server_state.tasks)):
                logger.warning("%s running after %s s of draining: cancelled", running, seconds)
        finally:
            await _end(awaited)

    async def _idle(self) -> None:
        """Wait until no connection is held, and nothing works for one that is gone."""
        await self._held.emptied()
        while working := [task for task in self.server_state.tasks if not task.done()]:
            await asyncio.wait(working)
        for server in self.servers:
            await server.wait_closed()

    def _protocol(self) -> asyncio.Protocol:
        protocol: Any = self.config.http_protocol_class
        return protocol(config=self.config, server_state=self.server_state, app_state={})
