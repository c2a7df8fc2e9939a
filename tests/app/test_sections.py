"""What operators set reaches the node and the loop."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from bascule import Bridge, Server
from bascule.app.reload import Reloading
from bascule.app.settings import Settings, load_settings
from bascule.app.settings_tables import ChatSettings, NodeSection
from bascule.app.stores import Stores
from bascule.app.up import parts_of
from bascule.control.registry.service import open_registry
from bascule.errors import ServerUnavailable
from bascule.loop.budgets import DEFAULT_SETTINGS
from bascule.node.settings import NodeSettings
from tests.asgi.caller import make_tokens
from tests.control.registry.memory_store import MemoryStore

FILE = """
[node]
max_concurrency = 7
max_processes = 6
idle_seconds = 5
start_seconds = 4
list_ttl_seconds = 3
list_failure_seconds = 9
egress = ["10.0.0.0/8"]
[chat]
max_iterations = 3
max_total_tool_calls = 2
max_output_bytes = 1000
max_seconds = 60
approval_wait_seconds = 0
tool_output = "always_json"
"""


@pytest.mark.requirement("budgets:operator")
async def test_the_node_and_the_loop_work_by_the_settings(tmp_path: Path):
    file = tmp_path / "bascule.toml"
    file.write_text(FILE, encoding="utf-8")
    settings, _ = load_settings({}, {"HOME": "/h"}, file)
    async with open_registry(MemoryStore()) as service:
        files = Reloading(service, settings, None, print)
        async with parts_of(
            settings, Stores(service=service, files=files, tokens=make_tokens())
        ) as parts:
            limits, loop = parts.doors.bridge.settings, parts.doors.loop
    assert (limits.max_concurrency, limits.max_processes) == (7, 6)
    assert (limits.idle_seconds, limits.start_seconds) == (5, 4)
    assert (limits.list_ttl_seconds, limits.list_failure_seconds) == (3, 9)
    assert (loop.max_iterations, loop.max_total_tool_calls) == (3, 2)
    assert (loop.max_output_bytes, loop.max_seconds, loop.always_json) == (1000, 60, True)
    assert loop.approval_wait_seconds == 0
    assert settings.node.egress == ("10.0.0.0/8",)


def test_nothing_set_is_what_the_node_and_the_loop_do_by_themselves():
    assert NodeSection().limits() == NodeSettings()
    assert ChatSettings().loop() == DEFAULT_SETTINGS
    assert Settings().node == NodeSection()


@pytest.mark.requirement("budgets:operator")
async def test_no_start_takes_longer_than_the_node_allows():
    silent = Server.stdio("slow", sys.executable, "-c", "import sys; sys.stdin.read()")
    async with Bridge.open([silent], settings=NodeSettings(start_seconds=0.2)) as bridge:
        async with asyncio.timeout(10):
            with pytest.raises(ServerUnavailable, match=r"no connection within 0\.2 s"):
                await bridge.inspect("slow")
