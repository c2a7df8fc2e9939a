"""A server in the same event loop: a real ``Channel`` with a peer that does what a test says.

``FakePeer`` answers both eras' handshakes, lists and calls; it can be silent, be held, refuse to
start, die and announce. Nothing here takes real time, so a ``FakeClock`` rules alone.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from bascule.errors import (
    BasculeError,
    DeadlineExceeded,
    NotDelivered,
    OutcomeUnknown,
    RemoteError,
)
from bascule.model.server import ServerRecord, Stdio
from bascule.node.pool.opener import Opener
from bascule.node.pool.process.plain import PlainSpawner
from bascule.node.pool.transport.channel import Channel, Events
from bascule.node.pool.transport.taps import Tap
from bascule.node.ports import Outgoing, Route
from bascule.node.sharing import ALL, Sharer
from bascule.testing import tool
from bascule.wire.era import LIST_CHANGED, MODERN, Era, Peer

NOT_FOUND = RemoteError(-32601, "Method not found")


def outgoing(
    server_id: str = "fs",
    session_id: str = "s1",
    tool: str = "echo",
    arguments: bytes = b"{}",
    *,
    timeout: float = 5.0,
    until: float | None = None,
    whose: str = "",
    again: bool = False,
) -> Outgoing:
    """Make a call that is about to leave."""
    return Outgoing(Route(server_id, session_id, tool, whose, again), arguments, timeout, until)


def record(server_id: str = "fs", **fields: Any) -> ServerRecord:
    """A record whose command is never started: a fake opener stands before it."""
    fields.setdefault("stdio", Stdio(command=f"no-such-program-{server_id}"))
    return ServerRecord(server_id=server_id, transport="stdio", **fields)


class FakePeer:
    """What stands at the other end of every channel opened to it."""

    def __init__(self, *, era: Era = "legacy", tools: list[Any] | None = None) -> None:
        self.era: Era = era
        self.tools: list[Any] = [tool("echo")] if tools is None else tools
        self.list_extra: dict[str, Any] = {}
        self.channels: list[FakeChannel] = []
        self.journal: list[str] = []
        #: Raised at the next attempts to open, one each; an attempt beyond them succeeds.
        self.refusals: list[BaseException] = []
        #: Methods that are never answered in time; methods that wait for ``release``.
        self.silent: set[str] = set()
        self.held: dict[str, list[asyncio.Future[Any]]] = {}
        #: The connection is lost right after the answer to this method.
        self.dies_after: str | None = None
        #: Cleared: opening, or closing, waits until it is set.
        self.may_open = _set_event()
        self.may_close = _set_event()
        #: Channels opened and not yet closed for good, and the most there ever were at once.
        self.alive = 0
        self.most_alive = 0
        self.opening = 0
        #: The record of each attempt.
        self.records: list[ServerRecord] = []

    @property
    def channel(self) -> FakeChannel:
        """The last channel opened."""
        return self.channels[-1]

    @property
    def opens(self) -> int:
        """How many channels were opened so far."""
        return len(self.channels)

    async def open(self, record: ServerRecord, events: Events) -> Channel:
        """Open a channel, as ``Opener.open`` does."""
        self.records.append(record)
        self.opening += 1
        await self.may_open.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        self.channels.append(FakeChannel(self, events))
        return self.channel

    def count(self, method: str) -> int:
        """How often a method was asked for."""
        return self.journal.count(method)

    def hold(self, method: str) -> None:
        """Keep requests of this method waiting."""
        self.held.setdefault(method, [])

    def release(self, method: str) -> None:
        """Answer the requests of this method that wait, and those to come."""
        for waiting in self.held.pop(method):
            self.settle(method, waiting)

    def ask(self, method: str, waiting: asyncio.Future[Any]) -> None:
        """Answer a request, or see to it that it is answered later or not at all."""
        self.journal.append(method)
        if method in self.silent:
            waiting.set_exception(DeadlineExceeded(f"no answer to {method} in time"))
        elif method in self.held:
            self.held[method].append(waiting)
        elif method != "subscriptions/listen" or self.era == "legacy":
            self.settle(method, waiting)

    def settle(self, method: str, waiting: asyncio.Future[Any]) -> None:
        """Answer a request, unless nobody waits any more."""
        if waiting.done():
            return
        answer = self.answer(method)
        if isinstance(answer, BasculeError):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    def answer(self, method: str) -> Any:
        """What a good server of this era says."""
        capabilities = {"tools": {"listChanged": True}}
        if method == "tools/list":
            return {"tools": list(self.tools), **self.list_extra}
        if method == "tools/call":
            return {"content": [{"type": "text", "text": "done"}]}
        if self.era == "modern" and method == "server/discover":
            return {"supportedVersions": [MODERN], "capabilities": capabilities}
        if self.era == "legacy" and method == "initialize":
            info = {"name": "fake", "version": "1"}
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": capabilities,
                "serverInfo": info,
            }
        if self.era == "legacy" and method == "ping":
            return {}
        return NOT_FOUND


class FakeChannel:
    """One connection to a ``FakePeer``."""

    apart = False

    def __init__(self, peer: FakePeer, events: Events) -> None:
        self._peer = peer
        self._events = events
        self._waiting: defaultdict[str, set[asyncio.Future[Any]]] = defaultdict(set)
        self._closed = False
        self.alive = True
        self.arguments: list[bytes] = []

    async def request(
        self,
        method: str,
        params: bytes,
        *,
        deadline: float,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        tap: Tap | None = None,
    ) -> Any:
        """Ask the peer."""
        if not self.alive:
            raise NotDelivered("the connection is closed")
        if name is not None:
            self.arguments.append(params)
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[method].add(waiting)
        self._peer.ask(method, waiting)
        if method == self._peer.dies_after:
            self.lose("it died after " + method)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiting
        except TimeoutError:
            raise DeadlineExceeded(f"no answer to {method} in time") from None
        finally:
            self._waiting[method].discard(waiting)

    def settle(self, peer: Peer) -> None:
        """Take note of the handshake, which changes nothing here."""

    def notify(self, method: str, params: bytes) -> None:
        """Tell the peer."""
        self._peer.journal.append(method)

    def diagnosis(self) -> str:
        """What it said last."""
        return "a last word"

    async def close(self) -> None:
        """Close, when the peer lets us, and whoever is cancelled meanwhile: as real ones do."""
        self._stop("the connection was closed")
        ending = asyncio.get_running_loop().create_task(self._end())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait({ending})
            raise

    async def _end(self) -> None:
        await self._peer.may_close.wait()
        if not self._closed:
            self._closed = True
            self._peer.alive -= 1

    def lose(self, reason: str = "the server ended with status 1") -> None:
        """Die, as a server does: calls in flight fail, and the owner is told."""
        if self.alive:
            self._stop(reason)
            self._events.on_closed(reason)

    def announce(self, times: int = 1) -> None:
        """Say that the tools changed, through the loop as real channels do."""
        loop = asyncio.get_running_loop()
        for _ in range(times):
            loop.call_soon(self._events.on_notification, LIST_CHANGED, None)

    def flood(self, seconds: float) -> None:
        """Say so much that reading pauses for so long."""
        self._events.on_pause(seconds)

    def end_subscription(self) -> None:
        """Answer ``subscriptions/listen``: the server wants to tell no more."""
        for waiting in tuple(self._waiting["subscriptions/listen"]):
            waiting.set_result({"resultType": "complete"})

    def _stop(self, reason: str) -> None:
        self.alive = False
        for waiting in [future for every in self._waiting.values() for future in every]:
            if not waiting.done():
                waiting.set_exception(OutcomeUnknown(f"{reason} before the answer"))


class FakeOpener(Opener):
    """An opener that leads to fake peers by server id; its process limit is the real one."""

    def __init__(self, **peers: FakePeer) -> None:
        super().__init__(PlainSpawner())
        self.peers = peers
        self.records: list[ServerRecord] = []

    async def open(self, record: ServerRecord, events: Events, sharer: Sharer = ALL) -> Channel:
        """Open a channel to the peer of this name."""
        del sharer
        self.records.append(record)
        return await self.peers[record.server_id].open(record, events)


def our_tasks() -> set[asyncio.Task[Any]]:
    """Every task of the loop but those that run the tests."""
    return {task for task in asyncio.all_tasks() if "TestRunner" not in repr(task.get_coro())}


def replaced(record: ServerRecord, **changes: Any) -> ServerRecord:
    """The same record with some fields changed."""
    return msgspec.structs.replace(record, **changes)


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
