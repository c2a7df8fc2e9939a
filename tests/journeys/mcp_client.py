"""A person's MCP client: lists, asks for a tool it does not have, and again once its list changes.

The official SDK, with the address and the token that ``bascule tokens create`` prints.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

URL, TOOL = sys.argv[1:]
HEADERS = {"Authorization": f"Bearer {os.environ['BASCULE_CLIENT_TOKEN']}"}


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]


async def main() -> None:
    async with (
        httpx2.AsyncClient(headers=HEADERS, timeout=60) as http,
        Client(streamable_http_client(URL, http_client=http)) as client,
        client.listen(tools_list_changed=True) as changes,
    ):
        say(version=client.protocol_version, names=await names(client))
        try:
            await client.call_tool(TOOL, {"name": "a", "text": "b"})
        except MCPError as error:
            say(refused=error.error.code, words=str(error))
        while TOOL not in await names(client):
            await anext(aiter(changes))
        result = await client.call_tool(TOOL, {"name": "a", "text": "b"})
        say(failed=result.is_error, names=await names(client))


asyncio.run(main())
