"""Compiled modules on disk: only what this node wrote is run."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from wasmtime import wat2wasm

from bascule.doors.hostcalls.engine import Engines, GuestEngine
from bascule.doors.hostcalls.host import GuestLimits
from bascule.doors.hostcalls.module_cache import KEY_FILE, ModuleCache
from tests.doors.hostcalls.running import run_wat

HELLO = """(module (import "spear" "log" (func $log (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1) (data (i32.const 8) "hello")
  (func (export "_start") (drop (call $log (i32.const 2) (i32.const 8) (i32.const 5)))))"""
KEY = b"k" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "modules"


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.cwasm"))


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def says_hello(folder: Path, **settings: object) -> None:
    engine = GuestEngine(cache=ModuleCache(folder), **settings)  # pyright: ignore[reportArgumentType]
    assert (await run_wat(HELLO, engine=engine)).logged == ["hello"]


async def test_a_kept_module_runs_without_being_compiled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    await says_hello(folder)
    (only,) = kept(folder)
    before = only.read_bytes()

    def refused(*_: object) -> None:
        raise AssertionError("it was compiled again")

    monkeypatch.setattr(GuestEngine, "_compiled", refused)
    await says_hello(folder)
    assert only.read_bytes() == before


async def test_the_folder_and_all_in_it_are_private(folder: Path):
    await says_hello(folder)
    assert mode_of(folder) == 0o700
    assert {mode_of(path) for path in (folder / KEY_FILE, *kept(folder))} == {0o600}


@pytest.mark.requirement("hostcalls:module-cache")
@pytest.mark.parametrize(
    "damage",
    [
        lambda found: b"",
        lambda found: found[:40],
        lambda found: found[:-1],
        lambda found: found[:-1] + bytes([found[-1] ^ 1]),
        lambda found: b"\0" * 32 + found[32:],
        lambda found: b"garbage" * 1000,
    ],
    ids=["empty", "short", "cut", "changed", "unsigned", "garbage"],
)
async def test_a_file_that_is_not_as_it_was_written_is_compiled_anew(
    folder: Path, damage: object, caplog: pytest.LogCaptureFixture
):
    await says_hello(folder)
    (only,) = kept(folder)
    right = only.read_bytes()
    only.write_bytes(damage(right))  # pyright: ignore[reportCallIssue, reportUnknownArgumentType]
    with caplog.at_level(logging.WARNING):
        await says_hello(folder)
    assert "compiling anew" in caplog.text
    assert len(only.read_bytes()) == len(right)


@pytest.mark.requirement("hostcalls:module-cache")
async def test_a_file_of_another_node_is_compiled_anew(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    await says_hello(tmp_path / "theirs")
    await says_hello(folder)
    (ours,) = kept(folder)
    (theirs,) = kept(tmp_path / "theirs")
    assert ours.name == theirs.name
    ours.write_bytes(theirs.read_bytes())
    await says_hello(folder)
    assert "was not written by this node" in caplog.text


async def test_code_is_good_for_its_own_module_only(folder: Path, caplog: pytest.LogCaptureFixture):
    """Another module's code is signed too, and must not run in this one's place."""
    cache = ModuleCache(folder, key=KEY)
    cache.keep("one", b"code of one")
    (folder / "one.cwasm").rename(folder / "other.cwasm")
    assert cache.load("other") is None
    assert "was not written by this node" in caplog.text


async def test_signed_code_of_another_engine_is_compiled_anew(
    folder: Path, caplog: pytest.LogCaptureFixture
):
    await says_hello(folder)
    (only,) = kept(folder)
    ModuleCache(folder).keep(only.stem, b"no code at all")
    await says_hello(folder)
    assert "of no use here; compiling anew" in caplog.text


async def test_code_that_counts_fuel_is_kept_apart(folder: Path):
    engines = Engines(ModuleCache(folder))
    for fuel in (None, 100_000):
        limits = GuestLimits(fuel=fuel)
        ran = await run_wat(HELLO, engine=engines.of(limits), limits=limits)
        assert ran.logged == ["hello"]
    assert len(kept(folder)) == 2


def test_an_engine_is_made_once_for_each_kind_of_limits():
    engines = Engines()
    plain, counting = engines.of(GuestLimits()), engines.of(GuestLimits(fuel=5))
    assert plain is not counting
    assert engines.of(GuestLimits(seconds=1.0)) is plain
    assert engines.of(GuestLimits(fuel=9)) is counting


def test_the_oldest_go_when_there_are_too_many(folder: Path):
    cache = ModuleCache(folder, key=KEY, most_files=3)
    for at, name in enumerate("abcd"):
        cache.keep(name, b"code")
        os.utime(folder / f"{name}.cwasm", (at, at))
    assert cache.load("b") == b"code"  # and is the newest by that
    cache.keep("e", b"code")
    assert [path.stem for path in kept(folder)] == ["b", "d", "e"]


def test_the_oldest_go_when_they_are_too_large(folder: Path):
    cache = ModuleCache(folder, key=KEY, most_bytes=1000)
    for at, name in enumerate("abc"):
        cache.keep(name, bytes(400))
        os.utime(folder / f"{name}.cwasm", (at, at))
    assert [path.stem for path in kept(folder)] == ["b", "c"]
    cache.keep("huge", bytes(1001))
    assert [path.stem for path in kept(folder)] == ["b", "c"]


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777])
async def test_a_folder_that_others_may_use_is_not_used(
    folder: Path, mode: int, caplog: pytest.LogCaptureFixture
):
    await says_hello(folder)
    (only,) = kept(folder)
    only.unlink()
    os.chmod(folder, mode)  # noqa: PTH101 - a short call in a test
    await says_hello(folder)
    assert kept(folder) == []
    assert f"run chmod 700 {folder}" in caplog.text


async def test_a_key_that_others_may_read_is_not_used(
    folder: Path, caplog: pytest.LogCaptureFixture
):
    await says_hello(folder)
    (folder / KEY_FILE).chmod(0o644)
    await says_hello(folder)
    assert f"run chmod 600 {folder / KEY_FILE}" in caplog.text


async def test_a_folder_that_cannot_be_made_only_costs_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "file").write_bytes(b"")
    await says_hello(tmp_path / "file" / "modules")
    assert "not kept" in caplog.text


def test_the_same_module_is_compiled_once_and_many_are_not_kept_for_ever():
    engine = GuestEngine()
    first = bytes(wat2wasm(HELLO))
    program = engine.load(first)
    assert engine.load(first) is program
    for number in range(16):
        engine.load(bytes(wat2wasm(HELLO.replace("hello", f"hell{number:x}"))))
    assert engine.load(first) is not program
