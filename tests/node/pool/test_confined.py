"""Servers of records with a sandbox, through the opener and the pool as a node has them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest

from bascule.errors import ServerUnavailable
from bascule.model.sandbox import Sandbox
from bascule.model.server import ServerRecord, Stdio
from bascule.node.homes import SERVER_USERS, Homes
from bascule.node.pool.opener import Opener
from bascule.node.pool.pool import Pool
from bascule.node.pool.process.warden import Warden
from bascule.node.settings import NodeSettings
from bascule.outbound.rules import NodeRules
from bascule.testing import ScriptedServer
from bascule.testing.server import PROCESS_BODY
from tests.node.pool.conftest import snapshot
from tests.node.pool.fake_channel import outgoing


@pytest.fixture
def folder() -> Generator[Path]:
    """Where others may go: pytest's own folders are closed to them."""
    folder = Path("/var/tmp", f"confined-{secrets.token_hex(8)}")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def confined(server_id: str, **fields: Any) -> ServerRecord:
    command, args = ScriptedServer(behaviours={"env": "env", "echo": "echo"}).command
    fields.setdefault("read", (str(PROCESS_BODY.parent),))
    fields.setdefault("write", ())
    fields.setdefault("network", "none")
    return ServerRecord(
        server_id=server_id,
        transport="stdio",
        stdio=Stdio(command=command, args=tuple(args)),
        sandbox=Sandbox(**fields),
    )


@contextlib.asynccontextmanager
async def running(
    *records: ServerRecord, homes: Homes | None = None, rules: NodeRules | None = None
) -> AsyncGenerator[Pool]:
    pool = Pool(Opener(Warden(), homes=homes, rules=rules), settings=NodeSettings())
    try:
        async with asyncio.timeout(60):
            await pool.apply(snapshot(*records))
            yield pool
    finally:
        await pool.close()


def owner(path: str) -> int:
    return Path(path).stat().st_uid


async def environment(pool: Pool, server_id: str) -> dict[str, Any]:
    result: Any = await pool.send(outgoing(server_id, "s", "env", b"{}", timeout=30.0))
    return json.loads(result["content"][0]["text"])


@pytest.mark.requirement("process:sandbox")
async def test_a_record_with_a_sandbox_is_served_inside_and_its_status_says_so():
    async with running(confined("inside")) as pool:
        given = await environment(pool, "inside")
        assert given["env"]["HOME"]
        (status,) = pool.statuses()
        assert status.sandbox is not None
        assert status.sandbox.asked == "best"
        assert status.sandbox.in_force != "none"


async def test_a_record_without_a_sandbox_is_started_as_before():
    record = confined("outside", level="none")
    async with running(record) as pool:
        given = await environment(pool, "outside")
        assert given["pid"] > 0
        (status,) = pool.statuses()
        assert status.sandbox is None


async def test_a_kept_home_serves_a_confined_server_again(folder: Path):
    homes = Homes(folder)
    for _ in range(2):
        async with running(confined("again"), homes=homes) as pool:
            home = Path((await environment(pool, "again"))["env"]["HOME"])
            assert home.is_relative_to(folder)
            (home / "fetched").mkdir(exist_ok=True)


@pytest.mark.parametrize(
    ("grants", "message"),
    [
        ({"read": ("/no/such/folder",)}, r"sandbox\.read\[0\]: '/no/such/folder' does not exist"),
        ({"write": ("{data}/below",)}, r"sandbox\.write\[0\].*which no server sees"),
        ({"write": ("{homes}",)}, r"sandbox\.write\[0\].*which no server sees"),
        ({"read": ("/proc/self",)}, r"sandbox\.read\[0\].*'/proc', which no server sees"),
    ],
)
async def test_a_grant_of_what_no_server_sees_is_refused_by_its_field(
    folder: Path, grants: dict[str, tuple[str, ...]], message: str
):
    data, homes = folder / "data", Homes(folder)
    (data / "below").mkdir(parents=True)
    homes.root.mkdir()
    named = {
        field: tuple(path.format(data=data, homes=homes.root) for path in paths)
        for field, paths in grants.items()
    }
    record = confined("greedy", level="landlock", **named)
    async with running(record, homes=homes, rules=NodeRules(private=(str(data),))) as pool:
        with pytest.raises(ServerUnavailable, match=message) as caught:
            await environment(pool, "greedy")
        assert caught.value.reason == "launch_denied"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give privileges up")
async def test_where_the_node_is_root_a_confined_server_is_a_user_of_its_own(folder: Path):
    async with running(confined("own-user", level="namespaces"), homes=Homes(folder)) as pool:
        home = (await environment(pool, "own-user"))["env"]["HOME"]
        assert owner(home) in SERVER_USERS
