"""The bridge for programs without async: its event loop runs in a thread of its own.

Below: ``bridge/``; whatever is asked of it is done on the loop's thread, so that many threads may
ask at once. Above: ``Bridge.blocking`` and ``Bridge.connect_blocking`` make one. Because the loop
is its own, it may also be used where another loop is running. Progress callbacks, approvers and
input handlers are called on the loop's thread: they must be short, and must not ask this bridge
for anything.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Protocol, Self, TypedDict, TypeVar, Unpack

from bascule.model.outcome import Outcome
from bascule.model.status import ServerStatus
from bascule.node.bridge.call import OnProgress
from bascule.node.bridge.toolset import ToolSet
from bascule.node.contract import AnyBridge, SessionOptions, ToolSession, opened
from bascule.policy.explain import Explanation

T = TypeVar("T")

CLOSE_SECONDS = 10.0  # for the bridge to end its servers; it needs less than two
JOIN_SECONDS = 5.0  # for the thread to end after that
_ELSEWHERE = (
    "this bridge is of another process, or Python is ending: a forked process opens its own"
)
_CLOSED = "this bridge is closed: open a new one with Bridge.blocking(...)"


class CallOptions(TypedDict, total=False):
    """The options of ``Session.call``."""

    timeout: float | None
    idle_timeout: float | None
    max_output_bytes: int | None
    on_progress: OnProgress | None


class Runner(Protocol):
    """Runs coroutines to their end for a thread that has no event loop of its own."""

    @property
    def closed(self) -> bool:
        """Say whether it runs nothing any more."""
        ...

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; a caller that is interrupted takes it along."""
        ...


class BlockingBridge:
    """A bridge whose methods simply return.

    Close it, or use it in a ``with`` block::

        with Bridge.blocking([clock]) as bridge, bridge.session(server_ids=["time"]) as session:
            print(session.call("mcp__time__get_current_time", {"timezone": "UTC"}).text)
    """

    def __init__(self, bridge: AnyBridge) -> None:
        self._bridge = bridge
        self._thread = _LoopThread(bridge)
        # One that is forgotten is closed when it is collected. Not when the program ends: that
        # would wake daemon threads in their calls, and the servers die with the program anyhow.
        weakref.finalize(self, self._thread.close).atexit = False

    @property
    def closed(self) -> bool:
        """Say whether it is closed."""
        return self._thread.closed

    def session(self, **options: Unpack[SessionOptions]) -> BlockingSession:
        """Open a session; it takes what ``Bridge.session`` takes, and raises SessionRefused."""
        session = self._thread.run(opened(self._bridge, options))
        return BlockingSession(self._thread, session, bridge=self)

    def statuses(self) -> Sequence[ServerStatus]:
        """Return how every server's connection stands; none where the bridge holds none itself."""
        return self._thread.run(on_loop(self._bridge.statuses))

    def close(self) -> None:
        """End every server and the thread. Any number of times, from any thread."""
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class BlockingSession:
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

    def tools(self) -> ToolSet:
        """List the tools. A server that cannot list contributes nothing but a warning."""
        return self._run(self._session.tools())

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> Outcome:
        """Call a tool by the name a model uses; every failure comes back as an outcome."""
        return self._run(self._session.call(name, arguments, **options))

    def explain(self, name: str) -> Explanation:
        """Explain a tool or a server from what was listed: readable when printed, an object too."""
        return self._run(on_loop(lambda: self._session.explain(name)))

    def explanation(self, name: str) -> Explanation:
        """Explain a tool or a server, asking whoever has to be asked."""
        return self._run(self._session.explanation(name))

    def read_output(self, handle: str, start: int = 0, end: int | None = None) -> str:
        """Read bytes ``start`` to ``end`` of an output that was cut."""
        return self._run(self._session.output(handle, start, end))

    def close(self) -> None:
        """End the session: its own connections are closed, its outputs are gone."""
        if not self._closed and not self._runner.closed:
            self._runner.run(self._session.close())
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            raise RuntimeError("this session is closed: open a new one with bridge.session(...)")
        return self._runner.run(work)


async def on_loop(function: Callable[[], T]) -> T:
    """Call a function where the event loop runs."""
    return function()


class _LoopThread:
    """A daemon thread with an event loop, started with the first thing there is to do.

    It does not know the ``BlockingBridge``, so that one that is forgotten can be collected.
    """

    def __init__(self, bridge: AnyBridge) -> None:
        self._bridge = bridge
        # Reentrant: a collection, and with it a close, may happen anywhere.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self.closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; a caller that is interrupted takes it along."""
        try:
            future = self._submit(work)
        except RuntimeError:
            work.close()
            raise
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("the bridge was closed while this was under way") from None
        except BaseException:
            future.cancel()  # of no effect when it is the work itself that raised
            raise

    def close(self) -> None:
        """End the bridge and the thread, within a bound."""
        with self._lock:
            first, self.closed = not self.closed, True
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

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self.closed:
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
