"""Real programs that are refused something, at each level: their own words say what they missed."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from bascule.model.sandbox import Level, Sandbox
from bascule.model.server import Stdio
from bascule.node.pool.process.missed import missed
from bascule.node.pool.process.plan import Confinement
from bascule.node.pool.process.spawn import Launch, close_all
from bascule.node.pool.process.surroundings import around
from bascule.node.pool.process.warden import Warden
from tests.waits import SOON_SECONDS

PATH = os.environ["PATH"]
READS = {
    "python": (sys.executable, "-c", "import sys; open(sys.argv[1])"),
    "node": ("node", "-e", "require('fs').readFileSync(process.argv[1])"),
    "sh": ("/bin/sh", "-c", 'cat "$0"'),
}
WRITES = {
    "python": (sys.executable, "-c", "import sys; open(sys.argv[1] + '.new', 'w')"),
    "node": ("node", "-e", "require('fs').mkdirSync(process.argv[1] + '.new')"),
    "sh": ("/bin/sh", "-c", 'mkdir "$0.new"'),
}
CALLS = {
    "python": (
        sys.executable,
        "-c",
        "import urllib.request; urllib.request.urlopen('http://api.example.org/')",
    ),
    "node": ("node", "-e", "require('net').connect(443, '192.0.2.1')"),
}


class Scene:
    """A file that is not granted, and a way to start programs that want it."""

    def __init__(self, folder: Path, warden: Warden) -> None:
        self.file = folder / "wanted" / "file"
        self.home = folder / "home"
        for made in (self.file.parent, self.home):
            made.mkdir()
        self.file.write_text("x", encoding="ascii")
        folder.chmod(0o755)
        self.file.parent.chmod(0o777)
        self._warden = warden

    async def missed(self, level: Level, argv: tuple[str, ...]) -> list[tuple[str, str]]:
        """Start a program that wants the file; return what it missed by what it said."""
        sandbox = Sandbox(level=level, required=True, write=(), network="none")
        own = (str(self.home),)
        command = (*argv, str(self.file))
        said = await self._said(Launch(command, {"PATH": PATH}, None, Confinement(sandbox, own)))
        stdio = Stdio(command=command[0], args=command[1:])
        found = missed(said, around(sandbox, stdio, PATH, own, ()))
        return [(one.field, one.value) for one in found]

    async def _said(self, launch: Launch) -> str:
        server = await self._warden.spawn(launch)
        try:
            async with asyncio.timeout(SOON_SECONDS):
                assert await server.wait() != 0
            return os.read(server.stderr_fd, 65536).decode()
        finally:
            await server.end()
            close_all((server.stdin_fd, server.stdout_fd, server.stderr_fd))


@pytest.fixture
def folder() -> Generator[Path]:
    folder = Path("/var/tmp", f"missed-{secrets.token_hex(8)}")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def scene(folder: Path, level: Level) -> AsyncGenerator[Scene]:
    warden = Warden()
    try:
        if reason := await warden.why_not(level):
            pytest.skip(f"{level} does not work on this machine: {reason}")
        yield Scene(folder, warden)
    finally:
        await warden.close()


@pytest.fixture(params=["landlock", "namespaces", "bwrap"])
def level(request: pytest.FixtureRequest) -> Level:
    return request.param


def program(table: dict[str, tuple[str, ...]], name: str) -> tuple[str, ...]:
    if shutil.which(table[name][0]) is None:
        pytest.skip(f"there is no {name} on this machine")
    return table[name]


@pytest.mark.requirement("record:sandbox:missed")
@pytest.mark.parametrize("name", READS)
async def test_a_file_that_a_program_wants_to_read(scene: Scene, level: Level, name: str):
    found = await scene.missed(level, program(READS, name))
    assert found == [("read", str(scene.file))]


@pytest.mark.requirement("record:sandbox:missed")
@pytest.mark.parametrize("name", WRITES)
async def test_a_folder_that_a_program_wants_to_write_to(scene: Scene, level: Level, name: str):
    found = await scene.missed(level, program(WRITES, name))
    assert found == [("write", str(scene.file.parent))]


@pytest.mark.requirement("record:sandbox:missed")
@pytest.mark.parametrize("name", CALLS)
async def test_a_network_that_a_program_wants_to_reach(scene: Scene, level: Level, name: str):
    found = await scene.missed(level, program(CALLS, name))
    assert found == [("network", "full")]
