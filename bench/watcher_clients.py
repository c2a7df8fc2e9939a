"""Clients of ``bench.watchers``, in one process: streams over gRPC, and plain sockets beside them.

It is told where to go as one line of JSON, and answers with figures as another one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count, cycle
from statistics import median
from timeit import default_timer
from typing import Any

# Before grpc is imported: benchmarks start processes, and no handler of grpc's may run in them.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from grpc import aio

from bascule.wire.pb import registry_pb2
from bench.machine import cpu_seconds, resident
from bench.rounds import Figures

SERVICE = "/bascule.registry.v1.McpRegistryService"
PER_CONNECTION = 100
#: How many streams, or sockets, are opened at once.
AT_ONCE = 200
CROWDS = (1_000, 5_000)
HELD = 10_000
DEAF = 100
ROUNDS = 20
BLOCKS, WRITES = 8, 12
SECONDS = 60.0
#: A connection of its own for each channel.
APART = (("grpc.use_local_subchannel_pool", 1),)
#: What a stream that is not read takes in before its sender has to wait: less than two events.
NARROW = (*APART, ("grpc.http2.lookahead_bytes", 128), ("grpc.http2.bdp_probe", 0))


@dataclass(frozen=True)
class Place:
    """Where the registry and the floor are, and the tokens of who writes and who watches."""

    registry: str
    floor: int
    pid: int
    admin: str
    nodes: Sequence[str]


class Arrivals:
    """Counts who has what was sent last."""

    def __init__(self) -> None:
        self._wanted, self._left = b"", 0
        self._last: asyncio.Future[float]
        self.message = b""

    def expect(self, wanted: bytes, by: int) -> asyncio.Future[float]:
        """Give what is done when so many have had a message with these bytes: at what time."""
        self._wanted, self._left = wanted, by
        self._last = asyncio.get_running_loop().create_future()
        return self._last

    def take(self, message: bytes) -> None:
        """Note what one of them was sent; bookmarks do not count."""
        if self._wanted not in message:
            return
        self._left -= 1
        if self._left == 0:
            self.message = message
            self._last.set_result(default_timer())


class Registry:
    """The registry, which is written to and watched."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._channel = aio.insecure_channel(place.registry, options=APART)
        self._upsert = self._channel.unary_unary(f"{SERVICE}/UpsertMcpServer")
        self._names = (f"server-{number:08d}" for number in count())
        self._tokens = cycle(place.nodes)
        self._channels = [self._channel]
        self._reading: list[asyncio.Task[None]] = []
        self.arrivals = Arrivals()

    async def grow(self, watchers: int) -> None:
        """Open streams until there are so many."""
        while len(self._reading) < watchers:
            more = [
                aio.insecure_channel(self._place.registry, options=APART)
                for _ in range(AT_ONCE // PER_CONNECTION)
            ]
            self._channels += more
            for calls in await asyncio.gather(*(self._opened(one, PER_CONNECTION) for one in more)):
                self._reading += [asyncio.create_task(self._read(call)) for call in calls]

    @asynccontextmanager
    async def deaf(self, watchers: int) -> AsyncGenerator[None]:
        """Have so many streams more that nobody reads."""
        async with aio.insecure_channel(self._place.registry, options=NARROW) as channel:
            calls = await self._opened(channel, watchers)
            for _ in range(3):  # until their senders wait
                await self.write()
            yield
            for call in calls:
                call.cancel()

    async def _opened(self, channel: aio.Channel, streams: int) -> list[Any]:
        watch = channel.unary_stream(f"{SERVICE}/WatchMcpServers")
        token = next(self._tokens)
        calls: list[Any] = [
            watch(b"", metadata=aio.Metadata(("authorization", f"Bearer {token}")))
            for _ in range(streams)
        ]
        async with asyncio.timeout(SECONDS):
            for call in calls:
                await call.initial_metadata()
        return calls

    async def _read(self, call: Any) -> None:
        async for message in call:
            self.arrivals.take(message)

    async def told(self) -> float:
        """Write a server; return the seconds until the last watcher knows."""
        name = next(self._names)
        last = self.arrivals.expect(name.encode(), len(self._reading))
        began = default_timer()
        async with asyncio.timeout(SECONDS):
            await self.write(name)
            return await last - began

    async def write(self, name: str | None = None) -> None:
        """Write a server, which nobody is waited for to see."""
        record = {"server_id": name or next(self._names), "transport": "stdio"}
        request = registry_pb2.UpsertMcpServerRequest(
            server={**record, "stdio": {"command": "true"}}
        )
        metadata = aio.Metadata(("authorization", f"Bearer {self._place.admin}"))
        await self._upsert(request.SerializeToString(), metadata=metadata, timeout=SECONDS)

    async def close(self) -> None:
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        for channel in self._channels:
            await channel.close()


class Socket(asyncio.Protocol):
    """One plain socket of the floor."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    def data_received(self, data: bytes) -> None:
        self._take(data)


class Floor:
    """As many plain sockets, and what is sent to all of them."""

    def __init__(self, place: Place) -> None:
        self._port = place.floor
        self._sockets: list[asyncio.Transport] = []
        self._writer: asyncio.Transport | None = None
        self.arrivals = Arrivals()

    async def grow(self, sockets: int) -> None:
        """Connect until there are so many."""
        self._writer = self._writer or await self._connected()
        while len(self._sockets) < sockets:
            async with asyncio.timeout(SECONDS):
                more = await asyncio.gather(*(self._connected() for _ in range(AT_ONCE)))
            self._sockets += more

    async def _connected(self) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        made = await loop.create_connection(
            lambda: Socket(self.arrivals.take), "127.0.0.1", self._port
        )
        return made[0]

    async def told(self, message: bytes) -> float:
        """Send a message; return the seconds until the last socket has it."""
        assert self._writer is not None
        last = self.arrivals.expect(message, len(self._sockets))
        began = default_timer()
        self._writer.write(message)
        async with asyncio.timeout(SECONDS):
            return await last - began

    def close(self) -> None:
        for transport in filter(None, (*self._sockets, self._writer)):
            transport.close()


async def measured(place: Place) -> Figures:
    """Measure everything, from few watchers to many."""
    registry, floor, figures = Registry(place), Floor(place), Figures()
    try:
        await registry.write()
        await registry.grow(AT_ONCE)  # what the first ones cost is not a stream's
        await registry.told()
        before, there = resident(place.pid), AT_ONCE
        for crowd in CROWDS:
            await registry.grow(crowd)
            await floor.grow(crowd)
            figures |= await _beside(registry, floor, crowd, place.pid)
            if crowd == CROWDS[0]:
                figures |= await _with_deaf(registry)
        floor.close()
        await registry.grow(HELD)
        figures["each"] = (resident(place.pid) - before) / (HELD - there)
        figures["all"] = await registry.told()
    finally:
        floor.close()
        await registry.close()
    return figures


async def _beside(registry: Registry, floor: Floor, crowd: int, pid: int) -> Figures:
    """Let both tell as many, in turns."""
    pairs, used = list[tuple[float, float]](), list[float]()
    for number in range(ROUNDS + 1):
        before = cpu_seconds([pid])
        told = await registry.told()
        cpu = cpu_seconds([pid]) - before
        plain = await floor.told(registry.arrivals.message)
        if number:  # the first round is for warming up
            pairs.append((told, plain))
            used.append(cpu)
    return {
        f"{crowd} ratio": median(told / plain for told, plain in pairs),
        f"{crowd} told": median(told for told, _ in pairs),
        f"{crowd} least": min(told for told, _ in pairs),
        f"{crowd} floor": median(plain for _, plain in pairs),
        f"{crowd} floor least": min(plain for _, plain in pairs),
        f"{crowd} cpu": median(used),
    }


async def _with_deaf(registry: Registry) -> Figures:
    """Tell those who read, with and without some who do not, in turns."""
    ratios = list[float]()
    for _ in range(BLOCKS):
        without = await _middle(registry.told)
        async with registry.deaf(DEAF):
            ratios.append(await _middle(registry.told) / without)
    return {"deaf": median(ratios)}


async def _middle(told: Callable[[], Awaitable[float]]) -> float:
    return median([await told() for _ in range(WRITES)])


def main() -> None:
    place = Place(**json.loads(sys.stdin.readline()))
    print(json.dumps(asyncio.run(measured(place))), flush=True)


if __name__ == "__main__":
    main()
