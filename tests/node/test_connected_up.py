"""``Bridge.connect`` to a real ``bascule up``: a process of its own, and two bridges over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bascule import Bridge, NodeRules, SessionRefused
from tests.node.fakes import failed, succeeded
from tests.node.up_process import serving, token

READ = "mcp__notes__read_note"


@pytest.mark.requirement(
    "bridge:connect",
    "policy:connected-registry-rules",
    "registry:single-truth",
    "admin:tools:list",
    "admin:tools:call",
    "admin:tools:explain",
)
async def test_a_client_and_a_node_of_a_real_server(tmp_path: Path):
    async with serving(tmp_path) as (process, url):
        client = await token(tmp_path, "--role", "client", "--task", "demo")
        async with Bridge.connect(url, token=client) as bridge:
            async with bridge.session(read_only=True) as session:
                names = (await session.tools()).names
                assert READ in names
                assert "mcp__notes__write_note" not in names
                outcome = await session.call(READ, {"name": "welcome"}, on_progress=print)
                assert succeeded(outcome).structured["name"] == "welcome"
                arguments = {"name": "x", "text": "y"}
                failed(await session.call("notes/write_note", arguments), "mcp_policy_denied")
                assert not session.explain("notes/write_note").allowed
                assert not (await session.explanation("mcp__notes__write_note")).allowed
            with pytest.raises(SessionRefused):
                await bridge.session(server_ids=["elsewhere"]).tools()
            node = await token(tmp_path, "--role", "node")
            async with Bridge.connect(url, token=node, rules=NodeRules()) as follower:
                outcome = await follower.session(task="demo").call(READ, {"name": "welcome"})
                assert succeeded(outcome).structured["name"] == "welcome"
            session = bridge.session()
            process.kill()
            await process.wait()
            assert not (await session.call(READ, {"name": "welcome"})).ok
            failed(await session.call(READ, {"name": "welcome"}), "mcp_unavailable")
