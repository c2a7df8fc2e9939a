"""Ten servers, one of them bad: what its neighbours and the event loop notice of it.

One session calls nine healthy servers in turn while another keeps the tenth in trouble. Windows
with and without the trouble alternate; a ratio is the median of the ratios of neighbouring windows.
The longest stall is how late the loop was, at worst, for a timer of two milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from timeit import default_timer

import uvloop

from bascule import Bridge, Server, ServerRecord, Session
from bascule.clock import SYSTEM_CLOCK
from bascule.testing import ScriptedServer, do
from bench.table import Row, at_most

NAME = "isolation"
HEALTHY = 9
ROUNDS = 5
CALLS = 360
TICK = 0.002
PAUSE = 0.05  # between two calls of the bad server
PATIENCE = 0.25  # how long its caller waits
FLOOD_SECONDS = 10.0  # how long for the end of a flood
TEXT = "x" * 200
CEILING = 1.5  # of the ratio: two cores are shared by ten servers and the bench itself
FLOOD_CEILING = 1.25  # beside a flood, which is read only as fast as others allow
BURST = 100_000  # notifications before one answer
BURST_SECONDS = 1.0  # for such an answer, beside an idle loop
SLACK_MS = 5.0  # of a stall: what one turn of a busy machine costs anyway


@dataclass(frozen=True)
class Window:
    """What was seen in some time: the middle call, the longest stall."""

    p50: float
    stall: float


def run() -> list[Row]:
    """Try every kind of trouble with one set of healthy servers each."""
    with (
        TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        rows = [row for kind in TROUBLES for row in runner.run(beside(kind, Path(folder)))]
        return [*rows, *(runner.run(burst(method)) for method in BURSTS)]


async def beside(kind: str, folder: Path) -> list[Row]:
    """Measure one kind of trouble."""
    gate = folder / "gate"
    bad = ScriptedServer(behaviours={"bad": {**TROUBLES[kind], "path": str(gate)}})
    healthy = [_record(f"good{number}", ScriptedServer()) for number in range(HEALTHY)]
    quiet: list[Window] = []
    troubled: list[Window] = []
    async with (
        Bridge.open([*healthy, _record("bad", bad)]) as bridge,
        bridge.session(server_ids=[record.server_id for record in healthy]) as session,
        bridge.session(server_ids=["bad"]) as other,
    ):
        names = [tool.model_name for tool in await session.tools()]
        await other.tools()
        await _window(session, names)
        for _ in range(ROUNDS):
            quiet.append(await _window(session, names))
            async with _trouble(other, kind, gate):
                troubled.append(await _window(session, names))
    return _rows(kind, quiet, troubled)


async def burst(method: str) -> Row:
    """Time an answer that comes behind a burst, with nobody else on the loop."""
    bad = ScriptedServer(behaviours={"bad": do("flood", count=BURST, method=method)})
    taken: list[float] = []
    async with Bridge.open([_record("bad", bad)]) as bridge:
        session = bridge.session(server_ids=["bad"])
        await session.tools()
        for _ in range(ROUNDS):
            began = default_timer()
            outcome = await session.call("mcp__bad__bad", {}, timeout=FLOOD_SECONDS)
            taken.append(default_timer() - began)
            assert outcome.ok
    return at_most(f"{BURST:,} of {method} before an answer", median(taken), "s", BURST_SECONDS)


def _record(server_id: str, server: ScriptedServer) -> ServerRecord:
    executable, arguments = server.command
    return Server.stdio(server_id, executable, *arguments)


TROUBLES = {
    "wedged": do("stop_reading"),
    "dead": do("die", signal="KILL"),
    "slow": do("gate"),
    "flooding": do("flood", count=BURST),
    "flooding, all of it heard": do("flood", count=BURST, method="notifications/anything"),
}
BURSTS = ("notifications/message", "notifications/anything")


@asynccontextmanager
async def _trouble(session: Session, kind: str, gate: Path) -> AsyncGenerator[None]:
    """Keep the bad server busy being bad, and wait until it is done with that."""
    over = asyncio.Event()
    task = asyncio.create_task(_provoke(session, kind, gate, over))
    await SYSTEM_CLOCK.sleep(PAUSE)
    try:
        yield
    finally:
        over.set()
        await task


async def _provoke(session: Session, kind: str, gate: Path, over: asyncio.Event) -> None:
    """Call the bad server until it is over; a slow one is let go on after a moment."""
    at_once, patience = (1, FLOOD_SECONDS) if kind.startswith("flooding") else (4, PATIENCE)
    while not over.is_set():
        calls = [session.call("mcp__bad__bad", {}, timeout=patience) for _ in range(at_once)]
        running = asyncio.gather(*calls)
        await SYSTEM_CLOCK.sleep(PAUSE)
        if kind == "slow":
            gate.touch()  # noqa: ASYNC240 - a few microseconds
        await running
        gate.unlink(missing_ok=True)  # noqa: ASYNC240 - likewise


async def _window(session: Session, names: list[str]) -> Window:
    """Call the healthy servers in turn, and watch the loop meanwhile."""
    watch = asyncio.create_task(_longest_stall())
    taken: list[float] = []
    for number in range(CALLS):
        began = default_timer()
        outcome = await session.call(names[number % len(names)], {"text": TEXT})
        taken.append(default_timer() - began)
        assert outcome.text == TEXT
    watch.cancel()
    return Window(median(taken), await watch)


async def _longest_stall() -> float:
    """Tell how late a short timer was at worst, until cancelled."""
    worst = 0.0
    with suppress(asyncio.CancelledError):
        while True:
            began = default_timer()
            await SYSTEM_CLOCK.sleep(TICK)
            worst = max(worst, default_timer() - began - TICK)
    return worst


def _rows(kind: str, quiet: list[Window], troubled: list[Window]) -> list[Row]:
    ceiling = FLOOD_CEILING if kind.startswith("flooding") else CEILING
    pairs = list(zip(troubled, quiet, strict=True))
    ratio = median(bad.p50 / good.p50 for bad, good in pairs)
    stall, stall_without = (median(w.stall for w in seen) * 1e3 for seen in (troubled, quiet))
    return [
        at_most(f"one {kind}: p50 of the nine, with / without", ratio, "x", ceiling),
        Row(f"one {kind}: p50 of the nine without", median(w.p50 for w in quiet) * 1e6, "us"),
        at_most(f"one {kind}: longest stall", stall, "ms", stall_without + SLACK_MS),
        Row(f"one {kind}: longest stall without", stall_without, "ms"),
    ]
