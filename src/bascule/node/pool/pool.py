"""The pool: every connection of a node, by server, within the node's limits.

Below: ``connection.py`` and the transports. Above: ``bascule.node.assembly`` alone hands it to
the bridge, as the bridge's ``ToolCaller`` port; nothing else may import it. It follows registry
snapshots: what is removed is closed, what changed its transport is restarted, the rest is left
alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from bascule.audit.metrics import Metrics
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError, NotDelivered, OutcomeUnknown, ServerUnavailable
from bascule.model.call import Progress
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.node.pool.connection import Connection, ServerInspection
from bascule.node.pool.open import Opener
from bascule.node.pool.state import Status
from bascule.node.ports import Listing
from bascule.node.settings import NodeSettings

Key = tuple[str, str]
SHARED = ""


class Pool:
    """All connections of one node."""

    def __init__(
        self,
        opener: Opener,
        *,
        settings: NodeSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        metrics: Metrics | None = None,
    ) -> None:
        self._opener = opener
        self._settings = settings or NodeSettings()
        self._clock = clock
        self._metrics = metrics or Metrics()
        self._records: dict[str, ServerRecord] = {}
        self._connections: dict[Key, Connection] = {}
        self._applying = asyncio.Lock()
        self._warming: set[asyncio.Task[None]] = set()
        #: Grows whenever any tool list changes; sessions compare it before a call.
        self.epoch = 0
        opener.reap = self._reap_one

    @property
    def known_values(self) -> frozenset[str]:
        """Return the credentials that references gave so far; nobody is ever shown them."""
        return self._opener.known_values

    @property
    def reference_values(self) -> frozenset[str]:
        """Return everything that references gave so far; it is never written down."""
        return self._opener.reference_values

    async def apply(self, snapshot: Snapshot) -> None:
        """Follow the registry: close what is gone, restart what moved, warm what asks for it."""
        async with self._applying:
            wanted = dict(snapshot.servers)
            stale = [key for key, c in self._connections.items() if _moved(c, wanted.get(key[0]))]
            await asyncio.gather(*(self._drop(key) for key in stale))
            self._records = wanted
            for (server_id, _), connection in self._connections.items():
                connection.record = wanted[server_id]
            self._prewarm(record for record in wanted.values() if record.prewarm and record.enabled)

    async def listing(self, server_id: str, session_id: str) -> Listing:
        """Return a server's tools as a session sees them."""
        return await self._connection(server_id, session_id).listing()

    async def send(  # noqa: PLR0913 - options, all by keyword
        self,
        server_id: str,
        session_id: str,
        tool: str,
        arguments: bytes,
        *,
        timeout: float,  # noqa: ASYNC109 - passed down, where it becomes a deadline
        until: float | None = None,
        again: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> dict[str, Any]:
        """Call a tool, at most once.

        It is sent a second time only when it provably was not delivered, or when ``again`` says
        that repeating it does no harm.
        """
        connection = self._connection(server_id, session_id)
        try:
            return await connection.call(
                tool, arguments, timeout=timeout, until=until, on_progress=on_progress
            )
        except NotDelivered:
            pass
        except OutcomeUnknown:
            if not again:
                raise
        return await connection.call(
            tool, arguments, timeout=timeout, until=until, on_progress=on_progress
        )

    async def release(self, session_id: str) -> None:
        """Close what belonged to one session alone."""
        own = [key for key in self._connections if key[1] == session_id and session_id]
        await asyncio.gather(*(self._drop(key) for key in own))

    async def reconnect(self, server_id: str) -> None:
        """Tear down a server's shared connection and connect once more."""
        await self._connection(server_id, SHARED).reconnect()

    async def inspect(self, server_id: str) -> ServerInspection:
        """Look closely at one server, on its shared connection."""
        return await self._connection(server_id, SHARED).inspect()

    def statuses(self) -> list[Status]:
        """Return the status of every record, connected or not, by server."""
        found = [connection.status() for connection in self._connections.values()]
        seen = {status.server_id for status in found}
        rest = [
            Status(server_id=s, state="disconnected" if r.enabled else "disabled")
            for s, r in self._records.items()
            if s not in seen
        ]
        return sorted([*found, *rest], key=lambda status: status.server_id)

    async def close(self) -> None:
        """End every connection and process."""
        for task in self._warming:
            task.cancel()
        await asyncio.gather(*self._warming, return_exceptions=True)
        await asyncio.gather(*(self._drop(key) for key in list(self._connections)))
        await self._opener.close()

    def _connection(self, server_id: str, session_id: str) -> Connection:
        record = self._records.get(server_id)
        if record is None:
            raise ServerUnavailable(f"no server {server_id!r} is registered")
        key = (server_id, session_id if record.sharing == "session" else SHARED)
        connection = self._connections.get(key)
        if connection is None:
            connection = Connection(
                record,
                self._opener.open,
                self._settings,
                self._clock,
                self._metrics,
                on_change=self._changed,
            )
            self._connections[key] = connection
        return connection

    def _changed(self) -> None:
        self.epoch += 1

    async def _drop(self, key: Key) -> None:
        connection = self._connections.pop(key)
        await connection.close()
        self.epoch += 1

    def _prewarm(self, records: Iterable[ServerRecord]) -> None:
        for record in records:
            task = asyncio.get_running_loop().create_task(self._warm(record.server_id))
            self._warming.add(task)
            task.add_done_callback(self._warming.discard)

    async def _warm(self, server_id: str) -> None:
        try:
            await self.listing(server_id, SHARED)
        except BasculeError:
            return  # its status says why; the first caller is told as well

    async def _reap_one(self) -> bool:
        """Make room for one process: close the connection that has been idle for longest."""
        idle = [c for c in self._connections.values() if c.live and not c.in_flight]
        if not idle:
            return False
        await min(idle, key=lambda connection: connection.idle_since).disconnect()
        return True


def _moved(connection: Connection, record: ServerRecord | None) -> bool:
    """Say whether a connection no longer fits its record."""
    if record is None or not record.enabled:
        return True
    old = connection.record
    return (old.connection(), old.sharing, old.tool_namespace) != (
        record.connection(),
        record.sharing,
        record.tool_namespace,
    )
