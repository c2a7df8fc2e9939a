"""One server's connection: opened when it is needed, looked after, opened again when it is lost.

Below: ``client.py`` speaks, ``state.py`` says where it stands, ``backoff.py`` when to try again,
``catalogue.py`` keeps the tools. Above: ``pool.py`` owns connections. Every task a connection
starts ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bascule.audit.metrics import Metrics
from bascule.clock import Clock
from bascule.errors import (
    BasculeError,
    DeadlineExceeded,
    NotDelivered,
    ServerUnavailable,
)
from bascule.model.call import Progress
from bascule.model.server import ServerRecord
from bascule.node.pool.backoff import Backoff
from bascule.node.pool.catalogue import Catalogue, joined
from bascule.node.pool.client import ClientEvents, McpClient, ToolList
from bascule.node.pool.open import NoRoom
from bascule.node.pool.starting import Open, Starter
from bascule.node.pool.state import Machine, ServerInspection, State, Status
from bascule.node.pool.turns import Turns
from bascule.node.pool.working import Work, work_of
from bascule.node.ports import InputHandler, Listing, StillStarting
from bascule.node.settings import NodeSettings
from bascule.wire.era import Era
from bascule.wire.http_headers import HeaderPath

_LISTEN_SECONDS = 3600.0
_PAUSE_SECONDS = 1.0  # between one subscription and the next
_DOUBT_SECONDS = 1.0  # a server with a call unanswered gets this long for a sign of life


class Connection:
    """A connection to one server, for all sessions or for one."""

    def __init__(  # noqa: PLR0913 - what it is joined to
        self,
        record: ServerRecord,
        open_channel: Open,
        settings: NodeSettings,
        clock: Clock,
        metrics: Metrics,
        *,
        on_change: Callable[[], int],
        inputs: InputHandler | None = None,
        turns: Turns | None = None,
        work: Work = work_of,
    ) -> None:
        self.record = record
        self._inputs = inputs
        self._starter = Starter(open_channel, settings, clock, turns, work)
        self._asked_at: float | None = None  # for the tools, without an answer yet
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._machine = Machine()
        self._backoff = Backoff(settings, clock)
        self._client: McpClient | None = None
        self._era: Era | None = None
        self._attempt: asyncio.Task[McpClient] | None = None
        self._care: list[asyncio.Task[None]] = []
        self._leaving: asyncio.Task[None] | None = None
        self._closed = False
        self._doubted: McpClient | None = None
        self._header_paths: dict[str, tuple[HeaderPath, ...]] = {}
        self._last_error: str | None = None
        self._last_reason = "unavailable"
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
            starting=self._starter.progress,
        )

    def wanted_by(self, asker: str) -> None:
        """Note which session waits for a start."""
        self._starter.wanted_by(asker)

    @property
    def lags(self) -> bool:
        """Say whether its tools are on their way and not worth waiting for."""
        if self._starter.slow or self._starter.lags or self._asked_at is None:
            return self._starter.slow or self._starter.lags
        return self._clock.monotonic() - self._asked_at >= self._settings.grace_seconds

    async def listing(self, *, patient: bool = True) -> Listing:
        """Return the server's tools; who is not patient is told StillStarting where it lags."""
        try:
            return await self.catalogue.get(None if patient else lambda: self.lags)
        except TimeoutError:
            words = self._starter.progress or "it does not answer"
            before = f" (before that: {self._last_error})" if self._starter.slow else ""
            text = f"not there yet: {words}{before}; that goes on"
            raise StillStarting(text, hopeful=not self._starter.slow) from None

    async def inspect(self, *, afresh: bool = False) -> ServerInspection:
        """Connect and list, with the time each takes now; raise what goes wrong.

        ``afresh`` is for a person who asks whether it works now: no pause after failures is
        waited out, and no earlier list will do.
        """
        started = self._clock.monotonic()
        if afresh and (self._client is None or not self._client.alive):
            self._backoff.forgive()
        client = await self.client()
        connected = self._clock.monotonic()
        listing = await (self._listed_anew(client) if afresh else self.listing())
        return ServerInspection(
            server_id=self.record.server_id,
            era=client.era,
            protocol_version=client.version,
            server_info=client.server_info,
            connect_ms=(connected - started) * 1000,
            list_ms=(self._clock.monotonic() - connected) * 1000,
            listing=listing,
        )

    async def _listed_anew(self, client: McpClient) -> Listing:
        """List; a server that fails at it must give a sign of life, or is started again."""
        try:
            return await self.catalogue.renew()
        except BasculeError:
            if client is self._client and client is not self._doubted:
                await self._doubt(client)
            raise

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
        except (DeadlineExceeded, NotDelivered):
            # Others may still be served: only the last to be let down asks for a sign of life.
            alone = self.in_flight == 1
            if alone and client is self._client and client is not self._doubted:
                self._look_after(self._doubt(client))
            raise
        finally:
            self.in_flight -= 1
            self._last_used = ended = self._clock.monotonic()
        self._latency_ms = (ended - started) * 1000
        self._proven(client)
        return result

    async def client(self, until: float | None = None) -> McpClient:
        """Return a live client, connecting when there is none; many callers cause one attempt."""
        if self._client is not None and self._client.alive:
            return self._client
        try:
            async with asyncio.timeout_at(until):
                return await self._attempted()
        except TimeoutError:
            words = self._starter.progress
            raise DeadlineExceeded(
                f"server {self.record.server_id!r} was still connecting"
                + (f" ({words}); that goes on" if words else "")
            ) from None

    async def disconnect(self) -> None:
        """End the connection, its process and its tasks; it may be opened again."""
        gone = self._leave()
        self._machine.move("disconnected")
        await asyncio.shield(gone)

    async def close(self, *, disabled: bool = False) -> None:
        """End the connection for good."""
        self._closed = True
        await self.disconnect()
        await self.catalogue.close()
        if disabled:
            self._machine.move("disabled")

    async def reconnect(self) -> None:
        """Tear down and connect once more, at once; raise what goes wrong."""
        await self.disconnect()
        self._backoff.forgive()
        await self.client()

    async def _attempted(self) -> McpClient:
        """Wait for the attempt under way, and for the next one when a disconnect ended it."""
        self.in_flight += 1  # whoever waits for it is going to use it: it is not idle
        try:
            while True:
                attempt = self._connecting()
                try:
                    return await joined(attempt)
                except ServerUnavailable:
                    if not attempt.cancelled():
                        raise
        finally:
            self.in_flight -= 1

    def _connecting(self) -> asyncio.Task[McpClient]:
        """Return the attempt that callers share; refuse when the next one is too far away."""
        if self._closed:
            raise ServerUnavailable(f"the connection to {self.record.server_id!r} was closed")
        remaining = self._backoff.remaining
        if remaining > self._settings.patience_seconds:
            raise ServerUnavailable(
                f"{self._last_error or 'the server failed'} (next attempt in {remaining:.0f} s)",
                reason=self._last_reason,
            )
        if self._attempt is None or self._attempt.done():
            return self._begin(retries=0)
        return self._attempt

    def _begin(self, *, retries: int) -> asyncio.Task[McpClient]:
        self._attempt = asyncio.get_running_loop().create_task(self._connect(retries))
        self._attempt.add_done_callback(_observed)
        return self._attempt

    async def _connect(self, retries: int) -> McpClient:
        if self._leaving is not None:
            await asyncio.wait({self._leaving})  # one process at a time
        while True:
            delay = self._backoff.remaining
            if delay:
                await self._clock.sleep(delay)
            self._machine.move(self._trying())
            try:
                client = await self._open()
            except BasculeError as error:
                self._failed(error, final=retries <= 0)
                if retries <= 0 or self._backoff.parked:
                    raise
                retries -= 1
                continue
            return self._opened(client)

    def _trying(self) -> State:
        return "reconnecting" if self.state == "reconnecting" else "connecting"

    async def _open(self) -> McpClient:
        client = await self._starter.open(
            self.record,
            era_hint=self._era,
            events=ClientEvents(on_tools_changed=self.catalogue.invalidate, on_closed=self._lost),
            inputs=self._inputs,
        )
        if not client.alive:
            await asyncio.wait({self._clear_away([], client)})
            said = client.diagnosis()
            after = f"; it said: {said}" if said else ""
            raise ServerUnavailable(f"the server ended right after the handshake{after}")
        return client

    def _opened(self, client: McpClient) -> McpClient:
        if self._last_connected_at is not None:
            self._reconnects += 1
        client.header_paths = self._header_paths
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

    def _failed(self, error: BasculeError, *, final: bool) -> None:
        self._last_error = str(error)
        self._last_reason = "unavailable"
        if isinstance(error, ServerUnavailable):
            self._last_reason = error.reason
        self._era = None
        if not isinstance(error, NoRoom):
            self._backoff.failed()
        if self._backoff.parked:
            self._machine.move("parked")
        elif final:
            self._machine.move("down")

    def _proven(self, client: McpClient) -> None:
        """The server answered: what went wrong before counts no more."""
        self._backoff.proven()
        if self._machine.state == "degraded" and client is self._client:
            self._machine.move("connected")

    def _lost(self, reason: str) -> None:
        """The other end is gone; one that we had let go already is nobody's loss."""
        if self._client is not None and not self._client.alive:
            self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        """Let go of a connection that serves no more, and try to get it back."""
        self._last_error, self._last_reason = reason, "unavailable"
        self._backoff.lost()
        self._leave()
        self._machine.move("reconnecting")
        if self._backoff.parked:
            self._machine.move("parked")
        else:
            self._begin(retries=self._settings.reconnects - 1)

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
                self._leave()
                self._machine.move("disconnected")
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
            if client is not self._client:
                return False
            if self.state == "degraded":
                self._give_up(self._last_error)
                return False
            self._machine.move("degraded")
        else:
            self._proven(client)
        return True

    async def _doubt(self, client: McpClient) -> None:
        """Tell a slow tool from a stuck server, which answers nothing and is started again."""
        self._doubted = client
        try:
            deadline = asyncio.get_running_loop().time() + _DOUBT_SECONDS
            await client.keepalive(deadline=deadline)
        except BasculeError as error:
            if client is self._client:
                self._give_up(f"stuck: neither a call nor a sign of life was answered ({error})")
        finally:
            self._doubted = None

    async def _listen(self, client: McpClient) -> None:
        """Hear of changes from a server that must be asked to tell."""
        loop = asyncio.get_running_loop()
        while client is self._client and client.alive:
            try:
                await client.listen(deadline=loop.time() + _LISTEN_SECONDS)
            except BasculeError:
                return
            await self._clock.sleep(_PAUSE_SECONDS)  # a server that ends each one at once
            self.catalogue.invalidate()

    async def _fetch_tools(self) -> ToolList:
        client = await self.client()
        loop = asyncio.get_running_loop()
        started = loop.time()
        self.in_flight += 1
        self._asked_at = self._clock.monotonic()
        try:
            found = await client.list_tools(
                deadline=started + self.record.budgets.list_timeout_ms / 1000
            )
        except DeadlineExceeded as error:
            self._starter.slow = True
            raise ServerUnavailable(
                f"no tool list in time: {error}", reason="list_timeout"
            ) from error
        except BasculeError as error:
            if isinstance(error, ServerUnavailable):
                raise
            raise ServerUnavailable(f"tools/list failed: {error}") from error
        finally:
            self.in_flight -= 1
            self._asked_at = None
            self._last_used = self._clock.monotonic()
        self._starter.slow = False
        self._metrics.listed(self.record.server_id, (loop.time() - started) * 1000)
        self._proven(client)
        return found

    def _look_after(self, work: Coroutine[Any, Any, None]) -> None:
        self._care = [task for task in self._care if not task.done()]
        self._care.append(asyncio.get_running_loop().create_task(work))

    def _leave(self) -> asyncio.Task[None]:
        """Let go of the client and of every task at once; give the task that sees them out.

        Whoever connects next waits for it, so that there are never two processes.
        """
        tasks: list[asyncio.Task[Any]] = [*self._care]
        if self._attempt is not None:
            tasks.append(self._attempt)
        client = self._client
        self._care, self._attempt, self._client = [], None, None
        current = asyncio.current_task()
        for task in tasks:
            if task is not current:
                task.cancel()
        return self._clear_away(tasks, client)

    def _clear_away(
        self, tasks: list[asyncio.Task[Any]], client: McpClient | None
    ) -> asyncio.Task[None]:
        """See tasks and a client out, after those that went before them."""
        work = _see_out(self._leaving, tasks, client)
        self._leaving = asyncio.get_running_loop().create_task(work)
        self._leaving.add_done_callback(_observed)
        return self._leaving


async def _see_out(
    before: asyncio.Task[None] | None, tasks: list[asyncio.Task[Any]], client: McpClient | None
) -> None:
    """Wait until tasks have ended, then close what they used."""
    if before is not None:
        await asyncio.wait({before})
    await asyncio.gather(*tasks, return_exceptions=True)
    if client is not None:
        await client.close()


def _observed(task: asyncio.Task[Any]) -> None:
    """Look at a failure that nobody waited for, so that the loop does not complain."""
    if not task.cancelled():
        task.exception()
