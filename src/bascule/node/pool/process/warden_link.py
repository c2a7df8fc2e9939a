"""The conversation with one warden process, from its greeting to the last of its servers."""

from __future__ import annotations

import array
import asyncio
import signal
import socket
import struct
import subprocess
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bascule.clock import Clock
from bascule.errors import ServerUnavailable
from bascule.model.sandbox import Standing
from bascule.node.pool.process.confinement import cgroups
from bascule.node.pool.process.spawn import (
    GRACE,
    Launch,
    NotConfined,
    Owner,
    Pipes,
    close_all,
    hunt,
    locate,
    refusal,
    seen_out,
)
from bascule.node.pool.process.warden_process import (
    KILL_TIME,
    LARGEST_FRAME,
    Frames,
    marks,
    pack,
)

if TYPE_CHECKING:
    from bascule.node.pool.process.confinement.root import Plan
    from bascule.node.pool.process.warden_process import Message, Process

SPAWN_LIMIT = 10.0  # seconds; a spawn takes less than a thousandth of that
CLOSE_LIMIT = GRACE + KILL_TIME + 0.05
_CREDENTIALS = struct.Struct("3i")
_SIGNALLED = 128  # and the signal: what is said of a process in another namespace


class Link:
    """One warden process and the servers it holds."""

    def __init__(
        self,
        control: socket.socket,
        process: subprocess.Popen[bytes],
        owner: Owner,
        clock: Clock,
    ) -> None:
        self.process = process
        self.isolated = False
        self.lost = asyncio.Event()
        self._control = control
        self._owner = owner
        self._clock = clock
        self._greeted = asyncio.Event()
        self._frames = Frames()
        self._outbox: deque[tuple[memoryview, Pipes | None]] = deque()
        self._servers: dict[int, WardenServer] = {}
        self._clearing: asyncio.Task[None] | None = None
        self._confined = False
        self._loop = asyncio.get_running_loop()
        control.settimeout(0)
        self._loop.add_reader(control.fileno(), self._receive)

    async def greeted(self) -> None:
        """Wait until the warden works, or is lost."""
        await self._greeted.wait()

    async def spawn(
        self, number: int, launch: Launch, cwd: str, plan: Plan | None = None
    ) -> WardenServer:
        """Have a server started on three new pipes; with a plan, confined to it."""
        mark = self._owner.mark(number)
        program = locate(launch.argv[0], launch.env, cwd)
        order: Message = {
            "op": "spawn",
            "server": number,
            "program": program,
            "argv": launch.argv,
            "env": self._owner.environment(launch, mark),
            "cwd": cwd,
            "mark": mark,
        }
        if plan is not None:
            order["confine"] = plan
            self._confined = True
        frame = pack(order)
        if len(frame) > LARGEST_FRAME:
            raise ServerUnavailable(f"{launch.argv[0]!r}: arguments and environment are too long")
        pipes = Pipes()
        server = self._servers[number] = WardenServer(self, number, mark, pipes, (program, cwd))
        server.confined = plan is not None
        self._send(frame, pipes)
        return await self._settled(server, pipes)

    async def _settled(self, server: WardenServer, pipes: Pipes) -> WardenServer:
        """Wait until a server has started; otherwise leave nothing of it."""
        try:
            async with asyncio.timeout(SPAWN_LIMIT):
                await server.started
        except TimeoutError as fault:
            self._abandon(server, pipes)
            raise ServerUnavailable("the warden did not start the server in time") from fault
        except BaseException:
            self._abandon(server, pipes)
            raise
        return server

    def _abandon(self, server: WardenServer, pipes: Pipes) -> None:
        """Give up a server that nobody will own: it may be starting at this moment."""
        close_all(pipes.ours)
        if server.number in self._servers:
            self.order_end(server.number, 0.0)

    def order_end(self, number: int, grace: float) -> None:
        """Have the warden end a server."""
        self._send(pack({"op": "end", "server": number, "grace": grace}))

    async def hunt(self, mark: str) -> None:
        """End a server's processes without the warden, which is late."""
        await hunt(lambda path: mark in path, self._clock, limit=0.2)

    async def close(self) -> None:
        """End every server and the warden."""
        if not self.lost.is_set():
            self._send(pack({"op": "close", "grace": GRACE}))
        try:
            async with asyncio.timeout(CLOSE_LIMIT):
                await self.lost.wait()
        except TimeoutError:
            self.process.kill()
            self.lose()
        await self.cleared()

    def lose(self) -> None:
        """Take leave of the warden, whether it went or has to go."""
        if self.lost.is_set():
            return
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_writer(self._control.fileno())
        self._control.close()
        for _, pipes in self._outbox:
            if pipes is not None:
                pipes.close_theirs()
        self._outbox.clear()
        self.lost.set()
        self._greeted.set()
        self._clearing = self._loop.create_task(self._clear())

    async def cleared(self) -> None:
        """Wait until nothing is left of a lost warden and its servers."""
        if self._clearing is not None:
            await asyncio.shield(self._clearing)

    async def _clear(self) -> None:
        """See the warden out, kill what it could not, and tell everyone who waits."""
        await seen_out(self.process, self._clock)
        await hunt(self._owner.owns, self._clock, limit=0.5)
        if self._confined:
            cgroups.remove_all(self._owner.prefix)
        for server in self._servers.values():
            server.tell_lost()
        self._servers.clear()

    def _receive(self) -> None:
        """Read what the warden says; the kernel adds who it is about."""
        try:
            data, extra, _, _ = self._control.recvmsg(65536, socket.CMSG_SPACE(64))
            messages = self._frames.feed(data)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, ValueError):
            self.lose()
            return
        for message in messages:
            self._hear(message, _sender(extra))
        if not data:
            self.lose()

    def _hear(self, message: Message, sender: int | None) -> None:
        """Pass one event on to whom it concerns."""
        if message["event"] == "ready":
            self.isolated = message["isolated"]
            self._greeted.set()
            return
        server = self._servers.get(message["server"])
        if server is None:
            return
        if message["event"] in ("failed", "ended"):
            del self._servers[server.number]
        if message["event"] == "started" and self.isolated and sender is not None:
            message["pid"] = sender
        server.tell(message)

    def _send(self, frame: bytes, pipes: Pipes | None = None) -> None:
        """Queue a message, with the server's pipe ends if it has any, and send what can be."""
        if self.lost.is_set():
            if pipes is not None:
                pipes.close_theirs()
            return
        self._outbox.append((memoryview(frame), pipes))
        self._flush()

    def _flush(self) -> None:
        """Send until the socket is full or nothing is left."""
        while self._outbox:
            frame, pipes = self._outbox[0]
            try:
                sent = self._control.sendmsg([frame], _attachment(pipes))
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._control.fileno(), self._flush)
                return
            except OSError:
                self.lose()
                return
            if pipes is not None:
                pipes.close_theirs()
            if sent < len(frame):
                self._outbox[0] = (frame[sent:], None)
            else:
                self._outbox.popleft()
        self._loop.remove_writer(self._control.fileno())


class WardenServer:
    """One server behind the warden."""

    def __init__(
        self, link: Link, number: int, mark: str, pipes: Pipes, origin: tuple[str, str]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.pid = 0
        self.confined = False
        #: How it is confined, and whether the kernel counts what the whole of it uses.
        self.standing: Standing | None = None
        self.counted = False
        #: What it was ended for, if it used more than it may.
        self.excess = ""
        self.stdin_fd, self.stdout_fd, self.stderr_fd = pipes.ours
        self.started: asyncio.Future[None] = loop.create_future()
        self._link = link
        self._mark = mark
        self._origin = origin
        self._status: asyncio.Future[int] = loop.create_future()
        self._ending = False
        self._ended = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether it has ended with all that came of it."""
        return self._ended.is_set()

    def owns(self, process: Process) -> bool:
        """Say whether a process came of this server, whoever its parent is now."""
        if self.pid in (process.pid, process.group, process.session):
            return True
        return self._mark in marks(process.pid)

    async def wait(self) -> int:
        """Return the exit status; negative, the signal that ended it."""
        return await asyncio.shield(self._status)

    async def end(self, grace: float = GRACE) -> None:
        """End the whole tree; once, however often it is asked."""
        if not self._ending:
            self._ending = True
            self._link.order_end(self.number, grace)
        try:
            async with asyncio.timeout(grace + KILL_TIME + 0.1):
                await self._ended.wait()
        except TimeoutError:
            await self._link.hunt(self._mark)

    def tell(self, message: Message) -> None:
        """Take what the warden says of this server."""
        event = message["event"]
        if event == "started" and not self.started.done():
            self.pid = message["pid"]
            self.counted = message["counted"]
            self.started.set_result(None)
        elif event == "failed" and not self.started.done():
            self.started.set_exception(_refusal(message, *self._origin))
        elif event == "exit" and not self._status.done():
            self._status.set_result(self._own_status(message["status"]))
        elif event == "ended":
            self._ended.set()

    def _own_status(self, status: int) -> int:
        """Return a server's status; of one behind a first process, as that passed it on."""
        behind = self.confined and status > _SIGNALLED
        return _SIGNALLED - status if behind else status

    def tell_lost(self) -> None:
        """Take that the warden is gone, and this server with it."""
        if not self.started.done():
            self.started.set_exception(ServerUnavailable("the warden was lost"))
        if not self._status.done():
            self._status.set_result(-signal.SIGKILL)
        self._ended.set()


def _refusal(message: Message, program: str, cwd: str) -> ServerUnavailable:
    """Return the error for a server that did not start: its program's fault, or its sandbox's."""
    stage, (number, text) = message["stage"], message["fault"]
    if stage in ("", "exec", "cwd"):
        return refusal((number, text), program, cwd)
    return NotConfined(text, stage)


def _attachment(pipes: Pipes | None) -> Sequence[tuple[int, int, array.array[int]]]:
    """Return the server's pipe ends as the socket carries them."""
    if pipes is None:
        return ()
    return ((socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", pipes.theirs)),)


def _sender(extra: Sequence[tuple[int, int, bytes]]) -> int | None:
    """Return the process that the kernel's credentials name, in this side's numbers."""
    for level, kind, payload in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            pid: int = _CREDENTIALS.unpack(payload)[0]
            return pid
    return None
