"""Servers as real processes: they start as asked, and nobody is left, whoever is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from bascule.clock import SYSTEM_CLOCK
from bascule.errors import ServerUnavailable
from bascule.node.pool.process.plain import PlainSpawner
from bascule.node.pool.process.spawn import Launch, Owner, ServerProcess, Spawner
from bascule.node.pool.process.warden import Warden
from bascule.node.pool.process.warden_process import MARKER, Frames, pack
from tests.flow.processes import owner_of, traces, vanished
from tests.scale import scaled
from tests.waits import SOON_SECONDS

PATH = {"PATH": os.environ["PATH"]}
SPAWNERS: dict[str, Callable[[], Spawner]] = {
    "isolated": lambda: Warden(isolate_pids=True),
    "shared": lambda: Warden(isolate_pids=False),
    "plain": PlainSpawner,
}

# Ignores SIGTERM, and so do its child and its detached, double-forked grandchild. With "scrub"
# there is another grandchild, without environment; with "leave" it exits and leaves them all.
STUBBORN = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
told, tell = os.pipe()

def linger():
    os.write(tell, b".")
    while True:
        signal.pause()

def detached():
    if child := os.fork():
        os.waitpid(child, 0)
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    return True

if os.fork() == 0 or detached():
    linger()
if "scrub" in sys.argv and detached():
    os.set_inheritable(tell, True)
    code = "import os, signal, sys; os.write(int(sys.argv[2]), b'.'); signal.sigwait([1])"
    words = [sys.executable, "-I", "-S", "-c", code, sys.argv[1], str(tell)]
    os.execve(sys.executable, words, {})
for _ in range(3 if "scrub" in sys.argv else 2):
    os.read(told, 1)
os.write(1, b"ready")
if "leave" in sys.argv:
    os._exit(3)
linger()
"""

# A node of its own: one server, then its process ids; it may leave a forked copy of itself.
NODE = """
import asyncio, json, os, signal, sys
from bascule.node.pool.process.plain import PlainSpawner
from bascule.node.pool.process.spawn import Launch
from bascule.node.pool.process.warden import Warden

async def main(kind, argv, fork):
    isolate = {"isolated": True, "shared": False}.get(kind)
    spawner = PlainSpawner() if kind == "plain" else Warden(isolate_pids=isolate)
    server = await spawner.spawn(Launch(tuple(argv), {}))
    os.set_blocking(server.stdout_fd, True)
    os.read(server.stdout_fd, 5)
    copy = os.fork() if fork else 0
    if fork and not copy:
        signal.pause()
    facts = {"server": server.pid, "copy": copy, "warden": getattr(spawner, "pid", None)}
    print(json.dumps(facts | {"isolated": getattr(spawner, "isolated", False)}), flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), len(sys.argv) > 3))
"""


def stubborn(*flags: str) -> tuple[str, tuple[str, ...]]:
    """Return a word that all its processes have in their command lines, and the command."""
    word = secrets.token_hex(8)
    return word, (sys.executable, "-I", "-S", "-c", STUBBORN, word, *flags)


def open_files() -> int:
    """Return how many descriptors this process holds."""
    return psutil.Process().num_fds()


async def read(descriptor: int) -> bytes:
    """Return all that a pipe gives until its end, or its first words if these are `ready`."""
    got = b""
    ready = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, ready.set)
    try:
        async with asyncio.timeout(SOON_SECONDS):
            while got != b"ready":
                await ready.wait()
                ready.clear()
                with contextlib.suppress(BlockingIOError):
                    if not (part := os.read(descriptor, 65536)):
                        break
                    got += part
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
    return got


def release(server: ServerProcess) -> None:
    """Close our ends of a server's pipes."""
    for descriptor in (server.stdin_fd, server.stdout_fd, server.stderr_fd):
        os.close(descriptor)


async def output(spawner: Spawner, *argv: str, env: dict[str, str] = PATH, cwd: str = "/") -> str:
    """Return what a short-lived server writes."""
    said, _ = await life(spawner, Launch(argv, env, cwd))
    return said


async def life(spawner: Spawner, launch: Launch) -> tuple[str, int]:
    """Return what a short-lived server writes, and how it ended."""
    server = await spawner.spawn(launch)
    try:
        return os.fsdecode(await read(server.stdout_fd)), await server.wait()
    finally:
        await server.end()
        release(server)


@contextlib.asynccontextmanager
async def running(spawner: Spawner, argv: Sequence[str]) -> AsyncGenerator[ServerProcess, None]:
    """Run a server that says `ready`."""
    server = await spawner.spawn(Launch(tuple(argv), PATH))
    try:
        assert await read(server.stdout_fd) == b"ready"
        yield server
    finally:
        release(server)


@pytest.fixture(params=list(SPAWNERS))
async def spawner(request: pytest.FixtureRequest) -> AsyncIterator[Spawner]:
    spawner = SPAWNERS[request.param]()
    try:
        yield spawner
    finally:
        await spawner.close()


@pytest.fixture(params=["isolated", "shared"])
async def warden(request: pytest.FixtureRequest) -> AsyncIterator[Warden]:
    warden = Warden(isolate_pids=request.param == "isolated")
    try:
        yield warden
    finally:
        await warden.close()


@contextlib.contextmanager
def node(
    kind: str, argv: Sequence[str], *flags: str, under: Sequence[str] = ()
) -> Generator[tuple[subprocess.Popen[str], dict[str, Any]], None, None]:
    """Run a node in a process of its own; yield it and what it says of itself."""
    words = [*under, sys.executable, "-c", NODE, kind, json.dumps(argv), *flags]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


# Starting


async def test_a_server_gets_pipes_never_sockets(spawner: Spawner):
    server = await spawner.spawn(Launch(("cat", "/dev/stdin"), PATH))
    for descriptor in (server.stdin_fd, server.stdout_fd, server.stderr_fd):
        assert stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        assert not os.get_blocking(descriptor)
        assert not os.get_inheritable(descriptor)
    os.write(server.stdin_fd, b"ready")
    assert await read(server.stdout_fd) == b"ready"
    await server.end()
    release(server)


@pytest.mark.requirement("process:cwd")
async def test_a_server_gets_its_environment_and_directory_exactly(
    spawner: Spawner, tmp_path: Path
):
    env = {"PATH": "/usr/bin:/bin", "LOG": "wärn", "EMPTY": "", "RAW": "\udcff"}
    lines = (await output(spawner, "env", "-0", env=env)).split("\0")
    got = dict(line.split("=", 1) for line in lines if line)
    assert got.pop(MARKER)
    assert got == env
    assert await output(spawner, "pwd", cwd=str(tmp_path)) == f"{tmp_path}\n"


async def test_a_server_inherits_no_descriptor_and_no_signal_setting(spawner: Spawner):
    inherited = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        script = "import os; print(sorted(os.listdir('/proc/self/fd')))"
        seen = await output(spawner, sys.executable, "-I", "-S", "-c", script)
        status = await output(spawner, "cat", "/proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(inherited)
    assert seen == "['0', '1', '2', '3']\n"  # the last one is the listing's own
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(facts["SigBlk"], 16) == 0
    assert int(facts["SigIgn"], 16) & ~(0b11 << 31) == 0  # 32 and 33 belong to the C library


async def test_the_exit_status_is_reported(spawner: Spawner):
    for script, status in (("exit 7", 7), ("kill -9 $$", -9), ("exit 0", 0)):
        server = await spawner.spawn(Launch(("sh", "-c", script), PATH))
        async with asyncio.timeout(SOON_SECONDS):
            assert await server.wait() == status
            assert await server.wait() == status
        await server.end()
        release(server)


async def test_what_does_not_start_is_named(spawner: Spawner, tmp_path: Path):
    plain_file = tmp_path / "tool"
    plain_file.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    search = {"PATH": f"/nowhere:{tmp_path}"}
    cases = [
        (Launch(("absent-tool",), search), "'absent-tool'.*/nowhere"),
        (Launch(("tool",), search), f"permission denied.*{plain_file}"),
        (Launch((str(plain_file),), PATH), f"permission denied.*{plain_file}"),
        (Launch(("/no/such/tool",), PATH), "not found.*/no/such/tool"),
        (Launch(("cat",), PATH, "/no/such/folder"), "working directory '/no/such/folder'"),
        (Launch(("cat",), PATH, str(plain_file)), "working directory"),
        (Launch(("cat", "a\0b"), PATH), "null"),
        (Launch(("cat",), {**PATH, "A=B": "c"}), "illegal environment"),
        (Launch((), PATH), "no command"),
    ]
    for launch, message in cases:
        with pytest.raises(ServerUnavailable, match=message):
            await spawner.spawn(launch)
    plain_file.chmod(0o755)
    with pytest.raises(ServerUnavailable, match="interpreter in its first line"):
        await spawner.spawn(Launch(("tool",), search))


async def test_many_commands_that_do_not_start_cost_no_descriptor(spawner: Spawner):
    absent = (Launch(("/no/such/tool",), PATH), Launch(("absent-tool",), PATH))
    assert await output(spawner, "echo", "first") == "first\n"
    before = open_files()
    for number in range(50):
        with pytest.raises(ServerUnavailable):
            await spawner.spawn(absent[number % 2])
    assert open_files() == before


async def test_many_servers_cost_no_descriptor_and_leave_no_zombie(spawner: Spawner):
    assert await output(spawner, "echo", "first") == "first\n"
    before = open_files()
    for _ in range(scaled(2000)):
        server = await spawner.spawn(Launch(("cat",), PATH))
        await server.end()
        release(server)
    assert open_files() == before
    children = psutil.Process().children(recursive=True)
    assert [each for each in children if each.status() == psutil.STATUS_ZOMBIE] == []


async def test_a_cancelled_spawn_leaves_no_server_and_no_descriptor(warden: Warden):
    word, argv = stubborn()
    assert await output(warden, "echo", "first") == "first\n"
    before = open_files()
    for _ in range(5):
        spawning = asyncio.create_task(warden.spawn(Launch(argv, PATH)))
        await SYSTEM_CLOCK.sleep(0)
        spawning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await spawning
    await vanished(word)
    assert open_files() == before


async def test_an_environment_larger_than_the_socket_arrives_whole(warden: Warden):
    env = PATH | {f"V{number}": "x" * 100_000 for number in range(8)}
    servers = await asyncio.gather(
        *(warden.spawn(Launch(("sh", "-c", "echo ${#V7}"), env)) for _ in range(5))
    )
    for server in servers:
        assert await read(server.stdout_fd) == b"100000\n"
        await server.end()
        release(server)


# Ending


async def test_the_end_of_a_server_takes_its_whole_stubborn_tree(spawner: Spawner):
    word, argv = stubborn()
    async with running(spawner, argv) as server:
        assert len(traces(word)) == 3
        async with asyncio.timeout(20):
            await asyncio.gather(server.end(), server.end())
            assert traces(word) == []
            assert await server.wait() == -signal.SIGKILL
            await server.end()


async def test_a_polite_server_may_finish_its_work(spawner: Spawner):
    script = "trap 'echo bye; exit 4' TERM; printf ready; while :; do sleep 0.01; done"
    async with running(spawner, ("sh", "-c", script)) as server:
        await server.end(grace=5.0)
        assert await server.wait() == 4
        assert await read(server.stdout_fd) == b"bye\n"


async def test_the_end_of_one_server_leaves_its_neighbour_alone(spawner: Spawner):
    word, argv = stubborn()
    neighbour = await spawner.spawn(Launch(("cat",), PATH))
    async with running(spawner, argv) as server:
        await server.end()
    await vanished(word)
    os.write(neighbour.stdin_fd, b"ready")
    assert await read(neighbour.stdout_fd) == b"ready"
    release(neighbour)


async def test_what_a_server_left_behind_ends_with_it(spawner: Spawner):
    word, argv = stubborn("leave")
    async with running(spawner, argv) as server:
        assert await server.wait() == 3
        assert len(traces(word)) == 2
        await server.end()
    assert traces(word) == []


async def test_a_detached_process_without_environment_ends_with_the_last_server(warden: Warden):
    word, argv = stubborn("scrub")
    async with running(warden, argv) as server:
        assert len(traces(word)) == 4
        await server.end()
    assert traces(word) == []


async def test_close_ends_every_server_and_refuses_more(spawner: Spawner):
    word, argv = stubborn()
    servers = [await spawner.spawn(Launch(argv, PATH)) for _ in range(3)]
    for server in servers:
        assert await read(server.stdout_fd) == b"ready"
    helper = owner_of(servers[0].pid)
    async with asyncio.timeout(20):
        await spawner.close()
        await spawner.close()
    assert traces(word, helper) == []
    with pytest.raises(ServerUnavailable, match="closing"):
        await spawner.spawn(Launch(("cat",), PATH))
    for server in servers:
        release(server)


# Kills


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", list(SPAWNERS))
async def test_a_killed_node_leaves_nobody(kind: str):
    for _ in range(scaled(200)):
        word, argv = stubborn()
        with node(kind, argv) as (process, facts):
            helper = owner_of(facts["server"])
            assert len(traces(word)) == 4  # the node itself has the command in its own
            os.killpg(process.pid, signal.SIGKILL)  # with all that is still in its group
            process.wait()
            await vanished(word, helper)


@pytest.mark.parametrize("kind", list(SPAWNERS))
async def test_a_killed_node_leaves_no_server_that_cleared_its_environment(kind: str):
    word = secrets.token_hex(8)
    script = "import os, signal; os.write(1, b'ready'); signal.pause()"
    with node(kind, ("env", "-i", sys.executable, "-I", "-S", "-c", script, word)) as (process, _):
        assert len(traces(word)) == 2
        process.kill()
        process.wait()
        await vanished(word)


@pytest.mark.parametrize("kind", ["isolated", "shared"])
async def test_a_killed_node_leaves_nobody_even_if_a_fork_holds_its_sockets(kind: str):
    word, argv = stubborn("scrub")
    with node(kind, argv, "fork") as (process, facts):
        helper = owner_of(facts["server"])
        process.kill()
        process.wait()
        try:
            await vanished(word, helper, but=[facts["copy"]])
            assert traces(word, helper) == [facts["copy"]]
        finally:
            os.kill(facts["copy"], signal.SIGKILL)


async def test_a_killed_warden_leaves_nobody_and_is_replaced(warden: Warden):
    for _ in range(scaled(50)):
        word, argv = stubborn()
        async with running(warden, argv) as server:
            assert warden.pid is not None
            os.kill(warden.pid, signal.SIGKILL)
            async with asyncio.timeout(20):
                assert await server.wait() == -signal.SIGKILL
                await server.end()
            assert traces(word) == []
    assert await output(warden, "echo", "again") == "again\n"


async def test_a_spawn_at_the_moment_of_the_wardens_death_fails_works_or_ends_with_it(
    warden: Warden,
):
    before = 0
    for _ in range(3):
        assert await output(warden, "echo", "first") == "first\n"
        before = before or open_files()
        assert warden.pid is not None
        os.kill(warden.pid, signal.SIGKILL)
        with contextlib.suppress(ServerUnavailable):
            said, status = await life(warden, Launch(("echo", "second"), PATH, "/"))
            assert said == "second\n" or status == -signal.SIGKILL
    assert await output(warden, "echo", "third") == "third\n"
    assert open_files() == before


async def test_a_wedged_warden_does_not_keep_a_server_alive(warden: Warden):
    word, argv = stubborn()
    async with running(warden, argv) as server:
        helper = owner_of(server.pid)
        for pid in traces(helper):
            os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(20):
            await server.end()
            assert traces(word) == []
            await warden.close()
        assert traces(helper) == []


async def test_where_no_warden_can_start_servers_are_kept_in_groups(
    caplog: pytest.LogCaptureFixture,
):
    warden = Warden()
    warden._modes = ()  # as after every way has been tried
    word, argv = stubborn()
    async with running(warden, argv):
        assert warden.pid is None
        assert "process groups only" in caplog.text
        await warden.close()
    assert traces(word) == []


async def test_two_wardens_in_one_process_do_not_touch_each_other(warden: Warden):
    other = Warden(isolate_pids=False)
    survivor = await other.spawn(Launch(("cat",), PATH))
    await warden.spawn(Launch(("cat",), PATH))
    assert warden.pid is not None
    os.kill(warden.pid, signal.SIGKILL)
    await warden.close()
    os.write(survivor.stdin_fd, b"ready")
    assert await read(survivor.stdout_fd) == b"ready"
    await other.close()
    release(survivor)


async def test_node_and_warden_killed_at_once_leave_nobody_in_a_namespace():
    for _ in range(scaled(50)):
        word, argv = stubborn("scrub")
        with node("isolated", argv) as (process, facts):
            if not facts["isolated"]:
                pytest.skip("this machine gives no PID namespace")
            helpers = traces(owner_of(facts["server"]))
            assert len(helpers) == 2  # the namespace's first process and its parent
            for pid in (process.pid, *helpers):
                with contextlib.suppress(ProcessLookupError):  # it may have died of the one before
                    os.kill(pid, signal.SIGKILL)
            process.wait()
            await vanished(word)


async def test_without_privileges_a_namespace_comes_only_when_asked_for():
    setpriv = shutil.which("setpriv")
    if os.getuid() != 0 or setpriv is None:
        pytest.skip("needs root and setpriv, to give privileges up")
    under = (setpriv, "--bounding-set", "-sys_admin")
    for kind, isolated in (("auto", False), ("isolated", True)):
        word, argv = stubborn()
        with node(kind, argv, under=under) as (process, facts):
            assert facts["isolated"] is isolated
            process.kill()
            await vanished(word)


# On the other event loop, and on the wire


def test_all_of_it_works_on_uvloop():
    async def scenario() -> None:
        for make in SPAWNERS.values():
            spawner = make()
            word, argv = stubborn()
            async with running(spawner, argv) as server:
                await server.end()
                assert await server.wait() == -signal.SIGKILL
            assert traces(word) == []
            assert await output(spawner, "echo", "again") == "again\n"
            await spawner.close()

    uvloop.run(scenario())


def test_frames_survive_any_cut():
    messages = [{"op": "spawn", "env": {"A": "\udcff", "B": "ü"}}, {"op": "end", "grace": 0.3}]
    stream = b"".join(pack(message) for message in messages)
    frames = Frames()
    assert [each for at in range(len(stream)) for each in frames.feed(stream[at : at + 1])] == (
        messages
    )
    assert Frames().feed(stream) == messages
    with pytest.raises(ValueError, match="bytes"):
        Frames().feed(b"\xff\xff\xff\xff")


def test_marks_of_a_node_within_a_server_are_a_path(monkeypatch: pytest.MonkeyPatch):
    outer = Owner()
    monkeypatch.setenv(MARKER, outer.mark(1))
    inner = Owner()
    path = inner.environment(Launch(("cat",), {}), inner.mark(2))[MARKER].split("/")
    assert path == [outer.mark(1), inner.mark(2)]
    assert outer.owns(path)
    assert inner.owns(path)
    assert not Owner().owns(path)
