"""An MCP client over any channel: finds the era, lists, calls, keeps alive, listens.

It adds the protocol to a ``Channel`` and nothing else: no retries, no caches, no policy. Tools
and results come back as the server sent them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from bascule.errors import (
    BasculeError,
    DeadlineExceeded,
    MalformedReply,
    NotDelivered,
    OutcomeUnknown,
    RemoteError,
    ServerUnavailable,
)
from bascule.model.call import NOTHING_BESIDE, Beside, LogLevel
from bascule.model.whole_words import beginning
from bascule.node.pool.inputs import Inputs
from bascule.node.pool.transport.channel import (
    Channel,
    Events,
    ignore_pause,
    ignore_step,
    ignore_words,
    nobody_renews,
)
from bascule.node.pool.transport.taps import Logs, LogTap, Tap
from bascule.node.ports import InputHandler
from bascule.wire import era
from bascule.wire.api.trials import Step
from bascule.wire.era import CacheScope, Era, JsonObject, Peer
from bascule.wire.http_headers import HeaderPath, header_paths, parameter_headers
from bascule.wire.rpc_codes import UNSUPPORTED_VERSION
from bascule.wire.strict_json import JsonValue, dumps, loads
from bascule.wire.trace import trace_of

OpenChannel: TypeAlias = Callable[[Events], Awaitable[Channel]]

PROBE_SECONDS = 1.0
PROBE_SHARE = 0.2  # of the time there is to connect, when that is shorter
MAX_PAGES = 64
MAX_TOOLS = 512
MAX_ROUNDS = 10  # of input that one call may ask for
LEVEL_SECONDS = 2.0  # for which a call waits until its server logs as much as it wants


def _nothing_changed() -> None:
    """Nobody listens."""


def _nobody_minds(_reason: str) -> None:
    """Nobody listens."""


class ClientEvents(msgspec.Struct, frozen=True):
    """What a client reports unasked: changed tools, a loss, a flood, secrets (see ``Events``)."""

    on_tools_changed: Callable[[], None] = _nothing_changed
    on_closed: Callable[[str], None] = _nobody_minds
    on_pause: Callable[[float], None] = ignore_pause
    on_outdated: Callable[[], None] = nobody_renews
    on_step: Callable[[Step], None] = ignore_step
    on_said: Callable[[str], None] = ignore_words
    secrets_read: set[str] = msgspec.field(default_factory=set[str])


class ToolList(msgspec.Struct, frozen=True):
    """All pages of a tool list, raw, with the server's caching hints and what was left out."""

    tools: list[JsonObject]
    ttl_ms: int | None
    cache_scope: CacheScope
    warnings: tuple[str, ...]
    quarantined: tuple[str, ...] = ()
    instructions: str | None = None


class McpClient:
    """One connected server. ``connect`` makes one; its owner closes it."""

    def __init__(self, channel: Channel, peer: Peer, inputs: Inputs, logs: Logs) -> None:
        self.channel = channel
        self.peer = peer
        self._inputs = inputs
        self._meta = era.modern_meta(inputs.capabilities) if peer.era == "modern" else b""
        self._logs = logs
        self._telling = asyncio.Lock()
        self._last_token = 0
        #: Which arguments a tool wants in headers; the owner carries it over to the next client.
        self.header_paths: dict[str, tuple[HeaderPath, ...]] = {}

    @property
    def announces_changes(self) -> bool:
        """Whether the server says that it tells of a changed tool list."""
        tools = self.peer.capabilities.get("tools")
        return isinstance(tools, dict) and tools.get("listChanged") is True

    async def close(self) -> None:
        """Close the channel; calls in flight fail."""
        await self.channel.close()

    def ask(
        self,
        name: str,
        arguments: bytes,
        deadline: float,
        beside: Beside = NOTHING_BESIDE,
        inputs: bytes = b"",
        tap: Tap | None = None,
    ) -> Awaitable[JsonValue]:
        """Send a tool call, with arguments serialised already; give back its raw answer."""
        if beside is not NOTHING_BESIDE:
            return self._ask_beside(name, arguments, deadline, beside, inputs)
        paths = self.header_paths.get(name)
        return self.channel.request(
            "tools/call",
            era.call_params(name, arguments, inputs, self._meta if tap is None else tap.meta),
            deadline=deadline,
            name=name,
            headers=parameter_headers(paths, loads(arguments)) if paths else None,
            tap=tap,
        )

    async def _ask_beside(
        self, name: str, arguments: bytes, deadline: float, beside: Beside, inputs: bytes
    ) -> JsonValue:
        """Send a call and let its caller hear of it, until it is answered."""
        tap = self._tap(beside)
        level = beside.log_level if tap.logs and self._logs.own else None
        if level is not None:
            await self._set_level(level, deadline)
            self._logs.listeners.update(tap.logs)
        try:
            return await self.ask(name, arguments, deadline, inputs=inputs, tap=tap)
        finally:
            self._logs.listeners.difference_update(tap.logs)

    def _tap(self, beside: Beside) -> Tap:
        """Say what one call wants beside its answer, where it can be had."""
        self._last_token += 1
        members: JsonObject = {**trace_of(beside.trace)} if beside.trace else {}
        if beside.on_progress is not None:
            members["progressToken"] = self._last_token
        on_log, level, logs = beside.on_log, beside.log_level, ()
        if on_log is not None and level is not None and (self._logs.own or self.channel.apart):
            logs = (LogTap(on_log, level),)
            if self.peer.era == "modern":
                members[era.META + "logLevel"] = level
        meta = era.with_members(self._meta, members)
        return Tap(self._last_token, beside.on_progress, logs, meta)

    async def _set_level(self, level: LogLevel, deadline: float) -> None:
        """Have a legacy server log as much as a call wants, over a connection of its session's own.

        A server that refuses or does not answer is not asked again; the call goes on.
        """
        if self.peer.era == "modern" or "logging" not in self.peer.capabilities:
            return
        until = min(deadline, asyncio.get_running_loop().time() + LEVEL_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until), self._telling:
                if self._logs.lacks(level):
                    self._logs.told = level  # whatever comes of it, a wait that ends here too
                    with contextlib.suppress(BasculeError):
                        await self._request("logging/setLevel", b'"level":%b' % dumps(level), until)

    async def ask_on(
        self,
        wish: era.InputRequired,
        name: str,
        arguments: bytes,
        deadline: float,
        beside: Beside = NOTHING_BESIDE,
    ) -> JsonObject:
        """Provide the input that a tool asks for, and call it again with that, until it answers."""
        for _ in range(MAX_ROUNDS):
            responses = await self._inputs.provide_all(wish.requests, deadline)
            inputs = era.input_members(responses, wish.state)
            answer = era.read_call(await self.ask(name, arguments, deadline, beside, inputs))
            if not isinstance(answer, era.InputRequired):
                return answer
            wish = answer
        raise MalformedReply(f"the tool asked for input more than {MAX_ROUNDS} times")

    async def call_tool(
        self,
        name: str,
        arguments: bytes,
        *,
        deadline: float,
        beside: Beside = NOTHING_BESIDE,
    ) -> JsonObject:
        """Call a tool once and give back the raw result."""
        answer = era.read_call(await self.ask(name, arguments, deadline, beside))
        if isinstance(answer, era.InputRequired):
            return await self.ask_on(answer, name, arguments, deadline, beside)
        return answer

    async def list_tools(
        self, *, deadline: float, max_pages: int = MAX_PAGES, max_tools: int = MAX_TOOLS
    ) -> ToolList:
        """Read every page; a list in circles is an error, one too long is cut with a warning."""
        page = await self._tools_page(None, deadline)
        found, seen, pages = list(page.tools), set[str](), 1
        while page.next_cursor is not None and pages < max_pages:
            if page.next_cursor in seen:
                raise MalformedReply("tools/list goes in circles: a cursor came twice")
            seen.add(page.next_cursor)
            page = await self._tools_page(page.next_cursor, deadline)
            found += page.tools[: max(0, max_tools + 1 - len(found))]
            pages += 1
        tools, warnings = _usable(found, max_tools)
        if page.next_cursor is not None:
            warnings.append(f"tools/list has more than {max_pages} pages; the rest is left out")
        tools, quarantined = self._with_headers(tools)
        return ToolList(
            tools,
            page.ttl_ms,
            page.cache_scope,
            tuple(warnings),
            tuple(quarantined),
            self.peer.instructions,
        )

    def _with_headers(self, tools: list[JsonObject]) -> tuple[list[JsonObject], list[str]]:
        """Note which arguments modern tools want in headers; one that asks nonsense is dropped."""
        if self.peer.era != "modern":
            return tools, []
        kept: list[JsonObject] = []
        quarantined: list[str] = []
        for tool in tools:
            name, schema = tool.get("name"), tool.get("inputSchema")
            try:
                paths = header_paths(schema) if isinstance(schema, dict) else ()
            except ValueError as error:
                quarantined.append(f"tool {name!r:.80}: {error}")
                continue
            if isinstance(name, str):
                self.header_paths[name] = paths
            kept.append(tool)
        return kept, quarantined

    async def keepalive(self, *, deadline: float) -> None:
        """Ask for a sign of life, as the era has it; a refusal is one too."""
        method = "server/discover" if self.peer.era == "modern" else "ping"
        try:
            await self._request(method, b"", deadline)
        except RemoteError:
            return

    async def listen(self, *, deadline: float) -> None:
        """Hear of changed tools until the deadline or until the server ends it.

        A legacy server tells unasked, so there is nothing to wait for. What changed while nobody
        listened is not told again: list anew after each call of this.
        """
        if self.peer.era == "legacy":
            return
        wanted = b'"notifications":{"toolsListChanged":true}'
        try:
            await self._request("subscriptions/listen", wanted, deadline)
        except DeadlineExceeded:
            return

    async def _tools_page(self, cursor: str | None, deadline: float) -> era.ToolPage:
        members = b"" if cursor is None else b'"cursor":%b' % dumps(cursor)
        return era.read_tools(await self._request("tools/list", members, deadline))

    async def _request(self, method: str, members: bytes, deadline: float) -> JsonValue:
        params = era.with_meta(members, self._meta)
        return await self.channel.request(method, params, deadline=deadline)


def _usable(found: list[JsonValue], max_tools: int) -> tuple[list[JsonObject], list[str]]:
    tools = [tool for tool in found[:max_tools] if isinstance(tool, dict)]
    warnings: list[str] = []
    strange = min(len(found), max_tools) - len(tools)
    if strange:
        warnings.append(f"{strange} entries of the tool list are not objects")
    if len(found) > max_tools:
        warnings.append(f"the server lists more than {max_tools} tools; the rest is left out")
    return tools, warnings


async def connect(
    open_channel: OpenChannel,
    *,
    deadline: float,
    era_hint: Era | None = None,
    events: ClientEvents | None = None,
    inputs: InputHandler | None = None,
) -> McpClient:
    """Open a channel and find out which era the server speaks; ``deadline`` as for requests.

    A server that ends on the modern probe is started once more and greeted in the legacy way; one
    that is silent is greeted so after a moment, while its answer to the probe still counts. A
    hint (the verdict of an earlier connection) saves the guessing, and is not believed blindly.
    """
    opening = _Opening(open_channel, deadline, events or ClientEvents(), Inputs(inputs))
    try:
        return await opening.run(era_hint)
    except BaseException as error:
        diagnosis = await opening.abandon()
        if isinstance(error, OutcomeUnknown | NotDelivered):
            message = f"{error}{diagnosis}"
            raise ServerUnavailable(message, reason="unavailable") from error
        raise


class _Opening:
    """One attempt to connect: at most two channels, of which one is kept."""

    def __init__(
        self, open_channel: OpenChannel, deadline: float, events: ClientEvents, inputs: Inputs
    ) -> None:
        self._open_channel = open_channel
        self._inputs = inputs
        self._deadline = deadline
        self._events = events
        self._kept = False
        self._channel: Channel | None = None
        self._logs = Logs()

    async def run(self, hint: Era | None) -> McpClient:
        channel = await self._open()
        try:
            peer = await (self._greet_first(channel) if hint == "legacy" else self._probe(channel))
        except (OutcomeUnknown, NotDelivered):
            if hint == "legacy":
                raise
            await self.abandon()
            channel = await self._open()
            peer = await self._greet(channel)
        self._kept = True
        channel.settle(peer)
        return McpClient(channel, peer, self._inputs, self._logs)

    async def abandon(self) -> str:
        """Close the channel at hand; give what the server had to say, for the message."""
        channel, self._channel = self._channel, None
        if channel is None:
            return ""
        await channel.close()
        said = channel.diagnosis()
        return f"; it said: {said}" if said else ""

    async def _open(self) -> Channel:
        events = Events(
            on_notification=self._notified,
            on_closed=self._closed,
            on_pause=self._events.on_pause,
            on_request=self._inputs.answer if self._inputs.capabilities else None,
            on_outdated=self._events.on_outdated,
            on_step=self._events.on_step,
            on_said=self._events.on_said,
            secrets_read=self._events.secrets_read,
            logs=self._logs,
        )
        try:
            async with asyncio.timeout_at(self._deadline):
                self._channel = await self._open_channel(events)
        except TimeoutError:
            raise DeadlineExceeded("the server could not be started in time") from None
        return self._channel

    def _notified(self, method: str, _params: JsonValue) -> None:
        if method == era.LIST_CHANGED:
            self._events.on_tools_changed()

    def _closed(self, reason: str) -> None:
        """Only the loss of a channel that was kept is news to anybody."""
        if self._kept:
            self._events.on_closed(reason)

    async def _probe(self, channel: Channel) -> Peer:
        """Ask in the modern way; after a silence, in both ways at once."""
        now = asyncio.get_running_loop().time()
        patience = min(PROBE_SECONDS, PROBE_SHARE * (self._deadline - now))
        probe = asyncio.create_task(self._discover(channel))
        greeting: asyncio.Task[Peer] | None = None
        try:
            await asyncio.wait({probe}, timeout=patience)
            if probe.done():
                return await probe or await self._greet(channel)
            greeting = asyncio.create_task(self._greet(channel))
            return await self._first_verdict(probe, greeting)
        finally:
            await _discard(probe, greeting)

    async def _first_verdict(
        self, probe: asyncio.Task[Peer | None], greeting: asyncio.Task[Peer]
    ) -> Peer:
        """The probe was sent first, so its answer, if there is to be one, comes first."""
        await asyncio.wait({probe, greeting}, return_when=asyncio.FIRST_COMPLETED)
        if probe.done():
            return await probe or await greeting
        try:
            return await greeting
        except RemoteError:
            verdict = await probe
            if verdict is None:
                raise
            return verdict

    async def _greet_first(self, channel: Channel) -> Peer:
        """Trust the hint; a server that no longer knows the greeting is probed."""
        try:
            return await self._greet(channel)
        except RemoteError:
            verdict = await self._discover(channel)
            if verdict is None:
                raise
            return verdict

    async def _discover(self, channel: Channel) -> Peer | None:
        """The modern peer, or None where the answer means that there is none."""
        params = era.with_meta(b"", era.modern_meta(self._inputs.capabilities))
        try:
            result = await channel.request("server/discover", params, deadline=self._deadline)
            peer, versions = era.read_discover(result)
        except RemoteError as error:
            if error.rpc_code != UNSUPPORTED_VERSION:
                return None
            peer, versions = Peer("modern", era.MODERN, {}, {}, None), era.supported_versions(error)
        except MalformedReply:
            return None
        return peer if _speaks_modern(versions) else None

    async def _greet(self, channel: Channel) -> Peer:
        """The legacy handshake."""
        params = era.initialize_params(self._inputs.capabilities)
        try:
            result = await channel.request("initialize", params, deadline=self._deadline)
        except RemoteError as error:
            offered = era.supported_versions(error)
            if not offered:
                raise
            message = f"{error.message}; {_offers(offered)}"
            raise RemoteError(error.rpc_code, message, error.data) from error
        peer = era.read_initialize(result)
        if peer.version not in era.LEGACY:
            raise ServerUnavailable(_offers([peer.version]))
        channel.settle(peer)
        channel.notify("notifications/initialized", b"{}")
        return peer


def _speaks_modern(versions: list[str]) -> bool:
    """Whether the modern era is common ground; if no era is, say so at once."""
    if era.MODERN in versions:
        return True
    if versions and not set(versions) & set(era.LEGACY):
        raise ServerUnavailable(_offers(versions))
    return False


def _offers(versions: list[str]) -> str:
    """Say which protocol versions a server offers that is not understood, and which ones are."""
    offered, spoken = beginning(", ".join(versions), 80), ", ".join((era.MODERN, *era.LEGACY))
    return f"the server offers protocol {offered}; Bascule speaks {spoken}"


async def _discard(*tasks: asyncio.Task[Peer] | asyncio.Task[Peer | None] | None) -> None:
    """End what is still running; what it would have said does not matter any more."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
