"""Laws of the states: whatever happens, in whatever order, a connection stays on its map."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bascule.audit.metrics import Metrics
from bascule.errors import BasculeError, ServerUnavailable
from bascule.model.status import State
from bascule.node.pool.connection import Connection
from bascule.node.pool.state import ARROWS, IllegalMove, Machine
from bascule.node.settings import NodeSettings
from bascule.testing import FakeClock, tool
from tests.node.pool.fake_channel import FakePeer, outgoing, record
from tests.scale import scaled

STATES = sorted(ARROWS)


class Walk(RuleBasedStateMachine):
    """Any walk over the machine itself."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()
        self.path: list[State] = ["disconnected"]

    @rule(to=st.sampled_from(STATES))
    def move(self, to: State) -> None:
        try:
            self.machine.move(to)
        except IllegalMove:
            assert to not in ARROWS[self.machine.state]
            return
        if to != self.path[-1]:
            self.path.append(to)

    @invariant()
    def it_stands_where_the_legal_moves_led(self) -> None:
        assert self.machine.state == self.path[-1]
        assert all(later in ARROWS[earlier] for earlier, later in pairwise(self.path))


TestWalk = pytest.mark.requirement("pool:states:legal")(Walk.TestCase)


class Recorder(Machine):
    """A machine that remembers where it was asked to go, on the map or off it."""

    __slots__ = ("illegal", "path")

    def __init__(self) -> None:
        super().__init__()
        self.path: list[State] = []
        self.illegal: list[str] = []

    def move(self, to: State) -> None:
        self.path.append(to)
        try:
            super().move(to)
        except IllegalMove as error:
            self.illegal.append(str(error))
            raise


class Life:
    """A connection and everything that may happen to it, one step at a time."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.peer = FakePeer()
        self.changes = 0
        rhythms = NodeSettings(
            idle_seconds=300.0,
            keepalive_seconds=50.0,
            park_after=3,
            losses_per_minute=4,
            backoff_seconds=1.0,
        )
        self.connection = Connection(
            record(), self.peer.open, rhythms, self.clock, Metrics(), on_change=self.changed
        )
        self.machine = Recorder()
        self.connection._machine = self.machine
        self.callers: list[asyncio.Task[Any]] = []
        self.steps: dict[str, Callable[[], object]] = {
            "call": self.call,
            "list": lambda: self.start(self.connection.listing()),
            "reconnect": lambda: self.start(self.connection.reconnect()),
            "disconnect": lambda: self.start(self.connection.disconnect()),
            "cancel a caller": self.cancel,
            "lose": lambda: self.peer.channels and self.peer.channel.lose("it died"),
            "announce": lambda: self.peer.channels and self.peer.channel.announce(3),
            "change": lambda: self.peer.tools.append(tool(f"tool{len(self.peer.tools)}")),
            "refuse": lambda: self.peer.refusals.append(ServerUnavailable("no")),
            "die in the handshake": lambda: setattr(self.peer, "dies_after", "initialize"),
            "heal": self.heal,
            "be silent": lambda: self.peer.silent.add("ping"),
            "open slowly": self.peer.may_open.clear,
            "open": self.peer.may_open.set,
            "close slowly": self.peer.may_close.clear,
            "close": self.peer.may_close.set,
        }

    def changed(self) -> int:
        self.changes += 1
        return self.changes

    def start(self, work: Any) -> None:
        self.callers.append(asyncio.get_running_loop().create_task(work))

    def call(self) -> None:
        self.start(self.connection.send(outgoing()))

    def cancel(self) -> None:
        waiting = [caller for caller in self.callers if not caller.done()]
        if waiting:
            waiting[0].cancel()

    def heal(self) -> None:
        self.peer.dies_after = None
        self.peer.refusals.clear()
        self.peer.silent.clear()

    async def run(self, steps: list[tuple[str, float, int]]) -> None:
        for name, seconds, turns in steps:
            self.steps[name]()
            await self.clock.settle(turns)
            if seconds:
                await self.clock.advance(seconds)
            assert self.peer.alive <= 1, "two processes at once"

    async def end(self) -> None:
        self.peer.may_open.set()
        self.peer.may_close.set()
        await self.connection.close()
        await self.clock.settle()

    def check(self) -> None:
        """Nothing illegal, nothing left, and nobody was told anything but one of our errors."""
        assert self.machine.illegal == []
        assert (self.connection.state, self.peer.alive, self.clock.sleepers) == (
            "disconnected",
            0,
            0,
        )
        assert asyncio.all_tasks() == {asyncio.current_task()}
        for caller in self.callers:
            error = None if caller.cancelled() else caller.exception()
            assert error is None or isinstance(error, BasculeError), repr(error)


NAMES = (
    *("call", "list", "reconnect", "disconnect", "lose", "announce", "change", "refuse"),
    *("heal", "open", "close", "cancel a caller", "die in the handshake", "be silent"),
    *("open slowly", "close slowly"),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(NAMES), st.sampled_from([0.0, 0.0, 0.5, 60.0, 400.0]), st.integers(0, 12)
    ),
    max_size=30,
)


@contextlib.asynccontextmanager
async def lived(steps: list[tuple[str, float, int]]) -> AsyncGenerator[Life]:
    """A life with these steps, and the checks at its end."""
    life = Life()
    try:
        async with asyncio.timeout(20):
            await life.run(steps)
            yield life
            await life.end()
            life.check()
    finally:
        life.peer.may_open.set()
        life.peer.may_close.set()


@pytest.mark.requirement("pool:states:legal", "pool:no-orphans")
@settings(max_examples=scaled(1000))
@given(steps=STEPS)
def test_whatever_happens_a_connection_stays_on_its_map_and_leaves_nothing_behind(
    steps: list[tuple[str, float, int]],
):
    async def live() -> None:
        async with lived(steps):
            pass

    asyncio.run(live())


@pytest.mark.requirement("pool:restart-on-disconnect")
@settings(max_examples=scaled(1000))
@given(steps=STEPS)
def test_whatever_happened_a_healthy_server_can_be_called_once_its_time_has_come(
    steps: list[tuple[str, float, int]],
):
    async def live() -> None:
        async with lived(steps) as life:
            life.heal()
            life.peer.may_open.set()
            life.peer.may_close.set()
            await life.clock.advance(400.0)
            life.call()
            await life.clock.advance(10.0)
            assert life.callers[-1].result()["content"]

    asyncio.run(live())
