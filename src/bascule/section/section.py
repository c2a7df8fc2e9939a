"""The section that connects MCP servers to a prompt and shows their tools to an agent.

Synchronous outside; the bridge's event loop runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Self

from msgspec.structs import replace

from bascule.model.session import SessionRequest
from bascule.node.assembly import Bridge
from bascule.node.blocking import BlockingBridge, HostLoop
from bascule.node.bridge.opening import Opening
from bascule.node.bridge.toolset import ToolSet
from bascule.node.contract import AnyBridge
from bascule.node.patience import Patience
from bascule.node.settings import NodeSettings
from bascule.outbound.references import SecretSource
from bascule.section.bridge_tool import bridged_tools
from bascule.section.config import McpServerConfig
from bascule.section.errors import McpConfigError
from bascule.section.inventory import filled, inventory
from bascule.section.isolation import IsolationConfig
from bascule.section.lifecycle import Lifecycle, State
from bascule.section.pool import McpConnection, McpConnectionPool
from bascule.section.prompt import Section
from bascule.section.records import Vault, qualified, records_of
from bascule.section.runtime import AnyTool, OnProgress, Resources, ToolContext
from bascule.section.session import Session

#: A section's connections end when it is told to, not when they are idle; a failed list is asked
#: for again at once, since ``connect`` itself decides how often.
_SETTINGS = replace(NodeSettings(), idle_seconds=math.inf, list_failure_seconds=0.0)


@dataclass(slots=True, frozen=True)
class McpIntegrationParams:
    """The section's parameters: none. The fields of a subclass are variables of the template."""


class McpIntegrationSection(Section[McpIntegrationParams]):
    """Connects MCP servers and exposes their tools.

    It opens a bridge of its own, or crosses the one it is given: then ``servers`` name servers that
    this bridge knows, their transports are not used, and filters narrow what the bridge allows. A
    ``BlockingBridge`` serves ``with`` and ``async with``, an async ``Bridge`` serves ``async with``
    on its own event loop. With ``secrets`` (a ``SecretResolver``, or values by name) a value
    ``secret://name`` in env or headers is that secret.

    A call that needs somebody's approval comes back with the question's id; with
    ``approval_seconds`` it waits so long for the answer (``math.inf``: as long as it can be given).
    Either way ``ApprovalNeeded`` is published first.
    """

    def __init__(  # noqa: PLR0913 - options, all by keyword
        self,
        *,
        servers: Sequence[McpServerConfig],
        session: Session,
        title: str = "MCP Integrations",
        key: str = "mcp.integrations",
        template: str | None = None,
        connect_on_init: bool = False,
        accepts_overrides: bool = False,
        bridge: BlockingBridge | AnyBridge | None = None,
        isolation: IsolationConfig | None = None,
        caller: str | None = None,
        secrets: SecretSource | None = None,
        approval_seconds: float = 0.0,
    ) -> None:
        if bridge is not None and secrets is not None:
            raise McpConfigError("a given bridge has secrets of its own: give them to it")
        super().__init__(
            title=title,
            key=key,
            default_params=McpIntegrationParams(),
            accepts_overrides=accepts_overrides,
        )
        self._patience = _patience(approval_seconds)
        sandbox = (isolation or IsolationConfig()).sandbox_of_record()
        if bridge is not None and sandbox is not None:
            raise McpConfigError(
                "a given bridge has records of its own: say in them how their servers are isolated"
            )
        self.servers = tuple(servers)
        self.session = session
        self._by_id = _by_id(self.servers)
        self.template = template
        self._bridge = bridge
        self._loop: asyncio.AbstractEventLoop | None = None
        self._vault = Vault(secrets)
        self._records = [] if bridge is not None else records_of(self.servers, self._vault, sandbox)
        self._life = Lifecycle(
            self.servers,
            opening=_opening(self.servers, caller),
            make_bridge=self._reached,
            owned=bridge is None,
            translate=self._translated,
        )
        self._pool = McpConnectionPool(
            {
                server.name: McpConnection(server, session, partial(self._tools_of, server.name))
                for server in self.servers
            }
        )
        if connect_on_init:
            self.connect()

    @property
    def state(self) -> State:
        """Return where the section stands: disconnected, connecting, connected, reconnecting."""
        return self._life.state

    @property
    def connected(self) -> bool:
        """Say whether all servers are connected."""
        return self._life.state == "connected"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what was left out of the servers' lists, and why."""
        crossing = self._life.current()
        return (*crossing.warnings, *_unknown(self.servers, crossing.tools))

    def connect(self) -> None:
        """Establish connections to all configured servers, or raise and leave none."""
        self._life.connect()

    def disconnect(self) -> None:
        """Close all connections. Nothing that was started here is left when it returns."""
        self._life.disconnect()

    def tools(self) -> tuple[AnyTool, ...]:
        """Return the tools of the connected servers; raise McpConnectionError before that."""
        return self._life.current().tools

    def resources(self) -> Mapping[type, object]:
        """Return the pool, for tools that call servers by hand."""
        return {McpConnectionPool: self._pool}

    def context(self, *, on_progress: OnProgress | None = None) -> ToolContext:
        """Return what a tool of this section is called with."""
        return ToolContext(self.session, Resources(self.resources()), on_progress)

    def render_body(
        self, params: McpIntegrationParams | None = None, *, override: str | None = None
    ) -> str:
        """Return the inventory of tools, or the template filled in."""
        return self.text_for(self.tools(), params, override=override)

    def text_for(
        self,
        tools: Sequence[AnyTool],
        params: McpIntegrationParams | None = None,
        *,
        override: str | None = None,
    ) -> str:
        """Return the text as it is for these tools, such as those of a host that renames them."""
        template = self.template if override is None else override
        by_server = {
            server.name: [tool for tool in tools if tool.mcp_server == server.name]
            for server in self.servers
        }
        if template is None:
            return inventory(by_server)
        given = {f.name: getattr(params, f.name) for f in fields(params)} if params else {}
        return filled(template, by_server, given)

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        connecting = asyncio.create_task(asyncio.to_thread(self.connect))
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            await asyncio.to_thread(self.disconnect)  # which ends the connecting, if it has begun
            await asyncio.gather(connecting, return_exceptions=True)
            await asyncio.to_thread(self.disconnect)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.disconnect)

    def __repr__(self) -> str:
        names = ", ".join(server.name for server in self.servers)
        return f"McpIntegrationSection({self.key}: {names})"

    def _reached(self) -> BlockingBridge:
        bridge = self._bridge
        if bridge is None:
            return Bridge.blocking(
                self._records,
                environ=self._vault.environ,
                settings=_SETTINGS,
                secrets=self._vault.secrets,
            )
        if isinstance(bridge, BlockingBridge):
            return bridge
        if self._loop is None:
            raise McpConfigError(
                "an async Bridge works under `async with section`, on the bridge's own event loop; "
                "without async give a Bridge.blocking(...)"
            )
        return BlockingBridge(bridge, HostLoop(self._loop))

    def _translated(self, listed: ToolSet) -> tuple[AnyTool, ...]:
        return bridged_tools(
            self._by_id,
            listed,
            life=self._life,
            session=self.session,
            patience=self._patience,
            accepts_overrides=self.accepts_overrides,
        )

    def _tools_of(self, server: str) -> dict[str, AnyTool]:
        """Return a server's tools by the names it gives them."""
        tools = self._life.current().tools
        return {str(tool.native_name): tool for tool in tools if tool.mcp_server == server}


def _patience(seconds: float) -> Patience:
    try:
        return Patience(seconds)
    except ValueError as error:
        raise McpConfigError(str(error)) from None


def _by_id(servers: Sequence[McpServerConfig]) -> dict[str, McpServerConfig]:
    found: dict[str, McpServerConfig] = {}
    for server in servers:
        if server.server_id in found:
            raise McpConfigError(f"server {server.name!r} is given twice")
        found[server.server_id] = server
    return found


def _opening(servers: Sequence[McpServerConfig], caller: str | None) -> Opening:
    """Return what the session asks for: filters only narrow, whatever the bridge allows."""
    narrowed = any(server.enabled_tools is not None for server in servers)
    allowed = qualified(
        (s, ("*",) if s.enabled_tools is None else s.enabled_tools) for s in servers
    )
    denied = qualified((s, s.disabled_tools) for s in servers)
    request = SessionRequest(tool_allowlist=allowed if narrowed else None, tool_denylist=denied)
    return Opening(request=request, caller=caller)


def _unknown(servers: Sequence[McpServerConfig], tools: Sequence[AnyTool]) -> list[str]:
    """Say which tools were asked for by name and are not there."""
    shown = {(tool.mcp_server, tool.native_name) for tool in tools}
    return [
        f"{server.name}: enabled_tools names {tool!r}, which is not among its tools"
        for server in servers
        for tool in server.enabled_tools or ()
        if not set(tool) & {"*", "?"}
        and tool not in server.disabled_tools
        and (server.name, tool) not in shown
    ]
