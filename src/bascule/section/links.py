"""How a section reaches a bridge: one of its own, one it was given, or one of the host's loop.

Below: the bridges. Above: ``lifecycle.py``. Whatever the bridge, what a section does with it blocks
the thread that asks, and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import CancelledError
from typing import Any, Protocol, TypeVar

from bascule.node.blocking import BlockingBridge, BlockingSession, on_loop
from bascule.node.contract import AnyBridge, SessionOptions, opened

T = TypeVar("T")


class Link(Protocol):
    """A bridge, as this door uses it."""

    def open(self, options: SessionOptions) -> BlockingSession:
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

    def open(self, options: SessionOptions) -> BlockingSession:
        """Open a session."""
        return self._bridge.session(**options)

    def states(self) -> Mapping[str, str]:
        """Return how the bridge's connections stand."""
        return {status.server_id: status.state for status in self._bridge.statuses()}

    def close(self) -> None:
        """End the bridge if it is one's own."""
        if self._owned:
            self._bridge.close()


class LoopLink:
    """A bridge that lives on the event loop of the host, asked from other threads."""

    def __init__(self, bridge: AnyBridge, loop: asyncio.AbstractEventLoop) -> None:
        self._bridge = bridge
        self._loop = loop

    def open(self, options: SessionOptions) -> BlockingSession:
        """Open a session."""
        runner = HostLoop(self._loop)
        return BlockingSession(runner, runner.run(opened(self._bridge, options)))

    def states(self) -> Mapping[str, str]:
        """Return how the bridge's connections stand, if it holds any."""
        ask = self._bridge.statuses
        statuses = ask() if _running() is self._loop else run_on(self._loop, on_loop(ask))
        return {status.server_id: status.state for status in statuses}

    def close(self) -> None:
        """Leave the bridge to the host."""


class HostLoop:
    """Runs coroutines on the event loop of the host, asked from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @property
    def closed(self) -> bool:
        """Say whether the loop runs nothing any more."""
        return not self._loop.is_running()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return run_on(self._loop, work)


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
