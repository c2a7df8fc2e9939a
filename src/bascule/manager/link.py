"""One server of one agent: connected, looked after, tried again when it fails.

Each link has one task, its keeper, and nothing else tries to connect: a link that is stopped,
changed or reconnected ends its keeper first, so no old retry ever brings a server back. A link
outlives the sessions it opens, so a tool taken earlier works again after a reconnect.

Below: ``upstream.py``, ``schedule.py``. Above: ``core.py`` owns links, ``adapter.py`` calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from bascule.clock import Clock
from bascule.errors import BasculeError, ServerUnavailable, SessionRefused
from bascule.manager.config import McpServerConfig
from bascule.manager.events import OnEvent, ServerStateChanged, State, logger
from bascule.manager.record import MAX_OUTPUT_BYTES
from bascule.manager.schedule import RetryRules, Schedule
from bascule.manager.status import ServerStatus
from bascule.manager.upstream import Upstream, trouble
from bascule.model.code import ErrorCode
from bascule.model.outcome import Failed, Outcome, failure
from bascule.model.tool import ToolDescriptor
from bascule.node.contract import ToolSession

#: How often a connected server is looked at; the bridge tells nobody of a loss.
WATCH_SECONDS = 1.0


class Link:
    """An agent's hold on one server."""

    def __init__(
        self,
        agent_id: str,
        config: McpServerConfig,
        *,
        clock: Clock,
        retry: RetryRules,
        tell: OnEvent,
    ) -> None:
        self.agent_id = agent_id
        self.config = config
        self.clock = clock
        self.tell = tell
        #: Set when the first attempt has ended, one way or the other.
        self.tried = asyncio.Event()
        self._schedule = Schedule(retry)
        self._turn = asyncio.Lock()
        self._upstream: Upstream | None = None
        self._session: ToolSession | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._up = False
        self._trying = False
        self._listing_failed = False
        self._removed = False
        self._told: State = "disconnected" if config.enabled else "disabled"
        self._failure: BasculeError | None = None
        self._last_error: str | None = None
        self._last_connected_at: float | None = None
        self._next_attempt_at: float | None = None
        self._delay = 0.0
        self._tools: tuple[ToolDescriptor, ...] = ()

    @property
    def name(self) -> str:
        """Return the server's name."""
        return self.config.name

    def status(self) -> ServerStatus:
        """Return how the server stands."""
        return ServerStatus(
            name=self.name,
            transport=self.config.transport,
            enabled=self.config.enabled,
            state=self._state(),
            last_error=self._last_error,
            last_connected_at=self._last_connected_at,
            next_attempt_at=self._next_attempt_at,
            failures=self._schedule.failures,
            tools=tuple(tool.name for tool in self._tools),
        )

    async def start(self, upstream: Upstream) -> None:
        """Begin to keep the server connected, unless it is disabled."""
        async with self._turn:
            self._upstream = upstream
            if self._keeper is None:
                self._begin()

    async def stop(self) -> None:
        """End everything that is under way; it may be started again."""
        async with self._turn:
            await self._halt()
            await self._leave_session()
            self._upstream = None
            self._forget()
            self.tried.set()  # whoever waits for an attempt, waits in vain
        self._note()

    async def remove(self) -> None:
        """Stop for good: the tools that were taken of it say so."""
        self._removed = True
        await self.stop()

    async def change(self, config: McpServerConfig, upstream: Upstream | None) -> None:
        """Go on with another configuration; the bridge has it already."""
        async with self._turn:
            self.config = config
            self._upstream = upstream
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
            if self._upstream is None:
                raise ServerUnavailable(f"agent {self.agent_id!r} is not connected")
            await self._halt()
            self._begin(anew=True)
        await self.tried.wait()
        if not self._up:
            raise self._failure or ServerUnavailable(f"server {self.name!r} was stopped meanwhile")

    async def tools(self) -> tuple[ToolDescriptor, ...]:
        """Return its tools as they are now; none when it is not connected."""
        session = self._session
        if session is None or not self.status().connected:
            return ()
        try:
            listed = await session.tools()
            problem = trouble(self.name, session, listed)
        except BasculeError as error:
            listed, problem = (), str(error)
        if problem is not None:
            self._last_error, self._listing_failed = problem, True  # the keeper sees to it
        self._tools = tuple(listed)
        return self._tools

    async def call(self, tool: ToolDescriptor, arguments: Mapping[str, Any]) -> Outcome:
        """Call a tool through the bridge; a server that is not there is a failure, too."""
        if self._session is None:
            return self._absent()
        try:
            return await self._session.call(
                tool.model_name,
                arguments,
                timeout=None if self._owns() else self.config.timeout_ms / 1000,
                max_output_bytes=MAX_OUTPUT_BYTES,
            )
        except SessionRefused as error:  # told by a bridge elsewhere when it first hears of it
            return _failed("mcp_policy_denied", str(error))

    def _owns(self) -> bool:
        """Say whether the record carries the limits already."""
        return self.config.transport is not None

    def _absent(self) -> Outcome:
        where = f"server {self.name!r} of agent {self.agent_id!r}"
        why = "was removed" if self._removed else "is disabled"
        if not self._removed and self.config.enabled:
            why = (
                f"is not connected: {self._last_error}" if self._last_error else "is not connected"
            )
        denied = isinstance(self._failure, SessionRefused)
        return _failed("mcp_policy_denied" if denied else "mcp_unavailable", f"{where} {why}")

    def _state(self) -> State:
        if not self.config.enabled:
            return "disabled"
        if self._trying:
            return "connecting"
        if self._upstream is None:
            return "disconnected"
        if not self._up:
            return "parked" if self._schedule.parked else "down"
        sight = self._upstream.sight(self.name)
        if sight is not None and sight.state in {"degraded", "connecting", "reconnecting"}:
            return sight.state
        return "connected"

    def _note(self) -> None:
        """Tell of a state that is another than the last one told."""
        state, old = self._state(), self._told
        if state == old:
            return
        self._told = state
        self.tell(
            ServerStateChanged(
                at=self.clock.now(),
                agent_id=self.agent_id,
                server=self.name,
                old=old,
                new=state,
                last_error=self._last_error,
            )
        )

    def _begin(self, *, anew: bool = False) -> None:
        """Start the keeper; the one before it has ended."""
        upstream = self._upstream
        if upstream is None or not self.config.enabled:
            self.tried.set()
            return
        self._schedule.reset()
        self.tried.clear()
        self._trying = True
        self._keeper = asyncio.get_running_loop().create_task(self._keep(upstream, anew=anew))
        self._keeper.add_done_callback(self._ended)
        self._note()

    async def _keep(self, upstream: Upstream, *, anew: bool) -> None:
        while True:
            await self._attempt(upstream, anew=anew)
            anew = False
            self.tried.set()
            if self._up:
                await self._until_lost(upstream)
            await self.clock.sleep(self._delay)

    async def _attempt(self, upstream: Upstream, *, anew: bool) -> None:
        """Open the session if need be, connect and list; note how it went."""
        self._trying, self._next_attempt_at = True, None
        self._note()
        try:
            if self._session is None:
                self._session = upstream.session(self.config)
            await upstream.connect(self.name, self._session, anew=anew)
            self._tools = tuple(await self._session.tools())
            self._connected()
        except BasculeError as error:
            self._failure, self._last_error = error, str(error)
            self._failed()
        self._trying = False
        self._note()

    def _connected(self) -> None:
        self._up, self._listing_failed = True, False
        self._failure = self._last_error = None
        self._last_connected_at = self.clock.now()
        self._schedule.reset()

    async def _until_lost(self, upstream: Upstream) -> None:
        """Watch a connected server; return when somebody has to connect it again."""
        while not (self._listing_failed or upstream.lost(self.name)):
            await self.clock.sleep(WATCH_SECONDS)
            self._note()
        sight = upstream.sight(self.name)
        if sight is not None and sight.last_error is not None:
            self._last_error = sight.last_error
        self._failed()
        self._note()

    def _failed(self) -> None:
        """Choose the next moment."""
        self._up = False
        self._delay = self._schedule.failed()
        self._next_attempt_at = self.clock.now() + self._delay

    def _forget(self) -> None:
        """Let go of what was true of the connection that ended."""
        self._schedule.reset()
        self._failure = self._last_error = None
        self._tools = ()

    async def _halt(self) -> None:
        """End the keeper and wait until it has ended."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait({keeper})
        self._up = self._trying = self._listing_failed = False
        self._next_attempt_at = None

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
        self._last_error = "internal error; the log has it"
        self._note()
        self.tried.set()


def _failed(code: ErrorCode, message: str) -> Failed:
    """Return the outcome of a call that never reached a bridge."""
    return Failed(error=failure(code, message), request_id="", revision=0)
