"""The ledger of a node of its own process: on its own disk first, and then at the control plane."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.flow.node_process import (
    Plane,
    filled,
    lists_notes,
    node,
    plane,
    standing,
    until_state,
)
from tests.flow.up_process import Up, run
from tests.waits import until


async def audit(data: Path, *words: str) -> Any:
    code, out, err = await run("audit", *words, "--json", "--data-dir", str(data))
    assert code == 0, err
    return json.loads(out)


async def calls_of(served: Plane, *, at: str = "east") -> list[tuple[str, str]]:
    """Return the calls of a node that the control plane lists, the oldest first."""
    found = await audit(served.up.data, "search", "--event", "call", "--node", at)
    entries = reversed(found["entries"])
    return [(one["node"], one["event"]["tool_name"]) for one in entries]


async def verifies(data: Path) -> int:
    """Verify the ledger of a directory; return how many rows it has."""
    found = await audit(data, "verify")
    assert found["ok"], found["problems"]
    return found["rows"]


@pytest.mark.requirement("registry:grpc:node")
@pytest.mark.requirement("registry:grpc:ledger")
@pytest.mark.requirement("audit:ledger:sent")
async def test_calls_of_a_node_reach_the_control_plane_also_those_made_while_it_was_away(
    tmp_path: Path,
):
    async with AsyncExitStack() as stack:
        served, token, client = await stack.enter_async_context(filled(tmp_path / "plane"))
        up = await stack.enter_async_context(node(tmp_path / "node", served.grpc, token))
        assert await lists_notes(up, client)

        async def has(count: int) -> bool:
            return await calls_of(served) == [("east", "list_notes")] * count

        await until(lambda: has(1))
        served.up.process.kill()
        await served.up.process.wait()
        await until_state(up, "degraded")
        for _ in range(3):
            assert await lists_notes(up, client)
        port = served.grpc.rpartition(":")[2]
        again = plane(served.up.data, "--grpc-port", port)
        served = await stack.enter_async_context(again)
        await until(lambda: has(4))
        rows = await verifies(up.data)
        assert await verifies(served.up.data) > rows
        status, found = await served.up.ask(
            "GET", "/admin/api/audit?node=east&event=call", token=served.up.admin
        )
        assert (status, len(found["entries"])) == (200, 4)
        code, out, _ = await run("audit", "tail", "--data-dir", str(served.up.data))
        assert (code, "notes/list_notes at east" in out) == (0, True)


@pytest.mark.requirement("audit:ledger:sent")
async def test_what_a_killed_node_wrote_is_sent_at_its_next_start(tmp_path: Path):
    data = tmp_path / "node"
    async with AsyncExitStack() as stack:
        served, token, client = await stack.enter_async_context(filled(tmp_path / "plane"))
        async with node(data, served.grpc, token) as up:
            assert await lists_notes(up, client)
            served.up.process.kill()
            await served.up.process.wait()
            assert await lists_notes(up, client)
            up.process.kill()
            await up.process.wait()
        port = served.grpc.rpartition(":")[2]
        served = await stack.enter_async_context(plane(served.up.data, "--grpc-port", port))
        async with node(data, served.grpc, token):

            async def has_both() -> bool:
                return len(await calls_of(served)) == 2

            await until(has_both)
        await verifies(served.up.data)


@pytest.mark.requirement("registry:grpc:ledger-tampering")
@pytest.mark.requirement("registry:grpc:ledger-accepted")
async def test_a_node_whose_ledger_was_put_back_is_refused_until_its_owner_accepts_it(
    tmp_path: Path,
):
    data = tmp_path / "node"
    async with filled(tmp_path / "plane") as (served, token, client):
        async with node(data, served.grpc, token) as up:
            assert await lists_notes(up, client)
            assert await up.end() == 0
        kept = (data / "ledger.db").read_bytes()
        async with node(data, served.grpc, token) as up:
            for _ in range(2):
                assert await lists_notes(up, client)

            async def has_all() -> bool:
                return len(await calls_of(served)) == 3

            await until(has_all)
            assert await up.end() == 0
        for file in data.glob("ledger.*"):
            if file.name.startswith(("ledger.db-", "ledger.anchors")):
                file.unlink()
        (data / "ledger.db").write_bytes(kept)
        async with node(data, served.grpc, token) as up:
            assert await lists_notes(up, client), "calls go on"

            async def reasons() -> list[str]:
                return [*(await up.ask("GET", "/healthz"))[1].get("reasons", [])]

            async def is_refused() -> bool:
                return "ledger_refused" in await reasons()

            await until(is_refused)
            assert len(await calls_of(served)) == 3
            await verifies(served.up.data)

            async def is_shown() -> list[tuple[str, str]]:
                found = await audit(served.up.data, "search", "--event", "node_ledger")
                acts = [one["event"] for one in found["entries"]]
                return [(one["by"], one["reason"]) for one in acts if one["action"] == "refused"]

            shown = await until(is_shown)
            assert shown[0][0] == "east"
            assert "is another than the one that was sent before" in shown[0][1]

            async def words_at_plane() -> list[str]:
                answer = await served.up.ask("GET", "/admin/api/nodes", token=served.up.admin)
                [shown] = [one for one in answer[1]["nodes"] if one["name"] == "east"]
                return [shown["reason"]] if shown["state"] == "degraded" else []

            [reason] = await until(words_at_plane)
            stands = await standing(up)
            for words in (reason, stands.ledger or ""):
                assert "is another than the one that was sent before" in words
                assert "`bascule node accept --ledger`" in words
            await accepted(served, up, client)


async def accepted(served: Plane, up: Up, client: str) -> None:
    """Accept the ledger of a node, and see that it is taken beside the one before."""
    code, out, err = await run("node", "accept", "--ledger", "--json", "--data-dir", str(up.data))
    assert code == 0, err
    assert json.loads(out).get("ledger") is None
    assert await lists_notes(up, client)

    async def has_more() -> bool:
        return len(await calls_of(served)) == 5

    await until(has_more)
    await until_state(up, "ok")
    assert "ledger_refused" not in (await up.ask("GET", "/healthz"))[1].get("reasons", [])
    await verifies(served.up.data)
    await verifies(up.data)
    found = await audit(served.up.data, "search", "--event", "node_ledger", "--node", "east")
    [said] = [one["event"] for one in found["entries"]]
    assert (said["action"], said["by"]) == ("accepted", "owner")
    code, _, err = await run("node", "accept", "--ledger", "--data-dir", str(up.data))
    assert (code, "takes the rows of this node's ledger" in err) == (1, True)
