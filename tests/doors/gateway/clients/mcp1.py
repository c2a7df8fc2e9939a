"""The official Python SDK 1.x, over streamable HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from tests.doors.gateway.clients.steps import Bell, Client, OnProgress, main, text_of

httpx: Any = import_module("httpx")
mcp: Any = import_module("mcp")
http: Any = import_module("mcp.client.streamable_http")


class Sdk1(Client):
    session: Any
    opened: Any

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        self.bell = Bell()
        async with (
            httpx.AsyncClient(headers=self.task.headers, timeout=60) as web,
            http.streamable_http_client(self.task.url, http_client=web) as (read, write, _),
            mcp.ClientSession(read, write, message_handler=self.bell.hear) as self.session,
        ):
            self.opened = await self.session.initialize()
            yield

    @property
    def version(self) -> str:
        return self.opened.protocolVersion

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return text_of(await self.session.call_tool(name, arguments))

    async def watched(self, name: str, on_progress: OnProgress) -> str:
        async def heard(progress: float, total: float | None, _: str | None) -> None:
            on_progress(progress, total)

        return text_of(await self.session.call_tool(name, {}, progress_callback=heard))

    async def cancelled(self, name: str) -> str:
        """Say so by hand: this SDK tells the server nothing when a call is given up."""
        number = self.session._request_id
        call = asyncio.create_task(self.call(name, {}))
        await self.arrived()
        about = mcp.types.CancelledNotificationParams(requestId=number, reason="enough")
        notification = mcp.types.CancelledNotification(params=about)
        await self.session.send_notification(mcp.types.ClientNotification(notification))
        call.cancel()
        return await self.given_up(call)

    async def changed(self, change: str) -> list[str]:
        await self.call(change, {})
        await self.bell.rung()
        return await self.names()


if __name__ == "__main__":
    main(Sdk1)
