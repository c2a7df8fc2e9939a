"""Confined servers as real processes: what they are granted, what is refused, what is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bascule.errors import LaunchDenied, ServerUnavailable
from bascule.model.sandbox import BEST_FIRST, Level, Sandbox
from bascule.node.pool.process.confinement import seccomp
from bascule.node.pool.process.plain import PlainSpawner
from bascule.node.pool.process.plan import Confinement
from bascule.node.pool.process.spawn import Launch, ServerProcess, Spawner
from bascule.node.pool.process.warden import Warden
from tests.flow.processes import traces
from tests.waits import SOON_SECONDS, until

PATH = {"PATH": os.environ["PATH"]}
#: The system's, which every user may start: the one that runs this may be in somebody's HOME.
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
KEEP_FILES: tuple[Level, ...] = ("landlock", "namespaces", "bwrap")


class Place:
    """A folder with what a server is given and what it is not."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.folder = folder
        self.home, self.readable, self.writable, self.secret = (
            self._made(name) for name in ("home", "readable", "writable", "secret")
        )
        self.writable.chmod(0o777)

    def _made(self, name: str) -> Path:
        made = self.folder / name
        made.mkdir()
        (made / "file").write_text(name, encoding="ascii")
        return made

    def confinement(self, level: Level, **fields: Any) -> Confinement:
        fields.setdefault("read", (str(self.readable),))
        fields.setdefault("write", (str(self.writable),))
        fields.setdefault("required", level != "best")
        never = tuple(map(str, fields.pop("never", (self.secret,))))
        sandbox = Sandbox(level=level, **fields)
        return Confinement(sandbox, (str(self.home),), never, str(self.folder))

    def launch(self, level: Level, *argv: str, cwd: Path | None = None, **fields: Any) -> Launch:
        env = PATH | {"HOME": str(self.home)}
        where = None if cwd is None else str(cwd)
        return Launch(argv, env, where, self.confinement(level, **fields))

    def script(self, level: Level, script: str, **fields: Any) -> Launch:
        return self.launch(level, "/bin/sh", "-c", script, **fields)


@pytest.fixture
def place() -> Generator[Place]:
    """Where others may go: pytest's own folders are closed to them."""
    folder = Path("/var/tmp", f"confinement-{secrets.token_hex(8)}")
    folder.mkdir()
    yield Place(folder)
    shutil.rmtree(folder)


@pytest.fixture
async def warden() -> AsyncGenerator[Warden]:
    warden = Warden()
    yield warden
    await warden.close()


async def needs(warden: Warden, level: Level) -> None:
    """Skip where a level does not work, with the reason found."""
    if reason := await warden.why_not(level):
        pytest.skip(f"{level} does not work on this machine: {reason}")


async def said(spawner: Spawner, launch: Launch) -> tuple[str, str, int]:
    """Return what a short-lived server writes, complains about, and its status."""
    server = await spawner.spawn(launch)
    async with asyncio.timeout(SOON_SECONDS):
        status = await server.wait()
    output = [_all_of(descriptor) for descriptor in (server.stdout_fd, server.stderr_fd)]
    await server.end()
    release(server)
    return output[0], output[1], status


def _all_of(descriptor: int) -> str:
    with contextlib.suppress(BlockingIOError):
        return os.read(descriptor, 65536).decode()
    return ""


def release(server: ServerProcess) -> None:
    for descriptor in (server.stdin_fd, server.stdout_fd, server.stderr_fd):
        os.close(descriptor)


# What is granted


@pytest.mark.parametrize("level", KEEP_FILES)
@pytest.mark.requirement("process:sandbox")
async def test_a_server_reads_and_writes_what_it_was_granted_and_nothing_else(
    warden: Warden, place: Place, level: Level
):
    await needs(warden, level)
    script = f"""
        cat {place.readable}/file; echo
        echo new > {place.writable}/new && cat {place.writable}/new
        echo own > "$HOME/own" && cat "$HOME/own"
        cat {place.secret}/file 2>/dev/null && echo read a secret
        (echo no > {place.readable}/new) 2>/dev/null && echo wrote where it may only read
        (echo no > {place.folder}/new) 2>/dev/null
        pwd
    """
    output, _, _ = await said(warden, place.script(level, script))
    assert output.split() == ["readable", "new", "own", str(place.home)]
    assert (place.writable / "new").read_text(encoding="utf-8") == "new\n"
    assert (place.home / "own").read_text(encoding="utf-8") == "own\n"
    assert not (place.folder / "new").exists()  # in a /var/tmp of its own it may write


@pytest.mark.parametrize("level", KEEP_FILES)
async def test_what_no_server_sees_stays_hidden_in_a_folder_that_is_granted(
    warden: Warden, place: Place, level: Level
):
    await needs(warden, level)
    (place.readable / "deep" / "data").mkdir(parents=True)
    (place.readable / "deep" / "data" / "key").write_text("key", encoding="utf-8")
    (place.readable / "deep" / "token").write_text("token", encoding="utf-8")
    (place.readable / "deep" / "plain").write_text("plain", encoding="utf-8")
    never = (place.readable / "deep" / "data", place.readable / "deep" / "token")
    script = f"cd {place.readable}/deep; cat plain; cat data/key; cat token; true"
    output, _, _ = await said(warden, place.script(level, script, never=never))
    assert output == "plain"


@pytest.mark.parametrize("level", KEEP_FILES)
async def test_links_are_followed_before_a_path_is_granted(
    warden: Warden, place: Place, level: Level
):
    await needs(warden, level)
    link = place.folder / "link"
    link.symlink_to(place.readable)
    launch = place.script(level, f"cat {link}/file", read=(str(link),))
    assert (await said(warden, launch))[0] == "readable"
    link.unlink()
    link.symlink_to(place.secret)
    with pytest.raises(LaunchDenied, match=r"sandbox\.read\[0\].*which no server sees"):
        await warden.spawn(launch)


@pytest.mark.parametrize("level", KEEP_FILES)
async def test_the_folder_a_server_starts_in_is_writable_where_the_record_says_so(
    warden: Warden, place: Place, level: Level
):
    await needs(warden, level)
    launch = place.launch(level, "sh", "-c", "pwd; echo x > y", cwd=place.writable, write=(".",))
    assert await said(warden, launch) == (f"{place.writable}\n", "", 0)
    launch = place.launch(level, "sh", "-c", "pwd", cwd=place.writable, write=())
    with pytest.raises(LaunchDenied, match=r"stdio\.cwd: the sandbox does not grant"):
        await warden.spawn(launch)


@pytest.mark.parametrize("level", ["landlock", "namespaces"])
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"read": ("/no/such/place",)}, r"sandbox\.read\[0\]: '/no/such/place' does not exist"),
        ({"write": ("/tmp", "/proc/1")}, r"sandbox\.write\[1\].*'/proc', which no server sees"),
        ({"write": ("/",)}, r"sandbox\.write\[0\]: '/' is the whole machine"),
    ],
)
async def test_a_grant_that_cannot_be_given_is_refused_by_its_field(
    warden: Warden, place: Place, level: Level, fields: dict[str, Any], message: str
):
    await needs(warden, level)
    with pytest.raises(LaunchDenied, match=message):
        await warden.spawn(place.script(level, "true", never=("/proc",), **fields))


@pytest.mark.parametrize("level", BEST_FIRST)
async def test_the_limits_of_a_record_are_those_of_its_server(
    warden: Warden, place: Place, level: Level
):
    await needs(warden, level)
    fields: dict[str, Any] = {"open_files": 99, "cpu_seconds": 77, "memory_mb": 333, "home_mb": 44}
    script = "ulimit -n; ulimit -t; ulimit -d; ulimit -f; ulimit -c"
    output, _, _ = await said(warden, place.launch(level, "bash", "-c", script, **fields))
    assert output.split() == ["99", "77", str(333 * 1024), str(44 * 1024), "0"]


@pytest.mark.parametrize("level", BEST_FIRST)
async def test_a_server_ends_as_it_would_outside(warden: Warden, place: Place, level: Level):
    await needs(warden, level)
    assert (await said(warden, place.script(level, "exit 7")))[2] == 7
    assert (await said(warden, place.script(level, "kill -9 $$")))[2] == -signal.SIGKILL
    with pytest.raises(ServerUnavailable, match="/no/such/tool"):
        await warden.spawn(place.launch(level, "/no/such/tool"))
    script = 'trap "echo asked; exit 3" TERM; echo ready; while :; do sleep 0.01; done'
    server = await warden.spawn(place.script(level, script))
    await until(lambda: _all_of(server.stdout_fd) == "ready\n")
    await server.end()
    assert await server.wait() in (3, -signal.SIGTERM, -signal.SIGKILL)
    release(server)


@pytest.mark.parametrize("level", KEEP_FILES)
@pytest.mark.requirement("process:sandbox:inner-programs")
async def test_a_program_that_a_shell_is_told_to_start_is_there_without_a_grant(
    warden: Warden, place: Place, level: Level
):
    await needs(warden, level)
    tool = place.folder / "tool"
    tool.write_text("#!/bin/sh\necho started\n", encoding="ascii")
    tool.chmod(0o755)
    assert await said(warden, place.script(level, f"cd / && exec {tool} x")) == ("started\n", "", 0)
    hidden = await said(warden, place.script(level, f"it={tool}; exec $it"))
    assert (hidden[0], hidden[2]) == ("", 126 if level == "landlock" else 127)


# Which level


@pytest.mark.requirement("process:sandbox:tried")
async def test_a_level_that_is_missing_is_named_with_how_to_get_it(
    warden: Warden, place: Place, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt install bubblewrap" in await warden.why_not("bwrap")
    with pytest.raises(LaunchDenied, match=r"bwrap does not work here.*apt install"):
        await warden.spawn(place.script("bwrap", "true"))
    server = await warden.spawn(place.script("bwrap", "true", required=False))
    assert server.standing is not None
    assert server.standing.asked == "bwrap"
    assert server.standing.in_force in ("namespaces", "landlock", "limits")
    assert "apt install bubblewrap" in server.standing.why
    await server.end()
    release(server)


async def test_without_a_warden_there_are_limits_and_no_more(place: Place):
    spawner = PlainSpawner()
    server = await spawner.spawn(place.launch("best", "bash", "-c", "ulimit -n", open_files=99))
    assert await server.wait() == 0
    assert _all_of(server.stdout_fd) == "99\n"
    assert server.standing is not None
    assert (server.standing.asked, server.standing.in_force) == ("best", "limits")
    assert "no warden" in server.standing.why
    await server.end()
    release(server)
    with pytest.raises(LaunchDenied, match="nothing more than limits"):
        await spawner.spawn(place.script("best", "true", required=True))
    await spawner.close()


async def test_the_best_that_works_is_in_force(warden: Warden, place: Place):
    works = [level for level in BEST_FIRST if not await warden.why_not(level)]
    server = await warden.spawn(place.script("best", "true"))
    assert server.standing is not None
    assert (server.standing.asked, server.standing.in_force) == ("best", works[0])
    await server.end()
    release(server)


STRAY = """
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        code = "import signal; signal.pause()"
        os.execve(sys.executable, [sys.executable, "-I", "-c", code, sys.argv[1]], {})
    os._exit(0)
os.wait()
print("up", flush=True)
signal.pause()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, for a cgroup that can be made")
@pytest.mark.parametrize("level", BEST_FIRST)
async def test_what_sheds_its_mark_and_session_ends_with_its_server_while_others_go_on(
    warden: Warden, place: Place, level: Level
):
    await needs(warden, level)
    word = secrets.token_hex(8)
    neighbour = await warden.spawn(place.script(level, "sleep 1000"))
    server = await warden.spawn(place.launch(level, PYTHON, "-I", "-c", STRAY, word))
    await until(lambda: _all_of(server.stdout_fd) == "up\n")
    await server.end()
    assert traces(word) == []
    assert psutil.pid_exists(neighbour.pid)
    await neighbour.end()
    release(server)
    release(neighbour)


# The filter


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_begins_with_the_architecture(machine: str):
    words = seccomp.program(
        machine,
        network="none",
        local_sockets=False,
        own_network=False,
        counted=False,
        alone_as=1,
    )
    assert len(words) % 8 == 0
    code, value = int.from_bytes(words[:2], "little"), int.from_bytes(words[4:8], "little")
    assert (code, value) == (0x20, 4)
    named = int.from_bytes(words[12:16], "little")
    assert named == {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
