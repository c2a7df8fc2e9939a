"""One server of one agent: connected, looked after, tried again when it fails.

The bridge keeps its own connections and tells of them; a link lists the tools when there is one,
and asks again where the list fails or the bridge belongs to somebody else. Each link has one task,
its keeper, which ends before the link is stopped or changed, so no old retry brings a server back.
A link outlives the sessions it opens, so a tool taken earlier works again after a reconnect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec import Struct

from bascule.clock import Clock
from bascule.errors import BasculeError, ServerUnavailable, SessionRefused
from bascule.manager.config import McpServerConfig
from bascule.manager.events import OnEvent, ServerStateChanged, logger
from bascule.manager.record import MAX_OUTPUT_BYTES
from bascule.manager.retry import RetryRules
from bascule.manager.status import ServerStatus
from bascule.model.approval import OnWaiting
from bascule.model.call import CallLimits
from bascule.model.code import ErrorCode
from bascule.model.json import JsonValue
from bascule.model.outcome import Failed, Outcome, failure
from bascule.model.status import Change, ConnectionStatus, State
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.model.tool import ToolDescriptor
from bascule.node.backoff import Backoff
from bascule.node.changes import News
from bascule.node.contract import AnyBridge, ToolSession
from bascule.node.patience import Patience, patiently

#: States that are shown as the bridge has them; the rest is where its own connections fail.
_PASSING: frozenset[State] = frozenset({"degraded", "connecting", "reconnecting"})
_FAILED: frozenset[State] = frozenset({"down", "parked"})


class Agent(Struct, frozen=True, kw_only=True, eq=False):
    """What the servers of one agent have in common."""

    id: str
    clock: Clock
    retry: RetryRules
    tell: OnEvent
    task: str | TaskRecord | TaskPolicy | None
    #: Whether the bridge connects servers again by itself.
    keeps: bool
    patience: Patience


class Link:
    """An agent's hold on one server."""

    def __init__(self, agent: Agent, config: McpServerConfig) -> None:
        self.agent = agent
        self.config = config
        #: Set when the first attempt has ended, one way or the other.
        self.tried = asyncio.Event()
        self._backoff = Backoff(agent.retry.applied(), agent.clock)
        self._news = News()
        self._turn = asyncio.Lock()
        self._bridge: AnyBridge | None = None
        self._session: ToolSession | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._up = False
        self._trying = False
        #: Whether the server or its tools came, or its record changed, while it was tried.
        self._good_news = False
        self._removed = False
        self._told: State = "disconnected" if config.enabled else "disabled"
        self._failure: BasculeError | None = None
        self._last_connected_at: float | None = None
        self._tools: tuple[ToolDescriptor, ...] = ()

    @property
    def name(self) -> str:
        return self.config.name

    def status(self) -> ServerStatus:
        """Return how the server stands."""
        kept = self._kept_down()
        waits = self._keeper is not None and not (self._up or self._trying)
        moment = self.agent.clock.now() + self._backoff.remaining if waits else None
        return ServerStatus(
            name=self.name,
            transport=self.config.transport,
            enabled=self.config.enabled,
            state=self._state(),
            last_error=self._last_error(),
            last_connected_at=self._last_connected_at,
            next_attempt_at=moment if kept is None else kept.next_attempt_at,
            failures=self._backoff.failures if kept is None else kept.failures,
            tools=tuple(tool.name for tool in self._tools),
        )

    async def start(self, bridge: AnyBridge) -> None:
        """Begin to keep the server connected, unless it is disabled."""
        async with self._turn:
            self._bridge = bridge
            if self._keeper is None:
                self._begin()

    async def stop(self) -> None:
        """End everything that is under way; it may be started again."""
        async with self._turn:
            await self._halt()
            await self._leave_session()
            self._bridge = None
            self._forget()
            self.tried.set()  # whoever waits for an attempt, waits in vain
        self._note()

    async def remove(self) -> None:
        """Stop for good: the tools that were taken of it say so."""
        self._removed = True
        await self.stop()

    async def change(self, config: McpServerConfig, bridge: AnyBridge | None) -> None:
        """Go on with another configuration; the bridge has it already."""
        async with self._turn:
            self.config = config
            self._bridge = bridge
            self._forget()
            self._begin()
        self._note()

    async def pause(self) -> None:
        """End the keeper and the session, before the configuration changes below."""
        async with self._turn:
            await self._halt()
            await self._leave_session()

    async def hurry(self) -> None:
        """Try now, and from the beginning of the schedule, if it is not connected."""
        if self._up or self._trying:
            return
        async with self._turn:
            await self._halt()
            self._begin()

    async def reconnect(self) -> None:
        """Tear down and connect once, now; raise ServerUnavailable, and go on trying.

        The keeper does it, so that whoever stops the server need not wait for the attempt.
        """
        async with self._turn:
            if self._bridge is None:
                raise ServerUnavailable(f"agent {self.agent.id!r} is not connected")
            await self._halt()
            self._begin(anew=True)
        await self.tried.wait()
        if self._keeper is None:
            raise ServerUnavailable(f"server {self.name!r} was stopped meanwhile")
        if not self._up:
            raise self._failure or ServerUnavailable(f"server {self.name!r} was lost meanwhile")

    async def tools(self) -> tuple[ToolDescriptor, ...]:
        """Return its tools as they are now; none when it is not connected."""
        if self._session is None or not self.status().connected:
            return ()
        try:
            await self._list(self._session)
        except BasculeError as error:
            self._fail(error)
            self._news.tell()  # the keeper sees to it
        return self._tools

    async def call(
        self, tool: ToolDescriptor, arguments: Mapping[str, JsonValue], told: OnWaiting
    ) -> Outcome:
        """Call a tool through the bridge; a server that is not there is a failure, too."""
        if self._session is None:
            return self._absent()
        try:
            # a record of the agent's own carries the time already
            own = None if self.config.transport else self.config.timeout_ms / 1000
            limits = CallLimits(timeout=own, max_output_bytes=MAX_OUTPUT_BYTES)
            patience = self.agent.patience
            return await patiently(
                self._session, tool.model_name, arguments, limits, patience, told
            )
        except SessionRefused as error:  # told by a bridge elsewhere when it first hears of it
            return _failed("mcp_policy_denied", str(error))

    def _absent(self) -> Outcome:
        where = f"server {self.name!r} of agent {self.agent.id!r}"
        why = "was removed" if self._removed else "is disabled"
        if not self._removed and self.config.enabled:
            error = self._last_error()
            why = f"is not connected: {error}" if error else "is not connected"
        denied = isinstance(self._failure, SessionRefused)
        return _failed("mcp_policy_denied" if denied else "mcp_unavailable", f"{where} {why}")

    def _seen(self) -> ConnectionStatus | None:
        """Return how the bridge's connection stands, if it has one in this process."""
        statuses = () if self._bridge is None else self._bridge.statuses()
        found = (one for one in statuses if isinstance(one, ConnectionStatus))
        return next((one for one in found if one.server_id == self.name), None)

    def _kept_down(self) -> ConnectionStatus | None:
        """Return the status of a connection that failed and that the bridge itself tries again."""
        if self._trying or self._bridge is None or not self.agent.keeps:
            return None
        seen = self._seen()
        return seen if seen is not None and seen.state in _FAILED else None

    def _state(self) -> State:
        if not self.config.enabled:
            return "disabled"
        if self._trying:
            return "connecting"
        if self._bridge is None:
            return "disconnected"
        seen = self._seen()
        if seen is not None and seen.state in (
            _PASSING | _FAILED if self.agent.keeps else _PASSING
        ):
            return seen.state
        if self._up:
            return "connected"
        return "parked" if self._backoff.parked else "down"

    def _last_error(self) -> str | None:
        kept = self._kept_down()
        if kept is not None and kept.last_error is not None:
            return kept.last_error
        return None if self._failure is None else str(self._failure)

    def _note(self) -> None:
        """Tell of a state that is another than the last one told."""
        state, old = self._state(), self._told
        if state == old:
            return
        self._told = state
        self.agent.tell(
            ServerStateChanged(
                at=self.agent.clock.now(),
                agent_id=self.agent.id,
                server=self.name,
                old=old,
                new=state,
                last_error=self._last_error(),
            )
        )

    def _begin(self, *, anew: bool = False) -> None:
        """Start the keeper; the one before it has ended."""
        bridge = self._bridge
        if bridge is None or not self.config.enabled:
            self.tried.set()
            return
        self._backoff.forgive()
        self.tried.clear()
        self._trying = True
        self._keeper = asyncio.get_running_loop().create_task(self._keep(bridge, anew=anew))
        self._keeper.add_done_callback(self._ended)
        self._note()

    async def _keep(self, bridge: AnyBridge, *, anew: bool) -> None:
        """Connect, and then do what the bridge's news and the time ask for."""
        unsubscribe = bridge.subscribe(self._heard)
        try:
            await self._attempt(bridge, anew=anew)
            self.tried.set()
            while True:
                pause = None if self._up or self._kept_down() else self._backoff.remaining
                await self._news.wait(self.agent.clock, pause)
                await self._look(bridge)
        finally:
            unsubscribe()

    def _heard(self, change: Change) -> None:
        if change.server_id in ("", self.name):
            if change.kind != "state" or change.state == "connected":
                self._backoff.hasten()
                self._good_news = True
            self._note()
            self._news.tell()

    async def _look(self, bridge: AnyBridge) -> None:
        """See what became of the connection: list when there is one, or when it is time to."""
        seen = self._seen()
        state = None if seen is None else seen.state
        if seen is not None and state in _FAILED and self._up:
            self._fail(ServerUnavailable(seen.last_error or "the connection was lost"))
        elif state in _PASSING:
            self._up = self._up and (state == "degraded" or not self.agent.keeps)
        elif self._up or not (self._backoff.remaining or self._kept_down()):
            await self._attempt(bridge)
        self._note()

    async def _attempt(self, bridge: AnyBridge, *, anew: bool = False) -> None:
        """Open the session if need be, connect and list; note how it went."""
        self._trying = not self._up
        self._good_news = False
        self._note()
        try:
            if self._session is None:
                self._session = await self._opened(bridge)
            seen = self._seen()
            if anew or (self.agent.keeps and seen is not None and seen.state in _FAILED):
                await self._reconnected(bridge)
            await self._list(self._session)
        except BasculeError as error:
            self._fail(error)
            if self._good_news:  # it came while this attempt gave up: there is one to be made
                self._backoff.hasten()
        else:
            self._connected()
        self._trying = False
        self._note()

    async def _opened(self, bridge: AnyBridge) -> ToolSession:
        """Open a session on the server, narrowed by the agent's filter; raise SessionRefused."""
        await bridge.start()
        return bridge.session(
            server_ids=[self.name],
            task=self.agent.task,
            tool_allowlist=self.config.tools.include,
            tool_denylist=self.config.tools.exclude,
            caller=self.agent.id,
        )

    async def _reconnected(self, bridge: AnyBridge) -> None:
        try:
            await bridge.reconnect(self.name)
        except BasculeError as error:
            reason = error.reason if isinstance(error, ServerUnavailable) else "unavailable"
            seen = self._seen()  # in words that may be shown
            words = str(error) if seen is None else seen.last_error
            raise ServerUnavailable(words or str(error), reason=reason) from None

    async def _list(self, session: ToolSession) -> None:
        """Ask for the tools; raise ServerUnavailable in words that may be shown."""
        listed = await session.tools()
        self._tools = tuple(listed)
        missing = listed.missing(self.name)
        if missing is not None:
            raise ServerUnavailable(missing.message, reason=missing.reason)

    def _connected(self) -> None:
        if not self._up:
            self._last_connected_at = self.agent.clock.now()
        self._up, self._failure = True, None
        self._backoff.forgive()

    def _fail(self, error: BasculeError) -> None:
        """Note a failure and choose the next moment."""
        self._up, self._failure = False, error
        self._backoff.failed()

    def _forget(self) -> None:
        """Let go of what was true of the connection that ended."""
        self._backoff.forgive()
        self._failure = None
        self._tools = ()

    async def _halt(self) -> None:
        """End the keeper and wait until it has ended."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait({keeper})
        self._up = self._trying = False

    async def _leave_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _ended(self, keeper: asyncio.Task[None]) -> None:
        """A keeper only ends when it is told to; anything else is a mistake that must be seen."""
        if keeper.cancelled() or keeper.exception() is None:
            return
        logger.error("the keeper of %r failed", self.name, exc_info=keeper.exception())
        self._up = self._trying = False
        self._failure = ServerUnavailable("internal error; the log has it")
        self._note()
        self.tried.set()


def _failed(code: ErrorCode, message: str) -> Failed:
    """Return the outcome of a call that never reached a bridge."""
    return Failed(error=failure(code, message), request_id="", revision=0)
