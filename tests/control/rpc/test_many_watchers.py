"""Many watchers over gRPC: each has every change, and one that does not read is nobody's burden."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

import grpc
import pytest
from grpc import aio

from bascule.control.registry.service import Settings
from bascule.control.registry.store import Retention
from bascule.control.rpc.calls import Call, Service, Streaming
from bascule.control.rpc.port import RpcPort
from bascule.wire.pb import errors_pb2, registry_pb2
from tests.control.registry.build import BY, server
from tests.control.rpc.counter import Refusal, RpcCounter, Watched, open_counter
from tests.scale import SOAK
from tests.waits import until

WATCHERS = 10_000 if SOAK else 500
PER_CONNECTION = 100
WRITES = 15
#: What a stream that is not read takes in before its sender has to wait: less than two events.
NARROW = ("grpc.http2.lookahead_bytes", 128), ("grpc.http2.bdp_probe", 0)


async def write(counter: RpcCounter, times: int) -> int:
    """Write so many changes; return the revision of the last."""
    for number in range(times):
        name = f"s{number % 7}"
        if counter.service.view.get("server", name) is None:
            await counter.service.put("server", name, server(name), BY)
        else:
            await counter.service.delete("server", name, BY)
    return counter.service.view.revision


async def revisions(watch: Watched, last: int) -> list[int]:
    """Return the revision of every change that a watch is told, up to one."""
    found = list[int]()
    while last not in found:
        answer = await watch.next()
        if not answer.bookmark:
            found.append(answer.revision)
    return found


async def read_out(watch: Watched) -> tuple[list[int], Refusal]:
    """Return every revision that a watch is told, and how it ends."""
    found = list[int]()
    try:
        while True:
            found.append((await watch.next()).revision)
    except aio.AioRpcError as error:
        return found, Refusal(error)


@pytest.mark.requirement("registry:grpc:many-watchers")
async def test_every_watcher_has_every_change_once_and_in_order(counter: RpcCounter):
    watches = list[Watched]()
    for _ in range(WATCHERS // PER_CONNECTION):
        channel = counter.connection()
        joined = [
            counter.watch("WatchMcpServers", "node", channel, since_revision=0)
            for _ in range(PER_CONNECTION)
        ]
        await asyncio.gather(*(watch.begun() for watch in joined))
        watches += joined
        if len(watches) % (WATCHERS // 5) == 0:
            await write(counter, 2)  # while others are still to come
    last = await write(counter, WRITES)
    found = await asyncio.gather(*(revisions(watch, last) for watch in watches))
    assert len(found) == WATCHERS
    assert all(one == [*range(1, last + 1)] for one in found)


@pytest.mark.requirement("registry:grpc:slow-watcher")
async def test_a_stream_that_is_not_read_delays_nobody_and_goes_on_when_it_is(counter: RpcCounter):
    channel = counter.connection(*NARROW)
    deaf = [counter.watch("WatchMcpServers", "node", channel) for _ in range(5)]
    reading = counter.watch("WatchMcpServers", "node", channel)
    elsewhere = counter.watch("WatchMcpServers", "node")
    for watch in (*deaf, reading, elsewhere):
        await watch.begun()
    last = await write(counter, WRITES)
    for watch in (reading, elsewhere, *deaf):
        assert await revisions(watch, last) == [*range(1, last + 1)]


@pytest.mark.requirement("registry:grpc:slow-watcher")
async def test_nothing_is_kept_for_a_stream_that_is_not_read():
    settings = Settings(ring=2, retention=Retention(changes=2))
    async with open_counter(settings=settings) as counter:
        deaf = counter.watch("WatchMcpServers", "node", counter.connection(*NARROW))
        await deaf.begun()
        last = await write(counter, WRITES)
        floor = await counter.service.compact()
        found, refusal = await read_out(deaf)
        assert refusal.status is grpc.StatusCode.FAILED_PRECONDITION
        assert refusal.read(errors_pb2.BelowFloor).compacted_revision == floor
        assert found == [*range(1, len(found) + 1)]
        assert len(found) < floor < last


async def test_a_watcher_that_leaves_while_it_is_sent_something_is_no_failure(
    counter: RpcCounter, caplog: pytest.LogCaptureFixture
):
    async def farewell() -> AsyncGenerator[bytes, None]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield b"to somebody who has gone"

    async def handle(request: registry_pb2.WatchTasksRequest, call: Call):
        return farewell()

    method = Streaming("Watch", registry_pb2.WatchTasksRequest, "registry:read", handle)
    async with RpcPort([Service("farewell", (method,))], counter.guard) as port:
        counter.port = port.port
        watch = counter.connection().unary_stream("/farewell/Watch")
        call = watch(b"", metadata=counter.metadata("node"))
        await call.initial_metadata()
        assert port.streams == 1
        call.cancel()
        await until(lambda: port.streams == 0)
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []
