"""A registry behind a real gRPC port of this process, and short ways to ask it things."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc import aio

from bascule.asgi.serve import Tls
from bascule.audit.approvals import Approvals
from bascule.audit.events import AccessRefused
from bascule.auth.tokens import Tokens
from bascule.control.registry.service import RegistryService, Settings, open_registry
from bascule.control.registry.store import Store
from bascule.control.rpc import nodes
from bascule.control.rpc.askers import Askers
from bascule.control.rpc.calls import Unary
from bascule.control.rpc.guard import RpcGuard
from bascule.control.rpc.node_approvals import NodeApprovals
from bascule.control.rpc.port import RpcPort
from bascule.control.rpc.registry import NAME, RegistryRpc
from bascule.control.work.channel import WorkChannel
from bascule.control.work.rows import LocalRows
from bascule.model.role import ROLES, Role
from bascule.testing.clock import FakeClock
from bascule.wire.pb import errors_pb2, node_pb2, registry_pb2
from bascule.wire.rpc_errors import DETAILS
from tests.asgi.caller import make_tokens
from tests.control.registry.memory_store import MemoryStore
from tests.waits import SOON_SECONDS


class RpcCounter:
    """Asks a port as a role, over one connection."""

    def __init__(self, service: RegistryService, tokens: Tokens, clock: FakeClock) -> None:
        self.service = service
        self.tokens = tokens
        self.clock = clock
        self.given: dict[Role, str] = {}
        self.turned_away: list[AccessRefused] = []
        self.guard = RpcGuard(tokens, clock, self.turned_away.append)
        self.channel: aio.Channel | None = None
        self.nodes: nodes.NodeRpc
        self.works: WorkChannel
        self._connections: list[aio.Channel] = []
        self._watched: list[Watched] = []
        self.port = 0

    async def ask(self, method: str, role: Role | None = "admin", **fields: Any) -> Any:
        """Call a method with the fields of its request; return its answer."""
        request, path, answer = _method(method, fields)
        call = self._channel.unary_unary(path, response_deserializer=answer)
        return await call(
            request.SerializeToString(), metadata=self.metadata(role), timeout=SOON_SECONDS
        )

    def watch(
        self,
        method: str,
        role: Role | None = "viewer",
        channel: aio.Channel | None = None,
        **fields: Any,
    ) -> Watched:
        """Open a watch, on the one connection or on another."""
        request, path, answer = _method(method, fields)
        call = (channel or self._channel).unary_stream(path, response_deserializer=answer)
        watched = Watched(call(request.SerializeToString(), metadata=self.metadata(role)))
        self._watched.append(watched)
        return watched

    async def refusal(self, method: str, role: Role | None = "admin", **fields: Any) -> Refusal:
        """Return how a call is refused."""
        try:
            answer = await self.ask(method, role, **fields)
        except aio.AioRpcError as error:
            return Refusal(error)
        raise AssertionError(f"{method} was not refused: {answer}")

    def follow(self, role: Role | None = "node", **fields: Any) -> Watched:
        """Open the stream of a node."""
        return self.watch("Follow", role, None, **{"process": "p", **fields})

    def connection(self, *options: tuple[str, int]) -> aio.Channel:
        """Make a connection that nobody else uses, until the counter is closed."""
        apart = ("grpc.use_local_subchannel_pool", 1)
        made = aio.insecure_channel(f"127.0.0.1:{self.port}", options=(apart, *options))
        self._connections.append(made)
        return made

    async def close(self) -> None:
        """Leave, when the port has ended every stream.

        What grpc has yet to say of a stream when its event loop is closed may crash the process.
        """
        for watched in self._watched:
            watched.call.cancel()  # one with answers that nobody reads would be waited for
        for one in self._connections:
            await one.close(SOON_SECONDS)

    def metadata(self, role: Role | None) -> aio.Metadata:
        if role is None:
            return aio.Metadata()
        return aio.Metadata(("authorization", f"Bearer {self.given[role]}"))

    @property
    def _channel(self) -> aio.Channel:
        assert self.channel is not None
        return self.channel


def _method(name: str, fields: dict[str, Any]) -> tuple[Any, str, Any]:
    """Return the request of a method, its path, and what reads its answer."""
    ours = nodes.NAME, node_pb2
    service, messages = ours if hasattr(node_pb2, f"{name}Request") else (NAME, registry_pb2)
    answer = getattr(messages, f"{name}Response").FromString
    return getattr(messages, f"{name}Request")(**fields), f"/{service}/{name}", answer


class Watched:
    """The answers of a watch, as they come."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self._answers: AsyncIterator[Any] = aiter(call)

    async def begun(self) -> None:
        """Wait until the watch is there: what happens from now on is told."""
        async with asyncio.timeout(SOON_SECONDS):
            await self.call.initial_metadata()

    async def next(self) -> Any:
        async with asyncio.timeout(SOON_SECONDS):
            return await anext(self._answers)

    async def refusal(self) -> Refusal:
        """Return how the watch ends."""
        try:
            answer = await self.next()
        except aio.AioRpcError as error:
            return Refusal(error)
        raise AssertionError(f"the watch goes on: {answer}")


class Refusal:
    """A call that ended in an error: its status, words, and details."""

    def __init__(self, error: aio.AioRpcError) -> None:
        self.status: grpc.StatusCode = error.code()
        self.words = error.details() or ""
        trailing = dict(error.trailing_metadata())
        self.details = errors_pb2.Status.FromString(trailing[DETAILS]).details  # pyright: ignore[reportArgumentType] - a key that ends in -bin has bytes

    def read(self, message: Any) -> Any:
        """Return the details as a message."""
        found = message()
        assert self.details[0].Unpack(found), self.details
        return found


@asynccontextmanager
async def open_counter(
    store: Store | None = None,
    *,
    settings: Settings | None = None,
    tls: Tls | None = None,
    approvals: Approvals | None = None,
) -> AsyncGenerator[RpcCounter, None]:
    clock = FakeClock()
    kept = store or MemoryStore(clock=clock)
    async with open_registry(kept, clock=clock, settings=settings) as service:
        counter = RpcCounter(service, make_tokens(), clock)
        for role in ROLES:
            task = "t" if role == "client" else None
            counter.given[role] = (await counter.tokens.mint(role, role, task_id=task)).token
        try:
            further: tuple[Unary[Any], ...] = ()
            if approvals is not None:
                askers = Askers(counter.tokens, service.assignments, clock)
                further = NodeApprovals(approvals, service, askers, clock).methods()
            async with (
                WorkChannel(LocalRows(clock), service, clock) as counter.works,
                nodes.NodeRpc(service, counter.tokens, clock, counter.works) as node_rpc,
                RpcPort(
                    [RegistryRpc(service).service(), node_rpc.service(*further)],
                    counter.guard,
                    tls=tls,
                ) as port,
            ):
                counter.nodes, counter.port = node_rpc, port.port
                if tls is None:
                    counter.channel = counter.connection()
                yield counter
        finally:
            await counter.close()
