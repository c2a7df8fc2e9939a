"""What authenticates an MCP client stays here: no server behind the gateway ever sees any of it."""

from __future__ import annotations

import aiohttp
import pytest

from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Serving
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.gateway import Gateway
from bascule.doors.sessions import Sessions
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.node.assembly import Bridge
from bascule.testing import ScriptedHttpServer, ScriptedServer
from tests.asgi.caller import make_tokens
from tests.doors.gateway.mcp_caller import WAYS, opened, over_http
from tests.flow.matrix import remote_record
from tests.flow.servers import PATIENT

ECHO = ScriptedServer(behaviours={"echo": "echo"})
TASK = TaskRecord(task_id="t", mcp=TaskPolicy(enabled=True, default_server_ids=("fs",)))


@pytest.mark.requirement("gateway:token")
@pytest.mark.parametrize("way", WAYS)
async def test_nothing_that_authenticates_a_client_reaches_a_server(way: str):
    tokens = make_tokens()
    async with ScriptedHttpServer(server=ECHO) as http:
        snapshot = Snapshot(
            revision=1, servers={"fs": remote_record(http, "fs")}, tasks={"t": TASK}
        )
        async with (
            Bridge.open(snapshot, settings=PATIENT) as bridge,
            Sessions(bridge, tokens) as sessions,
            Serving(
                GuardedApp(gateway_routes(Gateway(sessions, tokens.key_for)), tokens)
            ) as server,
            aiohttp.ClientSession() as client,
        ):
            token = (await tokens.mint("alice", "client", task_id="t")).token
            caller, named = await opened(over_http(client, server.url), token, "fs", way)
            answer = await caller.call(named("echo"), {"text": "hello"})
            assert answer["result"]["content"][0]["text"] == "hello"
        seen = [f"{dict(one.headers)} {one.body.decode()}" for one in http.requests]
    assert any("tools/call" in one for one in seen)
    hidden = [token, caller.session] if caller.session else [token]
    assert not [one for one in seen for secret in hidden if secret in one]
    assert not [one for one in seen if "authorization" in one.lower()]
