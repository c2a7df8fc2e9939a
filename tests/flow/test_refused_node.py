"""A node that its control plane will not have any more: it serves nothing; real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bascule.node.sync.last_known_good import FILE_NAME
from tests.flow.node_process import filled, lists_notes, node, not_started, until_state
from tests.flow.up_process import run
from tests.waits import until


@pytest.mark.requirement("sync:refused")
async def test_a_node_whose_own_token_is_revoked_stops_serving_and_says_why(tmp_path: Path):
    data = tmp_path / "node"
    async with filled(tmp_path / "plane") as (served, token, client):
        own, own_id = await served.token("node", "--name", "west")
        async with node(data, served.grpc, own) as up:
            assert await lists_notes(up, client)
            await until((data / FILE_NAME).exists)
            code, _, err = await run("tokens", "revoke", own_id, "--data-dir", str(served.up.data))
            assert code == 0, err
            found = await until_state(up, "refused")
            assert "the control plane refuses this node" in str(found.reason)
            _, outcome = await up.call(client, "notes/list_notes")
            assert outcome["error"]["code"] == "mcp_unavailable"
            assert outcome["error"]["details"]["reason"] == "node_refused"
            _, health = await up.ask("GET", "/healthz")
            assert "node_refused" in health["reasons"]
            assert (await up.ask("GET", "/readyz"))[0] == 503
            await until(lambda: not (data / FILE_NAME).exists())
        async with node(tmp_path / "other", served.grpc, token) as up:
            assert await lists_notes(up, client), "another node serves on"
        grpc = served.grpc
    words = ("--registry", grpc, "--wait", "0.1")
    said = await not_started(data, *words, BASCULE_TOKEN=own)
    assert "cannot be reached" in said
