"""WASM guests: what the door costs beside a bare engine, bare threads and a bare session.

Everything runs in this process, in turns: in each round the door and what it is compared with.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from tempfile import TemporaryDirectory

import uvloop
from wasmtime import (
    Config,
    Engine,
    Func,
    FuncType,
    InstancePre,
    Linker,
    Module,
    Store,
    ValType,
    wat2wasm,
)

from bascule import Bridge, Server
from bascule.clock import SYSTEM_CLOCK
from bascule.doors.hostcalls.engine import GuestEngine
from bascule.doors.hostcalls.guest import Exit, Guest
from bascule.doors.hostcalls.host import Host
from bascule.doors.hostcalls.module_cache import ModuleCache
from bascule.doors.hostcalls.program import Program
from bascule.model.task import TaskPolicy
from bascule.node.bridge.opening import Opening
from bench.machine import ROOT, on_cores, one_core, resident
from bench.table import Row, at_most

NAME = "guests"
ROUNDS = 15
QUICK_CALLS = 20_000
CROSSINGS = 1_000
TOOL_CALLS = 400
GUESTS = 1_000
WAITING = 64
_MIB = 1024 * 1024
Measure = Callable[[], Awaitable[float]]

#: A guest that makes one host call so many times.
REPEAT = """
(module
  (import "spear" "{name}" (func $call {type}))
  (memory (export "memory") 1)
  (func (export "_start") (local $left i32)
    (local.set $left (i32.const {count}))
    (loop $again
      {call}
      (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))
"""
CLOCK = {"name": "time_now_ms", "type": "(result i64)", "call": "(drop (call $call))"}
SLEEP = {"name": "sleep_ms", "type": "(param i32)", "call": "(call $call (i32.const 0))"}
TOOL = """
(module
  (import "spear" "mcp_open" (func $open (param i32 i32) (result i32)))
  (import "spear" "mcp_call_tool"
    (func $tool (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "floor")
  (data (i32.const 16) "echo")
  (data (i32.const 32) "{{\\"text\\":\\"{text}\\"}}")
  (func (export "_start") (local $left i32) (local $fd i32)
    (local.set $fd (call $open (i32.const 0) (i32.const 5)))
    (local.set $left (i32.const {count}))
    (loop $again
      (i32.store (i32.const 1024) (i32.const 8192))
      (if (i32.lt_s
        (call $tool (local.get $fd) (i32.const 16) (i32.const 4)
          (i32.const 32) (i32.const {length}) (i32.const 2048) (i32.const 1024))
        (i32.const 0)) (then unreachable))
      (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))
"""
TEXT = "x" * 200


def run() -> list[Row]:
    """Measure the door's costs, then many guests."""
    with on_cores({one_core()}):
        costs = uvloop.run(measured())
    return [*costs, *uvloop.run(many())]


async def measured() -> list[Row]:
    """Compare round by round."""
    engine = GuestEngine()
    quick = await side_by_side(
        lambda: guest_seconds(engine, REPEAT.format(**CLOCK, count=QUICK_CALLS), QUICK_CALLS),
        bare_calls,
    )
    crossing = await side_by_side(
        lambda: guest_seconds(engine, REPEAT.format(**SLEEP, count=CROSSINGS), CROSSINGS),
        bare_crossings,
    )
    empty, own = engine.load(EMPTY), engine.engine
    begun = await side_by_side(
        lambda: starts(own, empty), lambda: bare_starts(own, empty.instances)
    )
    with TemporaryDirectory() as folder:
        cached = await side_by_side(lambda: loads(Path(folder)), compiles)
    return [
        at_most("a host call that does not cross / bare", ratio(quick), "x", 2),
        Row("a host call that does not cross", middle(quick, 0), "us"),
        at_most("a host call that crosses / bare round trip of threads", ratio(crossing), "x", 2),
        Row("a host call that crosses", middle(crossing, 0), "us"),
        *await tool_calls(engine, middle(crossing, 1)),
        at_most("store, instance and an empty _start / bare InstancePre", ratio(begun), "x", 5),
        Row("a guest from its start to its end", middle(begun, 0), "us"),
        at_most("a cached module is ready / its compile time", ratio(cached), "x", 1 / 20),
        Row("a module is compiled in", middle(cached, 1) / 1000, "ms"),
    ]


Pairs = list[tuple[float, float]]


async def side_by_side(door: Measure, bare: Measure) -> Pairs:
    """Return what each of the two takes, in microseconds, round by round."""
    pairs: Pairs = []
    for number in range(ROUNDS + 1):
        if number % 2:
            one, other = await door(), await bare()
        else:
            other, one = await bare(), await door()
        if number:  # the first round is for warming up
            pairs.append((one, other))
    return pairs


def ratio(pairs: Pairs) -> float:
    return median(one / other for one, other in pairs)


def middle(pairs: Pairs, place: int) -> float:
    return median(pair[place] for pair in pairs)


async def guest_seconds(
    engine: GuestEngine, text: str, count: int, host: Host | None = None
) -> float:
    """Return what one of a guest's host calls takes."""
    program = engine.load(bytes(wat2wasm(text)))
    found = await engine.run(program, host or Host(listener=print))
    assert found.reason == "exited", found
    return found.seconds / count * 1e6


async def bare_calls() -> float:
    """The same loop on an engine with nothing but the function."""
    config = Config()
    config.epoch_interruption = True
    engine = Engine(config)
    linker = Linker(engine)
    linker.define_func(
        "spear",
        "time_now_ms",
        FuncType([], [ValType.i64()]),
        lambda: int(SYSTEM_CLOCK.now() * 1000),
    )
    store = Store(engine)
    store.set_epoch_deadline(1)
    module = Module(engine, bytes(wat2wasm(REPEAT.format(**CLOCK, count=QUICK_CALLS))))
    entry = linker.instantiate(store, module).exports(store)["_start"]
    began = SYSTEM_CLOCK.monotonic()
    await asyncio.to_thread(entry, store)  # pyright: ignore[reportArgumentType]
    passed = SYSTEM_CLOCK.monotonic() - began
    store.close()
    linker.close()
    return passed / QUICK_CALLS * 1e6


async def bare_crossings() -> float:
    """A thread that asks the loop for nothing, and waits for the answer."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[float] = loop.create_future()

    def thread() -> None:
        answers: SimpleQueue[None] = SimpleQueue()
        began = SYSTEM_CLOCK.monotonic()
        for _ in range(CROSSINGS):
            loop.call_soon_threadsafe(answers.put, None)
            answers.get()
        passed = SYSTEM_CLOCK.monotonic() - began
        loop.call_soon_threadsafe(over.set_result, passed)

    threading.Thread(target=thread).start()
    return await over / CROSSINGS * 1e6


async def tool_calls(engine: GuestEngine, crossing: float) -> list[Row]:
    """Compare a guest's calls of a tool with a session's."""
    floor = [sys.executable, str(ROOT / "bench" / "floor_server.py")]
    server = Server.stdio("floor", *floor)
    async with Bridge.open([server]) as bridge:
        opening = Opening(task=TaskPolicy(enabled=True, default_server_ids=("floor",)))
        session = bridge.open_session(opening)
        host = Host(listener=print, bridge=bridge, opening=opening)
        arguments = {"text": TEXT}
        text = TOOL.format(text=TEXT, length=len(TEXT) + 11, count=TOOL_CALLS)

        async def calls() -> float:
            began = SYSTEM_CLOCK.monotonic()
            for _ in range(TOOL_CALLS):
                assert (await session.call("mcp__floor__echo", arguments)).ok
            return (SYSTEM_CLOCK.monotonic() - began) / TOOL_CALLS * 1e6

        pairs = await side_by_side(lambda: guest_seconds(engine, text, TOOL_CALLS, host), calls)
    more = median(one - other for one, other in pairs)
    return [
        at_most(
            "mcp_call_tool, beyond session.call and two bare round trips",
            more - 2 * crossing,
            "us",
            80,
        ),
        Row("mcp_call_tool on the floor server", middle(pairs, 0), "us"),
        Row("session.call on the floor server", middle(pairs, 1), "us"),
    ]


# --- starts and modules

EMPTY = bytes(wat2wasm('(module (memory (export "memory") 1) (func (export "_start")))'))
#: Enough code that compiling it takes a while: functions of some arithmetic.
LARGE = bytes(
    wat2wasm(
        '(module (memory (export "memory") 1) (func (export "_start"))'
        + "".join(
            f"(func (param i32) (result i32) {'(local.get 0) (i32.const 3) i32.mul drop ' * 40}"
            f"(i32.const {number}))"
            for number in range(400)
        )
        + ")"
    )
)
STARTS = 100


class Timed(Guest):
    """A guest whose time from its store to its end, on its own thread, is taken."""

    taken = 0.0

    def _run(self) -> Exit:
        began = SYSTEM_CLOCK.monotonic()
        found = super()._run()
        Timed.taken += SYSTEM_CLOCK.monotonic() - began
        return found


async def starts(engine: Engine, program: Program) -> float:
    """What the door needs for a store, an instance and its end."""
    Timed.taken = 0.0
    for _ in range(STARTS):
        await Timed(engine, program, Host(listener=print)).run()
    return Timed.taken / STARTS * 1e6


async def bare_starts(engine: Engine, program: InstancePre) -> float:
    """A store, an instance, its empty function, and nothing else."""

    def made() -> float:
        began = SYSTEM_CLOCK.monotonic()
        for _ in range(STARTS):
            store = Store(engine)
            store.set_epoch_deadline(1)
            entry = program.instantiate(store).exports(store)["_start"]
            assert isinstance(entry, Func)
            entry(store)
            store.close()
        return (SYSTEM_CLOCK.monotonic() - began) / STARTS * 1e6

    return await asyncio.to_thread(made)


async def loads(folder: Path) -> float:
    """Another engine, as another process has it, finds a module compiled."""
    return timed_load(ModuleCache(folder))


async def compiles() -> float:
    return timed_load(None)


def timed_load(cache: ModuleCache | None) -> float:
    engine = GuestEngine(cache=cache)
    began = SYSTEM_CLOCK.monotonic()
    engine.load(LARGE)
    return (SYSTEM_CLOCK.monotonic() - began) * 1e6


# --- many guests

NAP = """
(module (import "spear" "sleep_ms" (func $sleep (param i32)))
  (memory (export "memory") 1)
  (func (export "_start") (call $sleep (i32.const {ms}))))
"""


async def many() -> list[Row]:
    """What guests that wait take together, what each keeps, and what they leave behind."""
    engine = GuestEngine()
    slow = await slow_tools(engine)
    before = resident()
    long = engine.load(bytes(wat2wasm(NAP.format(ms=1500))))
    guests = asyncio.create_task(together(engine, long, WAITING))
    await SYSTEM_CLOCK.sleep(0.75)  # all of them wait by now
    each = (resident() - before) / WAITING / _MIB - 1 / 16  # their own page of 64 KiB
    await guests
    empty = engine.load(EMPTY)
    sizes: list[int] = []
    for number in range(1, GUESTS + 1):
        await run_one(engine, empty)
        if number in {GUESTS // 10, GUESTS}:
            sizes.append(resident())
    return [
        *slow,
        at_most(f"{WAITING} waiting guests, each above its own memory", each, "MiB", 0.5),
        at_most(f"resident after {GUESTS} guests / after a tenth", sizes[1] / sizes[0], "x", 1.02),
    ]


async def slow_tools(engine: GuestEngine) -> list[Row]:
    """What guests with a slow tool take together, and how late the loop is meanwhile."""
    budgets = {"max_concurrency": WAITING, "tool_timeout_ms": 60_000}
    server = Server.stdio(
        "floor", sys.executable, "-m", "bench.slow_server", cwd=str(ROOT), budgets=budgets
    )
    program = engine.load(bytes(wat2wasm(TOOL.format(text=TEXT, length=len(TEXT) + 11, count=1))))
    opening = Opening(task=TaskPolicy(enabled=True, default_server_ids=("floor",)))
    async with Bridge.open([server]) as bridge:
        host = Host(listener=print, bridge=bridge, opening=opening)
        await together(engine, program, 1, host)
        alone = await together(engine, program, 1, host)
        lateness: list[float] = []
        watch = asyncio.create_task(late(lateness))
        crowd = await together(engine, program, WAITING, host)
        watch.cancel()
    p99 = sorted(lateness)[int(len(lateness) * 0.99)] * 1000
    return [
        at_most(f"{WAITING} guests with a slow tool / one", crowd / alone, "x", 3),
        at_most("lateness of the loop meanwhile, p99", p99, "ms", 50),
    ]


async def run_one(engine: GuestEngine, program: Program, host: Host | None = None) -> None:
    found = await engine.run(program, host or Host(listener=print))
    assert found.reason == "exited", found


async def together(
    engine: GuestEngine, program: Program, count: int, host: Host | None = None
) -> float:
    began = SYSTEM_CLOCK.monotonic()
    await asyncio.gather(*(run_one(engine, program, host) for _ in range(count)))
    return SYSTEM_CLOCK.monotonic() - began


async def late(found: list[float]) -> None:
    """Note how much later than asked for the loop wakes up."""
    while True:
        began = SYSTEM_CLOCK.monotonic()
        await SYSTEM_CLOCK.sleep(0.005)
        found.append(SYSTEM_CLOCK.monotonic() - began - 0.005)
