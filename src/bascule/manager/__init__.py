"""The manager door: the MCP servers of an agent, and the agents of a file.

``McpManager`` holds one agent's servers; ``AgentFleet`` one manager for each agent of a file. The
names are loaded when first used: an agent without a file does not pay for reading one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bascule.lazy import lazy_names

if TYPE_CHECKING:
    from bascule.manager.adapter import McpToolAdapter, ToolText
    from bascule.manager.config import (
        AgentConfig,
        AgentsConfig,
        McpServerConfig,
        ToolFilter,
        read_agents,
        resolved,
    )
    from bascule.manager.core import McpManager, Reconciled, ServerDisabled, UnknownServer
    from bascule.manager.events import (
        ApprovalNeeded,
        ConfigRefused,
        ConfigReloaded,
        ManagerEvent,
        ServerStateChanged,
        ToolCompleted,
        ToolNamesCollided,
        ToolStarted,
    )
    from bascule.manager.file import AgentsFile
    from bascule.manager.fleet import AgentFleet
    from bascule.manager.retry import RetryRules
    from bascule.manager.status import ServerStatus

#: The module of each name below.
_HOMES = {
    "adapter": "McpToolAdapter ToolText",
    "config": "AgentConfig AgentsConfig McpServerConfig ToolFilter read_agents resolved",
    "core": "McpManager Reconciled ServerDisabled UnknownServer",
    "events": "ApprovalNeeded ConfigRefused ConfigReloaded ManagerEvent "
    "ServerStateChanged ToolCompleted ToolNamesCollided ToolStarted",
    "file": "AgentsFile",
    "fleet": "AgentFleet",
    "retry": "RetryRules",
    "status": "ServerStatus",
}

__all__ = [
    "AgentConfig",
    "AgentFleet",
    "AgentsConfig",
    "AgentsFile",
    "ApprovalNeeded",
    "ConfigRefused",
    "ConfigReloaded",
    "ManagerEvent",
    "McpManager",
    "McpServerConfig",
    "McpToolAdapter",
    "Reconciled",
    "RetryRules",
    "ServerDisabled",
    "ServerStateChanged",
    "ServerStatus",
    "ToolCompleted",
    "ToolFilter",
    "ToolNamesCollided",
    "ToolStarted",
    "ToolText",
    "UnknownServer",
    "read_agents",
    "resolved",
]


__getattr__, __dir__ = lazy_names(__name__, _HOMES)
