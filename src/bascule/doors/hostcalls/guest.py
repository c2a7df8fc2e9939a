"""One run of a guest: a store on a thread of its own, from its first instruction to its end."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace
from wasmtime import (
    Caller,
    Engine,
    Func,
    Instance,
    Memory,
    Store,
    Table,
    Trap,
    TrapCode,
    WasmtimeError,
)

from bascule.doors.hostcalls import epochs
from bascule.doors.hostcalls.abi import ENTRY, Errno, Fault
from bascule.doors.hostcalls.crossing import Crossing, Ended
from bascule.doors.hostcalls.handles import Handles
from bascule.doors.hostcalls.host import Host, LogLine, Output
from bascule.doors.hostcalls.memory import GuestMemory
from bascule.doors.hostcalls.program import Program
from bascule.doors.hostcalls.sessions import GuestSessions

logger = logging.getLogger(__name__)

#: In this order: what C's linker exports, what AssemblyScript's does.
_TABLES: Final = ("__indirect_function_table", "table")
_MOST_TABLES: Final = 16
_MOST_TABLE_ELEMENTS: Final = 100_000
#: What the engine's names do not say as others do.
_TRAPS: Final = {
    TrapCode.MEMORY_OUT_OF_BOUNDS: "out of bounds memory access",
    TrapCode.TABLE_OUT_OF_BOUNDS: "out of bounds table access",
    TrapCode.BAD_SIGNATURE: "indirect call of a function of another type",
    TrapCode.BAD_CONVERSION_TO_INTEGER: "invalid conversion to integer",
}
_UNNAMED: Final = "its code failed"
_LONGEST_NAME: Final = 80
#: How long a thread that was told to end is waited for; it has nothing left to wait for itself.
_END_SECONDS: Final = 5.0
#: How long one is waited for that says something: whoever listens may never let it go.
_HEARD_SECONDS: Final = 0.1
#: Of a guest's thread: its code has 512 KiB, and host calls in it need room beside, nested ones
#: more. What the system gives depends on a limit of the user's, and may be less.
_STACK_BYTES: Final = 4 * 1024 * 1024
Reason = Literal[
    "exited", "trapped", "out_of_fuel", "output_limit", "timeout", "interrupted", "failed"
]
#: Ends that come from outside the guest's own code.
Ending = Literal["timeout", "interrupted", "output_limit"]


class Exit(Struct, frozen=True, kw_only=True):
    """How a guest ended. ``code`` is its own word, where it had one."""

    reason: Reason
    code: int = 0
    message: str = ""
    seconds: float = 0.0
    calls: int = 0
    peak_memory: int = 0


class Usage(Struct):
    """What a guest has used so far."""

    calls: int = 0
    output_bytes: int = 0
    #: What the host keeps for it, as far as it can make that grow.
    kept_bytes: int = 0


class Running:
    """A tool of the guest's own while it runs; whoever asked for it may have given it up."""

    abandoned = False


class Guest:
    """A program that runs. Host functions find it by the thread that they are called on."""

    def __init__(self, engine: Engine, program: Program, host: Host) -> None:
        self.host = host
        self.handles = Handles()
        self.sessions = GuestSessions(host)
        self.usage = Usage()
        #: Tools of the guest's own that run just now, each inside the one before.
        self.running: list[Running] = []
        self._engine = engine
        self._program = program
        self._store: Store | None = None
        self._exports: Instance | None = None
        self._memory: GuestMemory | None = None
        self._ending: Ending | None = None
        #: Whether it waits for whoever listens.
        self._speaking = False
        self._exit_code: int | None = None
        self._failed: set[str] = set()
        self.crossing = Crossing(asyncio.get_running_loop(), self._is_abandoned)

    # --- the loop's side

    async def run(self) -> Exit:
        """Run to the end; whoever is cancelled ends the guest with it."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[Exit] = loop.create_future()
        started = self.host.clock.monotonic()
        self._start_thread(loop, over)
        try:
            async with asyncio.timeout(self.host.limits.seconds):
                found = await asyncio.shield(over)
        except TimeoutError:
            self.end("timeout")
            found = await self._ended(over)
        except asyncio.CancelledError:
            self.end("interrupted")
            await self._ended(over)
            raise
        finally:
            self.crossing.end()
            await self.crossing.drain(_END_SECONDS)
            await self.sessions.end()
        return replace(found, seconds=self.host.clock.monotonic() - started)

    def end(self, why: Ending) -> None:
        """Have the guest end: in its own code, in a host call, wherever it is."""
        if self._ending is None:
            self._ending = why
        self.crossing.end()

    def _start_thread(self, loop: asyncio.AbstractEventLoop, over: asyncio.Future[Exit]) -> None:
        thread = threading.Thread(target=self._main, args=(loop, over), name="guest", daemon=True)
        usual = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)

    async def _ended(self, over: asyncio.Future[Exit]) -> Exit:
        await asyncio.wait((over,), timeout=_HEARD_SECONDS)
        if not over.done() and not self._speaking:
            await asyncio.wait((over,), timeout=_END_SECONDS)
        if over.done():
            return over.result()
        if not self._speaking:
            logger.error("a guest's thread did not end; it is left behind")
        return Exit(reason=self._ending or "failed", code=1, message="its thread did not end")

    # --- the guest's thread

    def _main(self, loop: asyncio.AbstractEventLoop, over: asyncio.Future[Exit]) -> None:
        try:
            found = self._run()
        except Exception:
            logger.exception("a guest could not be run")
            found = Exit(reason="failed", code=1, message="the host failed to run it")
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_settle, over, found)

    def _run(self) -> Exit:
        store = Store(self._engine)
        try:
            self._prepare(store)
            found = self._start(store)
            peak = 0 if self._memory is None else self._memory.size
            return replace(found, calls=self.usage.calls, peak_memory=peak)
        finally:
            self._memory = self._exports = self._store = None
            store.close()
            self.handles.close_all()

    def _prepare(self, store: Store) -> None:
        limits = self.host.limits
        store.set_limits(
            memory_size=limits.memory_bytes,
            table_elements=_MOST_TABLE_ELEMENTS,
            instances=1,
            tables=_MOST_TABLES,
            memories=1,
        )
        if limits.fuel is not None:
            store.set_fuel(limits.fuel)
        epochs.watch(store, self.is_to_end)
        _here.guest = self
        self._store = store

    def _start(self, store: Store) -> Exit:
        try:
            instance = self._program.instances.instantiate(store)
            self._adopt(instance)
            entry = instance.exports(store).get(ENTRY)
            if isinstance(entry, Func):
                entry(store)
            found = Exit(reason="exited")
        except Trap as trap:
            found = _trapped(trap)
        except WasmtimeError as error:
            lines = str(error).splitlines() or [_UNNAMED]
            found = Exit(reason="trapped", code=1, message=lines[0])
        return self._explained(found)

    def _explained(self, found: Exit) -> Exit:
        """Return how it ended: by the word of whoever ended it, if somebody did."""
        if self._exit_code is not None:
            return Exit(reason="exited", code=self._exit_code)
        if self._ending is not None:
            return Exit(reason=self._ending)
        return found

    def is_to_end(self) -> bool:
        """Say whether the guest's code is to stop."""
        return self.crossing.ended or self._is_abandoned()

    def _is_abandoned(self) -> bool:
        return bool(self.running) and any(one.abandoned for one in self.running)

    @property
    def depth(self) -> int:
        """Return how deep tools of the guest's own are nested just now."""
        return len(self.running)

    def keep(self, more: int) -> None:
        """Count what is kept for the guest; -ENOMEM beyond as much as it may have itself."""
        if self.usage.kept_bytes + more > self.host.limits.memory_bytes:
            raise Fault(Errno.ENOMEM)
        self.usage.kept_bytes += more

    def let_go(self, size: int) -> None:
        """Count what is kept for the guest no more."""
        self.usage.kept_bytes -= size

    def say(self, said: Output | LogLine) -> None:
        """Let whoever listens hear something; a guest that says more than it may is ended."""
        self.usage.output_bytes += said.size
        if self.usage.output_bytes > self.host.limits.output_bytes:
            self.end("output_limit")
            raise Ended
        self._speaking = True
        try:
            self.host.listener(said)
        finally:
            self._speaking = False

    def exit(self, code: int) -> None:
        """End the guest with a code of its own; nothing is done for it any more."""
        if self._exit_code is None and self._ending is None:
            self._exit_code = code
        self.crossing.end()

    def enters(self, caller: Any) -> None:
        """Begin a host call; raise Ended if there is to be none any more.

        A guest that calls in its start function is not made yet, and is asked for its memory.
        """
        if self.is_to_end():
            raise Ended
        if self._memory is None:
            self._take_memory(Caller(caller).get("memory"))

    def complains(self, name: str) -> bool:
        """Say whether a host call fails for the first time: a guest cannot fill the host's log."""
        is_new = name not in self._failed
        self._failed.add(name)
        return is_new

    @property
    def store(self) -> Store:
        """Return the guest's store; only its own thread may use it."""
        if self._store is None:
            raise Ended
        return self._store

    @property
    def memory(self) -> GuestMemory:
        """Return the guest's memory; -EFAULT if it exports none."""
        if self._memory is None:
            raise Fault(Errno.EFAULT)
        return self._memory

    def _adopt(self, instance: Instance) -> None:
        self._exports = instance
        self._take_memory(instance.exports(self.store).get("memory"))

    def _take_memory(self, found: object) -> None:
        if isinstance(found, Memory):
            self._memory = GuestMemory(found, self.store)

    def function(self, name: str) -> Func | None:
        """Return an exported function; None while the guest is being made."""
        if self._exports is None:
            return None
        found = self._exports.exports(self.store).get(name)
        return found if isinstance(found, Func) else None

    def function_at(self, index: int) -> Func | None:
        """Return the function at an index of the guest's table, if there is one."""
        if self._exports is None:
            return None
        exports = self._exports.exports(self.store)
        tables = [exports.get(name) for name in _TABLES]
        tables += [item for _, item in exports.items()]
        table = next((one for one in tables if isinstance(one, Table)), None)
        found = None if table is None else table.get(self.store, index)
        return found if isinstance(found, Func) else None


_here = threading.local()


def current() -> Guest:
    """Return the guest of this thread."""
    guest = _here.guest
    assert isinstance(guest, Guest)  # noqa: S101 - every guest's thread begins with it
    return guest


def _trapped(trap: Trap) -> Exit:
    code = trap.trap_code
    if code == TrapCode.OUT_OF_FUEL:
        return Exit(reason="out_of_fuel", code=1, message="its fuel is used up")
    if code is None:
        return Exit(reason="trapped", code=1, message=_UNNAMED)
    what = _TRAPS.get(code) or code.name.lower().replace("_", " ")
    return Exit(reason="trapped", code=1, message=what + _place(trap))


def _place(trap: Trap) -> str:
    """Return the name of the guest's function that trapped, if it has one that can be shown."""
    name = next((frame.func_name for frame in trap.frames), None)
    if not name or not name.isprintable():
        return ""
    return f" in {name[:_LONGEST_NAME]}"


def _settle(over: asyncio.Future[Exit], found: Exit) -> None:
    if not over.done():
        over.set_result(found)
