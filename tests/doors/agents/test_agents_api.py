"""The agents API: honest states, honest errors, who may do what, and changes that are written."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bascule.asgi.guard import GuardedApp, open_routes
from bascule.asgi.identity import Role
from bascule.doors.agents.api import agents_app
from bascule.manager import AgentFleet
from bascule.testing import ScriptedServer
from tests.asgi.caller import Answer, ask, bearer, make_tokens
from tests.manager.agents import entry, put, started, text_of, write

BROKEN = {"name": "broken", "transport": "stdio", "command": "/nowhere/at-all"}
SERVERS = "/api/agents/mcp"
ENTRIES = "/api/agents/mcp/servers"
RECONNECT = "/api/agents/mcp/reconnect"


class Door:
    """The API over real agents, and somebody at it."""

    def __init__(self, fleet: AgentFleet) -> None:
        self.fleet = fleet
        self.tokens = make_tokens()
        self.app = agents_app(fleet, self.tokens)

    async def ask(
        self, method: str, path: str, body: Any = None, *, agent: str = "", role: Role = "operator"
    ) -> Answer:
        headers = await bearer(self.tokens, role)
        chunks = [b""]
        if body is not None:
            headers |= {"Content-Type": "application/json", "Content-Length": "1"}
            chunks = [json.dumps(body).encode()]

        async def app(scope: Any, receive: Any, send: Any) -> None:
            query = f"agent_id={agent}" if agent else ""
            await self.app({**scope, "query_string": query.encode()}, receive, send)

        return await ask(app, method, path, headers, chunks=chunks)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    own = [entry("a", ScriptedServer(starts=tmp_path / "starts")), BROKEN]
    off = entry("off", env={"KEY": "hidden", "REF": "${OTHER}"}, enabled=False)
    return write(tmp_path / "agents.toml", {"id": "main", "mcp": own}, {"id": "x"}, defaults=[off])


@pytest.fixture
async def door(path: Path) -> AsyncIterator[Door]:
    async with AgentFleet(path) as fleet:
        yield Door(fleet)


@pytest.mark.requirement("manager:api:status")
async def test_servers_are_listed_with_the_state_they_are_in(door: Door):
    answer = await door.ask("GET", SERVERS, agent="main", role="viewer")
    assert answer.status == 200
    assert answer.json["agent_id"] == "main"
    found = {one["name"]: one for one in answer.json["servers"]}
    assert {name: (one["state"], one["phase"], one["origin"]) for name, one in found.items()} == {
        "off": ("disabled", "disconnected", "defaults"),
        "a": ("connected", "connected", "agent"),
        "broken": ("down", "failed", "agent"),
    }
    assert (found["a"]["tool_count"], found["a"]["tools"]) == (1, ["echo"])
    assert "command not found" in found["broken"]["last_error"]
    assert found["broken"]["next_attempt_at"] > found["a"]["last_connected_at"]
    assert found["off"]["config"]["env"] == {"KEY": "***", "REF": "${OTHER}"}
    assert b"hidden" not in answer.body


async def test_agents_are_listed_with_what_keeps_their_file_from_use(door: Door, path: Path):
    answer = await door.ask("GET", "/api/agents")
    assert answer.json == {
        "agents": [
            {"agent_id": "main", "servers": 3, "connected": 1, "tools": 1},
            {"agent_id": "x", "servers": 1, "connected": 0, "tools": 0},
        ],
        "problems": [],
    }
    put(path, "[[mcp_servers]]\n")
    await door.fleet.reload()
    answer = await door.ask("GET", "/api/agents")
    assert [agent["agent_id"] for agent in answer.json["agents"]] == ["main", "x"]
    assert answer.json["problems"][0].startswith("mcp_servers: is not read")


@pytest.mark.requirement("manager:api:reconnect")
async def test_a_server_is_reconnected_by_name(door: Door, tmp_path: Path):
    answer = await door.ask("POST", RECONNECT, {"agent_id": "main", "server_name": "a"})
    assert (answer.status, answer.json["server_name"]) == (200, "a")
    assert answer.json["server"]["state"] == "connected"
    assert started(tmp_path / "starts") == 2


@pytest.mark.requirement("manager:api:reconnect", "manager:api:status")
@pytest.mark.parametrize(
    ("method", "place", "body", "agent", "status", "code"),
    [
        ("GET", SERVERS, None, "nobody", 404, "not_found"),
        ("GET", SERVERS, None, "", 400, "invalid_request"),
        ("POST", RECONNECT, {"agent_id": "nobody", "server_name": "a"}, "", 404, "not_found"),
        ("POST", RECONNECT, {"agent_id": "main", "server_name": "no"}, "", 404, "not_found"),
        ("POST", RECONNECT, {"agent_id": "main", "server_name": "off"}, "", 409, "wrong_state"),
        ("POST", RECONNECT, {"agent_id": "main", "server_name": "broken"}, "", 503,
         "mcp_unavailable"),
        ("POST", RECONNECT, {"agent_id": "main"}, "", 422, "invalid_record"),
        ("POST", RECONNECT, {"agent_id": "main", "server_name": "a", "x": 1}, "", 422,
         "invalid_record"),
        ("POST", ENTRIES, entry("a"), "main", 409, "already_exists"),
        ("POST", ENTRIES, entry("off"), "main", 409, "already_exists"),
        ("POST", ENTRIES, {"name": "n", "transport": "stdio"}, "main", 422, "invalid_record"),
        ("POST", ENTRIES, entry("n"), "nobody", 404, "not_found"),
        ("PUT", f"{ENTRIES}/no", entry("no"), "main", 404, "not_found"),
        ("PUT", f"{ENTRIES}/a", entry("b"), "main", 400, "invalid_request"),
        ("PATCH", f"{ENTRIES}/no", {"enabled": False}, "main", 404, "not_found"),
        ("DELETE", f"{ENTRIES}/no", None, "main", 404, "not_found"),
        ("DELETE", f"{ENTRIES}/off", None, "main", 409, "wrong_state"),
    ],
)  # fmt: skip
async def test_what_cannot_be_done_has_an_honest_status(
    door: Door, path: Path, method: str, place: str, body: Any, agent: str, status: int, code: str
):
    before = text_of(path)
    answer = await door.ask(method, place, body, agent=agent)
    assert (answer.status, answer.code) == (status, code)
    assert set(answer.json["error"]) == {"code", "message", "details"}
    assert text_of(path) == before


@pytest.mark.parametrize(
    ("method", "place", "body", "refused"),
    [
        ("GET", "/api/agents", None, ("client",)),
        ("GET", SERVERS, None, ("client",)),
        ("POST", RECONNECT, {"agent_id": "main", "server_name": "a"}, ("viewer", "client", "node")),
        ("POST", ENTRIES, entry("n"), ("viewer", "approver", "client", "node")),
        ("PUT", f"{ENTRIES}/a", entry("a"), ("viewer", "client")),
        ("PATCH", f"{ENTRIES}/a", {"enabled": False}, ("viewer", "client")),
        ("DELETE", f"{ENTRIES}/a", None, ("viewer", "client")),
    ],
)
async def test_a_role_does_what_it_may_and_no_more(
    door: Door, path: Path, method: str, place: str, body: Any, refused: tuple[Role, ...]
):
    before = text_of(path)
    for role in refused:
        answer = await door.ask(method, place, body, agent="main", role=role)
        assert (answer.status, answer.code) == (403, "forbidden")
    anonymous = await ask(door.app, method, place)
    assert (anonymous.status, anonymous.code) == (401, "unauthenticated")
    assert text_of(path) == before


async def test_no_route_is_open(door: Door):
    assert isinstance(door.app, GuardedApp)
    assert open_routes(door.app) == ()
    assert len(door.app.routes) == 7


async def test_a_server_is_created_changed_and_removed_through_the_file(door: Door, path: Path):
    put(path, text_of(path) + "\n# by hand\n")
    made = await door.ask("POST", ENTRIES, entry("n", env={"T": "s3cret"}), agent="x")
    assert made.status == 201
    assert made.json["server"]["state"] == "connected"
    assert b"s3cret" not in made.body
    off = await door.ask("PATCH", f"{ENTRIES}/n", {"enabled": False}, agent="x")
    assert (off.status, off.json["server"]["state"]) == (200, "disabled")
    config = {**off.json["server"]["config"], "enabled": True}
    again = await door.ask("PUT", f"{ENTRIES}/n", config, agent="x")
    assert (again.status, again.json["server"]["state"]) == (200, "connected")
    assert "s3cret" in text_of(path)
    gone = await door.ask("DELETE", f"{ENTRIES}/n", agent="x")
    assert (gone.status, gone.json["server"]) == (200, None)
    assert "s3cret" not in text_of(path)
    assert text_of(path).endswith("# by hand\n")


async def test_a_default_is_changed_for_every_agent(door: Door):
    answer = await door.ask(
        "PATCH", f"{ENTRIES}/off", {"enabled": True, "env": None}, agent="defaults"
    )
    assert answer.json == {"agent_id": "defaults", "server_name": "off", "server": None}
    for agent in ("main", "x"):
        listed = await door.ask("GET", SERVERS, agent=agent)
        assert listed.json["servers"][0]["state"] == "connected"
