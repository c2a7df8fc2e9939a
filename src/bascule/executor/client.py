"""One server as the executor sees it: what it offers, under which names.

It has a session of the bridge on this server alone; the list of tools is kept there, and renewed
when the server says that it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bascule.errors import ServerUnavailable
from bascule.executor.types import ToolDefinition, ToolKind
from bascule.model.decision import Unlisted
from bascule.model.explanation import Explanation
from bascule.model.tool import ToolDescriptor
from bascule.node.bridge.toolset import ToolSet
from bascule.node.contract import ToolSession


class McpClient:
    """A server of an executor, connected when it is first needed."""

    def __init__(self, name: str, session: ToolSession, named: Callable[[str, str], str]) -> None:
        self.name = name
        self.session = session
        self._named = named
        self._tools: dict[str, ToolDescriptor] = {}
        #: Whether it ever said what it offers, and what else is known.
        self.listed = False
        self.problem = "has not listed its tools yet"

    @property
    def tools(self) -> Mapping[str, ToolDescriptor]:
        """Return the tools that were discovered, by the names a loop uses."""
        return self._tools

    async def discover_tools(self) -> list[ToolDefinition]:
        """Return the server's tools; raise ServerUnavailable when it cannot be asked.

        A failure is tried again once, and is never remembered: the next request asks anew.
        """
        found = await self._listed()
        self._tools = {self._named(self.name, tool.name): tool for tool in found}
        shown = zip(self._tools.items(), found.anthropic(), strict=True)
        return [
            ToolDefinition(
                name=name,
                description=entry["description"],
                parameters=entry["input_schema"],
                kind=ToolKind.MCP,
                server=tool.server_id,
                tool=tool.name,
            )
            for (name, tool), entry in shown
        ]

    async def denies(self, tool: str) -> bool:
        """Say whether policy denies a tool by its own name, as far as is known."""
        decision = (await self._explained(f"{self.name}/{tool}")).decision
        return not (decision.allowed or decision.names_nothing or decision.layer == "node")

    async def close(self) -> None:
        """Let the server go."""
        await self.session.close()

    async def _explained(self, name: str) -> Explanation:
        if self.listed:
            return self.session.explain(name)
        return await self.session.explanation(name)

    async def _listed(self) -> ToolSet:
        found = await self.session.tools()
        if self._unavailable(found) is not None:
            found = await self.session.tools()
        missing = self._unavailable(found)
        if missing is not None:
            self.problem = f"did not list its tools: {missing.message}"
            raise ServerUnavailable(f"{self.name}: {missing.message}", reason=missing.reason)
        self.listed = True
        return found

    def _unavailable(self, found: ToolSet) -> Unlisted | None:
        """Return why the server could not be asked; one that policy keeps out lists nothing."""
        missing = found.missing(self.name)
        return missing if missing is not None and missing.retryable else None
