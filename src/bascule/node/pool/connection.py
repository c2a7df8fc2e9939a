"""One server's connection: opened when it is needed, looked after, opened again when it is lost.

``client.py`` speaks, ``state.py`` says where it stands, ``backoff.py`` when to try again,
``catalogue.py`` keeps the tools. Every task a connection starts ends with it. A caller who leaves
early costs the others nothing: ``health.py`` watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bascule.audit.metrics import Metrics
from bascule.clock import Clock
from bascule.errors import (
    BasculeError,
    DeadlineExceeded,
    NotDelivered,
    OutcomeUnknown,
    ServerUnavailable,
)
from bascule.lifetime import observed
from bascule.model.json import JsonObject
from bascule.model.server import ServerRecord
from bascule.model.status import Change, ConnectionStatus, State
from bascule.node.backoff import Backoff
from bascule.node.pool.catalogue import Catalogue, joined, unlisted
from bascule.node.pool.client import ClientEvents, McpClient, ToolList
from bascule.node.pool.health import Watch
from bascule.node.pool.opener import NoRoom
from bascule.node.pool.sender import Sender
from bascule.node.pool.start import Open, Starter
from bascule.node.pool.start_signs import Work, work_of
from bascule.node.pool.state import SERVING, TROUBLED, WAITING, Latency, Machine
from bascule.node.pool.transport.channel import Outdated
from bascule.node.pool.turns import Turns
from bascule.node.pool.upkeep import Upkeep
from bascule.node.ports import InputHandler, Listing, Outgoing
from bascule.node.settings import NodeSettings
from bascule.wire.era import Era, InputRequired, read_call
from bascule.wire.http_headers import HeaderPath


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
        announce: Callable[[Change], None] | None = None,
        sender: Sender | None = None,
        inputs: InputHandler | None = None,
        turns: Turns | None = None,
        work: Work = work_of,
    ) -> None:
        self.record = record
        self._inputs = inputs
        self._announce = announce
        self._sender = sender
        self.starter = Starter(open_channel, settings, clock, turns, work)
        self._asked_at: float | None = None  # for the tools, without an answer yet
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._machine = Machine(self._moved)
        self._backoff = Backoff(settings, clock)
        self._era: Era | None = None
        self._attempt: asyncio.Task[McpClient] | None = None
        self._upkeep = Upkeep()
        self._closed = False
        #: The server at the other end, while there is one.
        self.watch: Watch | None = None
        #: The names of the secrets that were asked for to open it.
        self.secrets_read: set[str] = set()
        self._dead = False
        self._header_paths: dict[str, tuple[HeaderPath, ...]] = {}
        self._last_error: str | None = None
        self._last_reason = "unavailable"
        self._last_connected_at: float | None = None
        self._latency = Latency()
        #: Whether no call was answered since it moved or failed.
        self._unproven = True
        self._reconnects = 0
        #: When it was used last, on the monotonic clock.
        self.last_used = clock.monotonic()
        self.in_flight = 0
        self.catalogue = Catalogue(record, self._fetch_tools, settings, clock, on_change)

    @property
    def state(self) -> State:
        """Return where the connection stands."""
        return self._machine.state

    def status(self) -> ConnectionStatus:
        """Return what is known about this connection."""
        listing = self.catalogue.listing
        return ConnectionStatus(
            server_id=self.record.server_id,
            state=self.state,
            last_error=self._last_error,
            last_connected_at=self._last_connected_at,
            reconnects=self._reconnects,
            latency_ms=self._latency.last,
            average_latency_ms=self._latency.average,
            tool_count=None if listing is None else len(listing.tools),
            trouble="dead" if self._dead else self.watch and self.watch.trouble,
            starting=self.starter.progress,
            sandbox=self.starter.confined,
            failures=self._backoff.failures,
            next_attempt_at=self._clock.now() + self._backoff.remaining if self._planned else None,
        )

    @property
    def _planned(self) -> bool:
        return self._settings.keep and self.state in WAITING

    def _moved(self, old: State, new: State) -> None:
        """Announce where the connection stands; the same state twice when other things changed."""
        self._unproven = True
        if self._announce is None:
            return
        troubled = new in TROUBLED
        self._announce(
            Change(
                kind="state",
                server_id=self.record.server_id,
                old=old,
                state=new,
                reason=self._last_reason if troubled else "",
                last_error=self._last_error if troubled else None,
            )
        )

    def wanted_by(self, asker: str) -> None:
        """Note which session waits for a start."""
        self.starter.wanted_by(asker)

    @property
    def lags(self) -> bool:
        """Say whether its tools are on their way and not worth waiting for."""
        if self.starter.slow or self.starter.lags or self._asked_at is None:
            return self.starter.slow or self.starter.lags
        return self._clock.monotonic() - self._asked_at >= self._settings.grace_seconds

    async def listing(self, *, patient: bool = True) -> Listing:
        """Return the server's tools; who is not patient is told StillStarting where it lags."""
        try:
            return await self.catalogue.get(None if patient else lambda: self.lags)
        except TimeoutError:
            raise self.starter.still_starting(self._last_error) from None

    def admitting(self, whose: str) -> Watch | None:
        """Return the connected server if a call of this caller may leave at once."""
        watch = self.watch
        return watch if watch is not None and watch.admits(whose) else None

    async def send(self, call: Outgoing) -> JsonObject:
        """Call a tool. One that has to wait, or may be sent once more, is left to the sender.

        This is the one coroutine between the bridge and the channel.
        """
        route, watch = call.route, self.watch
        if watch is None or not watch.admits(route.whose):
            if self._sender is not None:
                return await self._sender.send(call)
            watch = await self._admitted(call.until, route.whose)
        started, began = self._clock.monotonic(), watch.time()
        deadline = began + call.timeout
        if call.until is not None and call.until < deadline:
            deadline = call.until
        client, debts, tool = watch.client, watch.debts, route.tool
        number = debts.asked(began, "call", route.whose)
        self.in_flight += 1
        try:
            answer = read_call(await client.ask(tool, call.arguments, deadline, call.beside))
            if isinstance(answer, InputRequired):
                answer = await client.ask_on(answer, tool, call.arguments, deadline, call.beside)
        except (BasculeError, asyncio.CancelledError) as error:
            self.last_used = self._clock.monotonic()
            lost = self._unanswered(error, watch, number, watch.time() - began, tool)
            if lost is None or call.last or self._sender is None:
                raise
        else:
            debts.answered(number)
            if self._unproven:
                self._answered(watch)
            self.last_used = ended = self._clock.monotonic()
            self._latency.add((ended - started) * 1000)
            return answer
        finally:
            self.in_flight -= 1
        left = call.timeout - (watch.time() - began)
        return await self._sender.send_again(call, lost, left)

    def _answered(self, watch: Watch) -> None:
        """Note the first answer to a call since anything happened."""
        if self._latency.last is None:
            self._moved(self.state, self.state)
        self.proven(watch)
        self._unproven = False

    def _unanswered(
        self, error: BaseException, watch: Watch, number: int, seconds: float, tool: str
    ) -> NotDelivered | OutcomeUnknown | None:
        """Note that a call has no result; return the error of one that may be sent once more."""
        if isinstance(error, (DeadlineExceeded, NotDelivered, asyncio.CancelledError)):
            self._left(watch, number, seconds, tool)
        else:
            watch.debts.answered(number)
        return error if isinstance(error, (NotDelivered, OutcomeUnknown)) else None

    async def client(self, until: float | None = None, *, whose: str = "") -> McpClient:
        """Return a live client, connecting when there is none; many callers cause one attempt.

        A caller also waits while the server is doubted, and for what it left behind itself.
        """
        return (self.admitting(whose) or await self._admitted(until, whose)).client

    async def _admitted(self, until: float | None, whose: str) -> Watch:
        try:
            async with asyncio.timeout_at(until):
                while self.watch is None or not self.watch.admits(whose):
                    if self.watch is None or not self.watch.client.channel.alive:
                        await self._attempted()
                    else:
                        await self.watch.wait()
                return self.watch
        except TimeoutError:
            busy = "busy with earlier calls"
            what = self.starter.standing() if self.watch is None else busy
            raise DeadlineExceeded(f"server {self.record.server_id!r} was {what}") from None

    def forgive(self) -> None:
        """Wait out no pause after the failures of a server that is not connected."""
        if self.watch is None or not self.watch.client.channel.alive:
            self._backoff.forgive()

    def renew(self) -> None:
        """Let new calls go over a new connection; those under way end on the old one.

        One that is used, or failed when it was to be, is opened at once; another when it is used.
        It counts as connected meanwhile.
        """
        wanted = self.watch is not None or self._attempt is not None or self._settings.keep
        self._leave(drain=True)
        if self.state not in SERVING:
            self._machine.move("disconnected")
        self.forgive()
        self.catalogue.forgive()
        if wanted:
            self._connecting()

    def _outdated(self) -> None:
        """A secret of the connection was refused and is another by now."""
        if self.watch is not None and not self.watch.client.channel.alive:
            self.renew()

    async def disconnect(self) -> None:
        """End the connection, its process and its tasks; it may be opened again."""
        self._upkeep.cut_draining()
        gone = self._leave()
        self._machine.move("disconnected")
        await asyncio.shield(gone)

    async def close(self) -> None:
        """End the connection for good."""
        self._closed = True
        await self.disconnect()
        await self.catalogue.close()

    async def reconnect(self) -> None:
        """Tear down and connect once more, at once; raise what goes wrong."""
        await self.disconnect()
        self.forgive()
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
        self._attempt.add_done_callback(observed)
        return self._attempt

    async def _connect(self, retries: int) -> McpClient:
        await self._upkeep.gone()  # one process at a time
        while True:
            delay = self._backoff.remaining
            if delay:
                await self._clock.sleep(delay)
            if self.state not in (*SERVING, "reconnecting"):
                self._machine.move("connecting")
            try:
                client = await self._open()
            except BasculeError as error:
                draining = self._upkeep.draining
                if draining and isinstance(error, NoRoom):  # the room is our own
                    await asyncio.wait(draining)
                    continue
                self._failed(error, final=retries <= 0)
                if retries <= 0 or self._backoff.parked:
                    raise
                retries -= 1
                continue
            return self._opened(client)

    async def _open(self) -> McpClient:
        client = await self.starter.open(
            self.record,
            era_hint=self._era,
            events=ClientEvents(
                on_tools_changed=self.catalogue.invalidate,
                on_closed=self._lost,
                on_pause=self._flooding,
                on_outdated=self._outdated,
                secrets_read=self.secrets_read,
            ),
            inputs=self._inputs,
        )
        if not client.channel.alive:
            await self._upkeep.dismiss(client)
            said = client.channel.diagnosis()
            after = f"; it said: {said}" if said else ""
            raise ServerUnavailable(f"the server ended right after the handshake{after}")
        return client

    def _opened(self, client: McpClient) -> McpClient:
        if self._last_connected_at is not None:
            self._reconnects += 1
        client.header_paths = self._header_paths
        self.watch = watch = Watch(client, self, self._clock)
        self._dead = False
        self._era = client.peer.era
        self._last_connected_at = self._clock.now()
        self.last_used = self._clock.monotonic()
        self._machine.move("connected")
        self._metrics.connected(self.record.server_id)
        self._upkeep.look_after(watch.keep_alive(self._settings))
        if client.peer.era == "modern" and client.announces_changes:
            self._upkeep.look_after(watch.listen(self.catalogue.invalidate))
        self.catalogue.reopened()
        return client

    def _failed(self, error: BasculeError, *, final: bool) -> None:
        self._last_error = str(error)
        self._last_reason = error.reason if isinstance(error, ServerUnavailable) else "unavailable"
        self._era = None
        if self.state in SERVING:  # it was renewed
            self._machine.move("reconnecting")
        if self._settings.keep or not isinstance(error, NoRoom):
            self._backoff.failed()
        if self._backoff.parked or final:
            self._machine.move("parked" if self._backoff.parked else "down")
        self._keep_trying()

    def _keep_trying(self) -> None:
        """Plan the next attempt of a connection that is kept, if none is under way."""
        if self._planned:
            self._upkeep.look_after(self._try_again())

    async def _try_again(self) -> None:
        await self._clock.sleep(self._backoff.remaining)
        if self.watch is None:
            self._connecting()

    def proven(self, watch: Watch) -> None:
        """The server answered: what went wrong before counts no more."""
        self._backoff.proven()
        if self._machine.state == "degraded" and watch is self.watch:
            self._machine.move("connected")
            watch.in_doubt = False
            watch.tell()

    def _lost(self, reason: str) -> None:
        """The other end is gone; one that we had let go already is nobody's loss."""
        if self.watch is not None and not self.watch.client.channel.alive:
            self.silent(reason)

    def silent(self, reason: str) -> None:
        """Let go of a connection that serves no more, and try to get it back."""
        self._last_error, self._last_reason = reason, "unavailable"
        self._dead = True
        self._backoff.lost()
        self._leave()
        self._machine.move("reconnecting")
        if self._backoff.parked:
            self._machine.move("parked")
            self._keep_trying()
        else:
            self._begin(retries=self._settings.reconnects - 1)

    def _left(self, watch: Watch, number: int, seconds: float, tool: str) -> None:
        """A caller leaves without an answer: see to what it leaves behind."""
        allowed = self.record.budgets.tool_timeout_ms / 1000
        if seconds >= allowed:
            watch.slow()
            self._last_error = f"slow: {tool} was not answered within {allowed:g} s"
            self._moved(self.state, self.state)
        self._abandoned(watch, number)

    def _abandoned(self, watch: Watch, number: int) -> None:
        if watch.abandoned(number) and watch is self.watch:
            self._upkeep.look_after(watch.sound())

    def doubted(self, words: str) -> None:
        """Show that the server is silent, while it is too early to let it go."""
        self._last_error = words
        self._machine.move("degraded")

    def rest(self) -> None:
        """Close a connection that nobody used for long; it opens again on demand."""
        self._leave()
        self._machine.move("disconnected")

    def _flooding(self, seconds: float) -> None:
        """Note that reading had to pause for what the server says unasked."""
        self._metrics.throttled(self.record.server_id, seconds)
        if self.watch is not None:
            self.watch.flooding()
            self._moved(self.state, self.state)

    async def _fetch_tools(self) -> ToolList:
        try:
            return await self._fetched_tools(await self._admitted(None, ""))
        except Outdated:
            return await self._fetched_tools(await self._admitted(None, ""))

    async def _fetched_tools(self, watch: Watch) -> ToolList:
        loop = asyncio.get_running_loop()
        started = loop.time()
        number = watch.debts.asked(started, "list")
        self.in_flight += 1
        self._asked_at = self._clock.monotonic()
        try:
            found = await watch.client.list_tools(
                deadline=started + self.record.budgets.list_timeout_ms / 1000
            )
        except asyncio.CancelledError:
            self._abandoned(watch, number)
            raise
        except BasculeError as error:
            if isinstance(error, DeadlineExceeded):
                self._abandoned(watch, number)
                self.starter.slow = True
            else:
                watch.debts.answered(number)
            raise unlisted(error) from error
        finally:
            self.in_flight -= 1
            self._asked_at = None
            self.last_used = self._clock.monotonic()
        watch.debts.answered(number)
        self.starter.answered()
        self._metrics.listed(self.record.server_id, (loop.time() - started) * 1000)
        self.proven(watch)
        return found

    def _leave(self, *, drain: bool = False) -> asyncio.Task[None]:
        """Let go of the client, once ``drain``ed, and of every task; give what sees them out."""
        attempt, watch = self._attempt, self.watch
        self._attempt = self.watch = None
        if watch is not None:
            watch.end()
            if drain:
                self._upkeep.drain(watch)
                watch = None
        return self._upkeep.let_go(attempt, watch and watch.client)
