"""The agents API: honest states, honest errors, who may do what, and changes that are written."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from bascule.asgi.guard import GuardedApp, open_routes
from bascule.asgi.serve import Serving
from bascule.auth.identity import Principal
from bascule.doors.agents.api import agents_app
from bascule.manager import AgentFleet
from bascule.model.role import Role
from bascule.testing import ScriptedServer
from tests.asgi.caller import Answer, ask, bearer, make_tokens
from tests.control.api.contract import refuse_undescribed
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

        answer = await ask(app, method, path, headers, chunks=chunks)
        refuse_undescribed(self.app.routes, method, path, answer)
        return answer


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
    assert {name: one["health"] for name, one in found.items()} == {
        "off": "Down",
        "a": "Connected",
        "broken": "Down",
    }
    assert (found["a"]["tool_count"], found["a"]["tools"]) == (1, ["echo"])
    assert "command not found" in found["broken"]["last_error"]
    assert found["broken"]["next_attempt_at"] > found["a"]["last_connected_at"]
    assert found["off"]["config"]["env"] == {"KEY": "***", "REF": "${OTHER}"}
    assert b"hidden" not in answer.body


@pytest.mark.requirement("manager:api:status")
async def test_without_an_agent_the_servers_of_all_are_listed(door: Door):
    answer = await door.ask("GET", SERVERS)
    found = [(one["agent_id"], one["name"]) for one in answer.json["servers"]]
    assert found == [("main", "off"), ("main", "a"), ("main", "broken"), ("x", "off")]
    assert (answer.json["agent_id"], answer.json["problems"]) == (None, [])


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


@pytest.mark.requirement("manager:api:reconnect")
async def test_a_name_alone_will_do_where_one_agent_has_it(door: Door, tmp_path: Path):
    answer = await door.ask("POST", RECONNECT, {"server_name": "a"})
    assert (answer.status, answer.json["agent_id"]) == (200, "main")
    assert started(tmp_path / "starts") == 2
    several = await door.ask("POST", RECONNECT, {"server_name": "off"})
    assert (several.status, several.code) == (409, "wrong_state")
    assert several.json["error"]["details"] == {"agents": ["main", "x"]}
    unknown = await door.ask("POST", RECONNECT, {"server_name": "no"})
    assert (unknown.status, unknown.code) == (404, "not_found")


@pytest.mark.requirement("manager:api:reconnect", "manager:api:status")
@pytest.mark.parametrize(
    ("method", "place", "body", "agent", "status", "code"),
    [
        ("GET", SERVERS, None, "nobody", 404, "not_found"),
        ("DELETE", f"{ENTRIES}/a", None, "", 400, "invalid_request"),
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
        ("PUT", f"{ENTRIES}/a", entry("b"), "main", 422, "invalid_record"),
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
    assert (off.json["server"]["tools"], off.json["server"]["last_error"]) == ([], None)
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


class HostUsers:
    """A host application's own way to tell whose a token is."""

    async def verify(self, token: str) -> Principal | None:
        return Principal("ann", "viewer", None, "1") if token == "of-ann" else None


@pytest.mark.parametrize("prefix", ["", "/tools"])
async def test_a_host_application_mounts_it_with_users_of_its_own(path: Path, prefix: str):
    async with AgentFleet(path) as fleet:
        host = Starlette(routes=[Mount(prefix or "/", app=agents_app(fleet, HostUsers()))])
        async with Serving(host, "127.0.0.1", 0) as server, aiohttp.ClientSession() as session:

            async def asked(method: str, place: str, token: str) -> tuple[int, Any]:
                headers = {"Authorization": f"Bearer {token}"}
                url = f"{server.url}{prefix}{place}"
                async with session.request(method, url, headers=headers) as answer:
                    return answer.status, await answer.json()

            status, listed = await asked("GET", f"{SERVERS}?agent_id=main", "of-ann")
            assert (status, len(listed["servers"])) == (200, 3)
            status, refused = await asked("DELETE", f"{ENTRIES}/a?agent_id=main", "of-ann")
            assert (status, refused["error"]["code"]) == (403, "forbidden")
            status, refused = await asked("GET", SERVERS, "of-nobody")
            assert (status, refused["error"]["code"]) == (401, "unauthenticated")


# Credentials


@pytest.mark.requirement("security:pairs")
async def test_an_operator_gives_no_credential_a_new_target(door: Door):
    far: dict[str, Any] = {"name": "far", "transport": "http", "url": "https://a.example"}
    far |= {"headers": {"X": "${SOME_TOKEN}"}, "enabled": False}
    refused = await door.ask("POST", ENTRIES, far, agent="main")
    assert (refused.status, refused.json["error"]["code"]) == (403, "pair_not_accepted")
    assert "${ENV:SOME_TOKEN} for https://a.example" in refused.json["error"]["message"]
    made = await door.ask("POST", ENTRIES, far, agent="main", role="admin")
    assert made.status == 201
    path = f"{ENTRIES}/far"
    for method, body in (
        ("PATCH", {"url": "https://evil.example"}),
        ("PUT", far | {"url": "https://evil.example"}),
        ("PATCH", {"headers": {"Y": "${OTHER_TOKEN}"}}),
    ):
        assert (await door.ask(method, path, body, agent="main")).status == 403
    assert (await door.ask("PATCH", path, {"timeout_ms": 9}, agent="main")).status == 200
    evil = {"command": "evil", "enabled": False}
    assert (await door.ask("PATCH", f"{ENTRIES}/off", evil, agent="main")).status in (403, 422)
    assert (await door.ask("POST", ENTRIES, far, agent="x")).status == 201


@pytest.mark.requirement("references:visible-credentials")
async def test_a_credential_in_an_entrys_arguments_is_refused(door: Door):
    seen = {"name": "seen", "transport": "stdio", "command": "x", "args": ["${MY_TOKEN}"]}
    for role in ("admin", "operator"):
        answer = await door.ask("POST", ENTRIES, seen, agent="main", role=role)
        assert (answer.status, answer.json["error"]["code"]) == (422, "invalid_record")
        assert answer.json["error"]["message"].startswith("args[0]: ")


async def test_a_parameter_that_nobody_knows_changes_nothing(door: Door, path: Path):
    """Whoever asks for a rehearsal means no writing."""
    before = text_of(path)
    for method, body in (("DELETE", None), ("PATCH", {"enabled": False})):
        answer = await door.ask(method, f"{ENTRIES}/a", body, agent="main&dry_run=true")
        assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request")
    assert text_of(path) == before
