"""The bridge for programs without async: what is asked of it runs on an event loop elsewhere.

That loop has a thread of its own, or is the loop of a host that runs it in another thread. Many
threads may ask at once. Progress callbacks, approvers and input handlers are called on the loop's
thread: they must be short, and must not ask this bridge for anything.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import TypeAlias, TypeVar, Unpack

from msgspec.structs import replace

from bascule.lifetime import BlockingLifetime
from bascule.model.approval import Approving
from bascule.model.call import NO_LIMITS, CallLimits, LimitOptions, OnProgress
from bascule.model.explanation import Explanation
from bascule.model.outcome import Outcome
from bascule.model.status import ServerStatus
from bascule.model.task import TaskBudgets
from bascule.node.bridge.opening import Opening, SessionOptions, opening_of
from bascule.node.bridge.toolset import ToolSet
from bascule.node.changes import OnChange, Unsubscribe
from bascule.node.contract import AnyBridge, ToolSession, opened

T = TypeVar("T")
Work: TypeAlias = Coroutine[object, None, T]

CLOSE_SECONDS = 10.0  # for the bridge to end its servers; it needs less than two
JOIN_SECONDS = 5.0  # for the thread to end after that
_ELSEWHERE = (
    "this bridge is of another process, or Python is ending: a forked process opens its own"
)
_CLOSED = "this bridge is closed: open a new one with Bridge.blocking(...)"
_SESSION_CLOSED = "this session is closed: open a new one with bridge.session(...)"


class Runner(ABC):
    """Runs on an event loop what a thread without one asks for."""

    #: What is said to whoever waits when the loop ends.
    ended: str

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Say whether it runs nothing any more."""

    @abstractmethod
    def close(self) -> None:
        """End what was begun for this caller."""

    @abstractmethod
    def _submit(self, work: Work[T]) -> Future[T]:
        """Have a coroutine run; raise RuntimeError when that cannot be."""

    def run(self, work: Work[T]) -> T:
        """Run a coroutine to its end; a caller that is interrupted takes it along."""
        try:
            future = self._submit(work)
        except RuntimeError:
            work.close()
            raise
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError(self.ended) from None
        except BaseException:
            future.cancel()  # of no effect when it is the work itself that raised
            raise

    def ask(self, function: Callable[[], T]) -> T:
        """Call a function where the event loop runs."""
        return self.run(_on_loop(function))


class BlockingBridge(BlockingLifetime):
    """A bridge whose methods simply return.

    Close it, or use it in a ``with`` block::

        with Bridge.blocking([clock]) as bridge, bridge.session(server_ids=["time"]) as session:
            print(session.call("mcp__time__get_current_time", {"timezone": "UTC"}).text)
    """

    def __init__(self, bridge: AnyBridge, runner: Runner | None = None) -> None:
        self._bridge = bridge
        self._runner = runner or _LoopThread(bridge)
        # One that is forgotten is closed when it is collected. Not when the program ends: that
        # would wake daemon threads in their calls, and the servers die with the program anyhow.
        weakref.finalize(self, self._runner.close).atexit = False

    @property
    def closed(self) -> bool:
        return self._runner.closed

    def session(self, **options: Unpack[SessionOptions]) -> BlockingSession:
        """Open a session; it takes what ``Bridge.session`` takes, and raises SessionRefused."""
        return self.open_session(opening_of(options))

    def open_session(self, opening: Opening) -> BlockingSession:
        """Open a session from a value, as ``session`` does from keywords."""
        session = self._runner.run(opened(self._bridge, opening))
        return BlockingSession(self._runner, session, bridge=self)

    def statuses(self) -> Sequence[ServerStatus]:
        """Return how every server's connection stands; none where the bridge holds none itself."""
        return self._runner.ask(self._bridge.statuses)

    def subscribe(self, on_change: OnChange) -> Unsubscribe:
        """Call a function, on the loop's thread, for each change, as ``Bridge.subscribe``."""
        return self._runner.ask(lambda: self._bridge.subscribe(on_change))

    def close(self) -> None:
        """End every server and the thread. Any number of times, from any thread."""
        self._runner.close()


class BlockingSession(BlockingLifetime):
    """One caller's way across the bridge, as ``Session`` but without async."""

    def __init__(self, runner: Runner, session: ToolSession, *, bridge: object = None) -> None:
        self._bridge = bridge  # which is not forgotten while one of its sessions is in use
        self._runner = runner
        self._session = session
        self._closed = False

    @property
    def session_id(self) -> str:
        """Return the session's id, as the ledger has it."""
        return self._session.session_id

    def budgets(self) -> TaskBudgets:
        """Return what the task leaves to one conversation."""
        return self._run(self._session.budgets())

    def tools(self) -> ToolSet:
        """List the tools. A server that cannot list contributes nothing but a warning."""
        return self._run(self._session.tools())

    def call(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        limits: CallLimits = NO_LIMITS,
        on_progress: OnProgress | None = None,
        approval: Approving = "wait",
        **own: Unpack[LimitOptions],
    ) -> Outcome:
        """Call a tool by the name a model uses; every failure comes back as an outcome."""
        within = replace(limits, **own) if own else limits
        work = self._session.call(
            name, arguments, limits=within, on_progress=on_progress, approval=approval
        )
        return self._run(work)

    def note_own(
        self, name: str, arguments: Mapping[str, object] | None, outcome: Outcome, seconds: float
    ) -> Outcome:
        """Write down and count a call of a tool that is the caller's own; return it with its id."""
        return self._run(self._session.note_own(name, arguments, outcome, seconds))

    def explain(self, name: str) -> Explanation:
        """Explain a tool or a server from what was listed: readable when printed, an object too."""
        return self._ask(lambda: self._session.explain(name))

    def explanations(self) -> tuple[Explanation, ...]:
        """Explain every server that was considered and every tool that was listed."""
        return self._ask(self._session.explanations)

    def explanation(self, name: str) -> Explanation:
        """Explain a tool or a server, asking whoever has to be asked."""
        return self._run(self._session.explanation(name))

    def read_output(self, handle: str, start: int = 0, end: int | None = None) -> str:
        """Read bytes ``start`` to ``end`` of an output that was cut."""
        return self._run(self._session.output(handle, start, end))

    def statuses(self) -> Sequence[ServerStatus]:
        """Return how the session's servers stand, as far as this process knows."""
        return self._ask(self._session.statuses)

    def subscribe(self, on_change: OnChange) -> Unsubscribe:
        """Call a function, on the loop's thread, for each change that concerns the session."""
        return self._ask(lambda: self._session.subscribe(on_change))

    def reconnect(self, server_id: str) -> None:
        """Get one of the session's servers back; raise ServerUnavailable if that fails."""
        self._run(self._session.reconnect(server_id))

    def close(self) -> None:
        """End the session: its own connections are closed, its outputs are gone."""
        if not self._closed and not self._runner.closed:
            self._runner.run(self._session.close())
        self._closed = True

    def _run(self, work: Work[T]) -> T:
        if self._closed:
            work.close()
            raise RuntimeError(_SESSION_CLOSED)
        return self._runner.run(work)

    def _ask(self, function: Callable[[], T]) -> T:
        if self._closed:
            raise RuntimeError(_SESSION_CLOSED)
        return self._runner.ask(function)


class HostLoop(Runner):
    """Runs work on the event loop of the host; what lives there is the host's to end."""

    ended = "the event loop ended while this was under way"

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @property
    def closed(self) -> bool:
        """Say whether the loop runs nothing any more."""
        return not self._loop.is_running()

    def ask(self, function: Callable[[], T]) -> T:
        """Call a function on the loop, at once where that is the loop of this thread."""
        return function() if self._is_here() else super().ask(function)

    def close(self) -> None:
        """Leave everything to the host."""

    def _submit(self, work: Work[T]) -> Future[T]:
        if self._is_here():
            raise RuntimeError(
                "this would wait for its own event loop: call it in a thread (asyncio.to_thread)"
            )
        if self.closed:
            raise RuntimeError("the event loop of this bridge is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _is_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


class _LoopThread(Runner):
    """A daemon thread with an event loop, started with the first thing there is to do.

    It does not know the ``BlockingBridge``, so that one that is forgotten can be collected.
    """

    ended = "the bridge was closed while this was under way"

    def __init__(self, bridge: AnyBridge) -> None:
        self._bridge = bridge
        # Reentrant: a collection, and with it a close, may happen anywhere.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End the bridge and the thread, within a bound."""
        with self._lock:
            first, self._closed = not self._closed, True
            thread, loop = self._thread, self._loop
            if thread is None or loop is None or not self._runs():
                return
            ending = asyncio.run_coroutine_threadsafe(self._end(), loop) if first else None
        if thread is threading.current_thread():
            return  # nobody can wait for himself; the thread ends by itself
        try:
            if ending is not None:
                ending.result(CLOSE_SECONDS + JOIN_SECONDS)
        finally:
            thread.join(JOIN_SECONDS)

    def _submit(self, work: Work[T]) -> Future[T]:
        with self._lock:
            if self._closed:
                raise RuntimeError(_CLOSED)
            if self._loop is None:
                self._loop = self._started()
            if not self._runs():
                raise RuntimeError(_ELSEWHERE)
            if self._thread is threading.current_thread():
                raise RuntimeError(
                    "a callback, an approver or an input handler cannot wait for its own bridge"
                )
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _runs(self) -> bool:
        """Say whether the thread can do work: not in a forked child, nor when Python ends."""
        return self._thread is not None and self._thread.is_alive() and not sys.is_finalizing()

    def _started(self) -> asyncio.AbstractEventLoop:
        """Start the thread and wait until its loop runs."""
        ready: Future[asyncio.AbstractEventLoop] = Future()

        async def live() -> None:
            ready.set_result(asyncio.get_running_loop())
            await self._stop.wait()

        self._thread = threading.Thread(
            target=lambda: asyncio.run(live()), name="bascule-bridge", daemon=True
        )
        self._thread.start()
        return ready.result(JOIN_SECONDS)

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._bridge.close()
        finally:
            self._stop.set()


async def _on_loop(function: Callable[[], T]) -> T:
    return function()
