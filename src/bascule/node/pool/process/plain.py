"""Servers as ordinary children in process groups: macOS, and where no warden can start.

A small watcher process kills the groups when the node dies. What detaches itself from its group
is found by its mark where there is a /proc, and is out of reach where there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import os
import signal
import subprocess
import sys
from dataclasses import replace

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import ServerUnavailable
from bascule.model.sandbox import InForce, Standing
from bascule.node.pool.process.confinement import seatbelt
from bascule.node.pool.process.plain_levels import PlainLevels
from bascule.node.pool.process.spawn import (
    GRACE,
    Launch,
    Owner,
    Pipes,
    ServerProcess,
    exited,
    hunt,
    locate,
    refusal,
    seen_out,
    start_helper,
    working_directory,
)
from bascule.node.pool.process.warden_process import failure


class PlainSpawner:
    """Starts servers as children of this process."""

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM_CLOCK,
        platform: str = sys.platform,
        sandbox_exec: str = seatbelt.PROGRAM,
    ) -> None:
        self.clock = clock
        self._levels = PlainLevels(self._spawn, platform, sandbox_exec)
        self._owner = Owner()
        self._numbers = itertools.count(1)
        self._servers: set[_PlainServer] = set()
        self._watcher: subprocess.Popen[bytes] | None = None
        self._watch_pipe: io.RawIOBase | io.BytesIO = io.BytesIO()
        self._closed = False

    async def spawn(self, launch: Launch) -> ServerProcess:
        """Start a server in a session of its own."""
        cwd = working_directory(launch)
        standing = None
        if launch.confinement is not None and launch.confinement.sandbox.level != "none":
            program = locate(launch.argv[0], launch.env, cwd)
            found = replace(launch, argv=(program, *launch.argv[1:]))
            own = None if launch.cwd is None else cwd
            launch, standing = await self._levels.confined(found, launch.confinement, own)
        server = await self._spawn(launch)
        server.standing = standing
        return server

    @property
    def levels(self) -> tuple[InForce, ...]:
        """The levels that can be asked about, best first."""
        return self._levels.possible

    async def why_not(self, level: InForce) -> str:
        """Say why a level of isolation does not work here, having tried it; "" if it does."""
        return await self._levels.reason(level)

    async def _spawn(self, launch: Launch) -> _PlainServer:
        """Start a launch as it stands."""
        if self._closed:
            raise ServerUnavailable("the node is closing and starts no more servers")
        cwd = working_directory(launch)
        self._keep_watch()
        mark = self._owner.mark(next(self._numbers))
        pipes = Pipes()
        try:
            process = _start(launch, self._owner.environment(launch, mark), cwd, pipes)
        except ServerUnavailable:
            pipes.close()
            raise
        pipes.close_theirs()
        server = _PlainServer(self, process, pipes, mark)
        self._servers.add(server)
        self._note(f"+{process.pid}\n")
        return server

    async def close(self) -> None:
        """End every server, then the watcher."""
        self._closed = True
        await asyncio.gather(*(server.end() for server in tuple(self._servers)))
        if self._watcher is not None:
            self._watch_pipe.close()
            await seen_out(self._watcher, self.clock)
            self._watcher = None

    def forget(self, server: _PlainServer) -> None:
        """Drop a server that is gone."""
        self._servers.discard(server)
        self._note(f"-{server.pid}\n")

    def _keep_watch(self) -> None:
        """Start the watcher, again if it died, before there is something to watch."""
        if self._watcher is not None and self._watcher.poll() is None:
            return
        theirs, ours = os.pipe()
        self._watch_pipe.close()
        self._watch_pipe = os.fdopen(ours, "wb", buffering=0)
        try:
            self._watcher = start_helper("watch", self._owner, theirs)
        except OSError as fault:
            raise ServerUnavailable(f"no watcher could be started: {fault}") from fault
        finally:
            os.close(theirs)
        for server in self._servers:
            self._note(f"+{server.pid}\n")

    def _note(self, line: str) -> None:
        """Tell the watcher of a group; one that died is replaced at the next server."""
        with contextlib.suppress(OSError):
            self._watch_pipe.write(line.encode("ascii"))


class _PlainServer:
    """One child and its group."""

    def __init__(
        self,
        spawner: PlainSpawner,
        process: subprocess.Popen[bytes],
        pipes: Pipes,
        mark: str,
    ) -> None:
        self._spawner = spawner
        self._process = process
        self._mark = mark
        self._ending: asyncio.Task[None] | None = None
        self.standing: Standing | None = None
        self.excess = ""
        self.pid = process.pid
        self.stdin_fd, self.stdout_fd, self.stderr_fd = pipes.ours

    async def wait(self) -> int:
        """Return the exit status; negative, the signal that ended it."""
        return await exited(self._process, self._spawner.clock)

    async def end(self, grace: float = GRACE) -> None:
        """End the group, and what else carries the mark; once, however often it is asked."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(grace))
        await asyncio.shield(self._ending)

    async def _end(self, grace: float) -> None:
        clock = self._spawner.clock
        self._signal(signal.SIGTERM)
        until = clock.monotonic() + grace
        while self._left() and clock.monotonic() < until:
            await clock.sleep(0.01)
        self._signal(signal.SIGKILL)
        await seen_out(self._process, clock)
        await hunt(lambda path: self._mark in path, clock, own=(self.pid,), limit=0.3)
        self._spawner.forget(self)

    def _left(self) -> bool:
        """Say whether anybody is left in the group; its leader is reaped on the way."""
        self._process.poll()
        return self._signal(0)

    def _signal(self, number: int) -> bool:
        """Signal the group; say whether there was one."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False  # on macOS a group of zombies answers with the second
        return True


def _start(launch: Launch, env: dict[str, str], cwd: str, pipes: Pipes) -> subprocess.Popen[bytes]:
    """Start the program with nothing blocked and nothing inherited but its three pipes."""
    program = locate(launch.argv[0], env, cwd)
    stdin, stdout, stderr = pipes.theirs
    mask = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        return subprocess.Popen(  # noqa: S603 -- the record's command, no shell
            launch.argv,
            executable=program,
            env=env,
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    except (OSError, ValueError) as fault:
        raise refusal(failure(fault), program, cwd) from fault
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
