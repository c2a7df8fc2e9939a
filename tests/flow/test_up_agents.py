"""``bascule up --agents FILE`` as a real process: status, changes, the file followed, the end."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from bascule.testing import ScriptedServer
from tests.flow.processes import traces
from tests.flow.up_process import Json, Up, run, serving
from tests.manager.agents import entry, put, started, text_of, write
from tests.waits import until

SERVERS = "/api/agents/mcp"
MAIN = "/api/agents/mcp?agent_id=main"
ENTRIES = "/api/agents/mcp/servers"
RECONNECT = "/api/agents/mcp/reconnect"
BROKEN = """
[[agents.mcp]]
name = "broken"
transport = "stdio"
command = "/nowhere/at-all"
env = { TOKEN = "a-literal" } # moves to the vault soon
"""


def table(heading: str, name: str, starts: Path) -> str:
    """Return the text of an entry that starts a scripted server."""
    plain = entry(name, ScriptedServer(starts=starts))
    lines = [f"{key} = {json.dumps(value)}" for key, value in plain.items()]
    return "\n".join([f"[[{heading}]]", *lines, ""])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return filled(tmp_path)


def filled(folder: Path) -> Path:
    """Write down two agents, a server for both and a broken one, with comments."""
    path = folder / "agents.toml"
    shared = table("defaults.mcp", "shared", folder / "shared")
    main = f'# our first\n[[agents]]\nid = "main" # the one\n{BROKEN}'
    put(path, f"# for all\n{shared}\n{main}\n# our second\n[[agents]]\nid = 'two'\n\n# the end\n")
    return path


@pytest.fixture
async def up(tmp_path: Path, file: Path) -> AsyncIterator[Up]:
    async with serving(tmp_path / "data", "--empty", "--agents", str(file)) as up:
        yield up


async def servers(up: Up, agent: str = "main") -> dict[str, Json]:
    answer = await up.get(f"{SERVERS}?agent_id={agent}")
    return {server["name"]: server for server in answer["servers"]}


async def command(up: Up, *words: str) -> tuple[int | None, str, str]:
    return await run("agents", *words, "--data-dir", str(up.data))


@pytest.mark.requirement("manager:api:status", "manager:per-agent", "cli:agents")
async def test_the_api_and_the_command_line_tell_how_every_server_stands(
    up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")  # a row is one line
    found = await servers(up)
    assert {name: (one["state"], one["origin"]) for name, one in found.items()} == {
        "shared": ("connected", "defaults"),
        "broken": ("down", "agent"),
    }
    assert "command not found" in found["broken"]["last_error"]
    assert found["broken"]["config"]["env"] == {"TOKEN": "***"}
    assert list(await servers(up, "two")) == ["shared"]
    assert started(tmp_path / "shared") == 2  # each agent has a connection of its own
    code, out, _ = await command(up, "status")
    assert (code, [line.split()[:3] for line in out.splitlines()[1:]]) == (
        0,
        [
            ["main", "shared", "Connected"],
            ["main", "broken", "Down"],
            ["two", "shared", "Connected"],
        ],
    )
    code, out, _ = await command(up, "list", "--json")
    assert json.loads(out)["agents"][0] == {
        "agent_id": "main",
        "servers": 2,
        "connected": 1,
        "tools": 1,
    }
    assert (await up.get("/healthz"))["status"] == "ok"


class Closed(NamedTuple):
    """A process that nobody may change, its file, and a token without the right."""

    up: Up
    file: Path
    client: str


@pytest.fixture(scope="module")
async def closed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Closed]:
    """One process for all that is refused."""
    file = filled(tmp_path_factory.mktemp("closed"))
    async with serving(file.parent / "data", "--empty", "--agents", str(file)) as up:
        yield Closed(up, file, await client_token(up))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/agents"),
        ("GET", MAIN),
        ("POST", RECONNECT),
        ("POST", f"{ENTRIES}?agent_id=main"),
        ("PUT", f"{ENTRIES}/shared?agent_id=main"),
        ("PATCH", f"{ENTRIES}/shared?agent_id=main"),
        ("DELETE", f"{ENTRIES}/broken?agent_id=main"),
    ],
)
async def test_nobody_without_the_right_sees_or_changes_anything(
    closed: Closed, method: str, path: str
):
    up, before = closed.up, text_of(closed.file)
    status, answer = await up.ask(method, path, body={})
    assert (status, answer["error"]["code"]) == (401, "unauthenticated")
    status, answer = await up.ask(method, path, token=closed.client, body={})
    assert (status, answer["error"]["code"]) == (403, "forbidden")
    assert text_of(closed.file) == before


async def client_token(up: Up) -> str:
    task = {"task_id": "t", "config": {"mcp.enabled": "true"}}
    status, answer = await up.ask("PUT", "/admin/api/mcp/tasks/t", token=up.admin, body=task)
    assert status == 201, answer
    return await up.token("t")


@pytest.mark.requirement("manager:api:reconnect", "manager:reconnect")
async def test_a_server_is_reconnected_by_name_and_a_failure_is_told(up: Up, tmp_path: Path):
    body = {"agent_id": "main", "server_name": "shared"}
    status, answer = await up.ask("POST", RECONNECT, token=up.admin, body=body)
    assert (status, answer["server"]["state"]) == (200, "connected")
    assert started(tmp_path / "shared") == 3
    body["server_name"] = "broken"
    status, answer = await up.ask("POST", RECONNECT, token=up.admin, body=body)
    assert (status, answer["error"]["code"]) == (503, "mcp_unavailable")
    assert "command not found" in answer["error"]["message"]
    code, _, err = await command(up, "reconnect", "main", "missing")
    assert (code, "has no server 'missing'" in err) == (1, True)


async def test_changes_go_into_the_file_with_its_comments_and_are_in_force(
    up: Up, file: Path, tmp_path: Path
):
    remarks = [line for line in text_of(file).splitlines() if "#" in line]
    new = entry("new", ScriptedServer(starts=tmp_path / "new"))
    status, made = await up.ask("POST", f"{ENTRIES}?agent_id=two", token=up.admin, body=new)
    assert (status, made["server"]["state"]) == (201, "connected")
    place = f"{ENTRIES}/new?agent_id=two"
    status, changed = await up.ask("PUT", place, token=up.admin, body={**new, "timeout_ms": 9000})
    assert (status, changed["server"]["config"]["timeout_ms"]) == (200, 9000)
    status, off = await up.ask("PATCH", place, token=up.admin, body={"enabled": False})
    assert (status, off["server"]["state"]) == (200, "disabled")
    assert own(file, 1) == [{**new, "timeout_ms": 9000, "enabled": False}]
    code, _, err = await command(up, "enable", "two", "new")
    assert code == 0, err
    assert (await servers(up, "two"))["new"]["state"] == "connected"
    assert started(tmp_path / "new") == 2
    status, gone = await up.ask("DELETE", place, token=up.admin)
    assert (status, gone["server"]) == (200, None)
    assert own(file, 1) == []
    assert [line for line in text_of(file).splitlines() if "#" in line] == remarks


def own(file: Path, agent: int) -> list[Json]:
    return tomllib.loads(text_of(file))["agents"][agent].get("mcp", [])


@pytest.mark.requirement("manager:hot-reload")
async def test_the_file_is_followed_while_the_process_serves(up: Up, file: Path, tmp_path: Path):
    process = traces(str(tmp_path / "shared"))
    late = table("agents.mcp", "late", tmp_path / "late")
    put(file, text_of(file).replace(BROKEN, "\n" + late) + "[[agents]]\nid = 'three'\n")

    async def followed() -> bool:
        return (await servers(up)).get("late", {}).get("state") == "connected"

    await until(followed)
    assert list(await servers(up)) == ["shared", "late"]
    assert list(await servers(up, "three")) == ["shared"]
    assert set(process) <= set(traces(str(tmp_path / "shared")))  # nobody else was disturbed


async def test_a_broken_file_changes_nothing_and_is_reported_until_it_is_mended(up: Up, file: Path):
    good = text_of(file)
    put(file, good + "[[mcp_servers]]\nname = 'x'\n")

    async def reported() -> Any:
        return (await up.get("/api/agents"))["problems"]

    await until(reported)
    assert "write [[defaults.mcp]]" in (await reported())[0]
    assert (await servers(up))["shared"]["state"] == "connected"
    code, out, _ = await command(up, "status")
    assert (code, "the file is not used as it is now: mcp_servers" in out) == (0, True)
    assert up.process.stderr is not None
    async with asyncio.timeout(10):
        while b"mcp_servers: is not read" not in await up.process.stderr.readline():
            continue
    put(file, good)

    async def mended() -> bool:
        return not await reported()

    await until(mended)


@pytest.mark.requirement("manager:shutdown", "manager:disconnect-all")
async def test_the_end_of_the_process_leaves_no_process_of_its_agents(up: Up, tmp_path: Path):
    family = psutil.Process(up.process.pid).children(recursive=True)
    assert len(traces(str(tmp_path / "shared"))) >= 2
    assert await up.end() == 0
    _, left = await asyncio.to_thread(psutil.wait_procs, family, 5)
    assert left == []
    assert traces(str(tmp_path / "shared")) == []


async def test_a_start_with_a_broken_file_is_refused_with_all_its_problems(tmp_path: Path):
    file = tmp_path / "agents.toml"
    put(file, "[[mcp]]\n[[agents]]\n")
    words = ("up", "--port", "0", "--data-dir", str(tmp_path / "data"), "--agents")
    code, out, err = await run(*words, str(file))
    assert (code, "serves at" in out) == (1, False)
    assert "write [[defaults.mcp]]" in err
    assert "agents[0].id: is required" in err
    code, _, err = await run(*words, str(tmp_path / "missing.toml"))
    assert (code, "cannot be read: No such file" in err) == (1, True)


async def test_without_agents_there_are_no_such_routes(tmp_path: Path):
    async with serving(tmp_path / "data", "--empty") as up:
        for method, path in (("GET", "/api/agents"), ("GET", MAIN), ("POST", RECONNECT)):
            status, answer = await up.ask(method, path, token=up.admin, body={})
            assert (status, answer["error"]["code"]) == (404, "not_found")
        code, _, err = await command(up, "list")
        assert (code, err.count("\n")) == (1, 1)
        assert "bascule up --agents FILE" in err


async def test_an_agents_server_is_given_the_secret_that_is_bound_to_it(tmp_path: Path):
    file = tmp_path / "agents.toml"
    mine = entry("own", ScriptedServer(), env={"TOKEN": "secret://token"})
    write(file, {"id": "main", "mcp": [mine]}, {"id": "two", "mcp": [mine]})
    async with serving(tmp_path / "data", "--empty", "--agents", str(file)) as up:
        status, _ = await up.ask(
            "PUT", "/admin/api/secrets/token", token=up.admin, body={"value": "v1-of-the-token"}
        )
        assert status == 201
        body = {"agent_id": "main", "server_name": "own"}
        status, answer = await up.ask("POST", RECONNECT, token=up.admin, body=body)
        assert status == 503
        assert "bascule secrets bind token --server main/own" in answer["error"]["message"]
        code, _, err = await run(
            "secrets", "bind", "token", "--server", "main/own", "--data-dir", str(up.data)
        )
        assert (code, "give --agents FILE" in err) == (1, True)
        words = ("--agents", str(file), "--data-dir", str(up.data))
        code, _, err = await run("secrets", "bind", "token", "--server", "main/own", *words)
        assert code == 0, err

        async def connected() -> bool:
            return (await servers(up))["own"]["state"] == "connected"

        await until(connected)
        assert (await servers(up, "two"))["own"]["state"] != "connected"
        path = "/admin/api/secrets/token/bind"
        status, shown = await up.ask("POST", path, token=up.admin, body={"server": "two/own"})
        assert (status, [one["id"] for one in shown["used_by"]]) == (200, ["main/own", "two/own"])
        moved = {**mine, "args": [*mine["args"], "more"]}
        path = f"{ENTRIES}/own?agent_id=main"
        status, answer = await up.ask("PUT", path, token=up.admin, body=moved)
        assert status == 200, answer
        assert "bascule secrets bind" in (await servers(up))["own"]["last_error"]
