"""Tools of MCP servers for an agent loop of one's own: an executor that a loop asks call by call.

All that is governed is governed by the bridge below::

    config = McpConfig(servers=(McpServerConfig(name="fs", command="my-server"),))
    async with McpExecutor(config) as mcp:
        tools = await mcp.merge([{"type": "mcp", "server_label": "fs"}])
        result = await mcp.execute(ToolCall(id="1", name="fs_read", arguments='{"path": "a"}'))
"""

from bascule.executor.client import McpClient
from bascule.executor.config import ApiKey, ClientCredentials, McpConfig, McpServerConfig, Tls
from bascule.executor.mcp import McpExecutor
from bascule.executor.types import (
    ApprovalNeeded,
    ToolCall,
    ToolDefinition,
    ToolExecutor,
    ToolKind,
    ToolResult,
)

__all__ = [
    "ApiKey",
    "ApprovalNeeded",
    "ClientCredentials",
    "McpClient",
    "McpConfig",
    "McpExecutor",
    "McpServerConfig",
    "Tls",
    "ToolCall",
    "ToolDefinition",
    "ToolExecutor",
    "ToolKind",
    "ToolResult",
]
