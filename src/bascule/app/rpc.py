"""The gRPC port of a control plane, where one is wanted; grpc is imported for that alone."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bascule.app.control_plane import ControlPlane
from bascule.app.serving import Announce
from bascule.app.settings import ServerSettings, Settings
from bascule.asgi.serve import CannotServe, Tls
from bascule.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from bascule.app.workers_token import WorkersToken
    from bascule.control.rpc.calls import Service, Unary
    from bascule.control.rpc.port import RpcPort

#: After how many objects the garbage collector looks through the new ones, and how many such looks
#: make one through older ones, and through all. By default it goes through everything that
#: thousands of streams hold again and again, which is half of what a change costs.
_COLLECTIONS = 10_000, 10, 50
#: How often it is looked for workers whether tokens changed: whoever makes one here uses it next.
_LOOK_SECONDS = 0.02
_MISSING = "gRPC needs packages that are not installed: pip install 'bascule[scale]'"


@asynccontextmanager
async def rpc_served(
    settings: Settings, plane: ControlPlane, announce: Announce, *, by_default: bool = False
) -> AsyncGenerator[str | None, None]:
    """Serve gRPC for the length of the block, if that is wanted; give its address.

    ``by_default``: also where the settings do not say, if nothing is against it.
    """
    wanted = settings.server.grpc
    async with AsyncExitStack() as stack:
        port = None
        if by_default if wanted is None else wanted:
            try:
                port = await stack.enter_async_context(_port(settings.server, plane))
                stack.enter_context(_fewer_collections())
            except CannotServe as error:
                if wanted:
                    raise
                announce.problems([f"gRPC is not served: {error}"])
        yield None if port is None else port.address


@contextmanager
def _fewer_collections() -> Generator[None, None, None]:
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@asynccontextmanager
async def _port(server: ServerSettings, plane: ControlPlane) -> AsyncGenerator[RpcPort, None]:
    if find_spec("grpc_reflection") is None:
        raise CannotServe(_MISSING)
    from bascule.control.rpc.guard import RpcGuard  # noqa: PLC0415 - with grpc
    from bascule.control.rpc.port import RpcPort  # noqa: PLC0415 - with grpc

    guard = RpcGuard(plane.stores.tokens, SYSTEM_CLOCK, plane.turned_away)
    beside = server.port + 1 if server.port else 0
    number = beside if server.grpc_port is None else server.grpc_port
    async with (
        _services(plane) as services,
        RpcPort(services, guard, server.host, number, tls=_tls(server)) as port,
    ):
        yield port


@asynccontextmanager
async def rpc_for_workers(
    plane: ControlPlane, path: Path, tokens: WorkersToken
) -> AsyncGenerator[str, None]:
    """Serve gRPC at a unix socket, to the workers of this process alone; give its address."""
    if find_spec("grpc_reflection") is None:
        raise CannotServe(_MISSING)
    from bascule.control.rpc.guard import RpcGuard  # noqa: PLC0415 - with grpc
    from bascule.control.rpc.port import RpcPort  # noqa: PLC0415 - with grpc

    guard = RpcGuard(tokens, SYSTEM_CLOCK, plane.turned_away, own=True)
    async with (
        _services(plane, look_seconds=_LOOK_SECONDS) as services,
        RpcPort(services, guard, path=path) as port,
    ):
        yield port.address


@asynccontextmanager
async def _services(
    plane: ControlPlane, *, look_seconds: float | None = None
) -> AsyncGenerator[list[Service], None]:
    """Give all that nodes and other programs may ask of a control plane."""
    from bascule.control.rpc.ledgers import LedgerRpc  # noqa: PLC0415 - with protobuf
    from bascule.control.rpc.nodes import LOOK_SECONDS, NodeRpc  # noqa: PLC0415 - with protobuf
    from bascule.control.rpc.registry import RegistryRpc  # noqa: PLC0415 - with protobuf

    stores = plane.stores
    note = None if stores.ledger is None else stores.ledger.note
    nodes = NodeRpc(
        stores.service,
        stores.tokens,
        SYSTEM_CLOCK,
        stores.works,
        secrets=stores.secrets,
        look_seconds=look_seconds or LOOK_SECONDS,
    )
    async with nodes:
        ledgers = LedgerRpc(stores.kept, SYSTEM_CLOCK, note, plane.sent)
        further = *_node_approvals(plane), *ledgers.methods()
        yield [RegistryRpc(stores.service).service(), nodes.service(*further)]


def _node_approvals(plane: ControlPlane) -> tuple[Unary[Any], ...]:
    """Return what nodes ask about approvals, where there are any."""
    from bascule.control.rpc.askers import Askers  # noqa: PLC0415 - with protobuf
    from bascule.control.rpc.node_approvals import NodeApprovals  # noqa: PLC0415 - with protobuf

    stores = plane.stores
    approvals = stores.approvals
    if approvals is None:
        return ()
    askers = Askers(stores.tokens, stores.service.assignments, SYSTEM_CLOCK)
    if approvals.living is None:
        approvals.living = askers.living
    return NodeApprovals(approvals, stores.service, askers, SYSTEM_CLOCK).methods()


def _tls(server: ServerSettings) -> Tls | None:
    if server.tls_certificate is None or server.tls_key is None:
        return None
    return Tls(
        certificate=server.tls_certificate, key=server.tls_key, client_ca=server.grpc_client_ca
    )
