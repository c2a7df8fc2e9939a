"""Replicas on PostgreSQL: a write beside a bare transaction, a list with 1,000 nodes, a start.

A real server that flushes to disk. Servers are listed over HTTP by a replica that was told nothing
itself: the nodes reported to another one. In turn with it, a replica of another database that has
the same servers lists them without a node. Starts on SQLite are compared with those of the commit
before PostgreSQL came.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import uvloop

from bascule.clock import SYSTEM_CLOCK
from bench import replica_writes
from bench.against import starts
from bench.caller import Caller, callers, connected
from bench.machine import cpu_seconds
from bench.replica_writes import SERVERS, server
from bench.site import BASCULE, process
from bench.table import Row, at_most
from tests.postgres.cluster import own_cluster

NAME = "replicas"
NODES = 1_000
ROUNDS = 16
LISTS = 15
AT_ONCE = 8
#: The commit before the first of those that brought PostgreSQL.
BEFORE = "b35b715dd1b0aa94e98ac30ff68dd6fb96553dc3"
DURABLE = {"fsync": "on", "full_page_writes": "on"}
DATABASES = ("written", "bare", "nodes", "alone")
LIST = "/admin/api/mcp/servers"
REPORT = "/api/v1/nodes/report"


def run() -> list[Row]:
    """Measure on a server of our own."""
    with own_cluster(DURABLE) as cluster:
        dsns = {name: cluster.dsn(name) for name in DATABASES}
        rows = uvloop.run(_measured(cluster.dsn(), dsns))
    return [*rows, *starts(BEFORE)]


async def _measured(server_dsn: str, dsns: dict[str, str]) -> list[Row]:
    connection = await asyncpg.connect(server_dsn)
    for name in dsns:
        await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return [
        *await replica_writes.rows(dsns["written"], dsns["bare"]),
        *await _lists(dsns["nodes"], dsns["alone"]),
    ]


class Replica:
    """A control plane alone, one of several on its database."""

    def __init__(self, url: str, pid: int, admin: str) -> None:
        self.url = url
        self.pid = pid
        self.admin = admin


@asynccontextmanager
async def _replica(data: Path, dsn: str, admin: str = "", **env: str) -> AsyncGenerator[Replica]:
    """Start one; the first of a database says who its administrator is."""
    words = ("registry", "serve", "--port", "0", "--data-dir", str(data))
    env = {"BASCULE_DSN": dsn, "BASCULE_REPLICA": data.name, **env}
    async with process(*BASCULE, *words, folder=data.parent, **env) as (url, pid):
        yield Replica(url, pid, admin or _setup_token(data))


def _setup_token(data: Path) -> str:
    return (data / "setup-token").read_text(encoding="utf-8").strip()


async def _lists(dsn: str, alone_dsn: str) -> list[Row]:
    names = ("BASCULE_SERVER_KEY", "BASCULE_SECRETS_KEY")
    keys = {name: base64.b64encode(secrets.token_bytes(32)).decode() for name in names}
    with TemporaryDirectory() as place:
        folder = Path(place)
        async with (
            _replica(folder / "told", dsn, **keys) as told,
            _replica(folder / "asked", dsn, told.admin, **keys) as asked,
            _replica(folder / "alone", alone_dsn, **keys) as alone,
        ):
            await asyncio.gather(_import(told), _import(alone))
            await _report(told)
            async with Caller(asked.url, asked.admin) as client:
                await _heard_of(client)
            rounds = [
                await _round([asked, alone] if number % 2 else [alone, asked])
                for number in range(ROUNDS + 1)
            ][1:]  # the first round is for warming up
            async with Caller(asked.url, asked.admin) as client:
                await _heard_of(client)  # nobody has fallen silent meanwhile
    return _list_rows([(one[asked], one[alone]) for one in rounds])


def _list_rows(pairs: list[tuple[_Cost, _Cost]]) -> list[Row]:
    what = f"{SERVERS} servers with the status of {NODES:,} nodes / without"
    time, cpu = (median(a[n] / b[n] for a, b in pairs) for n in (0, 1))
    return [
        at_most(f"list: p50, {what}", time, "x", 3),
        Row(f"list: CPU of the replica, {what}", cpu, "x"),
        Row("list: p50, with", median(a[0] for a, _ in pairs), "ms"),
        Row("list: p50, without", median(b[0] for _, b in pairs), "ms"),
    ]


#: Milliseconds of a list, by the clock and of the replica's CPU.
_Cost = tuple[float, float]


async def _round(order: list[Replica]) -> dict[Replica, _Cost]:
    return {replica: await _listed(replica) for replica in order}


async def _listed(replica: Replica) -> _Cost:
    taken: list[float] = []
    async with Caller(replica.url, replica.admin) as client:
        busy = cpu_seconds([replica.pid])
        for _ in range(LISTS):
            began = SYSTEM_CLOCK.monotonic()
            await client.fetch("GET", LIST)
            taken.append(SYSTEM_CLOCK.monotonic() - began)
        busy = cpu_seconds([replica.pid]) - busy
    return median(taken) * 1e3, busy / LISTS * 1e3


async def _import(replica: Replica) -> None:
    async with Caller(replica.url, replica.admin) as client:
        records = [server(number) for number in range(SERVERS)]
        answer = await client.post("/admin/api/mcp/import?mode=upsert", records)
        assert "error" not in answer, answer


async def _report(replica: Replica) -> None:
    """Make a token for each node, and have each say how all servers stand there."""
    numbers = iter(range(NODES))

    async def some(admin: Caller) -> None:
        for number in numbers:
            name = f"node{number:04}"
            made = await admin.post("/admin/api/tokens", {"role": "node", "name": name})
            async with Caller(replica.url, made["token"]) as node:
                heard = await node.post(REPORT, _words(name, number))
                assert heard["revision"], heard

    async with connected(callers(AT_ONCE, replica.url, replica.admin)) as admins:
        await asyncio.gather(*map(some, admins))


def _words(node: str, number: int) -> dict[str, Any]:
    """What a node says: no two alike, and one in fifty servers is down there."""
    servers = [
        {
            "server_id": f"server{one}",
            "state": "connected" if (one + number) % 50 else "down",
            "tool_count": 12,
            "latency_ms": 1.5 + number / 100 + one,
            "average_latency_ms": 2.5 + number / 100 + one,
        }
        for one in range(SERVERS)
    ]
    return {"node": node, "state": "ok", "revision": 1, "servers": servers}


async def _heard_of(client: Caller) -> None:
    """Wait until a replica lists every server with the words of all nodes."""
    async with asyncio.timeout(60):
        while True:
            listed = json.loads(await client.fetch("GET", LIST))["servers"]
            counts = {one["status"]["node_count"] for one in listed}
            if len(listed) == SERVERS and counts == {NODES}:
                return
            await SYSTEM_CLOCK.sleep(0.5)
