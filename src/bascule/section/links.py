"""How a section reaches a bridge: one of its own, one it was given, or one of the host's loop.

Below: the bridges. Above: ``lifecycle.py``. Whatever the bridge, what a section does with it blocks
the thread that asks, and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar, Unpack, runtime_checkable

from bascule.model.outcome import Outcome
from bascule.node.blocking import BlockingBridge, CallOptions
from bascule.node.bridge.toolset import ToolSet
from bascule.node.faces import AnyBridge, AsksElsewhere, SessionOptions, ToolSession
from bascule.node.sync.ports import ServerState
from bascule.policy.explain import Explanation

T = TypeVar("T")


class LinkSession(Protocol):
    """A session of a bridge, as this door uses it. ``BlockingSession`` is one."""

    def tools(self) -> ToolSet:
        """List the tools."""
        ...

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> Outcome:
        """Call a tool."""
        ...

    def explain(self, name: str) -> Explanation:
        """Explain a tool or a server."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Link(Protocol):
    """A bridge, as this door uses it."""

    def open(self, options: SessionOptions) -> LinkSession:
        """Open a session."""
        ...

    def states(self) -> Mapping[str, str]:
        """Return how the bridge's connections stand, as far as it holds any."""
        ...

    def close(self) -> None:
        """Let go of the bridge; one's own ends with all that it started."""
        ...


class BlockingLink:
    """A bridge with a thread of its own."""

    def __init__(self, bridge: BlockingBridge, *, owned: bool) -> None:
        self._bridge = bridge
        self._owned = owned

    def open(self, options: SessionOptions) -> LinkSession:
        """Open a session."""
        return self._bridge.session(**options)

    def states(self) -> Mapping[str, str]:
        """Return how the bridge's connections stand."""
        return {status.server_id: status.state for status in self._bridge.statuses()}

    def close(self) -> None:
        """End the bridge if it is one's own."""
        if self._owned:
            self._bridge.close()


@runtime_checkable
class _HoldsConnections(Protocol):
    def statuses(self) -> Sequence[ServerState]: ...


class LoopLink:
    """A bridge that lives on the event loop of the host, asked from other threads."""

    def __init__(self, bridge: AnyBridge, loop: asyncio.AbstractEventLoop) -> None:
        self._bridge = bridge
        self._loop = loop

    def open(self, options: SessionOptions) -> LinkSession:
        """Open a session."""
        return _LoopSession(self._loop, run_on(self._loop, _opened(self._bridge, options)))

    def states(self) -> Mapping[str, str]:
        """Return how the bridge's connections stand, if it holds any."""
        bridge = self._bridge
        if not isinstance(bridge, _HoldsConnections):
            return {}
        here = _running() is self._loop
        statuses = bridge.statuses() if here else run_on(self._loop, _on_loop(bridge.statuses))
        return {status.server_id: status.state for status in statuses}

    def close(self) -> None:
        """Leave the bridge to the host."""


class _LoopSession:
    def __init__(self, loop: asyncio.AbstractEventLoop, session: ToolSession) -> None:
        self._loop = loop
        self._session = session

    def tools(self) -> ToolSet:
        return run_on(self._loop, self._session.tools())

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> Outcome:
        return run_on(self._loop, self._session.call(name, arguments, **options))

    def explain(self, name: str) -> Explanation:
        if isinstance(self._session, AsksElsewhere):
            return run_on(self._loop, self._session.explanation(name))
        return run_on(self._loop, _on_loop(lambda: self._session.explain(name)))

    def close(self) -> None:
        run_on(self._loop, self._session.close())


def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on another thread's loop, to its end; raise RuntimeError when that cannot be.

    Whoever is interrupted while it waits takes the work along.
    """
    if _running() is loop:
        work.close()
        raise RuntimeError(
            "this would wait for its own event loop: call it in a thread (asyncio.to_thread)"
        )
    if not loop.is_running():
        work.close()
        raise RuntimeError("the event loop of this bridge is not running")
    try:
        future = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError:
        work.close()
        raise
    try:
        return future.result()
    except CancelledError:
        raise RuntimeError("the event loop ended while this was under way") from None
    except BaseException:
        future.cancel()  # of no effect when it is the work itself that raised
        raise


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _opened(bridge: AnyBridge, options: SessionOptions) -> ToolSession:
    await bridge.start()
    session = bridge.session(**options)
    if isinstance(session, AbstractAsyncContextManager):
        await session.__aenter__()  # one that is refused elsewhere is refused here and now
    return session


async def _on_loop(function: Callable[[], T]) -> T:
    return function()
