"""pydantic-ai, with its ``MCPToolset``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tests.doors.gateway.clients.steps import Client, OnProgress, main

pydantic_ai: Any = import_module("pydantic_ai.mcp")


class PydanticAi(Client):
    _on_progress: OnProgress | None = None

    def connected(self) -> Any:
        self.toolset = pydantic_ai.MCPToolset(
            self.task.url, headers=self.task.headers, progress_handler=self._progressed
        )
        return self.toolset

    @property
    def version(self) -> str:
        return self.toolset.client.protocol_version

    async def names(self) -> list[str]:
        return [tool.name for tool in await self.toolset.list_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return await self.toolset.direct_call_tool(name, arguments)

    async def watched(self, name: str, on_progress: OnProgress) -> str:
        self._on_progress = on_progress
        try:
            return await self.call(name, {})
        finally:
            self._on_progress = None

    async def _progressed(self, progress: float, total: float | None, _: str | None) -> None:
        if self._on_progress is not None:
            self._on_progress(progress, total)


if __name__ == "__main__":
    main(PydanticAi)
