"""Bascule: the governed bridge between agents and MCP tools.

The library's public names. They are loaded when first used, so that ``import bascule`` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bascule.lazy import lazy_names

if TYPE_CHECKING:
    from bascule.audit.ledger import JsonLinesLedger, MemoryLedger
    from bascule.errors import BasculeError, InvalidRecord, SessionRefused, ToolError
    from bascule.model.outcome import Failed, Failure, Outcome, Success
    from bascule.model.server import ServerRecord
    from bascule.model.session import SessionLimits
    from bascule.model.tool import ToolDescriptor
    from bascule.node.approvers import AllowAll, AskFunction, DenyAll
    from bascule.node.assembly import Bridge
    from bascule.node.blocking import BlockingBridge, BlockingSession
    from bascule.node.bridge.session import Session
    from bascule.node.bridge.toolset import ToolSet
    from bascule.node.connected_bridge import ConnectedBridge
    from bascule.node.rules import NodeRules
    from bascule.node.settings import NodeSettings
    from bascule.server import Server

__version__ = "0.1.0"

_HOMES = {
    "AllowAll": "bascule.node.approvers",
    "AskFunction": "bascule.node.approvers",
    "BasculeError": "bascule.errors",
    "BlockingBridge": "bascule.node.blocking",
    "BlockingSession": "bascule.node.blocking",
    "Bridge": "bascule.node.assembly",
    "ConnectedBridge": "bascule.node.connected_bridge",
    "DenyAll": "bascule.node.approvers",
    "Failed": "bascule.model.outcome",
    "Failure": "bascule.model.outcome",
    "InvalidRecord": "bascule.errors",
    "JsonLinesLedger": "bascule.audit.ledger",
    "MemoryLedger": "bascule.audit.ledger",
    "NodeRules": "bascule.node.rules",
    "NodeSettings": "bascule.node.settings",
    "Outcome": "bascule.model.outcome",
    "Server": "bascule.server",
    "ServerRecord": "bascule.model.server",
    "Session": "bascule.node.bridge.session",
    "SessionLimits": "bascule.model.session",
    "SessionRefused": "bascule.errors",
    "Success": "bascule.model.outcome",
    "ToolDescriptor": "bascule.model.tool",
    "ToolError": "bascule.errors",
    "ToolSet": "bascule.node.bridge.toolset",
}

__all__ = [
    "AllowAll",
    "AskFunction",
    "BasculeError",
    "BlockingBridge",
    "BlockingSession",
    "Bridge",
    "ConnectedBridge",
    "DenyAll",
    "Failed",
    "Failure",
    "InvalidRecord",
    "JsonLinesLedger",
    "MemoryLedger",
    "NodeRules",
    "NodeSettings",
    "Outcome",
    "Server",
    "ServerRecord",
    "Session",
    "SessionLimits",
    "SessionRefused",
    "Success",
    "ToolDescriptor",
    "ToolError",
    "ToolSet",
]


__getattr__, __dir__ = lazy_names(__name__, _HOMES)
