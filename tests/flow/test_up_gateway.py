"""``bascule up`` and browsers: pages that its settings name use the gateway, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doors.gateway.mcp_caller import McpCaller, over_http
from tests.flow.up_process import serving

PAGE = "http://localhost:6274"
CORS = "access-control-allow-origin"


@pytest.mark.requirement("security:cors")
async def test_a_page_that_the_settings_name_connects_and_uses_nothing_else(tmp_path: Path):
    origin = {"Origin": PAGE, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}
    async with serving(tmp_path / "data", BASCULE_GATEWAY_ORIGINS=PAGE) as up:
        asked = {**origin, "Access-Control-Request-Method": "POST"}
        async with up.http.options(f"{up.url}/mcp", headers=asked) as answer:
            assert (answer.status, answer.headers[CORS]) == (204, PAGE)
        token = await up.token("demo")
        for modern in (True, False):
            way = over_http(up.http, up.url)
            caller = McpCaller(way, token, "/mcp/servers/notes", modern, dict(origin))
            assert (await caller.open())["status"] == 200
            listed = await caller.ask("tools/list")
            assert listed.header(CORS) == PAGE
            assert listed.header("cross-origin-resource-policy") == "cross-origin"
            assert "read_note" in {tool["name"] for tool in listed.json["result"]["tools"]}
        stranger = await McpCaller(over_http(up.http, up.url), "bsc_x", headers=origin).ask("x")
        assert (stranger.status, stranger.code) == (401, "unauthenticated")
        assert stranger.header(CORS) == PAGE
        headers = {**origin, "Authorization": f"Bearer {token}"}
        async with up.http.get(f"{up.url}/api/v1/tools", headers=headers) as answer:
            assert (answer.status, CORS in answer.headers) == (403, False)
        assert await up.end() == 0
