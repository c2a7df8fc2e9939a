"""Several clients in alternating rounds, each in a process of its own.

In each round they take turns, so that a busy neighbour troubles all of them alike. A ratio is the
median of the ratios of the rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.table import Row

ROOT = Path(__file__).parents[1]
TURNS = 150

Figures = dict[str, float]


@dataclass(frozen=True)
class Setting:
    """Where and with what the clients run."""

    title: str
    module: str
    clients: tuple[str, ...]
    loop: str
    server: str
    pinned: bool
    rounds: int = 12
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
def started(client: str, setting: Setting, source: Path = ROOT) -> Generator[Worker]:
    """Start a client over the package in ``source``; it ends when its orders do."""
    core = str(max(os.sched_getaffinity(0))) if setting.pinned else "any"
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


def absolute(setting: Setting, rounds: Rounds) -> Iterator[Row]:
    """What the ratios are made of."""
    figures: dict[str, Callable[[str], tuple[float, str]]] = {
        "p50": lambda client: (rounds.typical("turns", "p50", client), "us"),
        "client CPU": lambda client: (rounds.typical("turns", "cpu", client), "us"),
        "at 64": lambda client: (1e6 / rounds.typical("crowd", "each", client), "calls/s"),
    }
    for figure, of in figures.items():
        for client in setting.clients:
            yield Row(f"{setting.title}: {figure}, {client}", *of(client))


def measured(
    settings: Sequence[Setting],
    with_goals: Callable[[Setting, Rounds], list[Row]],
    beside: Callable[[Setting, Rounds], list[Row]],
) -> list[Row]:
    """Return the figures of every setting; only the first has goals."""
    rows = with_goals(settings[0], alternate(settings[0]))
    for setting in settings[1:]:
        rows += beside(setting, alternate(setting))
    return rows
