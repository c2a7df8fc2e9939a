"""Several clients in alternating rounds, each in a process of its own.

In each round they take turns, so that a busy neighbour troubles all of them alike. A ratio is the
median of the ratios of the rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.machine import ROOT, one_core
from bench.table import Row

TURNS = 150

Figures = dict[str, float]
#: Makes a row of a name, a value and a unit: ``Row``, or one that knows a goal.
Judge = Callable[[str, float, str], Row]


@dataclass(frozen=True)
class Ratio:
    """A figure of one client over that of another; ``kind`` is ``turns`` or ``crowd``."""

    name: str
    figure: str
    above: str
    below: str
    kind: str = "turns"


SDK = Ratio("p50, SDK / Bascule", "p50", "sdk", "bascule")
CROWD = Ratio("calls per second at 64, Bascule / SDK", "each", "sdk", "bascule", kind="crowd")
#: How a call compares with the official SDK's client.
BESIDE_SDK = (
    SDK,
    CROWD,
    Ratio("CPU of client and server, SDK / Bascule", "family_cpu", "sdk", "bascule"),
    Ratio("CPU of client and server at 64, SDK / Bascule", "family_cpu", "sdk", "bascule", "crowd"),
)


@dataclass(frozen=True)
class Setting:
    """Where and with what the clients run, and what is made of it; goals by the ratio's name."""

    title: str
    module: str
    clients: tuple[str, ...]
    ratios: tuple[Ratio, ...] = ()
    goals: Mapping[str, Judge] = field(default_factory=dict[str, Judge])
    loop: str = "uvloop"
    server: str = "floor"
    pinned: bool = True
    rounds: int = 12
    turns: int = TURNS
    crowd: int = 640


class Worker:
    """A client in its process, told what to do."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders = process.stdin
        self._answers = process.stdout
        self._answer()

    def do(self, order: str) -> Figures:
        """Give an order and wait for its figures."""
        self._orders.write(order + "\n")
        self._orders.flush()
        return self._answer()

    def _answer(self) -> Figures:
        line = self._answers.readline()
        if not line:
            raise RuntimeError("a client of the benchmark died; its own words are above")
        return json.loads(line)


@dataclass(frozen=True)
class Rounds:
    """What every client did in every round."""

    turns: dict[str, list[Figures]]
    crowd: dict[str, list[Figures]]

    def ratio(self, kind: str, figure: str, above: str, below: str) -> float:
        """Compare two clients round by round."""
        rounds: dict[str, list[Figures]] = getattr(self, kind)
        pairs = zip(rounds[above], rounds[below], strict=True)
        return median(one[figure] / other[figure] for one, other in pairs)

    def difference(self, figure: str, above: str, below: str) -> float:
        """How much more one client takes than another, round by round."""
        pairs = zip(self.turns[above], self.turns[below], strict=True)
        return median(one[figure] - other[figure] for one, other in pairs)

    def quietest(self, above: str, below: str) -> float:
        """The same for p50, each by its fastest round: nearly what a quiet machine shows."""
        one, other = (min(seen["p50"] for seen in self.turns[name]) for name in (above, below))
        return one - other

    def typical(self, kind: str, figure: str, client: str) -> float:
        """The middle of one client's rounds."""
        rounds: dict[str, list[Figures]] = getattr(self, kind)
        return median(figures[figure] for figures in rounds[client])


def alternate(setting: Setting) -> Rounds:
    """Start the clients and let them take turns."""
    with ExitStack() as stack:
        workers = {name: stack.enter_context(started(name, setting)) for name in setting.clients}
        return take_turns(workers, setting)


def take_turns(workers: Mapping[str, Worker], setting: Setting) -> Rounds:
    """Give every worker the same orders; each round begins with another one."""
    rounds = Rounds({name: [] for name in workers}, {name: [] for name in workers})
    for number in range(setting.rounds + 1):
        for name in rotated(list(workers), number):
            turns = workers[name].do(f"turns {setting.turns}")
            crowd = workers[name].do(f"crowd {setting.crowd}")
            if number:  # the first round is for warming up
                rounds.turns[name].append(turns)
                rounds.crowd[name].append(crowd)
    return rounds


def rotated(names: list[str], by: int) -> list[str]:
    start = by % len(names)
    return names[start:] + names[:start]


@contextmanager
def started(client: str, setting: Setting, source: Path = ROOT) -> Generator[Worker]:
    """Start a client over the package in ``source``; it ends when its orders do."""
    core = str(one_core()) if setting.pinned else "any"
    command = [sys.executable, "-m", setting.module]
    with subprocess.Popen(
        [*command, client, setting.loop, setting.server, core],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source / "src")},
    ) as process:
        yield Worker(process)
        assert process.stdin is not None
        process.stdin.close()


def rows(setting: Setting) -> list[Row]:
    """Measure a setting: its ratios, and what they are made of."""
    measured = alternate(setting)
    return [*ratios(setting, measured), *absolute(setting, measured)]


def ratios(setting: Setting, measured: Rounds) -> Iterator[Row]:
    """Every ratio of a setting, judged where there is a goal."""
    for ratio in setting.ratios:
        value = measured.ratio(ratio.kind, ratio.figure, ratio.above, ratio.below)
        judge = setting.goals.get(ratio.name, Row)
        yield judge(f"{setting.title}: {ratio.name}", value, "x")


def absolute(setting: Setting, measured: Rounds) -> Iterator[Row]:
    """What the ratios are made of; the server's CPU where it was watched."""
    yield Row(f"{setting.title}: rounds measured", len(measured.turns[setting.clients[0]]), "")
    for client in setting.clients:
        yield Row(f"{setting.title}: p50, {client}", measured.typical("turns", "p50", client), "us")
    for figure, name in (("cpu", "client CPU"), ("server_cpu", "server CPU")):
        for client in setting.clients:
            if used := measured.typical("turns", figure, client):
                yield Row(f"{setting.title}: {name}, {client}", used, "us")
    for client in setting.clients:
        each = measured.typical("crowd", "each", client)
        yield Row(f"{setting.title}: at 64, {client}", 1e6 / each, "calls/s")
