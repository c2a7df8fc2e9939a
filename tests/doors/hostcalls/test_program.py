"""What is run and what is not: each refusal is a sentence that says what to do."""

from __future__ import annotations

import re

import pytest
from wasmtime import wat2wasm

from bascule.doors.hostcalls.engine import GuestEngine
from bascule.doors.hostcalls.host import GuestLimits
from bascule.doors.hostcalls.program import MAX_MODULE_BYTES, BadModule
from tests.doors.hostcalls.running import run_wat

MIB = 1024 * 1024
START = '(func (export "_start"))'


@pytest.fixture(scope="module")
def engine() -> GuestEngine:
    return GuestEngine()


def module(text: str) -> bytes:
    return bytes(wat2wasm(f"(module {text})"))


@pytest.mark.requirement("hostcalls:bad-module")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"(module)", "this is no WASM module: it does not begin with \\0asm, version 1"),
        (b"", "this is no WASM module: it does not begin with \\0asm, version 1"),
        (b"\0asm\x02\0\0\0", "this is no WASM module: it does not begin with \\0asm, version 1"),
        (
            b"\0asm\x0d\0\x01\0",
            "this is a component; build a core module (target wasm32-wasip1)",
        ),
        (
            b"\0asm\x01\0\0\0" + bytes(100_000_000 - 8),
            "the module has 100,000,000 bytes; at most 64 MiB are taken",
        ),
        (
            module(f"(memory 1 2 shared) {START}"),
            "the module: it has a shared memory; build it without threads",
        ),
        (
            module(f"(memory i64 1) {START}"),
            "the module: it has a memory of 64 bits; build it for wasm32",
        ),
        (
            module(f"(memory 1) (memory 1) {START}"),
            "the module: it has several memories; a guest has one",
        ),
        (
            module(f"(type (struct)) {START}"),
            "the module: it uses garbage-collected types, which guests do not have",
        ),
        (
            module(f"(tag) {START}"),
            "the module: it uses WASM exceptions; build it without them (-fno-exceptions)",
        ),
        (
            module(f'(import "spear" "call" (func)) (import "env" "memory" (memory 1)) {START}'),
            "the module imports what there is not: spear.call, env.memory",
        ),
        (
            module(f'(import "wasi_snapshot_preview1" "fd_dup" (func)) {START}'),
            "the module imports what there is not: wasi_snapshot_preview1.fd_dup",
        ),
        (
            module(f'(import "spear" "log" (func (param i32 i64))) {START}'),
            "the module imports spear.log as (i32, i64) -> (), which is (i32, i32, i32) -> (i32)",
        ),
        (
            module(f'(import "bascule" "sleep_ms" (global i32)) {START}'),
            "the module imports bascule.sleep_ms as no function, which is (i32) -> ()",
        ),
        (
            module('(func (export "main"))'),
            "the module exports no function _start: build a command, not a library",
        ),
        (
            module('(memory (export "_start") 1)'),
            "the module exports no function _start: build a command, not a library",
        ),
        (
            module('(func (export "_start") (param i32))'),
            "the module's _start takes parameters; it is called with none",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_module_that_cannot_be_run_is_refused_with_a_sentence(
    engine: GuestEngine, content: bytes, said: str
):
    with pytest.raises(BadModule, match=f"^{re.escape(said)}$"):
        engine.load(content)


def test_a_module_with_very_many_exports_is_refused(engine: GuestEngine):
    """Its guest would be busy with them for seconds, and could not be ended."""
    exports = "".join(f'(export "e{number}" (func 0))' for number in range(10_000))
    with pytest.raises(BadModule, match="exports 10,001 names; at most 10,000 are taken"):
        engine.load(module(f"{START} {exports}"))


def test_of_very_many_missing_imports_some_are_named(engine: GuestEngine):
    names = ["x" * 300, *(f"no{number}" for number in range(1000))]
    imports = "".join(f'(import "spear" "{name}" (func))' for name in names)
    with pytest.raises(BadModule) as refused:
        engine.load(module(f"{imports} {START}"))
    assert str(refused.value).endswith(
        "xx…, " + ", ".join(f"spear.no{number}" for number in range(9)) + " and 991 more"
    )


def test_a_damaged_module_is_refused(engine: GuestEngine):
    with pytest.raises(BadModule, match=r"^the module is not valid: .+$") as refused:
        engine.load(module(START)[:-1])
    assert "\n" not in str(refused.value)


def test_a_large_module_is_refused_before_it_is_looked_at(engine: GuestEngine):
    with pytest.raises(BadModule, match="bytes; at most"):
        engine.load(bytes(MAX_MODULE_BYTES + 1))


@pytest.mark.parametrize(
    ("pages", "limit", "words"),
    [
        (259, 16 * MIB, "begins with 17 MiB of memory, and may have 16: run it with --memory 17"),
        (65_536, 64 * MIB, "begins with 4096 MiB of memory, and may have 64"),
        (2, 65_536, "begins with 1 MiB of memory, and may have 0.0625"),
    ],
)
@pytest.mark.parametrize("exported", [True, False])
async def test_more_memory_than_allowed_is_refused_before_the_guest_starts(
    pages: int, limit: int, words: str, *, exported: bool
):
    name = '(export "memory")' if exported else ""
    with pytest.raises(BadModule) as refused:
        await run_wat(
            f"(module (memory {name} {pages}) {START})", limits=GuestLimits(memory_bytes=limit)
        )
    assert words in str(refused.value)
    assert "-Wl,-z,stack-size=65536" in str(refused.value)


async def test_a_memory_of_exactly_what_is_allowed_is_had():
    limits = GuestLimits(memory_bytes=16 * MIB)
    ran = await run_wat(f'(module (memory (export "memory") 256) {START})', limits=limits)
    assert (ran.exit.reason, ran.exit.peak_memory) == ("exited", 16 * MIB)


async def test_a_start_function_runs_and_may_call_the_host():
    ran = await run_wat("""(module
      (import "bascule" "log" (func $log (param i32 i32 i32) (result i32)))
      (memory (export "memory") 1) (data (i32.const 8) "first")
      (func $begin (drop (call $log (i32.const 2) (i32.const 8) (i32.const 5))))
      (start $begin))""")
    assert ran.logged == ["first"]
    assert ran.exit.reason == "exited"
