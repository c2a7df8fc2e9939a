"""``make bench AGAINST=REF``: the package at a commit beside the one in this tree, in one run.

The benches' own code is this tree's for both, so that only the package differs. Both take turns
(``rounds``), so that a busy machine troubles them alike; functions entered are counted exactly.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from bench.machine import ROOT, compile_bytecode
from bench.rounds import Figures, Rounds, Setting, Worker, started, take_turns
from bench.table import Row, at_most

ROUNDS = 20
STARTS = 16
COUNTED = 200
GOAL = 1.05

START = Setting("start", module="bench.start_client", clients=("up",))
#: What a start took (``up.Start``), and what it is called here.
FIGURES = {"seconds": "time", "cpu": "CPU", "rss": "memory (RSS)"}
_setting = partial(Setting, clients=("bascule",), rounds=ROUNDS)
SETTINGS = (
    _setting("stdio", module="bench.stdio_clients"),
    _setting("http", module="bench.http_clients", crowd=320),
    _setting("tools API", module="bench.api_clients", server="", crowd=320),
    _setting("chat", module="bench.chat_clients", server="", turns=60, crowd=128),
)
GATEWAY = tuple(
    _setting(
        f"gateway, {name}", module="bench.gateway_clients", clients=(name,), server="", crowd=320
    )
    for name in ("stdio modern", "stdio legacy")
)


def compare(ref: str) -> list[Row]:
    """Return the ratios of new to old; below one is faster than before."""
    with checked_out(ref) as old:
        compile_bytecode(old / "src")
        known = GATEWAY if (old / "src" / "bascule" / "doors" / "gateway").exists() else ()
        calls = [row for setting in (*SETTINGS, *known) for row in _compared(setting, old)]
        return [*_starts(old), *calls]


def starts(ref: str) -> list[Row]:
    """Return the ratios of new to old of starts alone."""
    with checked_out(ref) as old:
        compile_bytecode(old / "src")
        return list(_starts(old))


@contextmanager
def checked_out(ref: str) -> Generator[Path]:
    """Lay a commit out in a temporary folder for as long as the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "old"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), ref], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _starts(old: Path) -> Iterator[Row]:
    """Start ``bascule up`` of both in turn, each time up to the answer of a first call."""
    with ExitStack() as stack:
        beside = [stack.enter_context(started("up", START, source)) for source in (ROOT, old)]
        pairs: list[list[Figures]] = []
        for number in range(STARTS):
            order = (0, 1) if number % 2 else (1, 0)
            taken = {which: beside[which].do("start") for which in order}
            pairs.append([taken[0], taken[1]])
    for figure, name in FIGURES.items():
        ratio = median(new[figure] / before[figure] for new, before in pairs)
        title = f"bascule up, {name} to the first call, new / old"
        yield at_most(title, ratio, "x", GOAL)
        middle = median(new[figure] for new, _ in pairs)
        yield Row(f"the same, new: {figure}", middle, "MB" if figure == "rss" else "s")


def _compared(setting: Setting, old: Path) -> Iterator[Row]:
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(started(setting.clients[0], setting, source))
            for name, source in (("old", old), ("new", ROOT))
        }
        rounds = take_turns(workers, setting)
        yield from _ratios(setting, rounds)
        if not rounds.typical("turns", "server_cpu", "new"):  # one process does all of the call
            yield from _functions(setting, workers)


def _ratios(setting: Setting, rounds: Rounds) -> Iterator[Row]:
    cpu = "server_cpu" if rounds.typical("turns", "server_cpu", "new") else "cpu"
    for kind, figure, name in (
        ("turns", "p50", "p50"),
        ("turns", cpu, "CPU of a call"),
        ("crowd", "each", "time of a call at 64"),
        ("crowd", "family_cpu", "CPU of client and server at 64"),
    ):
        ratio = rounds.ratio(kind, figure, "new", "old")
        yield at_most(f"{setting.title}: {name}, new / old", ratio, "x", GOAL)


def _functions(setting: Setting, workers: dict[str, Worker]) -> Iterator[Row]:
    for name, worker in workers.items():
        entered = worker.do(f"count {COUNTED}")["functions"]
        yield Row(f"{setting.title}: functions entered by a call, {name}", entered, "")
