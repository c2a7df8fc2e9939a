"""Two nodes of two replicas behind one address: one ends, or PostgreSQL, and calls go on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.flow.load import calling
from tests.flow.node_process import LINE, TASK, lists_notes, notes, standing, until_state
from tests.flow.test_replicas import SERVERS, TOKENS, Caller, body
from tests.flow.up_process import Up, serving_by
from tests.postgres.cluster import Cluster
from tests.postgres.proxy import proxy
from tests.postgres.replicas import Replicas, replicas
from tests.scale import scaled
from tests.waits import until

CONTROL = ("registry", "serve")


class Fleet:
    """Replicas with the addresses before them, nodes that follow those, and a client's token."""

    def __init__(self, planes: list[Up], nodes: list[Up], client: str, url: str) -> None:
        self.planes = planes
        self.nodes = nodes
        self.client = client
        #: Where all replicas are reached over HTTP.
        self.url = url

    @property
    def admin(self) -> str:
        return self.planes[0].admin

    async def ask(self, method: str, path: str, sent: object = None, at: int = -1) -> object:
        """Ask a replica, the last one unless another is meant."""
        plane = self.planes[at]
        status, answer = await plane.ask(method, path, token=self.admin, body=sent)
        assert status in {200, 201, 204}, answer
        return answer

    async def are_at(self, revision: int) -> bool:
        """Say whether every node follows and has a revision."""
        found = [await standing(one) for one in self.nodes]
        return [(one.state, one.revision) for one in found] == [("ok", revision)] * len(found)


@asynccontextmanager
async def fleet(made: Replicas, folder: Path) -> AsyncGenerator[Fleet]:
    planes = [await made.start(name, command=CONTROL) for name in "ab"]
    # What both can be reached at; the first to start has the only setup token.
    grpc = [(await one.next_lines(1))[0].rpartition(" ")[2] for one in planes]
    admin = planes[0].admin

    async def token(name: str, **fields: object) -> str:
        wanted = {"name": name, **fields}
        status, answer = await planes[0].ask("POST", TOKENS, token=admin, body=wanted)
        assert status == 201, answer
        return str(answer["token"])

    for path, sent in ((f"{SERVERS}/notes", notes()), ("/admin/api/mcp/tasks/t", TASK)):
        status, answer = await planes[0].ask("PUT", path, token=admin, body=sent)
        assert status == 201, answer
    client = await token("c", role="client", task_id="t")
    async with (
        proxy(*(one.url for one in planes)) as url,
        proxy(*grpc) as registry,
        _node(folder, registry, "east", await token("east", role="node")) as east,
        _node(folder, registry, "west", await token("west", role="node")) as west,
    ):
        yield Fleet(planes, [east, west], client, url)


@asynccontextmanager
async def _node(folder: Path, registry: str, name: str, token: str) -> AsyncGenerator[Up]:
    address = registry.removeprefix("http://")
    words = ("--registry", address, "--allow-executable", LINE)
    async with serving_by(("node", "serve"), folder / name, *words, BASCULE_TOKEN=token) as up:
        yield up


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Replicas]:
    async with replicas(tmp_path) as made:
        yield made


@pytest.mark.timeout(240)
@pytest.mark.requirement("registry:fleet")
@pytest.mark.parametrize("order", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
async def test_one_replica_ends_under_load_and_no_call_fails_and_no_change_is_lost(
    order: signal.Signals, made: Replicas, tmp_path: Path
):
    writes = scaled(200)
    connector = aiohttp.TCPConnector(force_close=True)  # each request may meet either replica
    async with (
        fleet(made, tmp_path) as there,
        aiohttp.ClientSession(connector=connector) as http,
        calling(there.client, *there.nodes) as load,
    ):
        admin = Caller(there.url, there.admin, http)

        async def write(numbers: range) -> None:
            for number in numbers:
                path = f"{SERVERS}/s{number:04}"
                status, answer = await admin.ask("PUT", path, body(f"s{number:04}"))
                assert status in {200, 201}, answer

        await write(range(writes // 2))
        async with asyncio.TaskGroup() as writing:
            writing.create_task(write(range(writes // 2, writes)))
            there.planes[0].process.send_signal(order)
            await there.planes[0].process.wait()
        await load.more(scaled(200))
        revision = writes + 2  # the server, its task, and each write once
        await until(lambda: there.are_at(revision))
        for node in there.nodes:
            found = await standing(node)
            names = {one.server_id for one in found.servers}
            assert names == {"notes", *(f"s{number:04}" for number in range(writes))}
        await until(lambda: _knows_both(there))


async def _knows_both(there: Fleet) -> bool:
    """Say whether the replica that is left knows that both nodes are well."""
    status, answer = await there.planes[-1].ask("GET", "/admin/api/nodes", token=there.admin)
    assert status == 200, answer
    seen = [(one["name"], one["state"]) for one in answer["nodes"]]
    return seen == [("east", "ok"), ("west", "ok")]


@pytest.mark.timeout(120)
@pytest.mark.requirement("registry:fleet")
async def test_a_token_that_is_revoked_at_any_replica_is_refused_by_every_node(
    made: Replicas, tmp_path: Path
):
    async with fleet(made, tmp_path) as there:
        made_token = {"role": "client", "task_id": "t", "name": "d"}
        status, other = await there.planes[1].ask(
            "POST", TOKENS, token=there.admin, body=made_token
        )
        assert status == 201, other

        async def is_taken(node: Up) -> bool:
            return (await node.ask("GET", "/api/v1/identity", token=other["token"]))[0] == 200

        for node in there.nodes:
            await until(lambda node=node: is_taken(node))
        await there.ask("DELETE", f"{TOKENS}/{other['id']}", at=0)

        async def is_refused(node: Up) -> bool:
            return (await node.ask("GET", "/api/v1/identity", token=other["token"]))[0] == 401

        for node in there.nodes:
            await until(lambda node=node: is_refused(node))
            assert await lists_notes(node, there.client)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("pg")).make().start()
    try:
        yield cluster
    finally:
        cluster.kill()


@pytest.mark.timeout(240)
@pytest.mark.requirement("registry:fleet", "registry:postgres:away")
async def test_nodes_call_on_while_postgresql_is_away(cluster: Cluster, tmp_path: Path):
    async with (
        replicas(tmp_path, cluster.dsn()) as made,
        fleet(made, tmp_path) as there,
        calling(there.client, *there.nodes) as load,
    ):
        cluster.kill()
        plane = there.planes[0]

        async def is_degraded() -> bool:
            return (await plane.ask("GET", "/healthz"))[1]["status"] == "degraded"

        await until(is_degraded)
        await load.more(scaled(200))
        status, answer = await plane.ask("GET", SERVERS, token=there.admin)
        assert (status, [one["server_id"] for one in answer["servers"]]) == (200, ["notes"])
        status, _ = await plane.ask("PUT", f"{SERVERS}/x", token=there.admin, body=body("x"))
        assert status == 503
        cluster.start()

        async def is_written() -> bool:
            status, _ = await plane.ask("PUT", f"{SERVERS}/x", token=there.admin, body=body("x"))
            return status in {200, 201}

        await until(is_written)
        await until(lambda: there.are_at(3))
        for node in there.nodes:
            await until_state(node, "ok")
