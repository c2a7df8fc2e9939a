"""``bascule up`` as a real process: from the first start to the last trace of it."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import stat
import sys
from collections import ChainMap
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from bascule.app.reload import Reloading
from bascule.app.settings import Settings
from bascule.app.stores import Stores
from bascule.app.up import all_routes, parts_of
from bascule.asgi.guard import GuardedApp, open_routes
from bascule.cli.command_line import program
from bascule.control.registry.loader import Loader
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.sqlite_store import SqliteStore
from tests.asgi.caller import make_tokens
from tests.control.registry.memory_store import MemoryStore
from tests.flow.up_process import Json, Up, record, run, serving
from tests.waits import until

OPEN_ROUTES = Path(__file__).parents[1] / "doors" / "open-routes.txt"


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[Up]:
    async with serving(tmp_path / "data") as up:
        yield up


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    """One process for the tests that leave it as it was."""
    async with serving(tmp_path_factory.mktemp("shared") / "data") as up:
        yield up


@pytest.mark.requirement("cli:up", "cli:tokens", "registry:embedded")
async def test_from_the_first_start_to_a_governed_call_and_a_clean_end(up: Up):
    health = await up.get("/healthz")
    assert (health["status"], health["servers"]) == ("ok", {"disconnected": 1})
    assert (await up.get("/readyz"))["status"] == "ready"
    token = await up.token("demo")
    status, listed = await up.ask("GET", "/api/v1/tools", token=token)
    assert status == 200
    assert "mcp__notes__read_note" in {tool["name"] for tool in listed["tools"]}
    status, outcome = await up.call(token, "mcp__notes__read_note", name="welcome")
    assert (status, outcome["ok"]) == (200, True)
    status, outcome = await up.call(token, "mcp__notes__delete_note", name="welcome")
    assert (status, outcome["error"]["code"]) == (409, "mcp_approval_required")
    question = f"/api/v1/approvals/{outcome['error']['details']['approval_id']}"
    status, shown = await up.ask("GET", question, token=token)
    assert (status, shown["state"], shown["tool"]) == (200, "pending", "delete_note")
    assert (await up.ask("GET", question, token=await up.token("demo")))[0] == 404
    status, why = await up.ask(
        "GET", "/api/v1/tools/explain?name=mcp__notes__delete_note", token=token
    )
    assert (status, why["allowed"]) == (200, True)
    family = psutil.Process(up.process.pid).children(recursive=True)
    assert any("bascule.demo.server" in " ".join(child.cmdline()) for child in family)
    assert await up.end() == 0
    _, left = await asyncio.to_thread(psutil.wait_procs, family, 5)
    assert left == []
    assert not (up.data / "url").exists()


@pytest.mark.requirement("gateway:address")
async def test_the_first_start_keeps_its_setup_token_privately_and_says_what_to_do(up: Up):
    assert up.admin
    assert await up.next_lines(10) == [
        f"MCP clients connect to {up.url}/mcp",
        (
            f"The admin page is at {up.url}/admin/; a link that opens it: "
            f"{program()} web --data-dir {up.data}"
        ),
        f"An administrator's token for programs is in {up.data}/setup-token",
        "Try next, in another terminal:",
        f"  {program()} servers list --data-dir {up.data}",
        (
            f"  {program()} tokens create --role client --task demo --data-dir {up.data}    "
            "# a token, and how to connect an MCP client with it"
        ),
        f"  {program()} tools list --data-dir {up.data}",
        f"  {program()} chat 'call notes.list_notes with {{}}' --data-dir {up.data}",
        (
            f"""  {program()} chat 'call notes.delete_note with {{"name": "shopping"}}' """
            f"--data-dir {up.data}    # waits until it is approved"
        ),
        (
            f"  {program()} approvals watch --data-dir {up.data}    "
            "# in one more terminal: shows what is asked, and asks you"
        ),
    ]
    assert stat.S_IMODE((up.data / "setup-token").stat().st_mode) == 0o600
    assert stat.S_IMODE(up.data.stat().st_mode) == 0o700
    assert await up.end(signal.SIGINT) == 0
    async with serving(up.data) as again:
        assert len(again.said) == 1
        assert (await again.get("/healthz"))["revision"] == 2
        assert await again.end() == 0


async def test_the_first_token_of_ones_own_ends_the_setup_token_for_good(up: Up):
    path, body = "/admin/api/tokens", {"role": "admin", "name": "me"}
    status, made = await up.ask("POST", path, token=up.admin, body=body)
    assert status == 201
    assert (await up.ask("GET", path, token=up.admin))[0] == 401
    status, listed = await up.ask("GET", path, token=made["token"])
    assert (status, [token["name"] for token in listed["tokens"]]) == (200, ["me"])
    assert not (up.data / "setup-token").exists()
    assert await up.end() == 0
    async with serving(up.data) as again:
        assert len(again.said) == 1
        assert not (up.data / "setup-token").exists()
        assert (await again.ask("GET", path, token=made["token"]))[0] == 200


@pytest.mark.requirement("registry:single-truth")
async def test_a_change_in_the_registry_is_in_force_at_the_next_calls(tmp_path: Path):
    async with serving(tmp_path / "data", "--empty") as up:
        assert (await up.get("/healthz"))["servers"] == {}
        admin = "/admin/api/mcp"
        stdio = {"command": sys.executable, "args": ["-m", "bascule.demo.server"]}
        server: Json = {"server_id": "n", "transport": "stdio", "stdio": stdio}
        task = {"task_id": "t", "config": {"mcp.enabled": "true", "mcp.default_server_ids": "n"}}
        for path, body in (
            (f"{admin}/servers/n", {**server, "allowed_tools": ["*"]}),
            (f"{admin}/tasks/t", task),
        ):
            status, answer = await up.ask("PUT", path, token=up.admin, body=body)
            assert status in {200, 201}, answer
        token = await up.token("t")
        assert (await up.call(token, "n/list_notes"))[1]["ok"]
        narrower = {**server, "allowed_tools": ["read_*"]}
        status, answer = await up.ask("PUT", f"{admin}/servers/n", token=up.admin, body=narrower)
        assert status == 200
        async with asyncio.timeout(5):
            while True:
                status, outcome = await up.call(token, "n/list_notes")
                if outcome["revision"] == answer["revision"]:
                    break
        assert (status, outcome["error"]["code"]) == (403, "mcp_policy_denied")
        assert await up.end() == 0


TRIED = "/admin/api/mcp/servers/{}/test"
PREVIEWED = "/admin/api/mcp/servers/{}/tools"


@pytest.mark.requirement("admin:servers:test", "admin:servers:preview")
async def test_the_node_inside_tries_a_server_and_shows_what_it_would_offer(shared: Up):
    status, report = await shared.ask("POST", TRIED.format("notes"), token=shared.admin)
    assert (status, report["ok"], report["error"]) == (200, True, None)
    assert report["tool_count"] == len(report["tools"]) > 0
    assert "read_note" in report["tools"]
    assert report["protocol"]
    assert report["duration_ms"] > 0
    preview = await shared.get(PREVIEWED.format("notes"))
    assert preview["server_id"] == "notes"
    decisions = {tool["tool"]: (tool["name"], tool["allowed"]) for tool in preview["tools"]}
    assert decisions["read_note"] == ("mcp__notes__read_note", True)
    assert set(decisions) == set(report["tools"])

    async def connected() -> bool:
        server = await shared.get("/api/v1/mcp/servers/notes")
        return server["status"]["state"] == "connected"

    await until(connected)


@pytest.mark.requirement("admin:servers:test", "admin:servers:preview")
async def test_a_trial_of_a_server_that_fails_says_why_and_a_preview_shows_what_is_denied(
    tmp_path: Path,
):
    folder = tmp_path / "mcp.d"
    folder.mkdir()
    (folder / "some.toml").write_text(record("some"), encoding="utf-8")
    broken = record("broken").replace("bascule.demo.server", "bascule.no_such_module")
    (folder / "broken.toml").write_text(broken, encoding="utf-8")
    async with serving(tmp_path / "data", "--empty", "--registry-dir", str(folder)) as up:
        status, report = await up.ask("POST", TRIED.format("broken"), token=up.admin)
        assert (status, report["ok"], report["tools"]) == (200, False, [])
        assert "no_such_module" in report["error"]
        status, answer = await up.ask("GET", PREVIEWED.format("broken"), token=up.admin)
        assert (status, answer["error"]["code"]) == (503, "mcp_unavailable")
        status, answer = await up.ask("POST", TRIED.format("nobody"), token=up.admin)
        assert (status, answer["error"]["code"]) == (404, "not_found")
        preview = await up.get(PREVIEWED.format("some"))
        denied = {tool["tool"]: tool["reason"] for tool in preview["tools"] if not tool["allowed"]}
        assert denied["read_note"] == "not_in_allowed_tools"
        assert "list_notes" not in denied


@pytest.mark.requirement("observability:metrics-endpoint")
async def test_metrics_are_for_those_who_may_read_them(shared: Up):
    async with shared.http.get(f"{shared.url}/metrics") as answer:
        assert answer.status == 401
    headers = {"Authorization": f"Bearer {shared.admin}"}
    async with shared.http.get(f"{shared.url}/metrics", headers=headers) as answer:
        assert answer.status == 200
        assert "mcp_tool_call_total" in await answer.text()


@pytest.mark.requirement("references:secret:until-built", "references:allowed-variables:up")
async def test_records_may_read_every_variable_and_no_secret_yet(tmp_path: Path):
    folder = tmp_path / "mcp.d"
    folder.mkdir()
    (folder / "reads.toml").write_text(record("reads", X="${ENV:ANY_NAME}"), encoding="utf-8")
    (folder / "secret.toml").write_text(record("secret", X="secret://vault"), encoding="utf-8")
    words = ("--registry-dir", str(folder), "--empty")
    async with serving(tmp_path / "data", *words, ANY_NAME="v") as up:
        path = "/admin/api/mcp/servers/{}/test"
        _, reads = await up.ask("POST", path.format("reads"), token=up.admin)
        _, secret = await up.ask("POST", path.format("secret"), token=up.admin)
    assert reads["ok"], reads
    assert not secret["ok"]
    assert "secret" in secret["error"]


async def test_a_watcher_does_not_hold_the_end_up(up: Up):
    headers = {"Authorization": f"Bearer {up.admin}"}
    async with up.http.get(f"{up.url}/api/v1/mcp/watch?since=0", headers=headers) as stream:
        assert stream.status == 200
        assert await stream.content.readline()
        up.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(8):
            assert await stream.content.read() is not None
            assert await up.process.wait() == 0


async def test_a_data_directory_is_served_by_one_process(shared: Up):
    code, _, err = await run("up", "--port", "0", "--data-dir", str(shared.data))
    assert code == 1
    assert "is served by another process" in err
    assert (await shared.get("/healthz"))["status"] == "ok"
    assert (shared.data / "url").read_text(encoding="utf-8").strip() == shared.url


async def test_the_demo_can_be_left_out_afterwards(up: Up):
    assert (await up.get("/healthz"))["servers"] == {"disconnected": 1}
    await up.end()
    async with serving(up.data, "--empty") as again:
        assert (await again.get("/healthz"))["servers"] == {}
        assert (await again.get("/admin/api/mcp/tasks"))["tasks"] == []
        await again.end()
    async with serving(up.data) as back:
        assert [task["task_id"] for task in (await back.get("/admin/api/mcp/tasks"))["tasks"]] == [
            "demo"
        ]


@pytest.mark.requirement("cli:demo-task")
async def test_the_demos_task_can_be_edited_and_removed_for_good(up: Up):
    place = "/admin/api/mcp/tasks/demo"
    assert (await up.get(place))["owner"] is None
    status, _ = await up.ask("PATCH", place, token=up.admin, body={"name": "Mine"})
    assert status == 200
    await up.end()
    async with serving(up.data) as again:
        assert (await again.get(place))["name"] == "Mine"
        await again.ask("DELETE", place, token=again.admin)
        await again.end()
    async with serving(up.data) as third:
        assert (await third.ask("GET", place, token=third.admin))[0] == 404
        assert (await third.get("/healthz"))["servers"] == {"disconnected": 1}


@pytest.mark.requirement("cli:demo-task")
async def test_a_demos_task_that_a_file_defined_is_taken_over_as_it_is(tmp_path: Path):
    data = tmp_path / "data"
    tasks = data / "demo" / "tasks"
    data.mkdir(mode=0o700)
    tasks.mkdir(parents=True)
    text = 'task_id = "demo"\nname = "Older"\n[mcp]\nenabled = true\n'
    (tasks / "demo.toml").write_text(text, encoding="utf-8")
    store = await SqliteStore(data / "registry.db").open()
    async with open_registry(store) as service:
        await Loader(service, data / "demo").load()
    async with serving(data) as up:
        task = await up.get("/admin/api/mcp/tasks/demo")
        assert (task["name"], task["owner"]) == ("Older", None)


@pytest.mark.requirement(
    "loading:directory:startup",
    "loading:directory:flag",
    "loading:directory:environment",
    "loading:directory:config",
    "loading:file",
)
@pytest.mark.parametrize("way", ["flag", "environment", "config", "file"])
async def test_records_are_loaded_at_start_from_where_one_says(tmp_path: Path, way: str):
    folder, many, config = tmp_path / "mcp.d", tmp_path / "many.json", tmp_path / "settings.toml"
    folder.mkdir()
    (folder / "mine.toml").write_text(record("mine"), encoding="utf-8")
    mine = {"server_id": "mine", "transport": "stdio", "stdio": {"command": "true"}}
    many.write_text(json.dumps({"servers": [mine]}), encoding="utf-8")
    config.write_text('[mcp]\nregistry_dir = "mcp.d"\n', encoding="utf-8")
    words = {
        "flag": ("--registry-dir", str(folder)),
        "environment": (),
        "config": ("--config", str(config)),
        "file": ("--registry-file", str(many)),
    }[way]
    env = {"BASCULE_REGISTRY_DIR": str(folder)} if way == "environment" else {}
    async with serving(tmp_path / "data", "--empty", *words, **env) as up:
        listed = await up.get("/api/v1/mcp/servers")
    assert [server["server_id"] for server in listed["servers"]] == ["mine"]


async def knows(up: Up, servers: int) -> bool:
    return (await up.get("/healthz"))["servers"] == {"disconnected": servers}


async def test_a_file_that_changes_is_in_force_in_a_moment(tmp_path: Path):
    folder = tmp_path / "mcp.d"
    folder.mkdir()
    (folder / "a.toml").write_text(record("a"), encoding="utf-8")
    async with serving(tmp_path / "data", "--empty", "--registry-dir", str(folder)) as up:
        (folder / "b.toml").write_text(record("b"), encoding="utf-8")
        await until(partial(knows, up, 2))
        assert await up.end() == 0


async def test_a_port_that_is_taken_is_named_with_the_way_out(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, out, err = await run("up", "--port", port, "--data-dir", str(tmp_path / "data"))
    assert (code, out) == (1, "")
    assert f"127.0.0.1:{port}" in err
    assert "--port 0" in err
    assert not (tmp_path / "data" / "setup-token").exists()


@pytest.mark.requirement("loading:dry-run")
async def test_a_dry_run_says_what_would_change_and_leaves_no_trace(tmp_path: Path):
    folder, data = tmp_path / "mcp.d", tmp_path / "data"
    folder.mkdir()
    (folder / "a.toml").write_text(record("a"), encoding="utf-8")
    words = ("up", "--dry-run", "--data-dir", str(data), "--registry-dir", str(folder))
    code, out, err = await run(*words)
    assert (code, out.splitlines()[0], err) == (0, "+ server a", "")
    assert not data.exists()
    (folder / "b.toml").write_text("server_id = 3", encoding="utf-8")
    code, out, err = await run(*words)
    assert (code, out.splitlines()[0]) == (1, "+ server a")
    assert err.startswith("error: b.toml: server_id: ")
    code, _, err = await run(*words, "--strict")
    assert code == 1
    assert "b.toml" in err
    assert not data.exists()


@pytest.mark.requirement("loading:dry-run")
async def test_a_dry_run_beside_a_process_that_serves_disturbs_nobody(tmp_path: Path):
    folder = tmp_path / "mcp.d"
    folder.mkdir()
    (folder / "a.toml").write_text(record("a"), encoding="utf-8")
    many = tmp_path / "many.json"
    many.write_text("{}", encoding="utf-8")
    async with serving(tmp_path / "data", "--registry-dir", str(folder)) as up:
        before = {entry.name for entry in up.data.iterdir()}
        revision = (await up.get("/healthz"))["revision"]
        many.write_text(f'{{"servers": [{json.dumps(SERVER)}]}}', encoding="utf-8")
        words = ("up", "--dry-run", "--data-dir", str(up.data), "--registry-file", str(many))
        code, out, err = await run(*words)
        assert (code, out.splitlines()[0], err) == (0, "+ server more", "")
        assert (await up.get("/healthz"))["revision"] == revision
        assert {entry.name for entry in up.data.iterdir()} == before


SERVER: Json = {"server_id": "more", "transport": "stdio", "stdio": {"command": "true"}}


@pytest.mark.requirement("loading:reload:sighup")
async def test_a_hangup_signal_loads_the_files_anew(up: Up):
    (up.data / "demo" / "more.toml").write_text(record("more"), encoding="utf-8")
    up.process.send_signal(signal.SIGHUP)  # this folder is not watched
    await until(partial(knows, up, 2))


#: What is wrong in a folder of records, and the files that make it so.
WRONG = {
    "unknown field": {"a.toml": record("a") + '\n[surprise]\nx = "y"'},
    "invalid": {"b.toml": "server_id = 3"},
    "twice": {"c.toml": record("c"), "d.toml": record("c")},
}


def put(folder: Path, files: Json) -> None:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")


@pytest.mark.requirement("loading:strict")
@pytest.mark.parametrize("files", WRONG.values(), ids=WRONG)
async def test_a_strict_start_refuses_what_is_left_out_otherwise(tmp_path: Path, files: Json):
    put(tmp_path / "mcp.d", files)
    words = ("--port", "0", "--data-dir", str(tmp_path / "data"), "--strict")
    code, out, err = await run("up", "--empty", *words, "--registry-dir", str(tmp_path / "mcp.d"))
    assert (code, out) == (1, "")
    assert ".toml" in err


@pytest.mark.requirement("loading:strict")
async def test_a_start_that_is_not_strict_leaves_out_what_is_wrong(tmp_path: Path):
    put(tmp_path / "mcp.d", dict(ChainMap(*WRONG.values())))
    folder = ("--registry-dir", str(tmp_path / "mcp.d"))
    async with serving(tmp_path / "data", "--empty", *folder) as up:
        assert (await up.get("/healthz"))["status"] == "ok"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--registry-dir", "nowhere"), "nowhere"),
        (("--registry-dir", "broken", "--strict"), "broken.toml"),
        (("--host", "0.0.0.0"), "can be reached from other machines"),  # noqa: S104 - refused
        (("--port", "70000"), "server.port"),
        (("--data-dir", "/dev/null/data"), "/dev/null"),
    ],
)
async def test_a_start_that_cannot_be_is_explained_in_a_line(
    tmp_path: Path, words: tuple[str, ...], said: str
):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "broken.toml").write_text("server_id = 3", encoding="utf-8")
    located = [str(tmp_path / word) if word in {"nowhere", "broken"} else word for word in words]
    code, out, err = await run("up", "--port", "0", "--data-dir", str(tmp_path / "d"), *located)
    assert (code, out) == (1, "")
    assert said in err
    assert "Traceback" not in err


# --- the same parts without a process


@pytest.fixture
async def service() -> AsyncIterator[RegistryService]:
    async with open_registry(MemoryStore()) as service:
        yield service


@pytest.mark.requirement("security:auth:required")
async def test_only_the_committed_routes_need_no_token(service: RegistryService):
    tokens = make_tokens()
    files = Reloading(service, Settings(), None, print)
    async with parts_of(Settings(), Stores(service=service, files=files, tokens=tokens)) as parts:
        routes = all_routes(parts)
        committed = OPEN_ROUTES.read_text(encoding="utf-8").split("\n")[:-1]
        assert open_routes(GuardedApp(routes, tokens)) == tuple(committed)
