"""openai-agents, with its ``MCPServerStreamableHttp``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tests.doors.gateway.clients.steps import Bell, Client, main, text_of

agents: Any = import_module("agents.mcp")


class OpenAiAgents(Client):
    def connected(self) -> Any:
        self.bell = Bell()
        self.server = agents.MCPServerStreamableHttp(
            params={"url": self.task.url, "headers": self.task.headers},
            client_session_timeout_seconds=60,
            message_handler=self.bell.hear,
        )
        return self.server

    @property
    def version(self) -> str | None:
        return self.server.session.protocol_version

    async def names(self) -> list[str]:
        return [tool.name for tool in await self.server.list_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return text_of(await self.server.call_tool(name, arguments))


if __name__ == "__main__":
    main(OpenAiAgents)
