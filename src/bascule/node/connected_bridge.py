"""A bridge that is connected to a Bascule server: what its token is for decides how it serves.

With a client's token every session is one of the server's tools API: the tools, the policy and the
ledger are there. With a node's token this process becomes a node: it follows the server's registry
and holds connections of its own. Below: ``remote.py``, ``sync/``, ``bascule.client``. Above:
``assembly.Bridge.connect`` makes one, and gives it the way to make a bridge of this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Unpack
from weakref import WeakSet

from bascule.audit.events import SessionRefusal
from bascule.client.http import ApiClient, Unreachable
from bascule.client.snapshots import RegistrySnapshots
from bascule.client.tools import Identity, identity
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import ServerUnavailable, SessionRefused
from bascule.lifetime import Lifetime
from bascule.model.call import Progress
from bascule.model.keyword import refuse_text, refuse_unknown
from bascule.model.outcome import Failed, Failure, Outcome, failure
from bascule.model.session import UNLIMITED, SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.status import ServerStatus
from bascule.node.bridge.toolset import ToolSet
from bascule.node.changes import Changes, OnChange, Unsubscribe
from bascule.node.contract import AnyBridge, SessionOptions, ToolSession
from bascule.node.ports import Ledger
from bascule.node.remote_session import OUTPUT_ELSEWHERE, RemoteSession, not_asked
from bascule.node.sync.follower import Follower
from bascule.node.sync.ports import FollowingNode
from bascule.policy.explain import Explanation
from bascule.wire.record_rules import refuse_bad_patterns

_CLIENT_TOKEN = "make a client token: bascule tokens create --role client --task T"  # noqa: S105 - says how

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
        self._serving: _Remote | _Following | None = None
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
        refuse_unknown("session", options, SessionOptions.__annotations__)
        lists = ("server_ids", "tool_allowlist", "tool_denylist")
        refuse_text("session", **{name: options.get(name) for name in lists})
        return ConnectedSession(self, options)

    def statuses(self) -> Sequence[ServerStatus]:
        """Return how the connections of this process stand; none where the server holds them."""
        return self._serving.statuses() if self._serving is not None else ()

    def subscribe(self, on_change: OnChange) -> Unsubscribe:
        """Call a function for each change that this process hears of, as ``Bridge.subscribe``.

        Where the server holds the connections it tells nothing yet.
        """
        return self._changes.subscribe(on_change)

    @property
    def problem(self) -> str | None:
        """Return why the registry cannot be followed now, where this process is a node."""
        return self._serving.problem if self._serving is not None else None

    async def reconnect(self, server_id: str) -> None:
        """Tear down and reconnect a server of this process; one elsewhere is left alone."""
        if self._serving is not None:
            await self._serving.reconnect(server_id)

    async def start(self) -> None:
        """Ask the server whose token this is, and serve accordingly; any number of times."""
        async with self._starting:
            if self._closed:
                raise ServerUnavailable(_CLOSED)
            if self._serving is not None:
                return
            try:
                self._serving = await self._served()
            except BaseException:
                await self._api.close()
                raise

    async def close(self) -> None:
        """End every connection, and the following of the registry."""
        self._closed = True
        async with self._starting:
            serving, self._serving = self._serving, None
            try:
                if serving is not None:
                    await serving.close()
            finally:
                await self._api.close()

    @property
    def serving(self) -> _Remote | _Following | None:
        """Return what sessions are opened with, once that is known."""
        return self._serving

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
        source = RegistrySnapshots(self._api)
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

    def __init__(self, bridge: ConnectedBridge, options: SessionOptions) -> None:
        self._bridge = bridge
        self._options = options
        self._opened: ToolSession | None = None
        self._closed = False
        if bridge.serving is not None:
            self._opened = bridge.serving.session(**options)

    @property
    def session_id(self) -> str:
        """Return the session's id; empty before it is open."""
        return "" if self._opened is None else self._opened.session_id

    async def tools(self) -> ToolSet:
        """List the tools. A server that cannot list contributes nothing but a warning."""
        return await (await self._session()).tools()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - becomes an absolute deadline below
        idle_timeout: float | None = None,
        max_output_bytes: int | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Outcome:
        """Call a tool by the name a model uses; every failure comes back as an outcome."""
        try:
            session = await self._session()
        except (Unreachable, ServerUnavailable) as error:
            nothing = failure("mcp_unavailable", str(error))
            return Failed(error=nothing, request_id="", revision=0)
        return await session.call(
            name,
            arguments,
            timeout=timeout,
            idle_timeout=idle_timeout,
            max_output_bytes=max_output_bytes,
            on_progress=on_progress,
        )

    def explain(self, name: str) -> Explanation:
        """Explain a tool or a server, as far as is known here; ``explanation`` asks."""
        if self._opened is None:
            return not_asked(name, self._bridge.url)
        return self._opened.explain(name)

    def explanations(self) -> tuple[Explanation, ...]:
        """Return what the server said of every server and tool; nothing before the first list."""
        return self._opened.explanations() if isinstance(self._opened, RemoteSession) else ()

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

    def decline(self, name: str, arguments: Mapping[str, Any] | None, problem: Failure) -> Outcome:
        """Write down a call that a door does not make, and return it as failed."""
        if self._opened is None:
            return Failed(error=problem, request_id="", revision=0)
        return self._opened.decline(name, arguments, problem)

    async def start(self) -> None:
        """Open the session: whether it is refused is known then."""
        await (await self._session()).start()

    async def close(self) -> None:
        """End the session."""
        self._closed = True
        if self._opened is not None:
            await self._opened.close()

    async def _session(self) -> ToolSession:
        if self._opened is None:
            if self._closed:
                raise ServerUnavailable("this session is closed: open a new one")
            await self._bridge.start()
            serving = self._bridge.serving
            if self._opened is None and serving is not None:
                self._opened = serving.session(**self._options)
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

    def session(self, **options: Unpack[SessionOptions]) -> RemoteSession:
        refusal = self._refusal(options)
        if refusal is not None:
            self._refused(refusal, options.get("caller"))
            raise refusal
        server_ids, allowed = options.get("server_ids"), options.get("tool_allowlist")
        request = SessionRequest(
            server_ids=None if server_ids is None else tuple(server_ids),
            tool_allowlist=None if allowed is None else tuple(allowed),
            tool_denylist=tuple(options.get("tool_denylist", ())),
            read_only=options.get("read_only", False),
            max_tool_output_bytes=options.get("max_tool_output_bytes"),
        )
        refuse_bad_patterns(request)
        caller, limits = options.get("caller"), options.get("limits", UNLIMITED)
        session = RemoteSession(self._api, request, caller=caller, limits=limits)
        self._sessions.add(session)
        return session

    def _refusal(self, options: SessionOptions) -> SessionRefused | None:
        task = options.get("task")
        if task is not None and task != self._task:
            return SessionRefused(
                "task",
                f"the token is for task {self._task!r} and no other: the registry rules here",
            )
        if options.get("inputs") is not None:
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
        self._bridge = bridge
        self._follower = Follower(source, bridge, clock=clock)
        self._task: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str | None:
        return self._follower.problem

    def session(self, **options: Unpack[SessionOptions]) -> ToolSession:
        return self._bridge.session(**options)

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
        finally:
            await self._bridge.close()
