"""Arguments that a modern tool wants repeated in headers."""

from __future__ import annotations

from bascule import Bridge, Server
from bascule.testing import ScriptedHttpServer, ScriptedServer, tool

REGION = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
}


async def test_headers_are_sent_right_after_a_reconnect_too():
    script = ScriptedServer(
        behaviours={"where": "echo"}, tools=[tool("where", inputSchema=REGION)], era="modern"
    )
    async with (
        ScriptedHttpServer(script) as http,
        Bridge.open([Server.http("web", http.url)]) as bridge,
    ):
        session = bridge.session(server_ids=["web"])
        await session.tools()
        await bridge.reconnect("web")
        outcome = await session.call("mcp__web__where", {"region": "north"}, timeout=5)
        assert outcome.ok, outcome.error
        sent = [seen.headers for seen in http.requests if seen.method == "tools/call"]
        assert [headers["Mcp-Param-Region"] for headers in sent] == ["north"]
