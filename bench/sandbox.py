"""A confined server: what it costs to start one at each level, and to call it.

Levels take turns, each with a new process of the same server. CPU is that of the bench, the warden
and the server, from the start to the end of the server after one call; wall is until its answer.
Calls go in turn to a server without a sandbox and to one at the best level.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from timeit import default_timer

import psutil
import uvloop

from bascule import Bridge, Server, ServerRecord
from bascule.model.sandbox import Level, Sandbox
from bascule.testing import ScriptedServer
from bascule.testing.server import PROCESS_BODY
from bench.table import Row, at_most

NAME = "sandbox"
LEVELS: tuple[Level, ...] = ("none", "limits", "landlock", "namespaces", "bwrap")
#: Milliseconds of CPU that a level may cost more than none.
GOALS = {"landlock": 25.0, "namespaces": 40.0, "bwrap": 40.0}
CALL_CEILING = 1.05
#: The kernel tells CPU in steps of 10 ms: the mean of many starts is finer than that.
ROUNDS = 60
CALL_ROUNDS = 30
CALLS = 50


def run() -> list[Row]:
    """Measure on one bridge, whose warden has tried the levels before."""
    with TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o711)
        return uvloop.run(_measured(Path(folder)))


async def _measured(folder: Path) -> list[Row]:
    records = [_record(level) for level in LEVELS]
    rows: list[Row] = []
    async with Bridge.open([*records, _record("best")], homes=folder / "homes") as bridge:
        works: list[Level] = [level for level in LEVELS if await _works(bridge, level)]
        costs: dict[Level, list[tuple[float, float]]] = {level: [] for level in works}
        for _ in range(ROUNDS):
            for level in works:
                costs[level].append(await _start(bridge, level))
        base = fmean(cpu for cpu, _ in costs["none"])
        for level in works:
            cpu = fmean(cpu for cpu, _ in costs[level])
            wall = median(wall for _, wall in costs[level])
            what = f"{level}: from the start to the end of a server, CPU"
            rows.append(Row(what, cpu, "ms"))
            if level in GOALS:
                rows.append(at_most(f"{what} beyond none", cpu - base, "ms", GOALS[level]))
            rows.append(Row(f"{level}: from the start to the first answer, wall", wall, "ms"))
        rows.append(await _calls(bridge))
    return rows


def _record(level: Level) -> ServerRecord:
    sandbox = Sandbox(level=level, read=(str(PROCESS_BODY.parent),), write=(), network="none")
    if level in ("none", "limits"):
        sandbox = Sandbox(level=level)
    command, args = ScriptedServer().command
    return Server.stdio(level, command, *args, sandbox=sandbox, sharing="session")


async def _works(bridge: Bridge, level: Level) -> bool:
    await _start(bridge, level)
    standing = next(each.sandbox for each in bridge.statuses() if each.server_id == level)
    return standing is None or standing.in_force == level


async def _start(bridge: Bridge, level: Level) -> tuple[float, float]:
    """Return the CPU of one server's life, and the time to its first answer, in milliseconds."""
    before, began = _cpu(), default_timer()
    async with bridge.session(server_ids=[level]) as session:
        outcome = await session.call(f"mcp__{level}__echo", {"text": "x"})
        wall = default_timer() - began
        if not outcome.ok:
            raise RuntimeError(f"{level}: {outcome.error}")
    return 1000 * (_cpu() - before), 1000 * wall


async def _calls(bridge: Bridge) -> Row:
    ratios: list[float] = []
    async with (
        bridge.session(server_ids=["none"]) as outside,
        bridge.session(server_ids=["best"]) as inside,
    ):
        for _ in range(CALL_ROUNDS):
            took: list[float] = []
            for session, name in ((outside, "none"), (inside, "best")):
                began = default_timer()
                for _ in range(CALLS):
                    await session.call(f"mcp__{name}__echo", {"text": "x"})
                took.append(default_timer() - began)
            ratios.append(took[1] / took[0])
    return at_most("a call at the best level beside none", median(ratios), "", CALL_CEILING)


def _cpu() -> float:
    """Return the seconds that this process, its wardens and all they have reaped took."""
    own = psutil.Process()
    times = own.cpu_times()
    total = times.user + times.system
    for child in own.children(recursive=True):
        times = child.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total
