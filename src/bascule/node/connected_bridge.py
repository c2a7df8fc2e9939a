"""A bridge that is connected to a Bascule server: what its token is for decides how it serves.

With a client's token every session is one of the server's tools API: the tools, the policy and the
ledger are there. With a node's token this process becomes a node: it follows the server's registry
and holds connections of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, Unpack
from weakref import WeakSet

from msgspec.structs import replace

from bascule.audit.events import SessionRefusal
from bascule.audit.ledger import Ledger
from bascule.client.http import ApiClient, Unreachable
from bascule.client.snapshots import RegistrySnapshots
from bascule.client.tools import Identity, identity
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError, ServerUnavailable, SessionRefused
from bascule.lifetime import Lifetime
from bascule.model.approval import Approving
from bascule.model.call import NO_LIMITS, CallLimits, LimitOptions, Progress
from bascule.model.explanation import Explanation
from bascule.model.outcome import Failed, Failure, Outcome, failure
from bascule.model.snapshot import Snapshot
from bascule.model.status import ServerStatus
from bascule.model.task import TaskBudgets
from bascule.node.bridge.opening import Opening, SessionOptions, opening_of
from bascule.node.bridge.own_call import unnoted
from bascule.node.bridge.toolset import ToolSet
from bascule.node.changes import Changes, OnChange, Unsubscribe
from bascule.node.contract import AnyBridge, ToolSession
from bascule.node.remote_session import OUTPUT_ELSEWHERE, RemoteSession, not_asked
from bascule.node.sync.follower import Follower
from bascule.node.sync.ports import FollowingNode
from bascule.wire.record_rules import refuse_bad_patterns

_CLIENT_TOKEN = "make a client token: bascule tokens create --role client --task T"  # noqa: S105 - says how

_GOODBYE_SECONDS = 2.0
_CLOSED = "this bridge is closed: connect a new one"


class FollowingBridge(AnyBridge, FollowingNode, Protocol):
    """A bridge of this process that takes new snapshots (``bascule.node.assembly.Bridge``)."""


class ConnectedBridge(Lifetime):
    """A bridge over a Bascule server. Made by ``Bridge.connect``; ready to use.

    ::

        async with Bridge.connect("http://127.0.0.1:7070", token=token) as bridge:
            async with bridge.session(read_only=True) as session:
                print(await session.tools())
    """

    def __init__(
        self,
        api: ApiClient,
        local: Callable[[Snapshot], FollowingBridge],
        *,
        ledger: Ledger | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._api = api
        self._local = local
        self._ledger = ledger
        self._clock = clock
        self._starting = asyncio.Lock()
        #: What sessions are opened with, once that is known.
        self.serving: _Remote | _Following | None = None
        self._closed = False
        self._changes = Changes()
        #: Whose token it is; None before the server was asked.
        self.identity: Identity | None = None

    @property
    def url(self) -> str:
        """Return where the server is."""
        return self._api.url

    def session(self, **options: Unpack[SessionOptions]) -> ConnectedSession:
        """Open a session; it takes what ``Bridge.session`` takes.

        What the server alone can refuse is raised by the first thing that is awaited.
        """
        return self.open_session(opening_of(options))

    def open_session(self, opening: Opening) -> ConnectedSession:
        """Open a session from a value, as ``session`` does from keywords."""
        return ConnectedSession(self, opening)

    def statuses(self) -> Sequence[ServerStatus]:
        """Return how the connections of this process stand; none where the server holds them."""
        return self.serving.statuses() if self.serving is not None else ()

    def subscribe(self, on_change: OnChange) -> Unsubscribe:
        """Call a function for each change that this process hears of, as ``Bridge.subscribe``.

        Where the server holds the connections it tells nothing yet.
        """
        return self._changes.subscribe(on_change)

    @property
    def problem(self) -> str | None:
        """Return why the registry cannot be followed now, where this process is a node."""
        return self.serving.problem if self.serving is not None else None

    async def accept_registry(self) -> None:
        """Take what the registry has, where ``problem`` says that this node doubts it."""
        if isinstance(self.serving, _Following):
            await self.serving.accept()

    async def reconnect(self, server_id: str) -> None:
        """Tear down and reconnect a server of this process; one elsewhere is left alone."""
        if self.serving is not None:
            await self.serving.reconnect(server_id)

    async def start(self) -> None:
        """Ask the server whose token this is, and serve accordingly; any number of times."""
        async with self._starting:
            if self._closed:
                raise ServerUnavailable(_CLOSED)
            if self.serving is not None:
                return
            try:
                self.serving = await self._served()
            except BaseException:
                await self._api.close()
                raise

    async def close(self) -> None:
        """End every connection, and the following of the registry."""
        self._closed = True
        async with self._starting:
            serving, self.serving = self.serving, None
            try:
                if serving is not None:
                    await serving.close()
            finally:
                await self._api.close()

    async def _served(self) -> _Remote | _Following:
        self.identity = who = await identity(self._api)
        if who.role == "client":
            return _Remote(self._api, who.task, self._refused)
        if who.role != "node":
            refusal = SessionRefused(
                "role", f"a token of role {who.role!r} opens no session; {_CLIENT_TOKEN}"
            )
            self._refused(refusal, None)
            raise refusal
        source = RegistrySnapshots(self._api, who.name)
        bridge = self._local(await source.snapshot())
        bridge.subscribe(self._changes.announce)
        following = _Following(source, bridge, self._clock)
        try:
            await following.start()
        except BaseException:
            await following.close()
            raise
        return following

    def _refused(self, refusal: SessionRefused, caller: str | None) -> None:
        """Write down what is refused on this side: the server's ledger never hears of it."""
        if self._ledger is not None:
            self._ledger.session_refused(
                SessionRefusal(
                    token_id=None,
                    person=None,
                    timestamp=self._clock.now(),
                    session_id=None,
                    task_id=None if self.identity is None else self.identity.task,
                    caller=caller,
                    revision=0,
                    server_id=refusal.server,
                    reason=refusal.reason,
                    message=str(refusal),
                )
            )


class ConnectedSession(Lifetime):
    """One caller's way across a connected bridge, wherever that leads.

    It is opened by the first thing that is awaited, or at once where the bridge knows already
    what its token is for.
    """

    def __init__(self, bridge: ConnectedBridge, opening: Opening) -> None:
        self._bridge = bridge
        self._opening = opening
        self._opened: ToolSession | None = None
        self._closed = False
        self._changes = Changes()
        self._unsubscribe: Unsubscribe | None = None
        if bridge.serving is not None:
            self._open(bridge.serving)

    @property
    def session_id(self) -> str:
        """Return the session's id; empty before it is open."""
        return "" if self._opened is None else self._opened.session_id

    async def budgets(self) -> TaskBudgets:
        """Return what the task leaves to one conversation, whoever has to be asked for it."""
        return await (await self._session()).budgets()

    async def tools(self) -> ToolSet:
        """List the tools. A server that cannot list contributes nothing but a warning."""
        return await (await self._session()).tools()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        limits: CallLimits = NO_LIMITS,
        on_progress: Callable[[Progress], None] | None = None,
        approval: Approving = "wait",
        **own: Unpack[LimitOptions],
    ) -> Outcome:
        """Call a tool by the name a model uses; every failure comes back as an outcome."""
        try:
            session = await self._session()
        except (Unreachable, ServerUnavailable) as error:
            nothing = failure("mcp_unavailable", str(error))
            return Failed(error=nothing, request_id="", revision=0)
        within = replace(limits, **own) if own else limits
        return await session.call(
            name, arguments, limits=within, on_progress=on_progress, approval=approval
        )

    def explain(self, name: str) -> Explanation:
        """Explain a tool or a server, as far as is known here; ``explanation`` asks."""
        if self._opened is None:
            return not_asked(name, self._bridge.url)
        return self._opened.explain(name)

    def explanations(self) -> tuple[Explanation, ...]:
        """Return what the server said of every server and tool; nothing before the first list."""
        return () if self._opened is None else self._opened.explanations()

    async def explanation(self, name: str) -> Explanation:
        """Explain a tool or a server, whoever has to be asked for it."""
        return await (await self._session()).explanation(name)

    def read_output(self, handle: str, start: int = 0, end: int | None = None) -> str:
        """Read a part of an output that was cut, where it is kept in this process."""
        if self._opened is None:
            raise RuntimeError(OUTPUT_ELSEWHERE)
        return self._opened.read_output(handle, start, end)

    async def output(self, handle: str, start: int = 0, end: int | None = None) -> str:
        """Read bytes ``start`` to ``end`` of an output that was cut, wherever it is kept."""
        return await (await self._session()).output(handle, start, end)

    def statuses(self) -> Sequence[ServerStatus]:
        """Return how the session's servers stand; nothing before it is open."""
        return () if self._opened is None else self._opened.statuses()

    def subscribe(self, on_change: OnChange) -> Unsubscribe:
        """Call a function for each change that concerns the session, once it is open."""
        return self._changes.subscribe(on_change)

    async def reconnect(self, server_id: str) -> None:
        """Get one of the session's servers back; raise ServerUnavailable if that fails."""
        await (await self._session()).reconnect(server_id)

    def decline(
        self, name: str, arguments: Mapping[str, object] | None, problem: Failure
    ) -> Outcome:
        """Write down a call that a door does not make, and return it as failed."""
        if self._opened is None:
            return Failed(error=problem, request_id="", revision=0)
        return self._opened.decline(name, arguments, problem)

    async def note_own(
        self, name: str, arguments: Mapping[str, object] | None, outcome: Outcome, seconds: float
    ) -> Outcome:
        """Write down and count a call of a tool that is the caller's own, where calls are."""
        try:
            session = await self._session()
        except BasculeError as error:
            return unnoted(outcome, error)
        return await session.note_own(name, arguments, outcome, seconds)

    async def start(self) -> None:
        """Open the session: whether it is refused is known then."""
        await (await self._session()).start()

    async def close(self) -> None:
        """End the session."""
        self._closed = True
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._opened is not None:
            await self._opened.close()

    def _open(self, serving: _Remote | _Following) -> None:
        self._opened = serving.open_session(self._opening)
        self._unsubscribe = self._opened.subscribe(self._changes.announce)

    async def _session(self) -> ToolSession:
        if self._opened is None:
            if self._closed:
                raise ServerUnavailable("this session is closed: open a new one")
            await self._bridge.start()
            serving = self._bridge.serving
            if self._opened is None and serving is not None:
                self._open(serving)
        if self._opened is None:
            raise ServerUnavailable(_CLOSED)
        return self._opened


class _Remote:
    """Sessions for a client's token: all of them belong to the token's task."""

    problem: str | None = None

    def __init__(
        self,
        api: ApiClient,
        task: str | None,
        refused: Callable[[SessionRefused, str | None], None],
    ) -> None:
        self._api = api
        self._task = task
        self._refused = refused
        self._sessions: WeakSet[RemoteSession] = WeakSet()

    def open_session(self, opening: Opening) -> RemoteSession:
        refusal = self._refusal(opening)
        if refusal is not None:
            self._refused(refusal, opening.caller)
            raise refusal
        for request in opening.requests:
            refuse_bad_patterns(request)
        session = RemoteSession(self._api, opening)
        self._sessions.add(session)
        return session

    def _refusal(self, opening: Opening) -> SessionRefused | None:
        if opening.task is not None and opening.task != self._task:
            return SessionRefused(
                "task",
                f"the token is for task {self._task!r} and no other: the registry rules here",
            )
        if opening.inputs is not None:
            return SessionRefused(
                "inputs", "a server elsewhere cannot ask this process: leave inputs= out"
            )
        return None

    def statuses(self) -> Sequence[ServerStatus]:
        return ()

    async def reconnect(self, server_id: str) -> None:
        """Leave the connections to the server that holds them."""

    async def close(self) -> None:
        """End the sessions: what they send with is the bridge's."""
        for session in list(self._sessions):
            await session.close()


class _Following:
    """A node in this process, which follows the registry of the server."""

    def __init__(self, source: RegistrySnapshots, bridge: FollowingBridge, clock: Clock) -> None:
        self._source = source
        self._bridge = bridge
        self._follower = Follower(source, bridge, clock=clock)
        self._task: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str | None:
        return self._follower.problem

    async def accept(self) -> None:
        await self._follower.accept()

    def open_session(self, opening: Opening) -> ToolSession:
        return self._bridge.open_session(opening)

    def statuses(self) -> Sequence[ServerStatus]:
        return self._bridge.statuses()

    async def reconnect(self, server_id: str) -> None:
        await self._bridge.reconnect(server_id)

    async def start(self) -> None:
        await self._bridge.start()
        self._task = asyncio.create_task(self._follower.run())

    async def close(self) -> None:
        """End the following, then the connections."""
        try:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])
                if not self._task.cancelled():
                    self._task.result()
                await self._leave()
        finally:
            await self._bridge.close()

    async def _leave(self) -> None:
        """Say goodbye; a registry that cannot hear it will miss this node soon enough."""
        with suppress(BasculeError, TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self._source.leave()
