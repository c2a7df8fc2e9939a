"""The client of fastmcp."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tests.doors.gateway.clients.steps import Bell, Client, OnProgress, main, text_of

fastmcp: Any = import_module("fastmcp.client")
transports: Any = import_module("fastmcp.client.transports")


class FastMcp(Client):
    def connected(self) -> Any:
        self.bell = Bell()
        transport = transports.StreamableHttpTransport(self.task.url, auth=self.task.token)
        self.client = fastmcp.Client(transport, mode=self.task.era, message_handler=self.bell.hear)
        return self.client

    @property
    def version(self) -> str:
        return self.client.protocol_version

    async def names(self) -> list[str]:
        return [tool.name for tool in await self.client.list_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return text_of(await self.client.call_tool(name, arguments))

    async def watched(self, name: str, on_progress: OnProgress) -> str:
        async def heard(progress: float, total: float | None, _: str | None) -> None:
            on_progress(progress, total)

        return text_of(await self.client.call_tool(name, {}, progress_handler=heard))

    async def changed(self, change: str) -> list[str] | None:
        if self.version > "2026":
            return None  # it opens no subscription
        await self.call(change, {})
        await self.bell.rung()
        return await self.names()


if __name__ == "__main__":
    main(FastMcp)
