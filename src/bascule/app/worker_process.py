"""One worker: a node as ``bascule node serve`` has it, beside others on the same port.

It is told everything on standard input, by whoever started it (``workers``), and ends with that.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from bascule.app.data_dir import served_alone
from bascule.app.hardening import harden
from bascule.app.isolation_notice import noticed
from bascule.app.logs import process_log
from bascule.app.node_serve import (
    NodeOrder,
    NodeParts,
    WorkerPlace,
    guarded_node,
    node_parts,
    node_routes,
)
from bascule.app.node_start import prepare
from bascule.app.serving import Orders, listening
from bascule.app.worker_front import (
    PLANE_SOCKET,
    PROCESS_PATHS,
    WorkerFront,
    hand_over_owned,
    peers_of,
    worker_socket,
)
from bascule.app.worker_link import (
    MAX_LINE_BYTES,
    Answered,
    Crew,
    WorkerOrder,
    line_of,
    read_order,
    read_told,
)
from bascule.asgi.forwarded import ForwardedRequests
from bascule.asgi.forwarding import Peer
from bascule.asgi.serve import Serving
from bascule.client.rpc import RpcAccess
from bascule.errors import BasculeError
from bascule.model.worker import worker_name

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Serve as standard input orders."""
    _die_with_parent()
    harden()
    run(_worked())


def run(work: Coroutine[object, object, None]) -> None:
    """Run on uvloop where there is one."""
    try:
        from uvloop import new_event_loop  # noqa: PLC0415 - not on every system
    except ImportError:
        asyncio.run(work)
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(work)


def _die_with_parent() -> None:
    """Have the kernel end this process with its owner, also when it cannot see that itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


async def _worked() -> None:
    reader, loop = asyncio.StreamReader(limit=MAX_LINE_BYTES), asyncio.get_running_loop()
    protocol = partial(asyncio.StreamReaderProtocol, reader)
    await loop.connect_read_pipe(protocol, os.fdopen(sys.stdin.fileno(), "rb", closefd=False))
    line = await reader.readline()
    if not line:
        return  # whoever started it is gone
    order, crew = read_order(line), Crew()
    orders = Orders(stop=asyncio.Event(), reload=asyncio.Event(), hurry=asyncio.Event())
    loop.add_signal_handler(signal.SIGTERM, partial(_end, orders))
    hearing = asyncio.create_task(_hear(reader, orders, crew))
    try:
        with process_log(order.settings.log):
            await serve_worker(order, orders, crew)
    except (BasculeError, OSError) as error:
        code = error.code if isinstance(error, BasculeError) else "unavailable"
        _say(Answered(event="refused", code=code, message=str(error)))
    finally:
        hearing.cancel()


async def _hear(reader: asyncio.StreamReader, orders: Orders, crew: Crew) -> None:
    """Do as told; the end of what is told is the end of whoever tells."""
    while line := await reader.readline():
        told = read_told(line)
        crew.standings = crew.standings if told.crew is None else told.crew
        if told.asked:
            _say(Answered(event="alive"))
        if told.stop:
            orders.stop.set()
        if told.hurry:
            orders.hurry.set()
    orders.stop.set()
    orders.hurry.set()


def _end(orders: Orders) -> None:
    """End when calls under way have ended; at the second signal, without them."""
    (orders.hurry if orders.stop.is_set() else orders.stop).set()


def _say(words: Answered) -> None:
    sys.stdout.buffer.write(line_of(words))
    sys.stdout.buffer.flush()


async def serve_worker(order: WorkerOrder, orders: Orders, crew: Crew) -> None:
    """Serve until told to stop; what is told before it serves ends the start."""
    begun = asyncio.Event()
    work = asyncio.create_task(_serve(order, orders, crew, begun))
    stopped = asyncio.create_task(orders.stop.wait())
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not begun.is_set():
            work.cancel()
        with suppress(asyncio.CancelledError):
            await work
    finally:
        stopped.cancel()
        work.cancel()


async def _serve(order: WorkerOrder, orders: Orders, crew: Crew, begun: asyncio.Event) -> None:
    data = Path(order.settings.data_dir)
    await asyncio.to_thread(prepare, data)
    with served_alone(data):
        async with node_parts(order.settings, _node_order(order, crew)) as parts:
            front = _front(order, parts)
            parts.doors.guests.app = front
            async with (
                _handed_over(front, order, orders),
                _listening(order, front, parts, orders),
            ):
                begun.set()
                _say(Answered(event="serving", standing=parts.standing()))
                await orders.stop.wait()
                parts.let_go()


def _listening(
    order: WorkerOrder, front: WorkerFront, parts: NodeParts, orders: Orders
) -> AbstractAsyncContextManager[Serving]:
    """Return the listener; what is true of the whole machine only the first worker says."""
    listener = listening(front, order.settings.server, orders, shared=True)
    return noticed(listener, parts.doors.bridge) if order.number == 1 else listener


def _node_order(order: WorkerOrder, crew: Crew) -> NodeOrder:
    """Return the same as a node alone is given; its name is that of the worker."""
    node, number = order.node, order.number
    return NodeOrder(
        registry=node.registry,
        access=RpcAccess(
            token=node.token,
            ca=_path(node.ca),
            certificate=_path(node.certificate),
            key=_path(node.key),
            insecure=node.insecure,
            worker=number,
        ),
        name=None if node.name is None else worker_name(node.name, number),
        private=node.private,
        wait_seconds=node.wait_seconds,
        worker=WorkerPlace(number=number, crew=crew, data=Path(order.data)),
        own_records=order.has_plane,
    )


def _path(given: str | None) -> Path | None:
    return None if given is None else Path(given)


def _front(order: WorkerOrder, parts: NodeParts) -> WorkerFront:
    folder = Path(order.sockets)
    peers = peers_of(folder, order.key, order.count, order.number)
    routes = hand_over_owned(node_routes(parts), peers, order.count)
    app = guarded_node(order.settings, parts, routes)
    if not order.has_plane:
        return WorkerFront(app)
    doors = [one for one in routes if one.path not in PROCESS_PATHS]
    return WorkerFront(app, doors, Peer(folder / PLANE_SOCKET, order.key))


def _handed_over(front: WorkerFront, order: WorkerOrder, orders: Orders) -> ForwardedRequests:
    return ForwardedRequests(
        front,
        worker_socket(Path(order.sockets), order.number),
        order.key,
        draining=orders.stop,
        hurry=orders.hurry,
        drain_seconds=order.settings.server.drain_seconds,
    )
