"""A model of many nodes and their replicas: polls, a reconnect storm, a rolling restart.

Nodes follow in the rhythm that the real ones have (``SyncSettings``); a replica is one core that
does one thing after the other, and what each thing costs was measured (``bench.nodes``). Time is
simulated: ten thousand nodes take seconds.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from bascule.control.registry.service import Settings
from bascule.node.sync.follower import SyncSettings

#: As ``bascule node serve`` has it.
RHYTHM = SyncSettings(report_seconds=300.0)
BOOKMARK_SECONDS = Settings().bookmark_seconds
#: How long it takes to be told that nobody listens.
REFUSED_SECONDS = 0.001


@dataclass(frozen=True)
class Costs:
    """Seconds of a replica's core: for a stream that begins, a poll, a report, a bookmark.

    ``trying`` is what a try costs where nodes share a core, as those of a benchmark do.
    """

    opening: float
    poll: float
    report: float
    bookmark: float
    trying: float = 0.0


class Core:
    """Does one thing after the other."""

    def __init__(self) -> None:
        self.free_at = 0.0
        #: How much it has done, in seconds.
        self.worked = 0.0

    def work(self, now: float, seconds: float) -> float:
        """Take on some work; return when it is done."""
        self.free_at = max(now, self.free_at) + seconds
        self.worked += seconds
        return self.free_at


class Replica(Core):
    """One that may be down, and the nodes that follow it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_up = True
        #: How often it has started: what was asked of an earlier process is lost.
        self.life = 0
        self.nodes: set[Node] = set()


@dataclass(eq=False)
class Node:
    """How one node stands."""

    failures: int = 0
    #: Since when it has a stream, and of whom.
    since: float = 0.0
    replica: Replica | None = None
    #: How often it was lost, and whether a replica was told of the last time.
    losses: int = 0
    is_told: bool = False


@dataclass
class Tally:
    """What happened, as far as anybody asks."""

    tries: int = 0
    refused: int = 0
    #: Answers that came too late, whose work was done for nothing.
    late: int = 0
    #: When a node had its stream again.
    joined: list[float] = field(default_factory=list[float])


class Fleet:
    """Nodes and replicas behind one address, which joins whoever connects to any that is up."""

    def __init__(
        self,
        nodes: int,
        replicas: int,
        costs: Costs,
        *,
        rhythm: SyncSettings = RHYTHM,
        polling: bool = False,
        seed: int = 7,
    ) -> None:
        """Begin with nodes that follow; with ``polling``, bookmarks do not spare them to ask."""
        self._costs = costs
        self._rhythm = rhythm
        self._rng = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._client = Core()
        self.now = 0.0
        self.tally = Tally()
        self.replicas = [Replica() for _ in range(replicas)]
        self.nodes = [Node() for _ in range(nodes)]
        for number, node in enumerate(self.nodes):
            self._joins(node, self.replicas[number % replicas], since=-1e6)
            if polling:
                first = self._rng.uniform(0, rhythm.poll_limit_seconds)
                self._later(first, partial(self._poll, node))
            self._later(self._rng.uniform(0, rhythm.report_seconds), partial(self._report, node))
        for replica in self.replicas:
            self._later(self._rng.uniform(0, BOOKMARK_SECONDS), partial(self._bookmark, replica))

    # --- time

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            self.now, _, happen = heapq.heappop(self._events)
            happen()
        self.now = until

    def _later(self, seconds: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), happen))

    # --- replicas

    def stop(self, replica: Replica) -> None:
        """End a replica: whoever follows it has to look for another."""
        replica.is_up = False
        nodes, replica.nodes = replica.nodes, set()
        for node in nodes:
            self._lost(node)

    def start(self, replica: Replica) -> None:
        """Start it again, with nothing to do yet."""
        replica.is_up, replica.free_at = True, self.now
        replica.life += 1

    def _bookmark(self, replica: Replica) -> None:
        if replica.is_up:
            replica.work(self.now, len(replica.nodes) * self._costs.bookmark)
        self._later(BOOKMARK_SECONDS, partial(self._bookmark, replica))

    def _joined(self) -> Replica | None:
        """Return one of the replicas that are up."""
        up = [one for one in self.replicas if one.is_up]
        return self._rng.choice(up) if up else None

    # --- nodes

    def _joins(self, node: Node, replica: Replica, since: float) -> None:
        node.replica, node.since = replica, since
        replica.nodes.add(node)

    def _lost(self, node: Node) -> None:
        steady = self.now - node.since >= self._rhythm.steady_seconds
        node.replica = None
        node.losses += 1
        self._failed(node, steady=steady)
        self._later(self._rhythm.trouble_seconds, partial(self._complain, node, node.losses))

    def _complain(self, node: Node, losses: int) -> None:
        """Report that a node does not follow, if it still does not."""
        replica = self._joined()
        if node.replica is None and node.losses == losses and replica is not None:
            node.is_told = True
            replica.work(self.now, self._costs.report)

    def _failed(self, node: Node, *, steady: bool = False, overrun: bool = False) -> None:
        node.failures = 0 if steady else node.failures + 1
        limit = self._rhythm.overrun_limit_seconds if overrun else None
        pause = self._rhythm.delay(node.failures, self._rng.uniform, limit=limit)
        self._later(pause, partial(self._try, node))

    def _try(self, node: Node) -> None:
        self.tally.tries += 1
        begun = self._client.work(self.now, self._costs.trying)
        self._later(begun - self.now, partial(self._connect, node))

    def _connect(self, node: Node) -> None:
        replica = self._joined()
        if replica is None:
            self.tally.refused += 1
            self._later(REFUSED_SECONDS, partial(self._failed, node))
            return
        done = replica.work(self.now, self._costs.opening)
        limit = self.now + self._rhythm.answer_seconds
        if done > limit:
            self.tally.late += 1
            self._later(limit - self.now, partial(self._failed, node, overrun=True))
            return
        self._later(done - self.now, partial(self._answered, node, replica, replica.life))

    def _answered(self, node: Node, replica: Replica, life: int) -> None:
        if not replica.is_up or replica.life != life:
            self._failed(node)
            return
        self._joins(node, replica, self.now)
        self.tally.joined.append(self.now)
        if node.is_told:
            node.is_told = False
            replica.work(self.now, self._costs.report)

    def _poll(self, node: Node) -> None:
        if node.replica is not None:
            node.replica.work(self.now, self._costs.poll)
        rhythm = self._rhythm
        pause = self._rng.uniform(rhythm.poll_seconds, rhythm.poll_limit_seconds)
        self._later(pause, partial(self._poll, node))

    def _report(self, node: Node) -> None:
        if node.replica is not None:
            node.replica.work(self.now, self._costs.report)
        self._later(self._rhythm.report_seconds, partial(self._report, node))


def quiet(
    nodes: int, replicas: int, costs: Costs, seconds: float = 600.0, *, polling: bool = False
) -> float:
    """Return which share of a core nodes cost each replica while nothing happens."""
    fleet = Fleet(nodes, replicas, costs, polling=polling)
    fleet.run(seconds)
    return sum(one.worked for one in fleet.replicas) / replicas / seconds


@dataclass(frozen=True)
class Back:
    """How nodes found their replicas again: seconds, from when they could, sorted."""

    seconds: Sequence[float]
    tries: int
    late: int
    #: The part of all nodes that the fullest replica has in the end.
    fullest: float

    def part(self, share: float) -> float:
        """Return after how many seconds a share of the nodes was back."""
        return at(self.seconds, share)


def at(times: Sequence[float], share: float) -> float:
    """Return when a share of what is sorted by time had happened."""
    return times[min(len(times) - 1, int(share * len(times)))]


def storm(nodes: int, replicas: int, costs: Costs, away: float, **options: Any) -> Back:
    """Stop all replicas at once, and start them again after a while."""
    fleet = Fleet(nodes, replicas, costs, **options)
    fleet.run(5.0)
    for replica in fleet.replicas:
        fleet.stop(replica)
    fleet.run(away)
    began, fleet.tally = fleet.now, Tally()
    for replica in fleet.replicas:
        fleet.start(replica)
    fleet.run(240.0)
    return _back(fleet, [at - began for at in fleet.tally.joined])


def rolling(nodes: int, replicas: int, costs: Costs, away: float = 10.0) -> Back:
    """Restart one replica after the other, a minute apart."""
    fleet = Fleet(nodes, replicas, costs)
    fleet.run(5.0)
    fleet.tally = Tally()
    found = list[float]()
    for replica in fleet.replicas:
        began, before = fleet.now, len(fleet.tally.joined)
        fleet.stop(replica)
        fleet.run(away)
        fleet.start(replica)
        fleet.run(60.0)
        found += [at - began for at in fleet.tally.joined[before:]]
    return _back(fleet, found)


def _back(fleet: Fleet, seconds: list[float]) -> Back:
    if any(node.replica is None for node in fleet.nodes):
        raise RuntimeError("some node never found a replica: the model or the rhythm is wrong")
    fullest = max(len(one.nodes) for one in fleet.replicas) / len(fleet.nodes)
    return Back(sorted(seconds), fleet.tally.tries, fleet.tally.late, fullest)
