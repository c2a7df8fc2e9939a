"""A governed call over stdio beside a raw client and the official SDK's, in alternating rounds.

Every client has a process of its own (``stdio_clients``) and the same echo tool behind it; in each
round they take turns, so that a busy neighbour troubles all of them alike. A ratio is the median
of the ratios of the rounds. Goals are for client and server on one core: on two, what is measured
is mostly how long one core takes to wake another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.stdio_clients import CLIENTS
from bench.table import Row, at_least, at_most

NAME = "stdio"
TURNS = 150

Figures = dict[str, float]


@dataclass(frozen=True)
class Setting:
    """Where and with what the clients run."""

    title: str
    loop: str
    server: str
    pinned: bool
    rounds: int = 12
    crowd: int = 640


SETTINGS = (
    Setting("one core", "uvloop", "floor", pinned=True),
    Setting("any core", "uvloop", "floor", pinned=False),
    Setting("one core, asyncio", "asyncio", "floor", pinned=True),
    Setting("one core, SDK server", "uvloop", "sdk", pinned=True, rounds=6, crowd=256),
)


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

    def typical(self, kind: str, figure: str, client: str) -> float:
        """The middle of one client's rounds."""
        rounds: dict[str, list[Figures]] = getattr(self, kind)
        return median(figures[figure] for figures in rounds[client])


def run() -> list[Row]:
    """Measure every setting; only the first has goals."""
    rows = with_goals(SETTINGS[0], alternate(SETTINGS[0]))
    for setting in SETTINGS[1:]:
        rows += beside(setting, alternate(setting))
    return rows


def alternate(setting: Setting) -> Rounds:
    """Let the clients take turns; each round begins with another one."""
    rounds = Rounds({client: [] for client in CLIENTS}, {client: [] for client in CLIENTS})
    with ExitStack() as stack:
        workers = {name: stack.enter_context(started(name, setting)) for name in CLIENTS}
        for number in range(setting.rounds + 1):
            for name in rotated(list(workers), number):
                turns = workers[name].do(f"turns {TURNS}")
                crowd = workers[name].do(f"crowd {setting.crowd}")
                if number:  # the first round is for warming up
                    rounds.turns[name].append(turns)
                    rounds.crowd[name].append(crowd)
    return rounds


def rotated(names: list[str], by: int) -> list[str]:
    start = by % len(names)
    return names[start:] + names[:start]


@contextmanager
def started(client: str, setting: Setting) -> Generator[Worker]:
    """Start a client; it ends when its orders do."""
    core = str(max(os.sched_getaffinity(0))) if setting.pinned else "any"
    command = [sys.executable, "-m", "bench.stdio_clients"]
    with subprocess.Popen(
        [*command, client, setting.loop, setting.server, core],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    ) as process:
        yield Worker(process)
        assert process.stdin is not None
        process.stdin.close()


def with_goals(setting: Setting, rounds: Rounds) -> list[Row]:
    """The figures that were promised, and what they are made of."""
    title, ratio = setting.title, rounds.ratio
    return [
        at_most(f"{title}: p50, Bascule / lean", ratio("turns", "p50", "bascule", "lean"), "x", 2),
        at_least(f"{title}: p50, SDK / Bascule", ratio("turns", "p50", "sdk", "bascule"), "x", 4),
        at_least(
            f"{title}: client CPU, SDK / Bascule", ratio("turns", "cpu", "sdk", "bascule"), "x", 5
        ),
        at_least(
            f"{title}: calls per second at 64, Bascule / SDK",
            ratio("crowd", "each", "sdk", "bascule"),
            "x",
            8,
        ),
        Row(f"{title}: p50, Bascule / bare", ratio("turns", "p50", "bascule", "bare"), "x"),
        *absolute(setting, rounds),
    ]


def beside(setting: Setting, rounds: Rounds) -> list[Row]:
    """The same ratios where nothing was promised."""
    title, ratio = setting.title, rounds.ratio
    return [
        Row(f"{title}: p50, Bascule / lean", ratio("turns", "p50", "bascule", "lean"), "x"),
        Row(f"{title}: p50, SDK / Bascule", ratio("turns", "p50", "sdk", "bascule"), "x"),
        Row(f"{title}: client CPU, SDK / Bascule", ratio("turns", "cpu", "sdk", "bascule"), "x"),
        Row(
            f"{title}: calls per second at 64, Bascule / SDK",
            ratio("crowd", "each", "sdk", "bascule"),
            "x",
        ),
        *absolute(setting, rounds),
    ]


def absolute(setting: Setting, rounds: Rounds) -> Iterator[Row]:
    """What the ratios are made of."""
    figures: dict[str, Callable[[str], tuple[float, str]]] = {
        "p50": lambda client: (rounds.typical("turns", "p50", client), "us"),
        "client CPU": lambda client: (rounds.typical("turns", "cpu", client), "us"),
        "at 64": lambda client: (1e6 / rounds.typical("crowd", "each", client), "calls/s"),
    }
    for figure, of in figures.items():
        for client in CLIENTS:
            yield Row(f"{setting.title}: {figure}, {client}", *of(client))
