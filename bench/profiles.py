"""``make bench ARGS="profile stdio"``: where the time of a call goes, and what it enters.

Each path is profiled in a fresh process after warming up, and written to
``bench/results/profile-<path>.md``: the functions with the most time of their own, and how often a
call enters each function of the package, exactly. cProfile makes small functions look dearer than
they are: weigh shares, not microseconds.
"""

from __future__ import annotations

import pstats
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.inside import DOORS
from bench.machine import ROOT, Load
from bench.rounds import Setting, started
from bench.table import table

RESULTS = Path(__file__).parent / "results"
CALLS = 2000
TOP = 30
OFTEN = 0.005  # entered by fewer calls: something that happens beside them
BUILT_IN = "built in"
PACKAGE = f"{ROOT / 'src'}/"
HEADINGS = ("function", "calls", "own µs", "with what it calls µs")


@dataclass(frozen=True)
class Entry:
    """What was seen of one function, for one call."""

    name: str
    module: str
    calls: float
    own: float
    cumulative: float


def inside_client(file: Path, module: str) -> None:
    """Profile the process that calls: the whole path is in it."""
    setting = Setting("profile", module=module, clients=("bascule",))
    with started("bascule", setting) as worker:
        worker.do("turns 500")
        worker.do(f"profile {CALLS} {file}")


def inside_server(file: Path, door: str) -> None:
    """Profile a door's server; the client is another process."""
    command = [sys.executable, "-m", "bench.inside", door, str(CALLS), str(file)]
    subprocess.run(command, check=True, cwd=ROOT)


PATHS = {
    "stdio": partial(inside_client, module="bench.stdio_clients"),
    "http": partial(inside_client, module="bench.http_clients"),
    **{door: partial(inside_server, door=door) for door in DOORS},
}


def write(names: Iterable[str]) -> Iterator[Path]:
    """Profile each of these paths, and say which file it went to."""
    for name in names:
        load = Load()
        with TemporaryDirectory() as folder:
            file = Path(folder) / "stats"
            PATHS[name](file)
            page = report(name, entries(file, CALLS), load)
        kept = RESULTS / f"profile-{name}.md"
        kept.write_text(page, encoding="utf-8")
        yield kept


def entries(file: Path, calls: int) -> list[Entry]:
    """Read what cProfile kept, divided by the number of calls; the dearest first."""
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, object]]
    stats = pstats.Stats(str(file)).stats  # type: ignore[attr-defined]
    found = [
        Entry(
            _name(path, line, name),
            _module(path),
            count / calls,
            own / calls * 1e6,
            cumulative / calls * 1e6,
        )
        for (path, line, name), (_, count, own, cumulative, _) in stats.items()
    ]
    return sorted(found, key=lambda entry: -entry.own)


def _module(path: str) -> str:
    if path.startswith(PACKAGE):
        return path.removeprefix(PACKAGE)
    return BUILT_IN if path == "~" else path.rpartition("site-packages/")[2]


def _name(path: str, line: int, name: str) -> str:
    if path == "~":
        return name.strip("<>")
    return f"{_short(path)}:{line} {name}"


def _short(path: str) -> str:
    """The end of a path: enough to find it, and nothing of this machine."""
    module = _module(path)
    return module if path != module else "/".join(Path(path).parts[-2:])


def report(name: str, seen: list[Entry], load: Load) -> str:
    """Lay one profile out as a page."""
    usual = [entry for entry in seen if entry.calls >= OFTEN]
    own = [entry for entry in usual if entry.module.startswith("bascule/")]
    parts = [
        f"# Profile: {name}",
        _made(name, load),
        _entered(usual, own),
        "## The most time of their own",
        table(HEADINGS, map(_cells, usual[:TOP])),
        "## Functions of the package that a call enters, by module",
        table(("module", "calls"), _modules(own)),
        "## Each of them",
        table(HEADINGS, map(_cells, own)),
    ]
    return "\n\n".join(parts) + "\n"


def _made(name: str, load: Load) -> str:
    where, today = load.facts(), date.today().isoformat()  # noqa: DTZ011 - the day here
    return (
        f'`make bench ARGS="profile {name}"`, {today}: {CALLS:,} calls one after the other, '
        f"Python {where['python']}, load {where['load']}, others {where['others']} % of the cores. "
        "Figures are for one call."
    )


def _entered(usual: list[Entry], own: list[Entry]) -> str:
    built_in = sum(entry.calls for entry in usual if entry.module == BUILT_IN)
    python = sum(entry.calls for entry in usual) - built_in
    return (
        f"A call enters {python:.0f} Python functions, {sum(entry.calls for entry in own):.0f} of "
        f"them in the package, and {built_in:.0f} built in. A coroutine that goes on counts again."
    )


def _modules(own: list[Entry]) -> list[tuple[str, str]]:
    calls: dict[str, float] = {}
    for entry in own:
        calls[entry.module] = calls.get(entry.module, 0) + entry.calls
    ordered = sorted(calls.items(), key=lambda item: -item[1])
    return [(module, f"{count:.2f}") for module, count in ordered]


def _cells(entry: Entry) -> tuple[str, ...]:
    name = entry.name.replace("|", "\\|")
    return f"`{name}`", f"{entry.calls:.2f}", f"{entry.own:.2f}", f"{entry.cumulative:.2f}"
