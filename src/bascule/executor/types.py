"""What passes between a host's loop and an executor.

``mcp.py`` is the executor for MCP; a host may have others beside it, and asks each in turn whether
a call is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from bascule.model.json import JsonObject


class ToolKind(Enum):
    """Who runs a tool: ``FUNCTION`` is the caller's own, and has no executor."""

    FUNCTION = "function"
    MCP = "mcp"
    SANDBOX = "sandbox"
    BUILTIN = "builtin"


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """A tool as a loop offers it to a model. ``server`` and ``tool`` say what is behind it."""

    name: str
    description: str
    parameters: JsonObject
    kind: ToolKind
    server: str
    tool: str

    def openai(self) -> dict[str, Any]:
        """Return it as an entry of chat completions' ``tools``."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}


class ToolCall(Struct, frozen=True):
    """One call a model asks for; ``arguments`` are JSON, as the model wrote it, or read already."""

    id: str
    name: str
    arguments: str | JsonObject = ""


class ApprovalNeeded(Struct, frozen=True, kw_only=True):
    """A call needs somebody's approval: told before it waits for that, or comes back.

    ``expires_at`` is until when somebody may decide, in seconds since 1970.
    """

    call_id: str
    server: str
    tool: str
    approval_id: str
    expires_at: float | None


class ToolResult(Struct, frozen=True):
    """What came of a call, for the model: an error is a result, never an exception."""

    call_id: str
    output: str
    is_error: bool = False
    metadata: Mapping[str, str] = {}


@runtime_checkable
class ToolExecutor(Protocol):
    """Whatever runs tools of one kind."""

    @property
    def kind(self) -> ToolKind: ...

    def can_execute(self, tool_name: str) -> bool:
        """Say whether a tool is one of its own; any other is left to the host or its caller."""
        ...

    async def execute(self, call: ToolCall) -> ToolResult: ...
