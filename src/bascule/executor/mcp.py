"""The executor for MCP: discovers tools when a request refers to a server, runs their calls.

There is one ``McpClient`` for each server, on a bridge of its own or on one that is shared. A name
that was not discovered here is not executable here: the host hands such a call to its caller, and
pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from bascule.client.http import ApiError
from bascule.clock import rfc3339
from bascule.errors import BasculeError, InvalidRecord, SessionRefused
from bascule.executor.client import McpClient
from bascule.executor.config import McpConfig, McpServerConfig, Vault
from bascule.executor.types import ApprovalNeeded, ToolCall, ToolDefinition, ToolKind, ToolResult
from bascule.lifetime import Lifetime
from bascule.loop.request import tool_name
from bascule.model.approval import Waiting, waiting_of
from bascule.model.call import NO_LIMITS
from bascule.model.json import JsonObject
from bascule.model.name import door_name, hashed_door_name, prefixes, spellings
from bascule.model.outcome import Failure, Outcome, failure, shown_error
from bascule.model.tool import ToolDescriptor
from bascule.node.assembly import Bridge
from bascule.node.contract import AnyBridge
from bascule.node.patience import Patience, patiently
from bascule.node.remote_session import failure_of_answer
from bascule.node.settings import NodeSettings
from bascule.outbound.references import SecretSource
from bascule.wire.arguments import read_arguments
from bascule.wire.faults import error_object, tool_message
from bascule.wire.strict_json import dumps

logger = logging.getLogger("bascule.executor")

# A discovery that failed is asked again at once, so a failed list is not kept.
_SETTINGS = NodeSettings(list_failure_seconds=0.0)


#: A request waits no longer for a server's tools: the others' are there.
DISCOVERY_SECONDS = 15.0
_NOT_HERE = (
    "allowed_tools and require_approval would have no effect: what is allowed is the bridge's "
    "word; give the executor a bridge whose record of this server says so"
)


class McpExecutor(Lifetime):
    """A ``ToolExecutor`` for the tools of configured MCP servers.

    With ``bridge`` the servers are those of that bridge, by name: what its records or its registry
    allow stands, and it is left open. ``prewarm`` discovers in the background at the start.
    ``secrets`` (a ``SecretResolver``, or values by name) are what ``secret://name`` means in env,
    headers and auth.

    A call that needs somebody's approval comes back with the question's id in its metadata, or
    waits for the answer for ``approval_seconds`` (``math.inf``: as long as it can be given).
    ``on_approval`` is told of the question either way.
    """

    def __init__(  # noqa: PLR0913 - options, all by keyword
        self,
        config: McpConfig | Sequence[McpServerConfig] | Sequence[str],
        *,
        bridge: AnyBridge | None = None,
        caller: str | None = None,
        secrets: SecretSource | None = None,
        prewarm: bool = False,
        discovery_seconds: float = DISCOVERY_SECONDS,
        approval_seconds: float = 0.0,
        on_approval: Callable[[ApprovalNeeded], None] | None = None,
    ) -> None:
        servers = config.servers if isinstance(config, McpConfig) else config
        self._names = _server_names(servers)
        self._shared = bridge is not None
        if bridge is not None and secrets is not None:
            raise ValueError("a given bridge has secrets of its own: give them to it")
        self._bridge = _own_bridge(servers, secrets) if bridge is None else bridge
        self._caller = caller
        self._prewarm = prewarm
        self._discovery_seconds = discovery_seconds
        self._patience = Patience(approval_seconds)
        self._on_approval = on_approval
        self._clients: dict[str, McpClient] = {}
        self._warming: asyncio.Task[object] | None = None

    @property
    def kind(self) -> ToolKind:
        return ToolKind.MCP

    def client(self, name: str) -> McpClient:
        """Return one server's client; raise SessionRefused for a name that is not configured."""
        if name not in self._names:
            known = ", ".join(self._names) or "none"
            raise SessionRefused(
                "unknown_server", f"no server {name!r} (configured: {known})", server=name
            )
        found = self._clients.get(name)
        if found is None:
            session = self._bridge.session(server_ids=[name], caller=self._caller)
            found = self._clients[name] = McpClient(name, session, self._named)
        return found

    async def discover(self, names: Iterable[str]) -> tuple[list[ToolDefinition], list[str]]:
        """Return the tools of some servers, and a warning for each that cannot be asked now."""
        asked = list(dict.fromkeys(names))
        found = await asyncio.gather(*(self._discovered(name) for name in asked))
        tools = [tool for part in found if not isinstance(part, str) for tool in part]
        return tools, [part for part in found if isinstance(part, str)]

    async def merge(
        self, tools: Sequence[JsonObject], *, servers: Iterable[str] = ()
    ) -> list[dict[str, Any]]:
        """Return a request's tools with those of the servers that it refers to, and no others.

        A request refers to a server by an entry ``{"type": "mcp", "server_label": NAME}``, whose
        place the server's tools take, or by ``servers``, whose tools come last. A server that
        cannot be asked contributes nothing; a tool of the caller's own with a name of ours is
        refused.
        """
        referred = [*filter(None, map(_label, tools)), *servers]
        definitions, _ = await self.discover(referred)
        offered: dict[str, list[dict[str, Any]]] = {name: [] for name in referred}
        for definition in definitions:
            offered[definition.server].append(definition.openai())
        own = [dict(entry) for entry in tools if _label(entry) is None]
        _refuse_clashes(own, {definition.name for definition in definitions})
        merged: list[dict[str, Any]] = []
        for entry in tools:
            label = _label(entry)
            merged += [dict(entry)] if label is None else offered.pop(label, [])
        return merged + [entry for rest in offered.values() for entry in rest]

    def can_execute(self, tool_name: str) -> bool:
        """Say whether a tool is one that was discovered here."""
        return tool_name in self._spelled()

    async def execute(self, call: ToolCall) -> ToolResult:
        """Run one call through the bridge; whatever goes wrong is a result for the model."""
        known = self._meant(call.name)
        if known is None:
            return await self._not_found(call)
        client, name = known
        try:
            arguments = read_arguments(call.arguments)
        except ValueError as error:
            message = f"invalid arguments JSON: {error}"
            return _failed(call, failure("mcp_invalid_arguments", message))
        tool = client.tools[name]
        outcome = await patiently(
            client.session,
            tool.model_name,
            arguments,
            NO_LIMITS,
            self._patience,
            lambda waiting: self._tell(call, tool, waiting),
        )
        return _result(call, client.name, tool.name, outcome)

    def _tell(self, call: ToolCall, tool: ToolDescriptor, waiting: Waiting) -> None:
        """Tell whoever listens of a question; what they raise is logged and nothing more."""
        if self._on_approval is None:
            return
        needed = ApprovalNeeded(
            call_id=call.id,
            server=tool.server_id,
            tool=tool.name,
            approval_id=waiting.approval_id,
            expires_at=waiting.expires_at,
        )
        try:
            self._on_approval(needed)
        except Exception:  # the host's own code: a call must not fail by it
            logger.exception("on_approval failed")

    async def _not_found(self, call: ToolCall) -> ToolResult:
        """Answer a name that was not discovered: it is denied, or its server never listed."""
        server, tool = self._said(call.name)
        problem = failure("mcp_invalid_arguments", self._no_tool(call.name))
        if not server:
            return _failed(call, problem)
        try:
            client = self.client(server)
            if await client.denies(tool):  # the bridge says so itself, and writes it down
                outcome = await client.session.call(f"{server}/{tool}", {})
                return _result(call, server, tool, outcome)
            if not client.listed:
                problem = failure("mcp_unavailable", f"server {server!r} {client.problem}")
        except BasculeError as error:
            problem = _refused(error)
        return _failed(call, problem)

    def _said(self, called: str) -> tuple[str, str]:
        """Return the server of ours that a name says, and the rest; the longest match counts."""
        found = "", called
        longest = 0
        for server in self._names:
            for prefix in (f"{server}_", *prefixes(server, f"mcp.{server}")):
                if len(prefix) > longest and called.startswith(prefix):
                    longest, found = len(prefix), (server, called[len(prefix) :])
        return found

    async def execute_all(
        self, calls: Sequence[ToolCall], *, parallel: bool = True
    ) -> list[ToolResult]:
        """Run the calls of a turn, at once or one after another; results stand in their order."""
        if parallel:
            return list(await asyncio.gather(*(self.execute(call) for call in calls)))
        return [await self.execute(call) for call in calls]

    def health(self) -> dict[str, str]:
        """Return how each server's connection stands. It is shown, and nothing depends on it."""
        known = {status.server_id: status.state for status in self._bridge.statuses()}
        return {name: known.get(name, "unknown") for name in self._names}

    async def start(self) -> None:
        """Begin to serve. Nothing is connected yet, unless it is to be warm."""
        await self._bridge.start()
        if self._prewarm and self._warming is None:
            self._warming = asyncio.get_running_loop().create_task(self.discover(self._names))

    async def close(self) -> None:
        """Close every connection; a bridge that is shared stays open."""
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait([self._warming])
        for client in self._clients.values():
            await client.close()
        if not self._shared:
            await self._bridge.close()

    async def _discovered(self, name: str) -> list[ToolDefinition] | str:
        try:
            async with asyncio.timeout(self._discovery_seconds):
                return await self.client(name).discover_tools()
        except TimeoutError:
            return f"{name}: its tools were not known within {self._discovery_seconds:g} s"
        except BasculeError as error:
            return str(error)

    def _meant(self, name: str) -> tuple[McpClient, str] | None:
        """Return whose tool a name means, and what it is called here; a bare name if it is one's.

        A bare name is for ``execute`` alone: another executor may have a tool of that name.
        """
        found = self._spelled().get(name)
        if found is not None:
            return found
        bare = [(client, own) for client, own, tool in self._known() if tool.name == name]
        return bare[0] if len(bare) == 1 else None

    def _spelled(self) -> dict[str, tuple[McpClient, str]]:
        """Return every tool by its name here and in the spellings that name its server."""
        table: dict[str, tuple[McpClient, str]] = {}
        for client, own, tool in self._known():
            others = spellings(client.name, f"mcp.{client.name}", tool.name)
            for name in (tool.model_name, *others):
                table.setdefault(name, (client, own))
        return table | {own: (client, own) for client, own, _ in self._known()}

    def _known(self) -> Iterator[tuple[McpClient, str, ToolDescriptor]]:
        for client in self._clients.values():
            for own, tool in client.tools.items():
                yield client, own, tool

    def _no_tool(self, name: str) -> str:
        near = get_close_matches(name[:128], [own for _, own, _ in self._known()])
        meant = f"; did you mean {', '.join(near)}?" if near else ""
        return f"no MCP tool has the name {name!r}{meant}"

    def _named(self, server: str, tool: str) -> str:
        """Return a tool's name; one that could be another server's as well carries a hash."""
        name = door_name(server, tool)
        doubtful = any(name.startswith(f"{other}_") for other in self._names if other != server)
        return hashed_door_name(server, tool) if doubtful else name


def _own_bridge(servers: Sequence[object], secrets: SecretSource | None) -> AnyBridge:
    configs = tuple(server for server in servers if isinstance(server, McpServerConfig))
    if len(configs) != len(servers):
        raise InvalidRecord(["servers: names alone need a bridge that has these servers"])
    vault = Vault(secrets)
    records = McpConfig(servers=configs).records(vault)
    return Bridge.open(records, settings=_SETTINGS, secrets=vault)


def _server_names(servers: Sequence[object]) -> tuple[str, ...]:
    named = [server.name if isinstance(server, McpServerConfig) else server for server in servers]
    names = [name for name in named if isinstance(name, str)]
    if len(names) != len(servers):
        raise InvalidRecord(["servers: plain values are read by McpConfig.read"])
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InvalidRecord([f"servers: {name!r} is given twice" for name in sorted(twice)])
    return tuple(names)


def _label(entry: JsonObject) -> str | None:
    """Return the server that a tool entry of a request refers to."""
    if entry.get("type") != "mcp":
        return None
    label = entry.get("server_label")
    if not isinstance(label, str) or not label:
        raise InvalidRecord(["tools: an entry of type mcp needs a server_label"])
    if entry.get("allowed_tools") is not None or entry.get("require_approval", "never") != "never":
        raise InvalidRecord([f"tools: {label!r}: {_NOT_HERE}"])
    return label


def _refuse_clashes(own: Sequence[JsonObject], ours: set[str]) -> None:
    clashes = sorted(ours & {str(tool_name(entry) or entry.get("name")) for entry in own})
    if clashes:
        raise InvalidRecord([f"tools: {name!r} is the name of an MCP tool" for name in clashes])


def _refused(error: BasculeError) -> Failure:
    """Return why nothing can be asked of a server: its session is refused, or nobody answers."""
    if isinstance(error, ApiError):
        return failure_of_answer(error)
    denied = isinstance(error, SessionRefused)
    return failure("mcp_policy_denied" if denied else "mcp_unavailable", str(error))


def _failed(call: ToolCall, error: Failure) -> ToolResult:
    """Return the result of a call that was not made, as JSON like every other failure."""
    output = dumps({"error": error_object(error)}).decode()
    return ToolResult(call_id=call.id, output=output, is_error=True, metadata=_about(error))


def _about(error: Failure) -> dict[str, str]:
    return {"code": error.code, "retryable": str(error.retryable).lower()}


def _result(call: ToolCall, server: str, tool: str, outcome: Outcome) -> ToolResult:
    metadata = {
        "server": server,
        "tool": tool,
        "request_id": outcome.request_id,
        "revision": str(outcome.revision),
    }
    error = shown_error(outcome)
    if error is not None:
        metadata |= _about(error)
    waiting = waiting_of(outcome)
    if waiting is not None:
        metadata["approval_id"] = waiting.approval_id
        metadata["expires_at"] = rfc3339(waiting.expires_at) or ""
    if outcome.warnings:
        metadata["warnings"] = "; ".join(outcome.warnings)
    return ToolResult(
        call_id=call.id,
        output=tool_message(outcome),
        is_error=not outcome.ok,
        metadata=metadata,
    )
