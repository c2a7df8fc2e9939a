"""Our servers in front of the official SDK's client: they speak what others speak."""

from __future__ import annotations

import asyncio
import sys

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from bascule.testing import ScriptedServer

SCRIPTED = {era: ScriptedServer(era=era).command for era in ("modern", "legacy", "dual")}
DEMO = (sys.executable, ["-m", "bascule.demo.server"])


@pytest.mark.parametrize(
    ("command", "mode", "version"),
    [
        (SCRIPTED["modern"], "auto", "2026-07-28"),
        (SCRIPTED["legacy"], "auto", "2025-11-25"),
        (SCRIPTED["dual"], "auto", "2026-07-28"),
        (SCRIPTED["dual"], "legacy", "2025-11-25"),
        (DEMO, "auto", "2026-07-28"),
        (DEMO, "legacy", "2025-11-25"),
    ],
)
async def test_the_official_client_lists_and_calls(command, mode, version):
    executable, arguments = command
    name, sent = ("read_note", {"name": "welcome"}) if command is DEMO else ("echo", {"text": "hi"})
    transport = stdio_client(StdioServerParameters(command=executable, args=arguments))
    async with asyncio.timeout(20), Client(transport, mode=mode) as client:
        assert client.protocol_version == version
        assert name in [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool(name, sent)
        assert not result.is_error
        assert result.content
