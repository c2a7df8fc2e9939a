"""Clients of ``bench.nodes``, in one process: nodes as streams alone, and nodes as they are.

It is told where to go and what to do as one line of JSON, and answers with figures as another one.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from timeit import default_timer
from typing import Any

# Before grpc is imported: benchmarks start processes, and no handler of grpc's may run in them.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from grpc import aio

from bascule.client.rpc import HEAD, SERVICE, RpcAccess, RpcSource
from bascule.clock import SYSTEM_CLOCK
from bascule.model.snapshot import Snapshot
from bascule.model.status import ServerStatus
from bascule.node.changes import Changes
from bascule.node.sync.follower import Follower
from bascule.wire.pb import node_pb2 as pb
from bench.fleet_model import RHYTHM, at
from bench.machine import cpu_seconds
from bench.rounds import Figures

PER_CONNECTION = 100
#: How many streams are opened at once.
AT_ONCE = 200
SECONDS = 120.0
#: The same for real followers.
AT_A_TIME = 50
#: How long quiet nodes are watched, and how often each thing is done to know what it costs.
QUIET_SECONDS = 45.0
TIMES = 1_000
#: Of followers: those that are back are counted from when a tenth is, since the very first ones
#: meet a registry that has not quite started.
FIRST = 0.1
PARTS = {"half": 0.5, "nine tenths": 0.9, "all": 1.0}
IDLE_SECONDS = 10.0
#: What a node says of its servers.
SERVERS = [{"server_id": f"server{one}", "state": "connected", "tool_count": 8} for one in range(5)]
REPORT = pb.ReportRequest(state="ok", revision=1, servers=SERVERS).SerializeToString()  # pyright: ignore[reportArgumentType] - as dicts


@dataclass(frozen=True)
class Place:
    """Where the registry is, what its process is, the tokens of nodes, and what to measure.

    ``ca`` is the file of the authority of its certificate, if it has one.
    """

    registry: str
    pid: int
    tokens: Sequence[str]
    work: str
    ca: str = ""

    def access(self, token: str) -> RpcAccess:
        return RpcAccess(token=token, ca=Path(self.ca) if self.ca else None)


class Streams:
    """Nodes that are nothing but what they say and hear."""

    def __init__(self, place: Place, per_connection: int = PER_CONNECTION) -> None:
        self._place = place
        self._per_connection = per_connection
        self._nodes: list[tuple[str, aio.Channel]] = []
        self._reading: list[asyncio.Task[None]] = []
        self._said = asyncio.Semaphore(0)

    async def grow(self, streams: int) -> None:
        """Follow with so many tokens."""
        while len(self._nodes) < streams:
            first = len(self._nodes)
            tokens = self._place.tokens[first : first + AT_ONCE]
            for number in range(0, len(tokens), self._per_connection):
                channel = self._place.access("").channel(self._place.registry)
                for token in tokens[number : number + self._per_connection]:
                    self._nodes.append((token, channel))
                    call = self._follow(token, channel)
                    self._reading.append(asyncio.create_task(self._read(call)))
            async with asyncio.timeout(SECONDS):
                for _ in tokens:
                    await self._said.acquire()

    def _follow(self, token: str, channel: aio.Channel) -> Any:
        request = pb.FollowRequest(process=token[-8:], version="bench").SerializeToString()
        opened: Any = channel.unary_stream(f"/{SERVICE}/Follow")
        return opened(request, metadata=_metadata(token))

    async def _read(self, call: Any) -> None:
        has_all = False
        async for message in call:
            if not has_all and pb.FollowResponse.FromString(message).HasField("snapshot"):
                has_all = True
                self._said.release()

    async def ask(self, number: int, method: str, request: bytes) -> None:
        """Make a call of one node."""
        token, channel = self._nodes[number]
        call: Any = channel.unary_unary(method)
        await call(request, metadata=_metadata(token), timeout=SECONDS)

    async def live(self, number: int) -> None:
        """Report in the rhythm of a real node, from somewhere in the middle of it.

        It does not poll: bookmarks say where the registry is.
        """
        await SYSTEM_CLOCK.sleep(random.uniform(0, RHYTHM.report_seconds))
        while True:
            await self.ask(number, f"/{SERVICE}/Report", REPORT)
            await SYSTEM_CLOCK.sleep(RHYTHM.report_seconds)

    async def poll(self, number: int) -> None:
        """Ask now and then besides, as a node would that hears no bookmarks."""
        polls = RHYTHM.poll_seconds, RHYTHM.poll_limit_seconds
        # Who looks in at some time meets long pauses more often than short ones.
        low, high = polls
        met = (low**2 + random.random() * (high**2 - low**2)) ** 0.5
        await SYSTEM_CLOCK.sleep(random.uniform(0, met))
        while True:
            await self.ask(number, HEAD, b"")
            await SYSTEM_CLOCK.sleep(random.uniform(*polls))

    async def close(self) -> None:
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        for channel in {channel for _, channel in self._nodes}:
            await channel.close()


def _metadata(token: str) -> aio.Metadata:
    return aio.Metadata(("authorization", f"Bearer {token}"))


async def quiet(place: Place) -> Figures:
    """Hold streams: what each costs to open, to be told nothing, and to live."""
    streams, figures = Streams(place), Figures()
    try:
        await streams.grow(AT_ONCE)  # what the first ones cost is not a stream's
        before, there = cpu_seconds([place.pid]), AT_ONCE
        await streams.grow(len(place.tokens))
        count = len(place.tokens)
        figures["opening"] = (cpu_seconds([place.pid]) - before) / (count - there)
        for begin in range(0, count, AT_ONCE):  # the first report of a node is written down
            some = range(begin, min(count, begin + AT_ONCE))
            await asyncio.gather(*(streams.ask(n, f"/{SERVICE}/Report", REPORT) for n in some))
        for name, method, request in (
            ("report", f"/{SERVICE}/Report", REPORT),
            ("poll", HEAD, b""),
        ):
            figures[name] = await _cost(streams, place, method, request)
        figures["silent"] = await _share(place)
        living = [asyncio.create_task(streams.live(number)) for number in range(count)]
        figures["quiet"] = await _share(place)
        living += [asyncio.create_task(streams.poll(number)) for number in range(count)]
        figures["polling"] = await _share(place)
        for task in living:
            task.cancel()
        await asyncio.gather(*living, return_exceptions=True)
    finally:
        await streams.close()
    return figures


async def _cost(streams: Streams, place: Place, method: str, request: bytes) -> float:
    """Return what a call costs the server, of as many different nodes."""
    before = cpu_seconds([place.pid])
    for number in range(TIMES):
        await streams.ask(number % len(place.tokens), method, request)
    return (cpu_seconds([place.pid]) - before) / TIMES


async def join(place: Place) -> Figures:
    """Follow on connections of their own: what each costs."""
    streams = Streams(place, per_connection=1)
    try:
        await streams.grow(AT_ONCE)
        idle = await _share(place, IDLE_SECONDS)
        before, began = cpu_seconds([place.pid]), default_timer()
        await streams.grow(len(place.tokens))
        used = cpu_seconds([place.pid]) - before - idle * (default_timer() - began)
    finally:
        await streams.close()
    return {"joining": used / (len(place.tokens) - AT_ONCE)}


async def _share(place: Place, seconds: float = QUIET_SECONDS) -> float:
    """Return which share of a core the server uses."""
    before, began = cpu_seconds([place.pid]), default_timer()
    await SYSTEM_CLOCK.sleep(seconds)
    return (cpu_seconds([place.pid]) - before) / (default_timer() - began)


# --- nodes as they are


class Node(Changes):
    """A ``FollowingNode`` that serves nothing."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    async def apply(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def statuses(self) -> tuple[ServerStatus, ...]:
        return ()


class Source(RpcSource):
    """A registry that is asked; how often, by everybody."""

    asked = 0

    async def snapshot(self, known: Snapshot | None = None) -> Snapshot:
        Source.asked += 1
        return await super().snapshot(known)


class Fleet:
    """Followers that lose their registry and find it again."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lost: set[Follower] = set()
        self._back: dict[Follower, float] = {}
        self._moved = asyncio.Event()
        #: What this process had used, and how often it had asked, when the last one was lost and
        #: when the first one was back.
        self._used = list[tuple[float, int]]()

    async def measured(self) -> Figures:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one.run()) for one in await self._followers()]
            print("following", flush=True)
            await self._until(lambda: len(self._lost) == len(running))
            self._used.append(self._use())
            print("lost", flush=True)
            await self._until(lambda: len(self._back) == len(running))
            for task in running:
                task.cancel()
        [(busy, asked), (busy_then, asked_then)] = self._used
        back = sorted(self._back.values())
        found = {name: at(back, part) - at(back, FIRST) for name, part in PARTS.items()}
        return found | {"trying": (busy_then - busy) / (asked_then - asked)}

    async def _followers(self) -> list[Follower]:
        found = list[Follower]()
        for first in range(0, len(self._place.tokens), AT_A_TIME):
            some = self._place.tokens[first : first + AT_A_TIME]
            found += await asyncio.gather(*map(self._follower, some))
        return found

    async def _follower(self, token: str) -> Follower:
        source = Source(self._place.registry, self._place.access(token))
        follower = Follower(source, Node(await source.snapshot()), settings=RHYTHM)
        follower.on_word = lambda: self._heard(follower)
        return follower

    def _heard(self, follower: Follower) -> None:
        if follower.problem is not None:
            self._lost.add(follower)
        elif follower in self._lost and follower not in self._back:
            if not self._back:
                self._used.append(self._use())
            self._back[follower] = default_timer()
        self._moved.set()

    def _use(self) -> tuple[float, int]:
        return cpu_seconds([os.getpid()]), Source.asked

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not is_so():
                self._moved.clear()
                await self._moved.wait()


async def storm(place: Place) -> Figures:
    """Follow; say so, lose the registry, say that too, and find out when each was back."""
    return await Fleet(place).measured()


def main() -> None:
    place = Place(**json.loads(sys.stdin.readline()))
    work = {"quiet": quiet, "join": join, "storm": storm}[place.work]
    print(json.dumps(asyncio.run(work(place))), flush=True)


if __name__ == "__main__":
    main()
