"""Tools of a caller's own, run in memory: each gives what it was told to, or waits to be let go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bascule.model.json import JsonObject
from bascule.model.outcome import Failed, Outcome, Success, failure

Work = Callable[[JsonObject], Awaitable[Outcome]]


def said(text: str) -> Success:
    """Make an answer of a tool."""
    return Success(text=text, content=({"type": "text", "text": text},), request_id="", revision=0)


def broke(message: str) -> Failed:
    """Make the failure of a tool that ran."""
    return Failed(error=failure("mcp_tool_error", message), request_id="", revision=0)


class GuestTools:
    """An ``OwnTools`` that remembers what it was asked to run."""

    def __init__(self, **tools: Outcome | Work) -> None:
        self._tools = tools
        self.ran: list[tuple[str, JsonObject]] = []
        self.rooms: list[int] = []
        self.inside = self.most = 0

    def has(self, name: str) -> bool:
        return name in self._tools

    async def run(self, name: str, arguments: JsonObject, *, max_output_bytes: int) -> Outcome:
        self.ran.append((name, arguments))
        self.rooms.append(max_output_bytes)
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            tool = self._tools[name]
            return await tool(arguments) if callable(tool) else tool
        finally:
            self.inside -= 1
