"""A plain HTTP peer for the scripted server: raw requests, raw answers, no client of ours."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from bascule.testing import ScriptedHttpServer

META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
MODERN_META = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
ACCEPT = "application/json, text/event-stream"


class Caller:
    """One client of one server, in one era."""

    def __init__(self, http: ScriptedHttpServer, web: aiohttp.ClientSession, era: str) -> None:
        self.http = http
        self.web = web
        self.era = era
        self.session: dict[str, str] = {}
        self.last_id = 0

    def message(self, method: str, /, **params: Any) -> dict[str, Any]:
        self.last_id += 1
        if self.era == "modern":
            params = {**params, "_meta": {**MODERN_META, **params.get("_meta", {})}}
        return {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}

    def headers(self, message: dict[str, Any]) -> dict[str, str]:
        headers = {"Accept": ACCEPT, **self.session}
        if self.era == "modern":
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": message.get("method", "")}
            if "name" in message.get("params", {}):
                headers["Mcp-Name"] = message["params"]["name"]
        return headers

    def post(self, message: Any, **more: str) -> Any:
        """POST a message as it is; ``more`` are headers, None leaves one out."""
        headers = {**self.headers(message if isinstance(message, dict) else {}), **more}
        url = self.http.url
        return self.web.post(url, json=message, headers=headers, allow_redirects=False)

    async def ask(self, method: str, /, **params: Any) -> Any:
        """Send a request; the last frame of the answer."""
        return (await self.frames(method, **params))[-1]

    async def frames(self, method: str, /, **params: Any) -> list[Any]:
        """Send a request; every frame of the answer."""
        async with self.post(self.message(method, **params)) as response:
            if response.content_type == "text/event-stream":
                return [json.loads(data) async for _, data in events(response) if data]
            return [await response.json()]

    async def call(self, name: str, /, **arguments: Any) -> Any:
        return await self.ask("tools/call", name=name, arguments=arguments)

    async def text(self, name: str, /, **arguments: Any) -> str:
        return (await self.call(name, **arguments))["result"]["content"][0]["text"]

    async def greet(self) -> None:
        """Shake hands where that is done, and take the session."""
        if self.era == "modern":
            return
        message = self.message("initialize", protocolVersion="2025-11-25")
        async with self.post(message) as response:
            assert response.status == 200
            await response.read()
            if "Mcp-Session-Id" in response.headers:
                self.session = {"Mcp-Session-Id": response.headers["Mcp-Session-Id"]}
        async with self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}) as response:
            assert response.status == 202

    def listen(self, **headers: str) -> Any:
        return self.web.get(
            self.http.url, headers={"Accept": "text/event-stream", **self.session, **headers}
        )


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[dict[str, str], str]]:
    """Each event's fields and data; one without data has an empty one."""
    fields: dict[str, str] = {}
    async for raw in response.content:
        line = raw.decode().rstrip("\n")
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
            continue
        yield fields, fields.get("data", "")
        fields = {}


async def next_frame(stream: AsyncIterator[tuple[dict[str, str], str]]) -> Any:
    """The next frame of a stream of events."""
    async for _, data in stream:
        if data:
            return json.loads(data)
    raise AssertionError("the stream ended")
