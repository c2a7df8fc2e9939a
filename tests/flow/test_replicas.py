"""Several processes on one PostgreSQL: what one does, the others do too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.flow.up_process import Up
from tests.postgres.replicas import Replicas, replicas
from tests.waits import until

SERVERS = "/admin/api/mcp/servers"


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Replicas]:
    async with replicas(tmp_path) as made:
        yield made


def body(server_id: str) -> dict[str, object]:
    return {"server_id": server_id, "transport": "stdio", "stdio": {"command": "true"}}


async def served_by(up: Up, token: str) -> list[str]:
    status, answer = await up.ask("GET", SERVERS, token=token)
    assert status == 200, answer
    return [one["server_id"] for one in answer["servers"]]


@pytest.mark.requirement("registry:postgres")
async def test_what_is_written_at_one_replica_is_served_by_the_other(made: Replicas):
    a = await made.start("a")
    b = await made.start("b")
    status, answer = await a.ask("PUT", f"{SERVERS}/x", token=a.admin, body=body("x"))
    assert status == 201, answer

    async def there() -> bool:
        return await served_by(b, a.admin) == ["x"]

    await until(there)
    status, answer = await b.ask("PUT", f"{SERVERS}/y", token=a.admin, body=body("y"))
    assert (status, answer["revision"]) == (201, 2)
