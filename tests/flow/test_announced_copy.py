"""Another copy of a registry in its place, and what ends the doubt of nodes; real processes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.flow.node_process import filled, lists_notes, node, notes, plane, standing, until_state
from tests.flow.up_process import Up
from tests.waits import until


@pytest.mark.requirement("sync:other-copy")
@pytest.mark.parametrize("writes", [0, 3], ids=["older", "written on"])
async def test_another_copy_is_doubted_until_it_is_announced_in_place_of_the_first(
    tmp_path: Path, writes: int
):
    async with (
        filled(tmp_path / "plane") as (served, token, client),
        node(tmp_path / "node", served.grpc, token) as up,
    ):
        port = ("--grpc-port", served.grpc.rpartition(":")[2])
        data, older = served.up.data, tmp_path / "older"
        assert await served.up.end() == 0
        older.mkdir()
        for file in data.glob("registry.db*"):
            shutil.copy2(file, older)
        async with plane(data, *port) as newer:
            await newer.put("servers", "notes", notes(display_name="N"))
            await until(lambda: _is_at(up, 3))
            own = (await standing(up)).store_id
            assert await newer.up.end() == 0
        for file in data.glob("registry.db*"):
            file.unlink()
        for file in older.iterdir():
            shutil.copy2(file, data)
        async with plane(data, *port) as back:
            for number in range(writes):
                await back.put("servers", "notes", notes(display_name=f"N{number}"))
            await until_state(up, "degraded")
            await until(lambda: _is_told(up, f"bascule registry announce --succeeds {own}"))
            assert await lists_notes(up, client)
            status, answer = await back.up.ask(
                "POST", "/admin/api/mcp/announce", token=back.up.admin, body={"succeeds": own}
            )
            assert (status, answer["predecessor"]) == (200, own)
            found = await until_state(up, "ok")
            assert (found.revision, found.store_id) == (2 + writes, answer["store_id"])
            assert await lists_notes(up, client)


async def _is_at(up: Up, revision: int) -> bool:
    return (await standing(up)).revision == revision


async def _is_told(up: Up, words: str) -> bool:
    return words in str((await standing(up)).reason)
