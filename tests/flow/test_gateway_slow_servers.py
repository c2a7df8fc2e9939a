"""The gateway in front of twenty servers, of which one comes late and one never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Serving
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.gateway import Gateway
from bascule.doors.sessions import Sessions
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.node.assembly import Bridge
from bascule.node.settings import NodeSettings
from bascule.testing.server import ScriptedServer, do
from tests.asgi.caller import make_tokens
from tests.doors.gateway.stream_site import CHANGED, Peer, Stream
from tests.flow.servers import record
from tests.waits import SOON_SECONDS, until

WELL = [f"s{number}" for number in range(18)]
LATE, NEVER = "late", "never"
#: Enough on a busy machine.
PATIENT = {"connect_timeout_ms": 30_000, "list_timeout_ms": 30_000, "tool_timeout_ms": 60_000}
#: Nobody could sit through it: a test that ends did not wait for it.
FOR_EVER = {**PATIENT, "connect_timeout_ms": 600_000, "start_timeout_ms": 600_000}
#: A call of what never starts ends with this.
LIMIT = {**FOR_EVER, "tool_timeout_ms": 2000}
GENERATIONS = pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])


class Site:
    """Where the gateway is served, and its clients."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self.token = token
        self.streams: list[Stream] = []

    async def peer(self, *, modern: bool) -> Peer:
        peer = Peer(self, self.token, modern=modern)
        return peer if modern else await peer.initialized()


def servers(gate: Path) -> dict[str, ServerRecord]:
    records = [
        *(record(ScriptedServer(), server, budgets=PATIENT) for server in WELL),
        record(ScriptedServer(at_start=[do("gate", path=gate)]), LATE, budgets=FOR_EVER),
        record(ScriptedServer(at_start=["stop_reading"]), NEVER, budgets=LIMIT),
    ]
    return {one.server_id: one for one in records}


@asynccontextmanager
async def served(gate: Path) -> AsyncGenerator[Site]:
    records, tokens = servers(gate), make_tokens()
    policy = TaskPolicy(enabled=True, default_server_ids=tuple(records))
    task = TaskRecord(task_id="t", mcp=policy)
    snapshot = Snapshot(revision=1, servers=records, tasks={"t": task})
    token = (await tokens.mint("alice", "client", task_id="t")).token
    async with (
        Bridge.open(snapshot, settings=NodeSettings(grace_seconds=1.0)) as bridge,
        Sessions(bridge, tokens) as sessions,
    ):
        app = GuardedApp(gateway_routes(Gateway(sessions, tokens.key_for)), tokens)
        async with Serving(app) as server:
            site = Site(server.port, token)
            try:
                yield site
            finally:
                for stream in site.streams:
                    stream.close()


def names(*server_ids: str) -> list[str]:
    return sorted(f"mcp__{server}__echo" for server in server_ids)


async def lists(peer: Peer, *server_ids: str) -> bool:
    return sorted(await peer.tools()) == names(*server_ids)


async def told(stream: Stream) -> None:
    message = await stream.next()
    assert message is not None
    assert message["method"] == CHANGED


async def echoed(peer: Peer, server: str) -> str:
    """Call a server's tool; return the text of what comes back, or the code of the failure."""
    params = {"name": f"mcp__{server}__echo", "arguments": {"text": server}}
    result = (await (await peer.request("tools/call", **params)).result())["result"]
    failed = result.get("_meta", {}).get("bascule/error")
    return failed["code"] if failed else result["content"][0]["text"]


@pytest.mark.requirement("gateway:slow-server", "catalogue:not-waited-for", "pool:isolation")
@GENERATIONS
async def test_the_others_are_listed_and_called_beside_one_that_is_late_and_one_that_never_comes(
    tmp_path: Path, modern: bool
):
    gate = tmp_path / "gate"
    async with served(gate) as site, asyncio.timeout(2 * SOON_SECONDS):
        peer = await site.peer(modern=modern)
        stream = await peer.listening()
        await until(lambda: lists(peer, *WELL))
        late = asyncio.create_task(echoed(peer, LATE))
        never = asyncio.create_task(echoed(peer, NEVER))
        for server in WELL:
            assert await echoed(peer, server) == server
        assert not late.done()
        assert await never in ("mcp_timeout", "mcp_unavailable")
        assert await lists(peer, *WELL)
        gate.touch()
        await told(stream)
        while not await lists(peer, *WELL, LATE):
            await told(stream)  # of one that took its time as well
        assert await echoed(peer, LATE) == LATE
        assert await late == LATE
