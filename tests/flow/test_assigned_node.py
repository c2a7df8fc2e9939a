"""A node that is assigned a part of what its control plane has; real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.node_process import Plane, filled, lists_notes, node, notes, standing, until_state
from tests.flow.up_process import Up, run
from tests.waits import until


async def assign(served: Plane, *words: str) -> None:
    given = ("nodes", "assign", "east", *words, "--data-dir", str(served.up.data))
    code, _, err = await run(*given)
    assert code == 0, err


async def furnish(served: Plane) -> str:
    """Add another task with a server of its own; return the token of a client of it."""
    await served.put("servers", "other", notes(server_id="other", tags=["far"]))
    mcp = {"enabled": True, "default_server_ids": ["other"]}
    await served.put("tasks", "u", {"task_id": "u", "mcp": mcp})
    return (await served.token("client", "--task", "u"))[0]


async def is_client(up: Up, token: str) -> bool:
    return (await up.ask("GET", "/api/v1/identity", token=token))[0] == 200


async def has_servers(up: Up, *names: str) -> bool:
    return {one.server_id for one in (await standing(up)).servers} == {*names}


@pytest.mark.requirement("registry:nodes:assigned-part")
@pytest.mark.requirement("registry:nodes:reassigned-at-once")
async def test_a_node_serves_the_tasks_that_it_is_assigned_and_no_others(tmp_path: Path):
    async with filled(tmp_path / "plane") as (served, token, client):
        other = await furnish(served)
        await assign(served, "--task", "t")
        async with node(tmp_path / "node", served.grpc, token) as up:
            assert await lists_notes(up, client)
            assert not await is_client(up, other)
            assert (await standing(up)).assigned == "tasks t"
            assert await has_servers(up, "notes")
            await assign(served, "--task", "u")
            await until(lambda: is_client(up, other))
            assert not await is_client(up, client)
            await until(lambda: has_servers(up, "other"))
            status, outcome = await up.call(other, "other/list_notes")
            assert (status, outcome["ok"]) == (200, True)
            assert (await standing(up)).state == "ok"
            await assign(served, "--all")
            await until(lambda: is_client(up, client))
            assert await lists_notes(up, client)
            assert (await standing(up)).assigned == "all"


@pytest.mark.requirement("registry:nodes:assigned-part")
async def test_a_node_without_its_control_plane_serves_the_part_that_it_had(tmp_path: Path):
    data = tmp_path / "node"
    async with filled(tmp_path / "plane") as (served, token, client):
        other = await furnish(served)
        await assign(served, "--task", "t")
        async with node(data, served.grpc, token) as up:
            assert await lists_notes(up, client)
        kept = served.grpc
    async with node(data, kept, token) as up:
        assert await lists_notes(up, client)
        assert not await is_client(up, other)
        found = await until_state(up, "degraded")
        assert found.assigned == "a part of the registry"


async def test_a_first_start_says_that_it_is_assigned_everything(tmp_path: Path):
    async with (
        filled(tmp_path / "plane") as (served, token, _),
        node(tmp_path / "node", served.grpc, token) as up,
    ):
        lines = await up.next_lines(3)
        assert "bascule nodes assign east --task ID" in lines[-1]
