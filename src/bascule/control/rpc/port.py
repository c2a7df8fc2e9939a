"""The gRPC port: services by generic handlers, with health and reflection beside them.

Without TLS only loopback is served. At the end no call is taken any more, streams are told to go
elsewhere, and calls under way may finish.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from bascule.asgi.errors import Refused
from bascule.asgi.serve import CannotServe, Tls, address_of
from bascule.control.rpc.calls import Context, Service, Streaming, Unary
from bascule.control.rpc.certificates import credentials
from bascule.control.rpc.guard import RpcGuard
from bascule.control.rpc.refusals import end_with

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
#: How long calls under way may take at the end.
_GRACE_SECONDS = 5.0
_OWN = 0o600
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # Without these two many streams that are opened at once are refused.
    ("grpc.server.max_pending_requests", 20_000),
    ("grpc.server.max_pending_requests_hard_limit", 40_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    # grpc adds a tenth of jitter, so that those who watch spread over replicas.
    ("grpc.max_connection_age_ms", 30 * 60_000),
    ("grpc.max_connection_age_grace_ms", 10_000),
)


class RpcPort:
    """Services that are served while the block runs."""

    def __init__(
        self,
        services: Sequence[Service],
        guard: RpcGuard,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: Tls | None = None,
        path: Path | None = None,
    ) -> None:
        """Serve at an address, or at a unix socket for processes of the same user."""
        self._services = services
        self._path = path
        self._guard = guard
        self._host = host
        self.port = port
        #: Where it is served, once it is.
        self.address = ""
        self._tls = tls
        self._health = _health()
        self._streams: set[asyncio.Task[Any]] = set()
        self._ending = False

    async def __aenter__(self) -> RpcPort:
        self._server = server = aio.server(options=_OPTIONS)
        names = [service.name for service in self._services]
        server.add_generic_rpc_handlers(tuple(map(self._handlers, self._services)))
        _add_health(self._health, server)
        beside = health.SERVICE_NAME, reflection.SERVICE_NAME
        reflection.enable_server_reflection([*names, *beside], server)
        await self._listen(server)
        await server.start()
        for name in ("", *names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ending = True
        await self._health.enter_graceful_shutdown()
        streams = list(self._streams)
        for task in streams:
            task.cancel()
        if streams:  # a server that stops would end them first, without a word
            await asyncio.wait(streams, timeout=_GRACE_SECONDS)
        await self._server.stop(_GRACE_SECONDS)

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    def _refuse_ending(self) -> None:
        if self._ending:
            raise _ending()

    async def _listen(self, server: aio.Server) -> None:
        if self._path is not None:
            self.address = f"unix:{self._path}"
            server.add_insecure_port(self.address)
            self._path.chmod(_OWN)
            return
        _, (address, *_) = await address_of(self._host, self.port, exposed=self._tls is not None)
        place = f"[{address}]:{self.port}" if ":" in address else f"{address}:{self.port}"
        try:
            if self._tls is None:
                self.port = server.add_insecure_port(place)
            else:
                self.port = server.add_secure_port(place, credentials(self._tls))
        except RuntimeError as error:
            raise CannotServe(f"cannot listen on {place}: {error}") from error
        self.address = f"{place.rpartition(':')[0]}:{self.port}"

    # --- handlers

    def _handlers(self, service: Service) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            service.name,
            {
                one.name: self._unary(service, one)
                if isinstance(one, Unary)
                else self._streaming(service, one)
                for one in service.methods
            },
        )

    def _unary(self, service: Service, method: Unary[Any]) -> grpc.RpcMethodHandler[Any, Any]:
        path = f"/{service.name}/{method.name}"

        async def answer(request: bytes, context: Context) -> bytes:
            try:
                call = await self._guard.admit(context, path, method.permission)
                return await method.handle(method.request.FromString(request), call)
            except Exception as error:  # noqa: BLE001 - whatever it is ends the call, and is told
                await end_with(error, context)

        behaviour: Any = answer
        return grpc.unary_unary_rpc_method_handler(behaviour)

    def _streaming(
        self, service: Service, method: Streaming[Any]
    ) -> grpc.RpcMethodHandler[Any, Any]:
        path = f"/{service.name}/{method.name}"

        async def answers(request: bytes, context: Context) -> None:
            task = asyncio.current_task()
            if task is None:
                raise RuntimeError("a stream runs in a task")
            self._streams.add(task)
            try:
                self._refuse_ending()
                call = await self._guard.admit(context, path, method.permission)
                stream = await method.handle(method.request.FromString(request), call)
                await context.send_initial_metadata(())  # it has begun, if with silence
                await _send(stream, context.write)
            except asyncio.CancelledError:
                if not self._ending:
                    raise
                await end_with(_ending(), context)
            except aio.InternalError:
                logger.debug("%s: the caller left while it was sent something", path)
            except Exception as error:  # noqa: BLE001 - whatever it is ends the call, and is told
                await end_with(error, context)
            finally:
                self._streams.discard(task)

        behaviour: Any = answers
        return grpc.unary_stream_rpc_method_handler(behaviour)


def _ending() -> Refused:
    return Refused("shutting_down", "this replica is ending")


async def _send(
    stream: AsyncGenerator[bytes, None], write: Callable[[bytes], Awaitable[None]]
) -> None:
    async with aclosing(stream):
        async for piece in stream:
            await write(piece)


def _health() -> Any:
    """Return what answers for the health of services; its types do not say what it has."""
    module: Any = health
    return module.aio.HealthServicer()


def _add_health(servicer: Any, server: aio.Server) -> None:
    generated: Any = health_pb2_grpc
    generated.add_HealthServicer_to_server(servicer, server)
