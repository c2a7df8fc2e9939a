"""The processes that share one port: started, told how the others stand, started again, ended.

Whoever started them has the port for all, and is the only one who does: a worker that dies leaves
its place to the others until it is back. All of them end with their owner, however that ends.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bascule.app.serving import Orders
from bascule.app.settings import LoadedSettings, McpSettings, ServerSettings, Settings
from bascule.app.settings_tables import StoreSettings
from bascule.app.worker_link import (
    MAX_LINE_BYTES,
    Answered,
    Crew,
    SentNode,
    Told,
    WorkerOrder,
    line_of,
    read_answered,
)
from bascule.app.worker_pulse import Pulse
from bascule.asgi.serve import CannotServe, bound
from bascule.audit.log_lines import say
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.private_files import private_folder
from bascule.errors import BasculeError
from bascule.lifetime import Lifetime
from bascule.model.worker import WorkerStanding
from bascule.node.sync.last_known_good import FILE_NAME
from bascule.wire.api.nodes import NodeStanding

logger = logging.getLogger("bascule.workers")
WORKERS_FOLDER: Final = "workers"
KEY_BYTES: Final = 32
#: How much longer than calls under way workers may take to end.
END_SECONDS: Final = 20.0
#: How long they may take to be gone once they were killed.
_KILLED_SECONDS: Final = 5.0
#: The pauses before a worker is started again: each up to twice the one before.
_FIRST_PAUSE, _LONGEST_PAUSE, _MOST_DOUBLINGS = 0.25, 15.0, 16
#: One that served for so long has begun anew.
_GOOD_SECONDS: Final = 30.0
_BOOT: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; from bascule.app.worker_process import main; main()"
)


class WorkerRefused(BasculeError):
    """A worker does not start, and says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Workers(Lifetime):
    """All workers of a node. Entering waits until each serves, or raises why one does not."""

    def __init__(
        self,
        orders_of: Callable[[int], WorkerOrder],
        port: SharedPort,
        orders: Orders,
        count: int,
        crew: Crew | None = None,
    ) -> None:
        """Have ``count`` of them; ``crew`` is told how they stand."""
        self.crew = crew or Crew()
        self._port = port
        self._orders = orders
        self._keepers = [_Keeper(orders_of(number), self._say) for number in range(1, count + 1)]
        self._keeping: list[asyncio.Task[None]] = []
        self._hurrying: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Return where they serve."""
        return self._port.url

    @property
    def standing(self) -> NodeStanding:
        """Return how the node stood when its first worker came, and how all workers stand."""
        first = self._keepers[0].answered.standing
        if first is None:
            raise RuntimeError("no worker serves yet")
        name = first.node.rpartition("/")[0]
        return replace(first, node=name, workers=self.crew.standings)

    async def start(self) -> None:
        """Start all of them."""
        if self._keeping:
            return
        self._say()
        self._keeping = [asyncio.create_task(keeper.keep()) for keeper in self._keepers]
        self._hurrying = asyncio.create_task(self._hurry())
        served = asyncio.gather(*(keeper.served.wait() for keeper in self._keepers))
        stopped = asyncio.create_task(self._orders.stop.wait())
        awaited: set[asyncio.Future[Any]] = {served, stopped, *self._keeping}
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            self._refuse_failed()
        except BaseException:
            await self.close()
            raise
        finally:
            stopped.cancel()
            served.cancel()

    def _refuse_failed(self) -> None:
        """Raise why one does not start; one that was told to end before it served did not."""
        for task in self._keeping:
            if task.done():
                task.result()
        if not all(keeper.served.is_set() for keeper in self._keepers):
            raise CannotServe("it was told to stop before it served")

    async def close(self) -> None:
        """Have all end, and wait until they have; kill those that do not."""
        keeping, self._keeping = self._keeping, []
        for keeper in self._keepers:
            keeper.end()
        if keeping:
            seconds = self._port.drain_seconds + END_SECONDS
            _, late = await asyncio.wait(keeping, timeout=seconds)
            for keeper in self._keepers:
                keeper.kill()
            if late:
                await asyncio.wait(late, timeout=_KILLED_SECONDS)
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
        if self._hurrying is not None:
            self._hurrying.cancel()

    def _say(self) -> None:
        """Tell every worker how all of them stand."""
        self.crew.standings = tuple(keeper.standing for keeper in self._keepers)
        for keeper in self._keepers:
            keeper.tell(Told(crew=self.crew.standings))

    async def _hurry(self) -> None:
        await self._orders.hurry.wait()
        for keeper in self._keepers:
            keeper.tell(Told(hurry=True))


class _Keeper:
    """Keeps one worker running."""

    def __init__(
        self, order: WorkerOrder, changed: Callable[[], None], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._order = order
        self._changed = changed
        self._clock = clock
        self._process: Process | None = None
        self._ending = asyncio.Event()
        self._failures = 0
        self.standing = WorkerStanding(number=order.number, state="starting")
        #: Set once it has served; what it said then, or last.
        self.served = asyncio.Event()
        self.answered = Answered(event="refused")

    async def keep(self) -> None:
        """Start the worker again and again, until told to end; raise where it never served."""
        while not self._ending.is_set():
            try:
                fate = await self._run()
            except OSError as error:  # the machine has no room for another process, for now
                fate = str(error)
            if self._ending.is_set():
                return
            if not self.served.is_set():
                said, words = self.answered, f"worker {self._order.number} ended with {fate}"
                raise WorkerRefused(said.code or "unavailable", said.message or words)
            await self._pause(fate)

    def end(self) -> None:
        """Have it end, and not start again."""
        self._ending.set()
        self.tell(Told(stop=True))

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    def tell(self, words: Told) -> None:
        """Say something to the process, if there is one that listens."""
        stdin = None if self._process is None else self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(line_of(words))

    async def _run(self) -> str:
        """Start it once, and hear it until it ends; return how it did."""
        self._process = None
        self._process = process = await _spawned()
        try:
            _piped(process.stdin).write(line_of(self._order))
            self._stand("starting", pid=process.pid)
            if self._ending.is_set():
                self.tell(Told(stop=True))
            began = self._clock.monotonic()
            fate = await self._heard_out(process)
        except BaseException:
            self.kill()
            raise
        if self._clock.monotonic() - began >= _GOOD_SECONDS:
            self._failures = 0
        return fate

    async def _heard_out(self, process: Process) -> str:
        """Hear a process until it ends, and end one that hangs; return how it ended."""
        ask = partial(self.tell, Told(asked=True))
        pulse = Pulse(ask, self._order.settings.node.worker_seconds, self._clock)
        watching = asyncio.create_task(self._end_silent(process, pulse))
        try:
            while line := await _line(_piped(process.stdout)):
                pulse.heard()
                self._heard(line, process.pid)
            fate = _in_words(await process.wait())
        finally:
            watching.cancel()
        hung = watching.done() and not watching.cancelled()
        return f"no answer for {pulse.seconds:g} seconds" if hung else fate

    async def _end_silent(self, process: Process, pulse: Pulse) -> None:
        await pulse.silence()
        words = f"worker {self._order.number} has not answered for {pulse.seconds:g} seconds"
        say(logger, logging.ERROR, f"{words} and is ended", pid=process.pid)
        self.kill()

    def _heard(self, line: bytes, pid: int) -> None:
        try:
            answered = read_answered(line)
        except msgspec.DecodeError:
            return  # somebody printed something
        if answered.event == "alive":
            return
        self.answered = answered
        if answered.event == "serving":
            self.served.set()
            self._stand("serving", pid=pid)

    async def _pause(self, fate: str) -> None:
        """Wait for the next attempt, longer after each that failed."""
        refused = self.answered.message if self.answered.event == "refused" else ""
        self.standing = replace(self.standing, restarts=self.standing.restarts + 1)
        self._stand("down", reason=refused or f"it ended with {fate}")
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self._failures, _MOST_DOUBLINGS))
        seconds = random.uniform(longest / 2, longest)  # noqa: S311 - jitter, not a secret
        self._failures += 1
        words = f"worker {self._order.number} is gone and is started again: {fate}"
        say(logger, logging.WARNING, words, seconds=seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()

    def _stand(self, state: str, *, pid: int | None = None, reason: str | None = None) -> None:
        changes = {"state": state, "pid": pid, "reason": reason}
        self.standing = msgspec.convert(
            {**msgspec.structs.asdict(self.standing), **changes}, WorkerStanding
        )
        self._changed()


async def _spawned() -> Process:
    # Its modules are those of this process, wherever those come from.
    path = [entry for entry in sys.path if entry]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-X", "faulthandler", "-c", _BOOT, *path),
        stdin=PIPE,
        stdout=PIPE,
        start_new_session=True,  # a terminal's Ctrl-C is for its owner, who tells it
        limit=MAX_LINE_BYTES,
    )


async def _line(stdout: asyncio.StreamReader) -> bytes:
    """Return the next line; what is too long for one is thrown away."""
    while True:
        try:
            return await stdout.readline()
        except ValueError:
            continue


def _piped(pipe: Any) -> Any:
    if pipe is None:
        raise RuntimeError("a worker is started with pipes")
    return pipe


def _in_words(status: int) -> str:
    if status >= 0:
        return f"status {status}"
    with suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"


# --- what all of them share


class SharedPort:
    """The port of all workers, kept for them while the block runs; it takes nobody in itself."""

    def __init__(self, server: ServerSettings) -> None:
        self._server = server
        #: How long calls under way may take at the end.
        self.drain_seconds = server.drain_seconds
        self._socket: socket.socket | None = None
        self.url = ""
        self.number = 0

    async def __aenter__(self) -> SharedPort:
        if sys.platform != "linux":
            raise CannotServe("node.workers: several processes share a port on Linux alone")
        server = self._server
        exposed = server.insecure or server.tls_certificate is not None
        # Alone first: another process's shared port would be shared with that.
        alone = await bound(server.host, server.port, exposed=exposed)
        number = alone.getsockname()[1]
        alone.close()
        self._socket = await bound(server.host, number, exposed=exposed, shared=True)
        host, self.number = self._socket.getsockname()[:2]
        scheme = "http" if server.tls_certificate is None else "https"
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.number}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()


class Meeting:
    """Where processes hand over requests to each other, and what they show there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = secrets.token_bytes(KEY_BYTES)


def orders_for(
    settings: Settings, node: SentNode, port: SharedPort, meeting: Meeting, *, has_plane: bool
) -> Callable[[int], WorkerOrder]:
    """Return what says the order of each worker; its folder is made when that is asked."""
    data = Path(settings.data_dir)
    own = (str(Path(path).absolute()) for path in settings.own_files())
    private = replace(node, private=(*node.private, *own))

    def order(number: int) -> WorkerOrder:
        folder = data / WORKERS_FOLDER / str(number)
        private_folder(folder.parent)
        private_folder(folder)
        if has_plane:  # whose token is another at each start, so that nobody could read this
            (folder / FILE_NAME).unlink(missing_ok=True)
        return WorkerOrder(
            number=number,
            count=settings.node.workers,
            settings=_own_settings(settings, folder, port.number),
            node=private,
            data=str(data),
            sockets=str(meeting.folder),
            key=meeting.key,
            has_plane=has_plane,
        )

    return order


def _own_settings(settings: Settings, folder: Path, port: int) -> LoadedSettings:
    anchor = settings.ledger.anchor_file
    own = None if anchor is None else f"{anchor}.worker-{folder.name}"
    return LoadedSettings(
        **msgspec.structs.asdict(
            replace(
                settings,
                data_dir=str(folder),
                server=replace(settings.server, port=port),
                ledger=replace(settings.ledger, anchor_file=own),
                store=StoreSettings(),
                mcp=McpSettings(),
                agents=None,
                backends=(),
            )
        )
    )
