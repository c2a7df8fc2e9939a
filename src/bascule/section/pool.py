"""The connections of a section, for tools that call servers by hand.

A call made here crosses the bridge like any other, is a transaction and publishes ``ToolInvoked``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bascule.model.json import JsonObject
from bascule.section.config import McpServerConfig
from bascule.section.errors import McpConfigError, McpTimeoutError, McpToolError
from bascule.section.results import failed
from bascule.section.runtime import AnyResult, AnyTool, OnProgress, ToolContext
from bascule.section.session import Session


class McpConnection:
    """One server of a section. Tools go by the names that the server gives them."""

    def __init__(
        self,
        server: McpServerConfig,
        session: Session,
        tools: Callable[[], Mapping[str, AnyTool]],
    ) -> None:
        self.server_name = server.name
        self._timeout = server.timeout
        self._session = session
        self._tools = tools

    @property
    def tools(self) -> tuple[str, ...]:
        """Return the names of the tools; raise McpConnectionError when not connected."""
        return tuple(self._tools())

    def call(
        self,
        tool: str,
        arguments: JsonObject | None = None,
        *,
        on_progress: OnProgress | None = None,
    ) -> AnyResult:
        """Call a tool; every failure but the loss of the server is a result."""
        found = self._tools().get(tool)
        if found is None:
            return failed("mcp_policy_denied", f"{self.server_name} shows no tool {tool!r}")
        return found.run(arguments, context=ToolContext(self._session, on_progress=on_progress))

    def require(self, tool: str, arguments: JsonObject | None = None) -> Any:
        """Return the value of a call, or raise McpToolError or McpTimeoutError."""
        result = self.call(tool, arguments)
        if result.success:
            return result.value
        problem = result.error
        if problem is not None and problem.code == "mcp_timeout":
            raise McpTimeoutError(
                result.message, server_name=self.server_name, timeout=self._timeout
            )
        code = (problem.details or {}).get("rpc_code") if problem is not None else None
        rpc_error = None if code is None else {"code": code, "message": result.message}
        raise McpToolError(
            result.message, server_name=self.server_name, tool_name=tool, rpc_error=rpc_error
        )


class McpConnectionPool(Mapping[str, McpConnection]):
    """The servers of a section, by name."""

    def __init__(self, connections: Mapping[str, McpConnection]) -> None:
        self._connections = dict(connections)

    def __getitem__(self, name: str) -> McpConnection:
        return self._connections[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    def joined(self, other: McpConnectionPool) -> McpConnectionPool:
        """Return the servers of both, as a prompt with two sections needs."""
        twice = sorted(set(self) & set(other))
        if twice:
            raise McpConfigError(f"two sections have a server named {twice[0]!r}")
        return McpConnectionPool({**self, **other})
