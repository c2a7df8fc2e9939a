"""Several processes on one PostgreSQL: what one does, the others do too."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bascule.clock import SYSTEM_CLOCK
from tests.cli.served import process
from tests.flow.up_process import Up, record
from tests.postgres.databases import database
from tests.postgres.proxy import proxy
from tests.postgres.replicas import Replicas, replicas
from tests.scale import scaled
from tests.waits import PAUSE_SECONDS, until

SERVERS = "/admin/api/mcp/servers"
TOKENS = "/admin/api/tokens"
TASK = {"task_id": "t", "name": "T", "mcp": {"enabled": True, "default_server_ids": ["notes"]}}
LIST = {"name": "mcp__notes__list_notes", "arguments": {}}


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


def serves(up: Up, token: str, *servers: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return await served_by(up, token) == [*servers]

    return look


@pytest.mark.requirement("registry:postgres")
async def test_what_is_written_at_one_replica_is_served_by_the_other(made: Replicas):
    a = await made.start("a")
    b = await made.start("b")
    status, answer = await a.ask("PUT", f"{SERVERS}/x", token=a.admin, body=body("x"))
    assert status == 201, answer
    await until(serves(b, a.admin, "x"))
    status, answer = await b.ask("PUT", f"{SERVERS}/y", token=a.admin, body=body("y"))
    assert (status, answer["revision"]) == (201, 2)
    a.process.kill()
    await a.process.wait()
    status, answer = await b.ask("PUT", f"{SERVERS}/z", token=a.admin, body=body("z"))
    assert (status, answer["revision"]) == (201, 3)
    assert await served_by(b, a.admin) == ["x", "y", "z"]
    again = await made.start("a")
    assert await served_by(again, a.admin) == ["x", "y", "z"]
    assert [await up.end() for up in (again, b)] == [0, 0]


@pytest.mark.requirement("registry:postgres")
async def test_a_token_of_one_replica_is_good_at_all_until_it_is_revoked_at_any(made: Replicas):
    a = await made.start("a")
    b = await made.start("b", command=("registry", "serve"))
    assert not (b.data / "setup-token").exists()
    wanted = {"role": "viewer", "name": "v"}
    status, token = await a.ask("POST", TOKENS, token=a.admin, body=wanted)
    assert status == 201, token
    assert (await b.ask("GET", SERVERS, token=token["token"]))[0] == 200
    status, _ = await b.ask("DELETE", f"{TOKENS}/{token['id']}", token=a.admin)
    assert status in {200, 204}
    assert (await b.ask("GET", SERVERS, token=token["token"]))[0] == 401

    async def refused() -> bool:
        return (await a.ask("GET", SERVERS, token=token["token"]))[0] == 401

    await until(refused)


@pytest.mark.requirement("registry:postgres")
async def test_each_replica_is_a_node_of_its_own_name(made: Replicas):
    a = await made.start("a")
    b = await made.start("b")

    async def names() -> bool:
        status, answer = await b.ask("GET", "/admin/api/nodes", token=a.admin)
        assert status == 200, answer
        return [node["name"] for node in answer["nodes"]] == ["a", "b"]

    await until(names)
    assert await a.end() == 0

    async def gone() -> bool:
        _, answer = await b.ask("GET", "/admin/api/nodes", token=a.admin)
        return [node["name"] for node in answer["nodes"]] == ["b"]

    await until(gone)


@pytest.mark.requirement("loading:replicas")
async def test_a_replica_with_other_files_says_so_and_undoes_nothing(
    made: Replicas, tmp_path: Path
):
    for name, server in (("a", "x"), ("b", "y")):
        (tmp_path / f"{name}.d").mkdir()
        (tmp_path / f"{name}.d" / "one.toml").write_text(record(server), encoding="utf-8")
    a = await made.start("a", "--registry-dir", str(tmp_path / "a.d"))
    b = await made.start("b", "--registry-dir", str(tmp_path / "b.d"))
    health = (await b.ask("GET", "/healthz", token=a.admin))[1]
    assert health["status"] == "degraded"
    assert "'b' are not those that replica 'a' loaded" in health["reasons"]["files_differ"]
    assert (await b.ask("GET", "/readyz"))[0] == 200
    assert await served_by(b, a.admin) == ["x"]
    (tmp_path / "b.d" / "one.toml").write_text(record("x"), encoding="utf-8")

    async def is_well() -> bool:
        return (await b.ask("GET", "/healthz"))[1]["reasons"] == {}

    await until(is_well)
    assert await served_by(a, a.admin) == ["x"]


@pytest.mark.requirement("loading:replicas:backends")
async def test_a_replica_whose_backends_were_replaced_says_so(made: Replicas):
    a = await made.start("a", "--backend", "one=https://one.example/v1")
    assert (await a.get("/healthz"))["reasons"] == {}
    b = await made.start("b", "--backend", "one=https://two.example/v1")

    async def reasons() -> dict[str, str]:
        return (await a.ask("GET", "/healthz", token=a.admin))[1]["reasons"]

    said = await until(reasons)
    assert "replica 'a' do not have the backends" in said["backends_differ"]
    assert (await a.ask("GET", "/readyz"))[0] == 200
    assert (await b.ask("GET", "/healthz"))[1]["reasons"] == {}


# --- behind one address


class Caller:
    """A client of one address that connects again when a connection breaks, as clients do.

    Whatever it asks may be asked twice: what a broken connection leaves open is asked again.
    """

    def __init__(self, url: str, token: str, http: aiohttp.ClientSession) -> None:
        self._url = url
        self._http = http
        self._headers = {"Authorization": f"Bearer {token}"}

    async def ask(self, method: str, path: str, sent: Any = None) -> tuple[int, Any]:
        async with asyncio.timeout(60):
            while True:
                try:
                    return await self._asked(method, path, sent)
                except (aiohttp.ClientConnectionError, ConnectionError):
                    await SYSTEM_CLOCK.sleep(PAUSE_SECONDS)

    async def _asked(self, method: str, path: str, sent: Any) -> tuple[int, Any]:
        async with self._http.request(
            method, self._url + path, headers=self._headers, json=sent
        ) as answer:
            return answer.status, await answer.json()


@pytest.mark.timeout(180)
@pytest.mark.requirement("registry:postgres:one-address")
@pytest.mark.parametrize("order", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
async def test_one_replica_of_two_behind_one_address_ends_and_no_call_fails(
    order: signal.Signals, made: Replicas, tmp_path: Path
):
    records = tmp_path / "records"
    records.mkdir()
    (records / "notes.toml").write_text(record("notes"), encoding="utf-8")
    words = ("--registry-dir", str(records))
    a, b = [await made.start(name, *words) for name in "ab"]
    status, answer = await a.ask("PUT", "/admin/api/mcp/tasks/t", token=a.admin, body=TASK)
    assert status == 201, answer
    status, client = await a.ask(
        "POST", TOKENS, token=a.admin, body={"role": "client", "task_id": "t", "name": "c"}
    )
    assert status == 201, client
    writes, calls = scaled(200), scaled(200)
    half = asyncio.Event()
    done = 0

    async def write(caller: Caller, number: int) -> None:
        path = f"{SERVERS}/s{number:04}"
        status, answer = await caller.ask("PUT", path, body(f"s{number:04}"))
        assert status in {200, 201}, answer

    async def call(caller: Caller) -> None:
        status, answer = await caller.ask("POST", "/api/v1/tools/call", LIST)
        assert (status, answer["ok"]) == (200, True), answer

    async def work(steps: list[Awaitable[None]]) -> None:
        nonlocal done
        for step in steps:
            await step
            done += 1
            if done >= (writes + calls) // 3:
                half.set()

    # No connection is kept, so that each request may meet either replica.
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        proxy(a.url, b.url) as url,
        aiohttp.ClientSession(connector=connector) as http,
        asyncio.TaskGroup() as load,
    ):
        admin, user = Caller(url, a.admin, http), Caller(url, client["token"], http)
        for first in range(4):
            load.create_task(work([write(admin, n) for n in range(first, writes, 4)]))
            load.create_task(work([call(user) for _ in range(first, calls, 4)]))
        await half.wait()
        a.process.send_signal(order)
        await a.process.wait()
    assert done == writes + calls
    expected = ["notes", *(f"s{number:04}" for number in range(writes))]
    assert await served_by(b, a.admin) == expected
    status, past = await b.ask("GET", f"/admin/api/mcp/history?limit={writes + 10}", token=a.admin)
    assert status == 200, past
    numbers = [change["revision"] for change in past["changes"]]
    assert numbers == [*range(len(numbers), 0, -1)]
    assert len(numbers) == writes + 2  # the file's server, the task, and each write once


async def test_commands_find_what_is_shared(made: Replicas):
    a = await made.start("a")
    found = json.loads((a.data / "shared-registry").read_text(encoding="utf-8"))
    assert (found["dsn"], found["where"].startswith("PostgreSQL at ")) == (made.dsn, True)


@pytest.mark.requirement("registry:lost")
async def test_an_emptied_database_is_not_served_in_the_place_of_a_registry(made: Replicas):
    a = await made.start("a")
    assert (await a.ask("PUT", f"{SERVERS}/x", token=a.admin, body=body("x")))[0] == 201
    assert await a.end() == 0
    async with database() as empty:
        words = ("up", "--port", "0", "--data-dir", str(a.data))
        done = await asyncio.to_thread(process, *words, BASCULE_DSN=empty, **made.env)
        assert done.code == 1
        assert "is empty: put it back from a backup, or give --new-registry" in done.err
        again = await made.start("a", "--new-registry", BASCULE_DSN=empty)
        assert (await again.ask("GET", "/healthz"))[1]["revision"] == 0
        assert await again.end() == 0


@pytest.mark.requirement("registry:lost")
async def test_a_registry_in_a_file_is_not_left_for_an_empty_database(made: Replicas):
    alone = await made.start("a", "--empty", BASCULE_DSN="")
    assert (await alone.ask("PUT", f"{SERVERS}/x", token=alone.admin, body=body("x")))[0] == 201
    assert await alone.end() == 0
    words = ("up", "--port", "0", "--data-dir", str(alone.data))
    done = await asyncio.to_thread(process, *words, BASCULE_DSN=made.dsn, **made.env)
    assert done.code == 1
    assert "is empty: copy it with bascule registry copy, or give --new-registry" in done.err


async def test_a_replica_without_a_name_keeps_the_one_it_made(made: Replicas):
    a = await made.start("a", BASCULE_REPLICA="")
    name = (a.data / "replica").read_text(encoding="utf-8").strip()

    async def reported() -> bool:
        return [node["name"] for node in (await a.get("/admin/api/nodes"))["nodes"]] == [name]

    await until(reported)
    assert await a.end() == 0
    again = await made.start("a", BASCULE_REPLICA="")
    assert (again.data / "replica").read_text(encoding="utf-8").strip() == name
