"""One server's connection: opened when it is needed, looked after, opened again when it is lost.

Below: ``client.py`` speaks, ``state.py`` says where it stands, ``backoff.py`` when to try again,
``catalogue.py`` keeps the tools. Above: ``pool.py`` owns connections. Every task a connection
starts ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from msgspec import Struct

from bascule.audit.metrics import Metrics
from bascule.clock import Clock
from bascule.errors import (
    BasculeError,
    DeadlineExceeded,
    MalformedReply,
    RemoteError,
    ServerUnavailable,
)
from bascule.model.call import Progress
from bascule.model.server import ServerRecord
from bascule.node.pool.backoff import Backoff
from bascule.node.pool.catalogue import Catalogue
from bascule.node.pool.client import ClientEvents, McpClient, ToolList, connect
from bascule.node.pool.state import Machine, State, Status
from bascule.node.pool.transport.channel import Channel, Events
from bascule.node.ports import Listing
from bascule.node.settings import NodeSettings
from bascule.wire.era import Era

Open = Callable[[ServerRecord, Events], Awaitable[Channel]]

_LISTEN_SECONDS = 3600.0


class ServerInspection(Struct, frozen=True, kw_only=True):
    """What a server is and lists when it is looked at closely; names are its own words."""

    server_id: str
    era: Era
    protocol_version: str
    server_info: Mapping[str, Any]
    connect_ms: float
    list_ms: float
    listing: Listing


class Connection:
    """A connection to one server, for all sessions or for one."""

    def __init__(
        self,
        record: ServerRecord,
        open_channel: Open,
        settings: NodeSettings,
        clock: Clock,
        metrics: Metrics,
        *,
        on_change: Callable[[], None],
    ) -> None:
        self.record = record
        self._open_channel = open_channel
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._machine = Machine()
        self._backoff = Backoff(settings, clock)
        self._client: McpClient | None = None
        self._era: Era | None = None
        self._attempt: asyncio.Task[McpClient] | None = None
        self._care: list[asyncio.Task[None]] = []
        self._last_error: str | None = None
        self._last_connected_at: float | None = None
        self._latency_ms: float | None = None
        self._reconnects = 0
        self._last_used = clock.monotonic()
        self.in_flight = 0
        self.catalogue = Catalogue(record, self._fetch_tools, settings, clock, on_change)

    @property
    def state(self) -> State:
        """Return where the connection stands."""
        return self._machine.state

    @property
    def live(self) -> bool:
        """Say whether there is a process or connection at the other end."""
        return self._client is not None

    @property
    def idle_since(self) -> float:
        """Return when it was last used, on the monotonic clock."""
        return self._last_used

    def status(self) -> Status:
        """Return what is known about this connection."""
        listing = self.catalogue.listing
        return Status(
            server_id=self.record.server_id,
            state=self.state,
            last_error=self._last_error,
            last_connected_at=self._last_connected_at,
            reconnects=self._reconnects,
            latency_ms=self._latency_ms,
            tool_count=None if listing is None else len(listing.tools),
        )

    async def listing(self) -> Listing:
        """Return the server's tools."""
        return await self.catalogue.get()

    async def inspect(self) -> ServerInspection:
        """Connect and list, with the time each takes now; raise what goes wrong."""
        started = self._clock.monotonic()
        client = await self.client()
        connected = self._clock.monotonic()
        listing = await self.listing()
        return ServerInspection(
            server_id=self.record.server_id,
            era=client.era,
            protocol_version=client.version,
            server_info=client.server_info,
            connect_ms=(connected - started) * 1000,
            list_ms=(self._clock.monotonic() - connected) * 1000,
            listing=listing,
        )

    async def call(
        self,
        tool: str,
        arguments: bytes,
        *,
        timeout: float,  # noqa: ASYNC109 - the wait has an absolute deadline below
        until: float | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> dict[str, Any]:
        """Call a tool once.

        ``timeout`` counts from the moment the server is connected; ``until`` is the caller's own
        limit on everything, absolute, in ``loop.time()``.
        """
        client = self._client
        if client is None or not client.alive:
            client = await self.client(until)
        started = self._clock.monotonic()
        deadline = asyncio.get_running_loop().time() + timeout
        if until is not None and until < deadline:
            deadline = until
        self.in_flight += 1
        try:
            result = await client.call_tool(
                tool, arguments, deadline=deadline, on_progress=on_progress
            )
        finally:
            self.in_flight -= 1
            self._last_used = ended = self._clock.monotonic()
        self._latency_ms = (ended - started) * 1000
        self._backoff.proven()
        return result

    async def client(self, until: float | None = None) -> McpClient:
        """Return a live client, connecting when there is none; many callers cause one attempt."""
        if self._client is not None and self._client.alive:
            return self._client
        try:
            async with asyncio.timeout_at(until):
                return await asyncio.shield(self._connecting(retries=0))
        except TimeoutError:
            raise DeadlineExceeded(
                f"server {self.record.server_id!r} was still connecting"
            ) from None

    async def disconnect(self) -> None:
        """End the connection, its process and its tasks; it may be opened again."""
        await self._stop_tasks()
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        self._machine.move("disconnected")

    async def close(self, *, disabled: bool = False) -> None:
        """End the connection for good."""
        await self.disconnect()
        await self.catalogue.close()
        if disabled:
            self._machine.move("disabled")

    async def reconnect(self) -> None:
        """Tear down and connect once more, at once; raise what goes wrong."""
        await self.disconnect()
        self._backoff.forgive()
        await self.client()

    def _connecting(self, *, retries: int) -> asyncio.Task[McpClient]:
        if self._attempt is None or self._attempt.done():
            remaining = self._backoff.remaining
            if remaining > self._settings.patience_seconds and retries == 0:
                raise ServerUnavailable(
                    f"{self._last_error or 'the server failed'} (next attempt in {remaining:.0f} s)"
                )
            self._attempt = asyncio.get_running_loop().create_task(self._connect(retries))
            self._attempt.add_done_callback(_observed)
        return self._attempt

    async def _connect(self, retries: int) -> McpClient:
        while True:
            delay = self._backoff.remaining
            if delay:
                await self._clock.sleep(delay)
            self._machine.move(self._trying())
            try:
                client = await self._open()
            except BasculeError as error:
                self._failed(error)
                if retries <= 0 or self._backoff.parked:
                    raise
                retries -= 1
                self._machine.move("connecting")
                continue
            return self._opened(client)

    def _trying(self) -> State:
        return "reconnecting" if self.state == "reconnecting" else "connecting"

    async def _open(self) -> McpClient:
        budget = self.record.budgets.connect_timeout_ms / 1000
        events = ClientEvents(on_tools_changed=self.catalogue.invalidate, on_closed=self._lost)
        deadline = asyncio.get_running_loop().time() + budget
        try:
            return await connect(
                lambda channel_events: self._open_channel(self.record, channel_events),
                deadline=deadline,
                era_hint=self._era,
                events=events,
            )
        except DeadlineExceeded as error:
            raise ServerUnavailable(f"no connection within {budget:g} s: {error}") from error
        except (RemoteError, MalformedReply) as error:
            raise ServerUnavailable(f"the handshake failed: {error}") from error

    def _opened(self, client: McpClient) -> McpClient:
        if self._last_connected_at is not None:
            self._reconnects += 1
        self._client = client
        self._era = client.era
        self._last_connected_at = self._clock.now()
        self._last_used = self._clock.monotonic()
        self._machine.move("connected")
        self._metrics.connected(self.record.server_id)
        self._look_after(self._keep_alive(client))
        if client.era == "modern" and client.announces_changes:
            self._look_after(self._listen(client))
        if self.catalogue.listing is not None:
            self.catalogue.invalidate()
        return client

    def _failed(self, error: BasculeError) -> None:
        self._last_error = str(error)
        self._era = None
        self._backoff.failed()
        self._machine.move("parked" if self._backoff.parked else "down")

    def _lost(self, reason: str) -> None:
        """The other end is gone: say so, and try to get it back."""
        client, self._client = self._client, None
        self._last_error = reason
        self._backoff.lost()
        if client is None or self.state not in ("connected", "degraded"):
            return
        self._machine.move("reconnecting")
        if self._backoff.parked:
            self._machine.move("parked")
        self._look_after(self._recover(client))

    async def _recover(self, lost: McpClient) -> None:
        """Clear away what is left of the old connection, then open a new one."""
        for task in self._care:
            if task is not asyncio.current_task():
                task.cancel()
        await lost.close()
        if self.state != "reconnecting":
            return
        try:
            await asyncio.shield(self._connecting(retries=self._settings.reconnects - 1))
        except BasculeError:
            return  # the state and last_error say so; the next caller tries again

    async def _keep_alive(self, client: McpClient) -> None:
        """Close an idle connection; ask a quiet one for a sign of life."""
        settings = self._settings
        pause = min(settings.idle_seconds, settings.keepalive_seconds)
        while client is self._client:
            await self._clock.sleep(pause)
            quiet = self._clock.monotonic() - self._last_used
            if self.in_flight:
                continue
            if quiet >= settings.idle_seconds:
                self._end_idle()
                return
            if quiet >= settings.keepalive_seconds and not await self._is_well(client):
                return

    async def _is_well(self, client: McpClient) -> bool:
        """One sign of life missed is a warning; a second ends the connection."""
        deadline = asyncio.get_running_loop().time() + self._settings.keepalive_timeout
        try:
            await client.keepalive(deadline=deadline)
        except BasculeError as error:
            self._last_error = f"no sign of life: {error}"
            if self.state == "degraded" or not client.alive:
                self._lost(self._last_error)
                return False
            self._machine.move("degraded")
        else:
            self._machine.move("connected")
        return True

    def _end_idle(self) -> None:
        client, self._client = self._client, None
        self._machine.move("disconnected")
        if client is not None:
            self._look_after(client.close())

    async def _listen(self, client: McpClient) -> None:
        """Hear of changes from a server that must be asked to tell."""
        loop = asyncio.get_running_loop()
        while client is self._client and client.alive:
            try:
                await client.listen(deadline=loop.time() + _LISTEN_SECONDS)
            except BasculeError:
                return
            self.catalogue.invalidate()

    async def _fetch_tools(self) -> ToolList:
        client = await self.client()
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            found = await client.list_tools(
                deadline=started + self.record.budgets.list_timeout_ms / 1000
            )
        except DeadlineExceeded as error:
            raise ServerUnavailable(
                f"no tool list in time: {error}", reason="list_timeout"
            ) from error
        except BasculeError as error:
            if isinstance(error, ServerUnavailable):
                raise
            raise ServerUnavailable(f"tools/list failed: {error}") from error
        self._metrics.listed(self.record.server_id, (loop.time() - started) * 1000)
        self._last_used = self._clock.monotonic()
        self._backoff.proven()
        return found

    def _look_after(self, work: Coroutine[Any, Any, None]) -> None:
        self._care = [task for task in self._care if not task.done()]
        self._care.append(asyncio.get_running_loop().create_task(work))

    async def _stop_tasks(self) -> None:
        tasks: list[asyncio.Task[Any]] = [*self._care]
        if self._attempt is not None:
            tasks.append(self._attempt)
        self._care, self._attempt = [], None
        current = asyncio.current_task()
        for task in tasks:
            if task is not current:
                task.cancel()
        await asyncio.gather(*(t for t in tasks if t is not current), return_exceptions=True)


def _observed(task: asyncio.Task[McpClient]) -> None:
    """Look at a failure that nobody waited for, so that the loop does not complain."""
    if not task.cancelled():
        task.exception()
