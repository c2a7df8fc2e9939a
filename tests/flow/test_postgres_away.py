"""PostgreSQL is away: calls go on, reads come from memory, writes wait, and it is said why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.served import Done, process
from tests.flow.up_process import Up, record
from tests.postgres.cluster import Cluster
from tests.postgres.replicas import Replicas, replicas
from tests.waits import until

SERVERS = "/admin/api/mcp/servers"
X = f"{SERVERS}/x"
BODY = {"server_id": "x", "transport": "stdio", "stdio": {"command": "true"}}
TASK = {"task_id": "t", "name": "T", "mcp": {"enabled": True, "default_server_ids": ["notes"]}}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("pg")).make().start()
    try:
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture
async def made(tmp_path: Path, cluster: Cluster) -> AsyncIterator[Replicas]:
    async with replicas(tmp_path, cluster.dsn()) as made:
        yield made


def is_health(up: Up, status: str) -> Callable[[], Awaitable[Any]]:
    async def look() -> Any:
        answer = (await up.ask("GET", "/healthz"))[1]
        return answer if answer["status"] == status else None

    return look


async def figures(up: Up) -> str:
    headers = {"Authorization": f"Bearer {up.admin}"}
    async with up.http.get(f"{up.url}/metrics", headers=headers) as answer:
        return await answer.text()


def doctor(up: Up, made: Replicas) -> Done:
    return process("doctor", "--data-dir", str(up.data), BASCULE_DSN=made.dsn, **made.env)


async def put(up: Up) -> tuple[int, str | None]:
    headers = {"Authorization": f"Bearer {up.admin}"}
    async with up.http.put(up.url + X, headers=headers, json=BODY) as answer:
        return answer.status, answer.headers.get("Retry-After")


@pytest.mark.timeout(180)
@pytest.mark.requirement("registry:postgres:away", "observability:degraded:open")
@pytest.mark.parametrize("how", ["killed", "hanging"])
async def test_calls_go_on_while_postgresql_is_away_and_it_is_said_everywhere(
    how: str, cluster: Cluster, made: Replicas, tmp_path: Path
):
    records = tmp_path / "records"
    records.mkdir()
    (records / "notes.toml").write_text(record("notes"), encoding="utf-8")
    up = await made.start("a", "--registry-dir", str(records))
    status, answer = await up.ask("PUT", "/admin/api/mcp/tasks/t", token=up.admin, body=TASK)
    assert status == 201, answer
    wanted = {"role": "client", "task_id": "t", "name": "c"}
    status, client = await up.ask("POST", "/admin/api/tokens", token=up.admin, body=wanted)
    assert status == 201, client
    assert (await up.call(client["token"], "mcp__notes__list_notes"))[1]["ok"]

    (cluster.kill if how == "killed" else cluster.pause)()
    said = await until(is_health(up, "degraded"))
    assert said["reasons"]["registry_unwritable"] == "the registry cannot be written to"
    known = (await up.get("/healthz"))["reasons"]["registry_unwritable"]
    assert known.startswith("the registry cannot be written to: PostgreSQL at ")
    assert 'mcp_degraded{reason="registry_unwritable"} 1.0' in await figures(up)
    assert (await up.ask("GET", "/readyz"))[0] == 200
    status, outcome = await up.call(client["token"], "mcp__notes__list_notes")
    assert (status, outcome["ok"]) == (200, True)
    served = await up.get(SERVERS)
    assert [one["server_id"] for one in served["servers"]] == ["notes"]
    assert await put(up) == (503, "2")
    seen = doctor(up, made)
    assert (seen.code, "the process is degraded: " in seen.out) == (1, True), seen.err
    assert "cannot be written to: PostgreSQL at " in seen.out

    if how == "killed":
        cluster.start()
    else:
        cluster.go_on()
    await until(is_health(up, "ok"))
    assert "mcp_degraded{" not in await figures(up)

    async def written() -> bool:
        return (await put(up))[0] in {200, 201}

    await until(written)
    assert await up.end() == 0


@pytest.mark.timeout(180)
@pytest.mark.requirement("registry:postgres:away")
@pytest.mark.parametrize("how", ["killed", "hanging"])
@pytest.mark.parametrize("command", ["up", "registry serve"])
async def test_a_process_ends_in_order_while_postgresql_is_away(
    how: str, command: str, cluster: Cluster, made: Replicas
):
    up = await made.start("a", command=tuple(command.split()))
    (cluster.kill if how == "killed" else cluster.pause)()
    up.process.terminate()
    async with asyncio.timeout(60):
        assert await up.process.wait() == 0
    assert up.process.stderr is not None
    assert "Traceback" not in (await up.process.stderr.read()).decode()
    if how == "hanging":
        cluster.go_on()


@pytest.mark.requirement("registry:postgres:away")
def test_a_start_without_postgresql_ends_and_says_why(cluster: Cluster, tmp_path: Path):
    cluster.kill()
    for command in (("up",), ("registry", "serve")):
        words = (*command, "--port", "0", "--data-dir", str(tmp_path / "data"))
        done = process(*words, BASCULE_DSN=cluster.dsn())
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("error: PostgreSQL at ")
        assert "Traceback" not in done.err


def test_a_wrong_password_is_refused_and_not_repeated(cluster: Cluster, tmp_path: Path):
    (cluster.data / "pg_hba.conf").write_text("local all all scram-sha-256\n", encoding="utf-8")
    cluster.stop()
    cluster.start()
    dsn = cluster.dsn().replace("postgres@", "postgres:hunter2@")
    words = ("up", "--port", "0", "--data-dir", str(tmp_path / "data"))
    done = process(*words, BASCULE_DSN=dsn)
    assert (done.code, "password" in done.err, "hunter2" in done.err) == (1, True, False)
