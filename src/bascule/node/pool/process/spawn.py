"""Starting stdio servers: the contract, and what both ways of doing it share."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from bascule.clock import Clock
from bascule.errors import ServerUnavailable
from bascule.model.launcher import comes_with
from bascule.model.sandbox import InForce, Standing
from bascule.model.shell_line import inner_programs
from bascule.node.pool.process import warden_process
from bascule.node.pool.process.plan import Confinement
from bascule.node.pool.process.warden_process import MARKER, QUIET_WALKS, Process

GRACE = 0.3  # seconds between the request to stop and the kill
#: Variables of the node that its own helper may have: an outer mark, and where libraries are.
_HELPERS_OWN = (MARKER, "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
SEE_OUT = 0.2  # how long a process that should be ending is waited for before it is killed


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start. ``env`` is complete: only the marker is added to it."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: str | None = None
    confinement: Confinement | None = None


class NotConfined(ServerUnavailable):
    """A step of a confinement did not work; ``stage`` names it."""

    def __init__(self, message: str, stage: str) -> None:
        super().__init__(message, reason="launch_denied")
        self.stage = stage


class ServerProcess(Protocol):
    """A started server. Its three pipe ends are non-blocking and the caller's to close."""

    @property
    def pid(self) -> int:
        """The process, as the node's side of the machine numbers it."""
        ...

    @property
    def stdin_fd(self) -> int:
        """Where to write what the server reads."""
        ...

    @property
    def stdout_fd(self) -> int:
        """Where to read what the server answers."""
        ...

    @property
    def stderr_fd(self) -> int:
        """Where to read what the server complains about."""
        ...

    @property
    def standing(self) -> Standing | None:
        """How it is confined; None for one that was not to be."""
        ...

    @property
    def excess(self) -> str:
        """What it was ended for, if it used more than it may; "" otherwise."""
        ...

    async def wait(self) -> int:
        """Return the exit status; negative, the signal that ended it."""
        ...

    async def end(self, grace: float = GRACE) -> None:
        """Ask the whole tree to stop, then kill it, detached descendants included.

        Needed after an exit as well: a server may leave others behind. Any number of times.
        """
        ...


class Spawner(Protocol):
    """Starts servers, and ends them all when it is closed."""

    async def spawn(self, launch: Launch) -> ServerProcess:
        """Start a server, or raise ``ServerUnavailable`` with what to mend."""
        ...

    async def close(self) -> None:
        """End every server within a second."""
        ...


@runtime_checkable
class TriesLevels(Protocol):
    """A spawner that confines servers, and finds out how well it can."""

    @property
    def levels(self) -> tuple[InForce, ...]:
        """The levels that can be asked about, best first."""
        ...

    async def why_not(self, level: InForce) -> str:
        """Say why a level of isolation does not work here, having tried it; "" if it does."""
        ...


class Owner:
    """Who started a process: the marks that one spawner puts into its servers' environments.

    A mark is inherited, so it finds the processes that detached themselves. In a node that is
    itself somebody's server, marks are a path: the outer server's end finds the inner ones too.
    """

    def __init__(self) -> None:
        self.prefix = secrets.token_hex(8) + "."
        self._outer = os.environ.get(MARKER)

    def mark(self, number: int) -> str:
        """Return the mark of one server."""
        return f"{self.prefix}{number}"

    def environment(self, launch: Launch, mark: str) -> dict[str, str]:
        """Return the server's environment: what was asked for, and the mark."""
        return {**launch.env, MARKER: f"{self._outer}/{mark}" if self._outer else mark}

    def owns(self, path: list[str]) -> bool:
        """Say whether marks found on a process are of this spawner."""
        return any(mark.startswith(self.prefix) for mark in path)


class Pipes:
    """Three pipes: our ends for the node, theirs for the server."""

    def __init__(self) -> None:
        self.theirs: tuple[int, ...] = ()
        self.stdin_fd = self.stdout_fd = self.stderr_fd = -1
        opened: list[int] = []
        try:
            for _ in range(3):
                opened += os.pipe()
        except OSError as fault:
            close_all(opened)
            raise ServerUnavailable(f"no pipes for the server: {fault.strerror}") from fault
        stdin, self.stdin_fd, self.stdout_fd, stdout, self.stderr_fd, stderr = opened
        self.theirs = (stdin, stdout, stderr)
        for ours in self.ours:
            os.set_blocking(ours, False)

    @property
    def ours(self) -> tuple[int, int, int]:
        """The node's ends: standard input, output, error."""
        return self.stdin_fd, self.stdout_fd, self.stderr_fd

    def close_theirs(self) -> None:
        """Close the server's ends, once they have been passed on."""
        close_all(self.theirs)
        self.theirs = ()

    def close(self) -> None:
        """Close everything: there will be no server."""
        self.close_theirs()
        close_all(self.ours)


def close_all(files: Collection[int]) -> None:
    """Close descriptors."""
    for file in files:
        os.close(file)


def working_directory(launch: Launch) -> str:
    """Return where the server starts, absolute; without one, where the node stands."""
    if not launch.argv:
        raise ServerUnavailable("the server has no command")
    try:
        return str(Path.cwd() / (launch.cwd or ""))
    except OSError as fault:
        raise ServerUnavailable("the node's own working directory is gone") from fault


def locate(command: str, env: Mapping[str, str], cwd: str) -> str:
    """Return the program that ``command`` names, searched on the server's own PATH."""
    if "/" in command:
        return str(Path(cwd) / command)
    path = env.get("PATH", os.defpath)
    found = [Path(cwd) / folder / command for folder in path.split(os.pathsep)]
    found = [candidate for candidate in found if _is_file(candidate)]
    for candidate in found:
        if os.access(candidate, os.X_OK):
            return str(candidate)
    if found:
        raise ServerUnavailable(f"permission denied: {str(found[0])!r} is not executable")
    package = comes_with(command)
    hint = f"; it comes with {package}" if package else ""
    raise ServerUnavailable(f"command not found: {command!r}{hint}; the PATH searched is {path!r}")


def started_programs(launch: Launch, program: str, cwd: str) -> tuple[str, ...]:
    """Return what a launch starts: its program, and those that its command line names behind it."""
    found = [program]
    for command in inner_programs(launch.argv):
        with contextlib.suppress(ServerUnavailable):  # what is not there, the shell will say
            found.append(locate(command, launch.env, cwd))
    return tuple(each for each in found if each is program or _is_file(Path(each)))


def _is_file(path: Path) -> bool:
    """Say whether there is such a file; folders that may not be entered have none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def refusal(fault: tuple[int, str], program: str, cwd: str) -> ServerUnavailable:
    """Return the error for a program that did not start, in words that name what to mend."""
    if not Path(cwd).is_dir():
        return ServerUnavailable(f"working directory {cwd!r} does not exist or is no directory")
    if not os.access(cwd, os.X_OK):
        return ServerUnavailable(f"permission denied: working directory {cwd!r}")
    number, text = fault
    reasons = {
        errno.EACCES: f"permission denied: {program!r} is not executable",
        errno.ENOENT: f"command not found: {program!r}, or the interpreter in its first line",
        errno.ENOEXEC: f"{program!r} is no program for this machine, nor a script with a #! line",
    }
    return ServerUnavailable(reasons.get(number, f"{program!r} cannot be started: {text}"))


def start_helper(mode: str, owner: Owner, stdin: int) -> subprocess.Popen[bytes]:
    """Start ``warden_process`` from its compiled form, in a session of its own.

    Of the node's variables it gets none but what it cannot do without: servers can read them.
    """
    boot = (
        "import sys; sys.path.append(sys.argv[1]); from process.warden_process import main; main()"
    )
    home = str(Path(warden_process.__file__).parents[1])
    return subprocess.Popen(  # noqa: S603 -- our own interpreter and our own file
        [sys.executable, "-I", "-S", "-X", "utf8", "-c", boot, home, mode, owner.prefix],
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={name: os.environ[name] for name in _HELPERS_OWN if name in os.environ},
    )


async def exited(process: subprocess.Popen[bytes], clock: Clock) -> int:
    """Wait for a child without a thread: by pidfd, or by looking where there is none."""
    if process.poll() is None:
        try:
            descriptor = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            while process.poll() is None:
                await clock.sleep(0.01)
        else:
            await _readable(descriptor)
    return process.wait()


async def seen_out(process: subprocess.Popen[bytes], clock: Clock) -> None:
    """Wait for a child that is on its way out; kill it when it dawdles."""
    try:
        async with asyncio.timeout(SEE_OUT):
            await exited(process, clock)
    except TimeoutError:
        process.kill()
        await exited(process, clock)


async def _readable(descriptor: int) -> None:
    """Wait until a descriptor can be read, and close it."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def hunt(
    belongs: Callable[[list[str]], bool], clock: Clock, *, own: Collection[int] = (), limit: float
) -> None:
    """Kill every process whose marks belong, until two walks of /proc in a row find none.

    ``own`` are children that somebody else waits for. The rest is reaped by pid where orphans
    come to this process, as they do when a node is the first process of a container.
    """
    until = clock.monotonic() + limit
    killed: set[int] = set()
    quiet = 0
    while quiet < QUIET_WALKS and clock.monotonic() < until:
        table = warden_process.processes()
        _reap(table, killed.difference(own))
        found = warden_process.marked(table, belongs)
        warden_process.strike(found, signal.SIGKILL)
        killed |= found
        quiet = 0 if found else quiet + 1
        await clock.sleep(0.002)


def _reap(table: Mapping[int, Process], killed: Collection[int]) -> None:
    """Take the statuses of those that have become zombies of this very process."""
    for pid in killed:
        if pid in table and table[pid].parent == os.getpid() and not table[pid].alive:
            os.waitpid(pid, os.WNOHANG)
