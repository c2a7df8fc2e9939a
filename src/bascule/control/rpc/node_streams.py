"""Which nodes follow here: one process for each name.

A process that comes back takes the place of its own stream, whose connection may be lost without
a word; another process is turned away while the first is there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

from bascule.asgi.errors import Refused
from bascule.audit.log_lines import say

logger = logging.getLogger("bascule.nodes")


class NodeStream:
    """The stream of one process."""

    def __init__(self, process: str, version: str) -> None:
        self.process = process
        self.version = version
        #: Another process that was turned away.
        self.turned_away: str | None = None
        self._is_replaced = False

    def replace(self) -> None:
        """End it, in favour of a newer one of its process."""
        self._is_replaced = True

    def refuse_replaced(self) -> None:
        """Raise once a newer one has taken its place."""
        if self._is_replaced:
            raise Refused("shutting_down", "this process follows on another stream")


class NodeStreams:
    """The open streams, by the names of nodes."""

    def __init__(self, on_second: Callable[[str], None]) -> None:
        """Call ``on_second`` with the name of a node when a second process is turned away."""
        self._on_second = on_second
        self._open: dict[str, NodeStream] = {}

    def __iter__(self) -> Generator[str, None, None]:
        yield from self._open

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def open(self, node: str, process: str, version: str) -> Generator[NodeStream, None, None]:
        """Have a node follow for the length of the block; raise where another process does."""
        before = self._open.get(node)
        if before is not None:
            if before.process != process:
                self._turn_away(node, before, process)
            before.replace()
        self._open[node] = stream = NodeStream(process, version)
        try:
            yield stream
        finally:
            if self._open.get(node) is stream:
                del self._open[node]

    def _turn_away(self, node: str, stream: NodeStream, process: str) -> None:
        self._on_second(node)
        words = f"another process follows as node {node!r}: each needs a token of its own"
        if stream.turned_away != process:
            stream.turned_away = process
            say(logger, logging.WARNING, f"a second process is refused: {words}", node=node)
        raise Refused("already_exists", words, details={"node": node})
