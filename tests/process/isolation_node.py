"""A node that has a probe try everything at a level of isolation; prints what worked as JSON.

Run as a program, so that it can be somebody else's: with ``--as UID`` it gives root up first, and
takes what Python needs along where the way there is closed to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

Observes = Callable[[Any, "Around", Any], Awaitable[dict[str, Any]]]

REPOSITORY = Path(__file__).parents[2]
PROBE = Path(__file__).with_name("isolation_probe.py")
#: The system's, which every user may start: the one that runs this may be in somebody's HOME.
_SYSTEMS = Path("/usr/bin/python3")
PYTHON = str(_SYSTEMS if _SYSTEMS.exists() else Path(sys.executable).resolve())
#: Judged from outside: of these the probe cannot tell whether they worked.
IN_TMP = "leave a file in the machine's /tmp"
OUTLIVES = "outlive the server"
MEMORY_MB, PROCESSES, HOME_MB, FILL_MB = 256, 64, 32, 80
GIVE_UP_SECONDS = 20
#: The variable by which a folder is granted that only root may write: a server stays root for it.
KEEP_ROOT = "ISOLATION_KEEP_ROOT"
_CLONE_NEWNS, _MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = 0x20000, 1 << 12, 1 << 13, 1 << 14, 1 << 18


class Around:
    """The world around a server: secrets, processes, sockets, memory."""

    def __init__(self, folder: Path) -> None:
        self.word = secrets.token_hex(8)
        self.folder = folder
        folder.chmod(0o711)
        for name in (
            "data",
            "granted/inner",
            "outside",
            "other",
            "profile",
            "home",
            "tmp",
            "sockets",
        ):
            (folder / name).mkdir(parents=True)
        for name in ("data/key", "token", "granted/inner/token", "other/file", "profile/logins"):
            (folder / name).write_text("secret", encoding="ascii")
        self.probe = folder / "granted/probe.py"
        shutil.copy(PROBE, self.probe)
        # A process like the node: of the same user, with a secret in its environment.
        self.victim = subprocess.Popen(
            [self.word, "1000"], executable="/bin/sleep", env={"SECRET": self.word}
        )
        self.shared = int(self.word[:6], 16) + 1
        self.memory = ctypes.CDLL(None).shmget(self.shared, 4096, 0o1666)

    def seen_from_inside(self) -> dict[str, Any]:
        """Return what the probe is told."""
        at = {name: str(self.folder / path) for name, path in _PATHS.items()}
        address = Path(f"/proc/{self.victim.pid}/maps").read_text(encoding="utf-8").split("-")[0]
        limits = {"processes": PROCESSES + 16, "memory_mb": MEMORY_MB + 64}
        return {
            **at, **limits, "word": self.word, "victim": self.victim.pid, "shared": self.shared,
            "address": int(address, 16), "fill_mb": FILL_MB,
        }  # fmt: skip

    def close(self) -> None:
        ctypes.CDLL(None).shmctl(self.memory, 0, None)
        self.victim.kill()
        self.victim.wait()


_PATHS = {
    "key": "data/key", "token": "token", "inner_token": "granted/inner/token",
    "other_home": "other", "profile": "profile/logins", "granted": "granted",
    "outside": "outside", "bus": "sockets/bus", "docker": "sockets/docker",
}  # fmt: skip


@contextlib.asynccontextmanager
async def listeners(around: Around) -> AsyncGenerator[dict[str, int]]:
    """Answer on every kind of socket that a server might reach."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    tcp = await asyncio.start_server(greet, "127.0.0.1", 0)
    local = [
        await asyncio.start_unix_server(greet, path)
        for path in (
            "\0" + around.word,
            str(around.folder / "sockets/bus"),
            str(around.folder / "sockets/docker"),
        )
    ]
    for name in ("bus", "docker"):
        (around.folder / "sockets" / name).chmod(0o777)
    loop = asyncio.get_running_loop()
    udp, _ = await loop.create_datagram_endpoint(_Echo, ("127.0.0.1", 0))
    try:
        port = udp.get_extra_info("sockname")[1]
        yield {"tcp": tcp.sockets[0].getsockname()[1], "udp": port}
    finally:
        udp.close()
        for server in (tcp, *local):
            server.close()


class _Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._transport.sendto(data, addr)


async def probe(level: str, setuid: str, *, fills: list[str]) -> dict[str, Any]:
    """Return what a probe did at a level: its attempts, or how each way to fill the disk ended."""
    if not fills:
        return await _probed(level, setuid, _heard)
    return {way: await _probed(level, setuid, _filled, way) for way in fills}


async def _probed(level: str, setuid: str, observe: Observes, fill: str = "") -> dict[str, Any]:
    from bascule.node.pool.process.spawn import Launch
    from bascule.node.pool.process.warden import Warden

    with tempfile.TemporaryDirectory(prefix="isolation-", dir="/var/tmp") as name:
        around = Around(Path(name))
        clock = looks_clock()
        # What a namespace of the warden's gives is extra.
        warden = Warden(clock=clock, isolate_pids=False)
        try:
            async with listeners(around) as ports:
                world = around.seen_from_inside() | ports | {"fill": fill, "setuid": setuid}
                confinement = _confinement(level, around, setuid)
                home, temporary = confinement.own
                server = await warden.spawn(
                    Launch(
                        (PYTHON, "-I", "-S", str(around.probe), json.dumps(world)),
                        {"HOME": home, "TMPDIR": temporary, "PATH": os.defpath},
                        None,
                        confinement,
                    )
                )
                found = await observe(server, around, clock)
                if server.standing is not None:
                    found["standing"] = [server.standing.in_force, server.standing.why]
                return found
        finally:
            await warden.close()
            around.close()


def _confinement(level: str, around: Around, setuid: str) -> Any:
    import msgspec

    from bascule.model.sandbox import Level, Sandbox
    from bascule.node.pool.process.plan import Confinement

    sandbox = Sandbox(
        level=msgspec.convert(level, Level),
        required=level != "none",
        network="none" if level != "none" else "full",
        read=(str(around.folder / "granted"), setuid),
        write=(),
        memory_mb=MEMORY_MB,
        processes=PROCESSES,
        home_mb=HOME_MB,
        open_files=256,
    )
    if os.geteuid() == 0 and os.environ.get(KEEP_ROOT):
        sandbox = msgspec.structs.replace(sandbox, write=(str(around.folder / "outside"),))
    never = tuple(str(around.folder / _PATHS[each]) for each in ("key", "inner_token"))
    own = str(around.folder / "home"), str(around.folder / "tmp")
    return Confinement(sandbox, own, never, str(around.folder))


def looks_clock() -> Any:
    """Return a clock on which nobody looks after servers unless it is moved; else it is real."""
    from bascule.clock import SYSTEM_CLOCK
    from bascule.node.pool.process.watch import PERIOD
    from bascule.testing.clock import FakeClock

    class LooksClock(FakeClock):
        async def sleep(self, seconds: float) -> None:
            looks = seconds == PERIOD
            await (super().sleep(seconds) if looks else SYSTEM_CLOCK.sleep(seconds))

    return LooksClock()


async def _heard(server: Any, around: Around, _clock: Any) -> dict[str, Any]:
    line = await _line(server.stdout_fd, server.stderr_fd)
    found: dict[str, Any] = {"attempts": json.loads(line)}
    if not _taken_away(Path("/tmp", around.word)):
        found["attempts"][IN_TMP] = found["attempts"][IN_TMP] or "it is in a /tmp of its own"
    await server.end()
    survivors = list(_running(f"left-{around.word}"))
    if not survivors:
        found["attempts"][OUTLIVES] = found["attempts"][OUTLIVES] or "it was ended with the server"
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    return found


def _taken_away(file: Path) -> bool:
    """Remove a file; say whether it was there."""
    was_there = file.exists()
    file.unlink(missing_ok=True)
    return was_there


async def _filled(server: Any, around: Around, clock: Any) -> dict[str, Any]:
    """Return after how many seconds, as looks count them, a server was ended that fills its HOME.

    Others free as much of the disk as it takes, so that the disk as a whole tells nothing.
    """
    ballast = around.folder / "ballast"
    ballast.write_bytes(bytes(FILL_MB << 20))
    await _looked(server, clock)
    os.write(server.stdin_fd, b"\n")
    await _line(server.stdout_fd, server.stderr_fd)
    ballast.unlink()
    began = clock.monotonic()
    while not server.excess and clock.monotonic() - began < GIVE_UP_SECONDS:
        await _looked(server, clock)
    status = await server.wait() if server.excess else None
    return {"status": status, "excess": server.excess, "seconds": clock.monotonic() - began}


async def _looked(server: Any, clock: Any) -> None:
    """Have one second pass, and the servers looked at if anybody does."""
    await clock.advance(1.0)
    if server.standing is not None:  # somebody does, until it is over
        async with asyncio.timeout(60):
            await _first_of(server.wait(), clock.asleep())


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    tasks = {asyncio.ensure_future(wait) for wait in waits}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _line(descriptor: int, errors: int) -> bytes:
    got = b""
    async with asyncio.timeout(90):
        while b"\n" not in got:
            ready = asyncio.Event()
            asyncio.get_running_loop().add_reader(descriptor, ready.set)
            await ready.wait()
            asyncio.get_running_loop().remove_reader(descriptor)
            part = os.read(descriptor, 65536)
            if not part:
                raise RuntimeError(f"the probe ended: {os.read(errors, 4096).decode()}")
            got += part
    return got


def _running(word: str) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if word.encode() in (entry / "cmdline").read_bytes():
                    yield int(entry.name)


# Being somebody else.


def become(uid: int) -> None:
    """Give root up for a user, who can still read Python and the repository."""
    libc = ctypes.CDLL(None, use_errno=True)
    needed = [Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), REPOSITORY.resolve()]
    closed = {folder for path in needed if (folder := _closed(path))}
    if closed:
        _must(libc.unshare(_CLONE_NEWNS))
        _must(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
    for folder in closed:
        _open_up(libc, folder, [path for path in needed if path.is_relative_to(folder)])
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _closed(path: Path) -> Path | None:
    """Return the first folder on the way that others may not enter."""
    folders = [*reversed(path.parents), path]
    return next((folder for folder in folders if not folder.stat().st_mode & 1), None)


def _open_up(libc: Any, folder: Path, kept: list[Path]) -> None:
    """Put an empty folder in the place of a closed one, with what is needed in it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        held = [Path(name, str(at)) for at in range(len(kept))]
        for path, place in zip(kept, held, strict=True):
            place.mkdir()
            _must(libc.mount(os.fsencode(path), os.fsencode(place), None, _MS_BIND | _MS_REC, None))
        _must(libc.mount(b"none", os.fsencode(folder), b"tmpfs", 0, b"mode=755"))
        for path, place in zip(kept, held, strict=True):
            path.mkdir(parents=True, exist_ok=True)
            _must(libc.mount(os.fsencode(place), os.fsencode(path), None, _MS_MOVE, None))


def _must(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main() -> None:
    """Probe one level, as this user or as another."""
    level, fills, uid = sys.argv[1:4]
    with tempfile.TemporaryDirectory(prefix="isolation-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        setuid = Path(shutil.copy(shutil.which("id") or "", Path(name, "id")))
        setuid.chmod(0o4755)
        child = os.fork()
        if child == 0:
            if uid:
                become(int(uid))
            os.environ["HOME"] = "/"
            words = [sys.executable, __file__, level, fills, str(setuid)]
            os.execv(sys.executable, [*words, "inside"])  # noqa: S606 -- this program again
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    if sys.argv[-1] == "inside":
        result = asyncio.run(probe(sys.argv[1], sys.argv[3], fills=json.loads(sys.argv[2])))
        sys.stdout.write(json.dumps(result))
    else:
        main()
