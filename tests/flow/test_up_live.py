"""``bascule up`` while somebody watches: a call is seen, counted, and the stream ends at a stop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bascule.wire.api.addresses import LIVE, NODES, OVERVIEW
from bascule.wire.sse import SseReader
from tests.flow.up_process import serving
from tests.waits import SOON_SECONDS


async def events(answer: aiohttp.ClientResponse) -> AsyncGenerator[tuple[str, Any]]:
    reader = SseReader()
    async for chunk in answer.content.iter_any():
        for event in reader.feed(chunk):
            yield event.event, json.loads(event.data)


@pytest.mark.requirement("admin:live", "admin:overview:figures", "admin:nodes")
async def test_a_call_is_seen_while_somebody_watches_until_the_process_ends(tmp_path: Path):
    async with asyncio.timeout(2 * SOON_SECONDS), serving(tmp_path / "data") as up:
        token = await up.token("demo")
        headers = {"Authorization": f"Bearer {up.admin}"}
        async with up.http.get(up.url + LIVE, headers=headers) as answer:
            seen = events(answer)
            assert (await anext(seen))[0] == "hello"
            status, _ = await up.call(token, "mcp__notes__list_notes")
            assert status == 200
            found: dict[str, Any] = {}
            while not {"call", "figures", "status"} <= found.keys():
                name, data = await anext(seen)
                if name == "figures" and not data["calls"]:
                    continue
                if name == "status" and data["status"]["state"] != "connected":
                    continue
                found[name] = data
            assert (found["call"]["tool_name"], found["call"]["status"]) == ("list_notes", "ok")
            assert found["figures"]["p50_ms"] > 0
            overview = await up.get(OVERVIEW)
            [server] = overview["servers"]
            assert (server["server_id"], server["calls"]) == ("notes", 1)
            assert [one["code"] for one in overview["attention"]] == ["setup_token"]
            [node] = (await up.get(NODES))["nodes"]
            assert (node["name"], node["state"], node["servers"]) == (
                "local",
                "ok",
                {"connected": 1},
            )
            ending = asyncio.ensure_future(up.end())
            assert {name async for name, _ in seen} <= {"figures", "status", "call", "revision"}
            assert await ending == 0
