"""What came once is what comes the next time: real launchers, registries that change their mind."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bascule.errors import LaunchDenied
from bascule.model.fetch_line import fetch_line
from bascule.model.launcher import from_cache
from bascule.node.homes import Homes
from bascule.node.pool.fetch import Fetch, held_argv
from bascule.node.pool.pins import Package, PinFile
from bascule.node.pool.process.spawn import Launch, Spawner
from bascule.node.pool.process.warden import default_spawner
from bascule.testing.clock import FakeClock
from tests.flow.test_real_servers import launcher
from tests.node.pool.registries import Kind, Registry, registry

SECONDS = 100.0
DAY = 86_400
BOTH = pytest.mark.parametrize("kind", ["uvx", "npx"])


@pytest.fixture
async def spawner() -> AsyncIterator[Spawner]:
    made = default_spawner()
    yield made
    await made.close()


@pytest.fixture
def served(kind: Kind) -> Iterator[Registry]:
    with registry(kind) as made:
        yield made


@dataclass
class Machine:
    """Where servers are fetched, each time into a HOME of its own unless it is the same again."""

    spawner: Spawner
    served: Registry
    folder: Path
    package: str = "probe"
    clock: FakeClock = field(default_factory=FakeClock)

    def server(self, home: str) -> Launch:
        """Return a start; only its HOME stays the same."""
        path, fresh = self.folder / home, self.folder / f"tmp{len(list(self.folder.iterdir()))}"
        path.mkdir(exist_ok=True)
        fresh.mkdir()
        own = {"HOME": str(path), "TMPDIR": str(fresh), "PATH": os.environ["PATH"]}
        first = ("-y",) if self.served.kind == "npx" else ()
        argv = (launcher(self.served.kind), *first, self.package)
        return Launch(argv, {**own, **self.served.variables})

    @property
    def pins(self) -> PinFile:
        return PinFile("time", self.pin_file, self.clock)

    @property
    def pin_file(self) -> Path:
        line = fetch_line(self.server("any").argv)
        assert line is not None
        found = Homes(self.folder.parent, ("homes",)).pin_file("time", line.words)
        assert found is not None
        return found

    async def fetched(self, home: str) -> tuple[Package, ...]:
        """Fetch, as the first step of a start."""
        return (await self._fetch(home))[1]

    async def said(self, home: str) -> str:
        """Fetch and start, without the network; return what the server printed."""
        server, _ = await self._fetch(home)
        argv = from_cache(held_argv(server, self.pins))
        assert argv is not None
        return (await asyncio.to_thread(_printed, argv, server.env)).strip()

    async def _fetch(self, home: str) -> tuple[Launch, tuple[Package, ...]]:
        server = self.server(home)
        line = fetch_line(server.argv)
        assert line is not None
        base = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        found = await Fetch(self.spawner, line, server, base, self.pins).run(SECONDS)
        return server, found


def _printed(argv: tuple[str, ...], env: Mapping[str, str]) -> str:
    return subprocess.check_output(argv, env=dict(env), timeout=SECONDS, encoding="utf-8")


@pytest.fixture
def machine(spawner: Spawner, served: Registry, tmp_path: Path) -> Machine:
    (tmp_path / "machine").mkdir()
    return Machine(spawner, served, tmp_path / "machine")


@BOTH
@pytest.mark.requirement("process:fetch-pinned")
async def test_what_came_is_kept_by_version_and_hash_and_is_private(
    machine: Machine, served: Registry
):
    digest = served.publish("probe", "1.0.0", "one")
    assert await machine.said("first") == "one"
    pins = machine.pins.read()
    assert pins is not None
    assert pins.packages == (Package("probe", "1.0.0", (digest,)),)
    assert machine.pin_file.stat().st_mode & 0o077 == 0
    assert machine.pin_file.parent.stat().st_mode & 0o077 == 0


@BOTH
@pytest.mark.parametrize(
    ("package", "honest"), [("probe", True), ("probe", False), ("probe@1.0.0", False)]
)
@pytest.mark.requirement("process:fetch-pinned")
async def test_the_same_version_with_another_hash_is_refused_until_a_person_accepts_it(
    machine: Machine, served: Registry, honest: bool, package: str
):
    machine.package = package
    before = served.publish("probe", "1.0.0", "one")
    assert await machine.said("first") == "one"
    await machine.clock.advance(DAY + 1)
    now = served.publish("probe", "1.0.0", "other", honest=honest)
    with pytest.raises(LaunchDenied, match="servers clean time --pins") as refused:
        await machine.fetched("second")
    assert all(word in str(refused.value) for word in ("probe 1.0.0", before, now))
    machine.pin_file.unlink()
    served.publish("probe", "1.0.0", "other")
    assert await machine.said("third") == "other"


@BOTH
@pytest.mark.requirement("process:fetch-pinned")
async def test_a_newer_version_comes_after_a_day_and_is_said_loudly(
    machine: Machine, served: Registry, caplog: pytest.LogCaptureFixture
):
    first = served.publish("probe", "1.0.0", "one")
    assert await machine.said("first") == "one"
    await machine.clock.advance(DAY + 1)
    second = served.publish("probe", "2.0.0", "two")
    with caplog.at_level(logging.WARNING):
        assert await machine.said("first") == "two"
    assert "time now has other packages: probe 1.0.0 -> 2.0.0" in caplog.text
    pins = machine.pins.read()
    assert pins is not None
    assert pins.packages == (Package("probe", "2.0.0", (second,)),)
    assert pins.earlier == (Package("probe", "1.0.0", (first,)),)


@pytest.mark.parametrize("kind", ["uvx"])
@pytest.mark.requirement("process:fetch-pinned")
async def test_until_then_every_home_gets_the_version_that_came_first(
    machine: Machine, served: Registry
):
    served.publish("probe", "1.0.0", "one")
    assert await machine.said("first") == "one"
    served.publish("probe", "2.0.0", "two")
    assert await machine.said("second") == "one"
    assert await machine.said("first") == "one"


@BOTH
@pytest.mark.requirement("process:fetch-pinned")
async def test_a_line_that_names_a_version_keeps_its_dependencies_as_well(
    machine: Machine, served: Registry
):
    machine.package = "probe@1.0.0"
    limit = ">=1" if served.kind == "uvx" else "^1.0.0"
    served.publish("helper", "1.0.0")
    served.publish("probe", "1.0.0", "one", needs={"helper": limit})
    first = await machine.fetched("first")
    await machine.clock.advance(9 * DAY)
    served.publish("helper", "1.1.0")
    assert await machine.fetched("second") == first
    assert await machine.said("second") == "one"
    assert [one.version for one in first] == ["1.0.0", "1.0.0"]
    machine.pin_file.unlink()
    assert [one.version for one in await machine.fetched("third")] == ["1.1.0", "1.0.0"]


@pytest.mark.parametrize("kind", ["uvx"])
@pytest.mark.requirement("process:fetch-pinned")
async def test_a_file_that_was_added_to_a_version_is_not_taken(machine: Machine, served: Registry):
    served.publish("probe", "1.0.0", "one")
    assert await machine.said("first") == "one"
    served.publish("probe", "1.0.0", "other", tag="cp33-cp33m-any")
    assert await machine.said("second") == "one"  # it does not fit
    served.publish("probe", "1.0.0", "other", tag="cp311.cp312.cp313.cp314-none-any")
    for _ in range(2):
        with pytest.raises(LaunchDenied, match=r"^probe==1\.0\.0 has files .*--pins"):
            await machine.fetched("third")
        await machine.clock.advance(DAY + 1)


@BOTH
@pytest.mark.requirement("process:fetch-pinned")
async def test_what_a_server_wrote_into_its_cache_has_no_say_in_its_pins(
    machine: Machine, served: Registry
):
    digest = served.publish("probe", "1.0.0", "one")
    assert await machine.said("first") == "one"
    for path in [*(machine.folder / "first").rglob("*")]:
        if path.is_file() and path.suffix in (".json", ".rkyv", ".msgpack", ".http"):
            path.write_bytes(path.read_bytes().replace(b"1.0.0", b"6.6.6"))
    await machine.clock.advance(DAY + 1)
    if served.kind == "npx":
        await machine.fetched("first")
    else:  # uv notices that its cache is broken, or mends it
        await machine.fetched("second")
    pins = machine.pins.read()
    assert pins is not None
    assert (*pins.packages, *pins.earlier) == (Package("probe", "1.0.0", (digest,)),)


@BOTH
async def test_pins_that_cannot_be_read_are_no_pins_that_are_forgotten(
    machine: Machine, served: Registry
):
    served.publish("probe", "1.0.0", "one")
    machine.pin_file.write_text("{", "utf-8")
    with pytest.raises(LaunchDenied, match=r"cannot be read.*servers clean time --pins"):
        await machine.fetched("first")
