"""What the section raises: one tree, with the attributes that a host needs to act on it.

    McpError
    ├── McpConfigError       what was given cannot work: a name, a method, an isolation
    ├── McpConnectionError   a server cannot be reached, or is lost for good
    ├── McpToolError         a call that failed, raised by ``McpConnection.require``
    ├── McpTimeoutError      a call that took too long, raised there too
    └── McpSchemaError       a tool that cannot be shown: its schema, or its name

A message never holds the value of a variable or header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bascule.errors import BasculeError
from bascule.model.json import JsonObject

if TYPE_CHECKING:
    from bascule.section.config import McpTransport


class McpError(BasculeError):
    """Base exception for MCP operations."""

    def __reduce__(self) -> tuple[object, ...]:
        """Be copied and pickled with the attributes that a constructor asks for by keyword."""
        return type(self).__new__, (type(self), *self.args), vars(self)


class McpConfigError(McpError, ValueError):
    """What was given to the section cannot work."""

    code = "invalid_record"


class McpConnectionError(McpError):
    """Failed to establish or maintain a connection."""

    code = "mcp_unavailable"

    def __init__(
        self, message: str, *, server_name: str = "", transport: McpTransport | None = None
    ) -> None:
        self.server_name = server_name
        self.transport = transport
        super().__init__(message)


class McpToolError(McpError):
    """Tool invocation failed."""

    code = "mcp_tool_error"

    def __init__(
        self,
        message: str,
        *,
        server_name: str,
        tool_name: str,
        rpc_error: JsonObject | None = None,
    ) -> None:
        self.server_name = server_name
        self.tool_name = tool_name
        self.rpc_error = None if rpc_error is None else dict(rpc_error)
        super().__init__(message)


class McpTimeoutError(McpError):
    """Operation exceeded its timeout."""

    code = "mcp_timeout"

    def __init__(self, message: str, *, server_name: str, timeout: float) -> None:
        self.server_name = server_name
        self.timeout = timeout
        super().__init__(message)


class McpSchemaError(McpError):
    """A tool that cannot be shown: its schema is unsupported, or its name is taken."""

    code = "invalid_schema"

    def __init__(
        self, message: str, *, server_name: str, tool_name: str, reason: str | None = None
    ) -> None:
        self.server_name = server_name
        self.tool_name = tool_name
        self.reason = message if reason is None else reason
        super().__init__(f"{server_name}/{tool_name}: {message}" if reason is None else message)
