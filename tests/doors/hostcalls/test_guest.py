"""One run of a guest: what it says, and how it ends."""

from __future__ import annotations

import pytest

from bascule.doors.hostcalls.host import GuestLimits, LogLine, Output
from tests.doors.hostcalls.running import run_wat

HELLO = """
(module
  (import "spear" "log" (func $log (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 100) "hello")
  (data (i32.const 0) "\\64\\00\\00\\00\\05\\00\\00\\00")
  (func (export "_start")
    (drop (call $log (i32.const 2) (i32.const 100) (i32.const 5)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 20)))))
"""
LOOP = '(module (memory (export "memory") 1) (func (export "_start") (loop br 0)))'
SLEEP = """
(module (import "spear" "sleep_ms" (func $sleep (param i32)))
  (func (export "_start") (call $sleep (i32.const 60000))))
"""


async def test_what_a_guest_logs_and_writes_is_heard_in_its_order():
    found = await run_wat(HELLO)
    assert found.exit.reason == "exited"
    assert found.heard == [LogLine("info", "hello"), Output("stdout", b"hello")]


@pytest.mark.parametrize("text", [LOOP, SLEEP], ids=["loop", "sleep"])
async def test_time_ends_a_guest_wherever_it_is(text: str):
    found = await run_wat(text, limits=GuestLimits(seconds=0.05))
    assert found.exit.reason == "timeout"
