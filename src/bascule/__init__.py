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
    from bascule.node.settings import NodeSettings
    from bascule.outbound.rules import NodeRules
    from bascule.server import Server

__version__ = "0.1.0"

#: The module of each name below.
_HOMES = {
    "audit.ledger": "JsonLinesLedger MemoryLedger",
    "errors": "BasculeError InvalidRecord SessionRefused ToolError",
    "model.outcome": "Failed Failure Outcome Success",
    "model.server": "ServerRecord",
    "model.session": "SessionLimits",
    "model.tool": "ToolDescriptor",
    "node.approvers": "AllowAll AskFunction DenyAll",
    "node.assembly": "Bridge",
    "node.blocking": "BlockingBridge BlockingSession",
    "node.bridge.session": "Session",
    "node.bridge.toolset": "ToolSet",
    "node.connected_bridge": "ConnectedBridge",
    "outbound.rules": "NodeRules",
    "node.settings": "NodeSettings",
    "server": "Server",
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
