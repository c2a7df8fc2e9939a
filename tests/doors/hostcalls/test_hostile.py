"""Guests that mean harm: each finds an error number, or an end; never a way out."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from bascule.doors.hostcalls.abi import ABSENT, Errno
from bascule.doors.hostcalls.handles import MOST_OPEN
from bascule.doors.hostcalls.host import GuestLimits
from tests.doors.hostcalls.running import run_wat
from tests.doors.hostcalls.talks import OneModel
from tests.doors.hostcalls.wat import ANSWERS, Call, call, guest
from tests.loop.fakes import FakeUpstream

END = 65_536


@pytest.mark.requirement("hostcalls:errno")
@pytest.mark.parametrize(
    ("pointer", "length", "errno"),
    [
        (0, 0, 0),
        (END - 1, 1, 0),
        (END, 0, 0),
        (END - 1, 2, Errno.EFAULT),
        (END, 1, Errno.EFAULT),
        (END + 1, 0, Errno.EFAULT),
        (-1, 0, Errno.EFAULT),
        (-1, 1, Errno.EFAULT),
        (-1, 2, Errno.EFAULT),
        (-16, 32, Errno.EFAULT),
        (0x7FFF_FFFF, 1, Errno.EFAULT),
        (-0x8000_0000, 1, Errno.EFAULT),
        (0, 16_384, 0),
        (0, 16_385, Errno.EINVAL),
        (0, -1, Errno.EINVAL),
        (0, -0x8000_0000, Errno.EINVAL),
    ],
)
async def test_what_is_read_lies_in_the_memory(pointer: int, length: int, errno: int):
    ran = await run_wat(guest(call("log", 2, pointer, length)))
    assert ran.answers == [-errno]


@pytest.mark.requirement("hostcalls:buffer")
@pytest.mark.parametrize(
    ("pointer", "capacity", "length_pointer", "errno"),
    [
        (256, 16, 64, 16),
        (END - 16, 16, 64, 16),
        (256, 15, 64, -Errno.ENOSPC),
        (256, 0, 64, -Errno.ENOSPC),
        (END, 0, 64, -Errno.ENOSPC),
        (END - 16, 17, 64, -Errno.EFAULT),
        (END + 1, 0, 64, -Errno.EFAULT),
        (-1, 16, 64, -Errno.EFAULT),
        (-8, 16, 64, -Errno.EFAULT),
        (256, 0x7FFF_FFFF, 64, -Errno.EFAULT),
        (256, 0x8000_0000, 64, -Errno.EINVAL),
        (256, 0xFFFF_FFFF, 64, -Errno.EINVAL),
        (256, 16, END - 3, -Errno.EFAULT),
        (256, 16, END, -Errno.EFAULT),
        (256, 16, -4, -Errno.EFAULT),
        (256, 16, -1, -Errno.EFAULT),
    ],
)
async def test_what_is_written_lies_in_its_window(
    pointer: int, capacity: int, length_pointer: int, errno: int
):
    """The kind of an epoll is an answer of 16 bytes; nothing around it is touched."""
    ran = await run_wat(
        guest(
            call("spear_epoll_create"),
            call("spear_fd_ctl", "$0", 3, pointer, length_pointer),
            data={0: b"\xaa" * 512, 64: capacity},
            shown=(0, 512),
        )
    )
    assert ran.answers == [1000, errno]
    expected = bytearray(b"\xaa" * 512)
    wrote = 16 if errno in {16, -Errno.ENOSPC} else capacity
    expected[64:68] = wrote.to_bytes(4, "little")
    if errno == 16 and pointer == 256:
        expected[256:272] = b'{"kind":"Epoll"}'
    assert ran.stdout == bytes(expected)


async def test_a_length_that_lies_in_its_own_window_harms_nobody():
    ran = await run_wat(
        guest(
            call("spear_epoll_create"),
            call("spear_fd_ctl", "$0", 3, 60, 64),
            data={64: 32},
            shown=(60, 16),
        )
    )
    assert ran.answers == [1000, 16]
    assert ran.stdout == b'{"kind":"Epoll"}'


async def test_a_guest_without_memory_is_told_so():
    ran = await run_wat("""(module
      (import "spear" "log" (func $log (param i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      (func (export "_start")
        (call $exit (i32.sub (i32.const 0) (call $log (i32.const 0) (i32.const 0)
          (i32.const 0))))))""")
    assert ran.exit.code == Errno.EFAULT


@pytest.mark.parametrize("export", ["(func $m)", "(global $m i32 (i32.const 0))"])
async def test_a_memory_that_is_none_is_no_memory(export: str):
    kind = export[1 : export.index(" ")]
    ran = await run_wat(f"""(module
      (import "spear" "log" (func $log (param i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      {export} (export "memory" ({kind} $m))
      (func (export "_start")
        (call $exit (i32.sub (i32.const 0) (call $log (i32.const 0) (i32.const 0)
          (i32.const 0))))))""")
    assert ran.exit.code == Errno.EFAULT


async def test_text_that_is_no_text_is_logged_as_what_can_be_read():
    ran = await run_wat(guest(call("log", 9, 0, 4), data={0: b"a\xff\xfeb"}))
    assert ran.answers == [0]
    assert ran.logged == ["a��b"]


async def test_handles_of_others_closed_ones_and_ones_of_another_kind_are_bad():
    wrong = (0, 1, 2, 3, 999, 1001, -1, 0x7FFF_FFFF, -0x8000_0000)
    ran = await run_wat(
        guest(
            call("spear_epoll_create"),
            *[call("spear_fd_ctl", number, 3, 256, 64) for number in wrong],
            *[call("cchat_recv", number, 256, 64) for number in (*wrong, "$0")],
            call("spear_epoll_close", "$0"),
            call("spear_fd_ctl", "$0", 3, 256, 64),
            data={64: 32},
        )
    )
    closed = len(wrong) + len(wrong) + 2
    assert ran.answers.pop(0) == 1000
    assert ran.answers[1 : closed - 1] == [-Errno.EBADF] * (closed - 2)
    assert ran.answers[-2:] == [0, -Errno.EBADF]


async def test_every_absent_call_says_that_there_is_none():
    calls = [call(name, *[-1] * (len(letters) - 1)) for name, letters in ABSENT.items()]
    ran = await run_wat(guest(*calls))
    assert ran.answers == [-Errno.ENOSYS] * len(ABSENT)


_MANY = f"""(module
  (import "spear" "spear_epoll_create" (func $create (result i32)))
  (import "spear" "spear_epoll_close" (func $close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $tell (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $note (param $at i32) (param $value i32)
    (i64.store (i32.add (i32.const {ANSWERS}) (i32.mul (local.get $at) (i32.const 8)))
      (i64.extend_i32_s (local.get $value))))
  (func (export "_start") (local $left i32) (local $last i32)
    (local.set $left (i32.const {MOST_OPEN}))
    (loop
      (local.set $last (call $create))
      (br_if 0 (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (call $note (i32.const 0) (local.get $last))
    (call $note (i32.const 1) (call $create))
    (call $note (i32.const 2) (call $close (i32.const 1500)))
    (call $note (i32.const 3) (call $create))
    (call $note (i32.const 4) (call $create))
    (i32.store (i32.const 0) (i32.const {ANSWERS})) (i32.store (i32.const 4) (i32.const 40))
    (drop (call $tell (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))))"""


async def test_so_many_handles_are_open_at_once_and_no_number_comes_back():
    ran = await run_wat(_MANY)
    first_new = 1000 + MOST_OPEN
    assert ran.answers == [first_new - 1, -Errno.EMFILE, 0, first_new, -Errno.EMFILE]


@pytest.mark.parametrize(
    ("kind", "grow", "most"),
    [
        ("(memory 1)", "memory.grow (i32.const 1)", 16),
        ("(table $t 1 funcref)", "table.grow $t (ref.null func) (i32.const 10000)", 10),
        ("(table $t 1 externref)", "table.grow $t (ref.null extern) (i32.const 10000)", 10),
    ],
)
async def test_what_grows_stops_at_its_limit_and_the_guest_goes_on(kind: str, grow: str, most: int):
    """The guest exits with how often it could grow."""
    ran = await run_wat(
        f"""(module
      (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      {kind}
      (func (export "_start") (local $times i32)
        (loop
          (if (i32.ne ({grow}) (i32.const -1)) (then
            (local.set $times (i32.add (local.get $times) (i32.const 1)))
            (br_if 1 (i32.lt_u (local.get $times) (i32.const 1000))))))
        (call $exit (local.get $times))))""",
        limits=GuestLimits(memory_bytes=16 * END),
    )
    assert ran.exit.reason == "exited"
    assert most - 1 <= ran.exit.code <= most


@pytest.mark.parametrize(
    "text",
    [
        "(table 1000000 funcref)",
        "".join("(table 1 funcref)" for _ in range(17)),
    ],
    ids=["large", "many"],
)
async def test_tables_beyond_their_limit_are_not_made(text: str):
    ran = await run_wat(f'(module {text} (func (export "_start")))')
    assert (ran.exit.reason, ran.exit.code) == ("trapped", 1)
    assert "table" in ran.exit.message


_LONG = 1024 * 1024 + 1


@pytest.mark.parametrize(
    "made",
    [
        call("cchat_write_fn", "$0", 1, 0, _LONG),
        call("cchat_ctl", "$0", 1, 0, 64),
        call("spear_fd_ctl", "$0", 1, 0, 64),
        call("spear_fd_ctl", "$0", 6, 0, 64),
    ],
    ids=lambda made: f"{made.name}-{made.numbers[1]}",
)
async def test_json_that_is_very_long_is_not_read(made: Call):
    """A few megabytes of empty lists would become a gigabyte of the host's memory."""
    models = OneModel(FakeUpstream(), [])
    text = guest(call("cchat_create"), made, data={64: _LONG}, pages=20)
    ran = await run_wat(text, models=models)
    assert ran.answers == [1000, -Errno.EINVAL]


_RECURSES = """
import asyncio, sys
from wasmtime import wat2wasm
from bascule.doors.hostcalls.engine import GuestEngine
from bascule.doors.hostcalls.host import Host

engine = GuestEngine()
program = engine.load(bytes(wat2wasm('(module (func $f (call $f)) (start $f))')))
print(asyncio.run(engine.run(program, Host(listener=print))).message)
"""


def test_a_stack_that_overflows_is_a_trap_where_the_user_has_little_of_it():
    little = f"ulimit -s 256; exec {shlex.quote(sys.executable)} -c {shlex.quote(_RECURSES)}"
    ended = subprocess.run(["/bin/sh", "-c", little], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"stack overflow in f\n"), ended.stderr


async def test_an_overflowing_stack_in_the_start_function_is_a_trap():
    ran = await run_wat("(module (func $f (call $f)) (start $f))")
    assert (ran.exit.reason, ran.exit.message) == ("trapped", "stack overflow in f")


async def test_memory_that_grows_between_two_calls_is_seen():
    ran = await run_wat("""(module
      (import "spear" "log" (func $log (param i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      (memory (export "memory") 1)
      (func (export "_start")
        (if (call $log (i32.const 2) (i32.const 65530) (i32.const 6)) (then unreachable))
        (if (i32.ne (call $log (i32.const 2) (i32.const 65530) (i32.const 7)) (i32.const -14))
          (then unreachable))
        (drop (memory.grow (i32.const 100)))
        (if (call $log (i32.const 2) (i32.const 65530) (i32.const 7)) (then unreachable))
        (i32.store8 (i32.const 6619135) (i32.const 33))
        (if (call $log (i32.const 2) (i32.const 6619135) (i32.const 1)) (then unreachable))))""")
    assert ran.exit.reason == "exited"
    assert ran.logged[-1] == "!"
