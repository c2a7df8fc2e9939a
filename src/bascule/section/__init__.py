"""MCP servers as a section of a prompt: their tools, typed, beside an agent's own.

In the host's prompt and loop::

    session = Session(bus=InProcessEventBus())
    section = McpIntegrationSection(
        servers=[McpServerConfig(name="fs", transport=StdioTransport(command="my-server"))],
        session=session,
    )
    with section:
        template = PromptTemplate[None](ns="demo", key="mcp", sections=[section])
        tool = section.tools()[0]
        result = tool.run({"path": "a"}, context=section.context())

Names are loaded when first used, so that what a host does not need costs it nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bascule.lazy import lazy_names

if TYPE_CHECKING:
    from bascule.section.config import (
        McpCredentialWarning,
        McpServerConfig,
        McpTransport,
        SseTransport,
        StdioTransport,
        StreamableHttpTransport,
    )
    from bascule.section.dataclasses import UNSET
    from bascule.section.errors import (
        McpConfigError,
        McpConnectionError,
        McpError,
        McpSchemaError,
        McpTimeoutError,
        McpToolError,
    )
    from bascule.section.isolation import IsolationConfig, NetworkPolicy, SandboxConfig
    from bascule.section.pool import McpConnection, McpConnectionPool
    from bascule.section.prompt import PromptTemplate, RenderedPrompt, Section
    from bascule.section.runtime import (
        ApprovalNeeded,
        Resources,
        Tool,
        ToolContext,
        ToolHandler,
        ToolInvoked,
        ToolResult,
    )
    from bascule.section.section import McpIntegrationParams, McpIntegrationSection
    from bascule.section.session import InProcessEventBus, Session, Snapshot, Transaction

#: The module of each name below.
_HOMES = {
    "config": "McpCredentialWarning McpServerConfig McpTransport "
    "SseTransport StdioTransport StreamableHttpTransport",
    "dataclasses": "UNSET",
    "errors": "McpConfigError McpConnectionError McpError "
    "McpSchemaError McpTimeoutError McpToolError",
    "isolation": "IsolationConfig NetworkPolicy SandboxConfig",
    "pool": "McpConnection McpConnectionPool",
    "prompt": "PromptTemplate RenderedPrompt Section",
    "runtime": "ApprovalNeeded Resources Tool ToolContext ToolHandler ToolInvoked ToolResult",
    "section": "McpIntegrationParams McpIntegrationSection",
    "session": "InProcessEventBus Session Snapshot Transaction",
}

__all__ = [
    "UNSET",
    "ApprovalNeeded",
    "InProcessEventBus",
    "IsolationConfig",
    "McpConfigError",
    "McpConnection",
    "McpConnectionError",
    "McpConnectionPool",
    "McpCredentialWarning",
    "McpError",
    "McpIntegrationParams",
    "McpIntegrationSection",
    "McpSchemaError",
    "McpServerConfig",
    "McpTimeoutError",
    "McpToolError",
    "McpTransport",
    "NetworkPolicy",
    "PromptTemplate",
    "RenderedPrompt",
    "Resources",
    "SandboxConfig",
    "Section",
    "Session",
    "Snapshot",
    "SseTransport",
    "StdioTransport",
    "StreamableHttpTransport",
    "Tool",
    "ToolContext",
    "ToolHandler",
    "ToolInvoked",
    "ToolResult",
    "Transaction",
]


__getattr__, __dir__ = lazy_names(__name__, _HOMES)
