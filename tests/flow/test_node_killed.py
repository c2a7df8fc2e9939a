"""A node that is killed again and again while it keeps what it knows always starts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.flow.node_process import filled, lists_notes, node, notes, standing
from tests.flow.up_process import Up
from tests.scale import scaled
from tests.waits import until


@pytest.mark.timeout(600)
@pytest.mark.requirement("sync:persisted:killed")
async def test_a_node_that_is_killed_while_it_keeps_its_snapshot_always_starts(tmp_path: Path):
    data, rng, revision = tmp_path / "node", random.Random(7), 0
    async with filled(tmp_path / "plane") as (served, token, client):
        for number in range(scaled(30)):
            async with node(data, served.grpc, token) as up:
                for change in range(rng.randrange(1, 4)):
                    name = f"s{number:03}-{change}"
                    await served.put("servers", name, notes(server_id=name))
                revision = (await served.up.get("/healthz"))["revision"]

                async def has_it(up: Up = up, revision: int = revision) -> bool:
                    return (await up.ask("GET", "/healthz"))[1]["revision"] == revision

                await until(has_it)  # which it keeps about now
                for _ in range(rng.randrange(4)):
                    assert await lists_notes(up, client)
                up.process.kill()
                await up.process.wait()
        assert await served.up.end() == 0
    async with node(data, served.grpc, token) as up:
        found = await standing(up)
        assert found.state == "degraded"
        assert 2 < found.revision <= revision
        assert await lists_notes(up, client)
