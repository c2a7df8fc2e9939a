"""How guests end: wherever they are, at once, and with nothing left of them."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

import pytest
from wasmtime import Store, wat2wasm
from wasmtime._func import FUNCTIONS

from bascule.clock import SystemClock
from bascule.doors.hostcalls import guest as guest_module
from bascule.doors.hostcalls import wasi
from bascule.doors.hostcalls.abi import Errno
from bascule.doors.hostcalls.engine import GuestEngine
from bascule.doors.hostcalls.guest import Guest
from bascule.doors.hostcalls.handles import Handle, Handles, Kind
from bascule.doors.hostcalls.host import GuestLimits, Host, LogLine, Output
from tests.doors.hostcalls.running import ENGINES, PATIENT, run_wat
from tests.doors.hostcalls.wat import call, guest
from tests.scale import scaled

HEAD = """
  (import "spear" "log" (func $log (param i32 i32 i32) (result i32)))
  (import "spear" "sleep_ms" (func $sleep (param i32)))
  (import "spear" "spear_epoll_create" (func $create (result i32)))
  (import "spear" "spear_epoll_wait" (func $wait (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 8) "here") (data (i32.const 16) "after") (data (i32.const 32) "\\40")
  (data (i32.const 1048) "\\ff\\ff\\ff\\ff\\ff\\ff\\ff\\00")
  (func $here (drop (call $log (i32.const 2) (i32.const 8) (i32.const 4))))
  (func $after (drop (call $log (i32.const 2) (i32.const 16) (i32.const 5))))"""
#: Each says "here", stays somewhere for ever, and would say "after".
STAYS = {
    "loop": "(loop br 0)",
    "calls": "(loop (drop (call $log (i32.const 2) (i32.const 8) (i32.const 0))) br 0)",
    "sleep": "(call $sleep (i32.const -1))",
    "epoll": "(drop (call $wait (call $create) (i32.const 64) (i32.const 32) (i32.const -1)))",
    "poll": """(drop (call $poll (i32.const 1024) (i32.const 2048) (i32.const 1)
      (i32.const 3072)))""",
}


def staying(place: str, *, in_start: bool = False) -> str:
    begin = "(start $main)" if in_start else '(export "_start" (func $main))'
    return f"(module {HEAD} (func $main (call $here) {STAYS[place]} (call $after)) {begin})"


PLACES = pytest.mark.parametrize("in_start", [False, True], ids=["main", "start"])
EVERYWHERE = pytest.mark.parametrize("place", STAYS)


def join(name: str) -> None:
    """Wait for threads to end: they have nothing to do any more."""
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(PATIENT)
            assert not thread.is_alive()


@pytest.mark.requirement("hostcalls:ends")
@PLACES
@EVERYWHERE
async def test_time_ends_a_guest_and_it_says_nothing_more(place: str, *, in_start: bool):
    found = await run_wat(staying(place, in_start=in_start), limits=GuestLimits(seconds=0.05))
    assert found.exit.reason == "timeout"
    assert "after" not in found.logged


@pytest.mark.requirement("hostcalls:ends")
@PLACES
@EVERYWHERE
async def test_whoever_is_cancelled_ends_its_guest(place: str, *, in_start: bool):
    loop, here = asyncio.get_running_loop(), asyncio.Event()
    before = asyncio.all_tasks()
    heard: list[Output | LogLine] = []

    def hear(said: Output | LogLine) -> None:
        heard.append(said)
        loop.call_soon_threadsafe(here.set)

    engine = ENGINES.of(GuestLimits())
    program = engine.load(bytes(wat2wasm(staying(place, in_start=in_start))))
    running = asyncio.create_task(engine.run(program, Host(listener=hear)))
    async with asyncio.timeout(PATIENT):
        await here.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    join("guest")
    assert LogLine("info", "after") not in heard
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("name", ["log", "wasi.fd_write"])
async def test_too_much_output_ends_a_guest(name: str):
    numbers = {"log": (2, 0, 1000), "wasi.fd_write": (1, 2048, 1, 4096)}[name]
    vector = (0).to_bytes(4, "little") + (1000).to_bytes(4, "little")
    text = guest(*[call(name, *numbers)] * 6, data={2048: vector})
    found = await run_wat(text, limits=GuestLimits(output_bytes=3500))
    assert found.exit.reason == "output_limit"
    assert len(found.heard) == 3


async def test_log_lines_count_by_their_bytes():
    text = guest(*[call("log", 2, 0, 300)] * 4, data={0: "é".encode() * 150})
    found = await run_wat(text, limits=GuestLimits(output_bytes=700))
    assert found.exit.reason == "output_limit"
    assert len(found.heard) == 2


async def test_empty_log_lines_count_too():
    text = guest(*[call("log", 2, 0, 0)] * 10)
    found = await run_wat(text, limits=GuestLimits(output_bytes=50))
    assert found.exit.reason == "output_limit"
    assert found.heard == [LogLine("info", "")] * 7


async def test_fuel_ends_a_guest():
    found = await run_wat(staying("loop"), limits=GuestLimits(fuel=10_000))
    assert (found.exit.reason, found.exit.message) == ("out_of_fuel", "its fuel is used up")


async def test_a_listener_that_fails_is_an_error_of_the_call_and_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
):
    heard: list[Output | LogLine] = []

    def hear(said: Output | LogLine) -> None:
        if isinstance(said, LogLine):
            raise BrokenPipeError("/somewhere/of/the/host")
        heard.append(said)

    engine = ENGINES.of(GuestLimits())
    text = guest(*[call("log", 2, 0, 0)] * 3)
    ended = await engine.run(engine.load(bytes(wat2wasm(text))), Host(listener=hear))
    assert (ended.reason, ended.message) == ("exited", "")
    assert heard == [Output("stderr", (-Errno.EIO).to_bytes(8, "little", signed=True) * 3)]
    failed = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert [one.getMessage() for one in failed] == ["the host call log of a guest failed"]


async def test_a_guest_whose_listener_blocks_ends_when_it_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
):
    """Nobody waits for it by then, no epoch is counted, and nobody else holds its engine."""
    monkeypatch.setattr(guest_module, "_END_SECONDS", 3600.0)
    let_go = threading.Event()
    engine = GuestEngine()
    program = engine.load(bytes(wat2wasm(staying("loop"))))

    def hear(_said: Output | LogLine) -> None:
        let_go.wait()

    host = Host(listener=hear, limits=GuestLimits(seconds=0.05))
    ended = await engine.run(program, host)
    assert (ended.reason, ended.message) == ("timeout", "its thread did not end")
    join("guest-epochs")
    del engine, program
    gc.collect()
    let_go.set()
    join("guest")


async def test_work_that_somebody_else_cancels_is_an_error_of_the_call():
    class Cancelled(SystemClock):
        async def sleep(self, seconds: float) -> None:
            raise asyncio.CancelledError

    text = guest(call("wasi.poll_oneoff", 1024, 2048, 1, 3072), data={1048: 5})
    found = await run_wat(text, clock=Cancelled())
    assert found.answers == [wasi.EIO]
    assert found.exit.reason == "exited"


async def test_a_host_that_cannot_run_a_guest_says_no_more_than_that():
    """Fuel is asked of an engine that counts none."""
    found = await run_wat(staying("loop"), engine=GuestEngine(), limits=GuestLimits(fuel=5))
    assert (found.exit.reason, found.exit.code) == ("failed", 1)
    assert found.exit.message == "the host failed to run it"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("unreachable", "unreachable in main"),
        ("(call $main)", "stack overflow in main"),
        ("(drop (i32.load (i32.const 65533)))", "out of bounds memory access in main"),
        ("(drop (i32.div_s (i32.const 1) (i32.const 0)))", "integer division by zero in main"),
        ("(call_indirect (i32.const 0))", "indirect call to null in main"),
        ("(call_indirect (i32.const 9))", "out of bounds table access in main"),
        (
            "(call_indirect (param i32) (i32.const 0) (i32.const 1))",
            "indirect call of a function of another type in main",
        ),
        ("(drop (i32.trunc_f32_s (f32.const nan)))", "invalid conversion to integer in main"),
        ("(drop (i32.trunc_f32_s (f32.const 1e30)))", "integer overflow in main"),
    ],
)
async def test_a_trap_is_named_and_where_it_was(code: str, message: str):
    found = await run_wat(f"""(module (memory 1) (table 2 funcref) (elem (i32.const 1) $main)
      (func $main (export "_start") {code}))""")
    assert (found.exit.reason, found.exit.code, found.exit.message) == ("trapped", 1, message)


async def test_a_name_that_cannot_be_shown_is_not():
    found = await run_wat('(module (func $"a\\1b[2J" (export "_start") unreachable))')
    assert found.exit.message == "unreachable"


async def test_data_outside_the_memory_is_a_trap():
    found = await run_wat(
        '(module (memory 1) (data (i32.const 65536) "a") (func (export "_start")))'
    )
    assert (found.exit.reason, found.exit.message) == ("trapped", "out of bounds memory access")


async def test_guests_that_wait_wait_together():
    """64 guests sleep, and wake when the last one sleeps: no executor holds any of them back."""

    class Together(SystemClock):
        def __init__(self) -> None:
            self.asleep = 0
            self.wake = asyncio.Event()

        async def sleep(self, seconds: float) -> None:
            self.asleep += 1
            if self.asleep == 64:
                self.wake.set()
            await self.wake.wait()

    clock = Together()
    ran = await asyncio.gather(*[run_wat(staying("sleep"), clock=clock) for _ in range(64)])
    assert [one.logged for one in ran] == [["here", "after"]] * 64


async def test_nothing_of_a_guest_is_left():
    text = guest(call("spear_epoll_create"), call("sleep_ms", 1), call("wasi.sched_yield"))
    engine = GuestEngine()

    async def some(count: int) -> None:
        for _ in range(count // 10):
            await asyncio.gather(*[run_wat(text, engine=engine) for _ in range(10)])

    def left() -> tuple[int, ...]:
        join("guest")
        join("guest-epochs")
        gc.collect()
        kinds = (Guest, Store, Handle)
        alive = sum(isinstance(one, kinds) for one in gc.get_objects())
        files = len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0
        threads = threading.active_count()
        return alive, files, threads, len(asyncio.all_tasks()), len(FUNCTIONS.handles)

    await some(10)
    before = left()
    await some(scaled(1000))
    assert left() == before


def test_a_handle_that_cannot_be_closed_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture):
    class Stuck(Handle):
        kind: ClassVar[Kind] = "Epoll"

        def close(self) -> None:
            raise OSError("stuck")

    handles = Handles()
    first = Handle()
    handles.add(first)
    handles.add(Stuck())
    handles.close_all()
    assert first.is_closed
    assert len(handles) == 0
    assert "handle 1001 of a guest could not be closed" in caplog.text


_LEAVES = """
import asyncio, pathlib, sys
from bascule.doors.hostcalls.engine import GuestEngine
from bascule.doors.hostcalls.host import Host

async def main(engine, modules):
    here, heard = asyncio.Event(), set()
    loop = asyncio.get_running_loop()
    def listener(number):
        def hear(_said):
            heard.add(number)
            if len(heard) == len(modules):
                loop.call_soon_threadsafe(here.set)
        return hear
    for number, module in enumerate(modules):
        loop.create_task(engine.run(engine.load(module), Host(listener=listener(number))))
    await here.wait()

modules = [path.read_bytes() for path in pathlib.Path(sys.argv[1]).iterdir()]
asyncio.new_event_loop().run_until_complete(main(GuestEngine(), modules))
print("left")
"""


def test_an_interpreter_that_ends_with_guests_in_it_ends_in_peace(tmp_path: Path):
    """The loop is left without a word to anybody; guests are in all places."""
    for place in STAYS:
        (tmp_path / place).write_bytes(wat2wasm(staying(place)))
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _LEAVES, str(tmp_path)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, b"left\n"), ended.stderr.decode()
    assert b"panic" not in ended.stderr
