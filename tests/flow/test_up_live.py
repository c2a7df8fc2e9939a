"""``bascule up`` while somebody watches: a call is seen, counted, and the stream ends at a stop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bascule.wire.api.addresses import LIVE, NODES, OVERVIEW
from bascule.wire.sse import SseReader
from tests.flow.up_process import serving
from tests.flow.worker_lines import lines_to, two_workers
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


@pytest.mark.requirement("admin:overview:nodes")
async def test_calls_of_workers_are_seen_and_counted_where_the_overview_is(tmp_path: Path):
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(3 * SOON_SECONDS))
        up, token = await stack.enter_async_context(two_workers(tmp_path))
        lines = await lines_to(up, token, stack)
        headers = {"Authorization": f"Bearer {up.admin}"}
        async with up.http.get(up.url + LIVE, headers=headers) as answer:
            seen = events(answer)
            assert (await anext(seen))[0] == "hello"
            for line in lines.values():
                assert (await line.call("s/much", arguments={}))["ok"]
            called: set[str] = set()
            while len(called) < len(lines):
                name, data = await anext(seen)
                if name == "call" and data["tool_name"] == "much":
                    called.add(data["request_id"])
        overview = await up.get(OVERVIEW)
        [server] = overview["servers"]
        assert {one["tool_name"]: one["calls"] for one in server["tools"]}["much"] == 2
        assert {one["running"] for one in overview["figures"]} == {None}
