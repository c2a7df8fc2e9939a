"""The official Python SDK 2.x, over streamable HTTP, in either generation."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client as SdkClient
from mcp.client.streamable_http import streamable_http_client

from tests.doors.gateway.clients.steps import Bell, Client, OnProgress, main, text_of


class Sdk2(Client):
    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        self.bell = Bell()
        async with httpx2.AsyncClient(headers=self.task.headers, timeout=60) as web:
            transport = streamable_http_client(self.task.url, http_client=web)
            mode = self.task.era
            async with SdkClient(transport, mode=mode, message_handler=self.bell.hear) as client:
                self.client = client
                yield

    @property
    def version(self) -> str:
        return self.client.protocol_version

    async def names(self) -> list[str]:
        listed = await self.client.list_tools(cache_mode="bypass")
        return [tool.name for tool in listed.tools]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return text_of(await self.client.call_tool(name, arguments))

    async def watched(self, name: str, on_progress: OnProgress) -> str:
        async def heard(progress: float, total: float | None, message: str | None) -> None:
            del message
            on_progress(progress, total)

        return text_of(await self.client.call_tool(name, {}, progress_callback=heard))

    async def changed(self, change: str) -> list[str]:
        if self.version < "2026":
            await self.call(change, {})
            await self.bell.rung()
        else:
            async with self.client.listen(tools_list_changed=True) as events:
                await self.call(change, {})
                await anext(aiter(events))
        return await self.names()


if __name__ == "__main__":
    main(Sdk2)
