"""A node starts from what it kept, without its registry, and nothing secret was kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from bascule import Server
from bascule.model.snapshot import Snapshot
from bascule.node.assembly import Bridge
from bascule.node.sync.follower import Follower, SyncSettings
from bascule.node.sync.last_known_good import FILE_NAME, Knowledge, LastKnownGood
from bascule.testing import FakeClock, ScriptedServer
from tests.node.fakes import succeeded
from tests.node.test_sync import Registry

SECRET = "what-only-the-secret-store-has"
NODE, TOKEN = "east", "a node's token"


def registry_with(folder: Path) -> Snapshot:
    scripted = ScriptedServer(behaviours={"echo": "echo"}, journal=folder / "journal")
    command, args = scripted.command
    env = {"KEY": "secret://key", "PLAIN": "a literal value"}
    record = Server.stdio("notes", command, *args, env=env, allowed_tools=["*"])
    return Snapshot(store_id="a", revision=7, mark="m7", servers={"notes": record})


async def serves(snapshot: Snapshot) -> frozenset[str]:
    """Call a tool of a node's only server; return what the node knows to be secret then."""
    async with Bridge.open(snapshot, secrets={"key": SECRET}) as bridge:
        async with bridge.session(server_ids=["notes"]) as session:
            succeeded(await session.call("mcp__notes__echo", {"text": "hello"}))
        return bridge.caller.reference_values


async def kept(path: Path, snapshot: Snapshot, clock: FakeClock) -> None:
    file = LastKnownGood(path, NODE, TOKEN)
    file.keep(Knowledge(snapshot=snapshot, confirmed_at=clock.now()))
    await file.close()


@pytest.mark.requirement("sync:persisted:no-secrets")
async def test_what_a_node_resolved_is_not_in_what_it_keeps(tmp_path: Path):
    snapshot, path = registry_with(tmp_path), tmp_path / FILE_NAME
    assert SECRET in await serves(snapshot)
    await kept(path, snapshot, FakeClock())
    found = LastKnownGood(path, NODE, TOKEN).load()
    assert isinstance(found, Knowledge)
    opened = msgspec.json.encode(found)
    assert b"secret://key" in opened
    assert SECRET.encode() not in opened
    assert b"a literal value" in opened
    assert b"a literal value" not in path.read_bytes(), "literals are there, hence the seal"


async def test_a_node_serves_from_its_disk_while_its_registry_is_away(tmp_path: Path):
    clock, path = FakeClock(), tmp_path / FILE_NAME
    await kept(path, registry_with(tmp_path), clock)
    await clock.advance(60)
    found = LastKnownGood(path, NODE, TOKEN).load()
    assert isinstance(found, Knowledge)
    registry = Registry()
    registry.down = True
    async with Bridge.open(found.snapshot, secrets={"key": SECRET}) as bridge:
        follower = Follower(registry, bridge, clock=clock, settings=SyncSettings(max_stale=3600))
        follower.confirmed_at = found.confirmed_at
        bridge.distrust = follower.distrust
        following = asyncio.create_task(follower.run())
        try:
            await clock.settle()
            assert (follower.state, follower.revision) == ("degraded", 7)
            async with bridge.session(server_ids=["notes"]) as session:
                succeeded(await session.call("mcp__notes__echo", {"text": "hello"}))
                clock.jump(3600 - 60)
                assert follower.state == "stale"
                assert not (await session.call("mcp__notes__echo", {"text": "hello"})).ok
        finally:
            following.cancel()
            await asyncio.wait([following])
