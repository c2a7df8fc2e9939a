"""``bascule up`` as a real process: from the first start to the last trace of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from bascule.asgi.guard import GuardedApp, open_routes
from bascule.clock import SYSTEM_CLOCK
from bascule.control.registry.memory_store import MemoryStore
from bascule.control.registry.service import RegistryService, open_registry
from bascule.doors.tools.sessions import Sessions
from bascule.node.assembly import Bridge
from bascule.node.sync.follower import Follower
from bascule.roots.local import LocalSource
from bascule.roots.reloading import Reloading
from bascule.roots.settings import McpSettings, Settings
from bascule.roots.up import all_routes
from tests.asgi.caller import Answer, ask, bearer, make_tokens

OPEN_ROUTES = Path(__file__).parents[1] / "doors" / "open-routes.txt"
Json = dict[str, Any]


def record(server_id: str, **env: str) -> str:
    """Make the file of a record that starts the demo server under another name."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in env.items()]
    return "\n".join(
        [
            f'server_id = "{server_id}"',
            'transport = "stdio"',
            'allowed_tools = ["list_*"]',
            "[stdio]",
            f"command = {json.dumps(sys.executable)}",
            'args = ["-m", "bascule.demo.server"]',
            "[stdio.env]",
            *lines,
        ]
    )


async def start(*words: str, **env: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bascule",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **env},
    )


async def run(*words: str) -> tuple[int | None, str, str]:
    """Run a command that ends by itself."""
    process = await start(*words)
    try:
        async with asyncio.timeout(20):
            out, err = await process.communicate()
    except BaseException:
        process.kill()
        raise
    return process.returncode, out.decode(), err.decode()


class Up:
    """A process that serves, and a client for it."""

    def __init__(self, process: asyncio.subprocess.Process, data: Path, said: list[str]) -> None:
        self.process = process
        self.data = data
        self.said = said
        self.url = said[-1].rpartition(" ")[2]
        self.admin = (data / "setup-token").read_text(encoding="utf-8").strip()
        self.http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15))

    async def ask(
        self, method: str, path: str, *, token: str | None = None, body: Any = None
    ) -> tuple[int, Json]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with self.http.request(method, self.url + path, headers=headers, json=body) as answer:
            return answer.status, await answer.json()

    async def get(self, path: str) -> Json:
        status, answer = await self.ask("GET", path, token=self.admin)
        assert status == 200, answer
        return answer

    async def token(self, task: str) -> str:
        words = ("tokens", "create", "--role", "client", "--task", task, "--json")
        code, out, err = await run(*words, "--data-dir", str(self.data))
        assert code == 0, err
        return json.loads(out)["token"]

    async def call(self, token: str, tool: str, /, **arguments: Any) -> tuple[int, Json]:
        body = {"name": tool, "arguments": arguments}
        return await self.ask("POST", "/api/v1/tools/call", token=token, body=body)

    async def end(self, order: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(order)
        async with asyncio.timeout(15):
            return await self.process.wait()


@asynccontextmanager
async def serving(data: Path, *words: str, **env: str) -> AsyncGenerator[Up]:
    process = await start("up", "--port", "0", "--data-dir", str(data), *words, **env)
    said: list[str] = []
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(20):
            while not said or not said[-1].startswith("Bascule serves at"):
                line = await process.stdout.readline()
                assert line, (await process.stderr.read()).decode()
                said.append(line.decode().rstrip())
        up = Up(process, data, said)
        try:
            yield up
        finally:
            await up.http.close()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[Up]:
    async with serving(tmp_path / "data") as up:
        yield up


@pytest.mark.requirement("cli:up", "cli:tokens")
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


async def test_the_setup_token_is_printed_once_and_kept_privately(up: Up):
    assert up.said[0] == f"setup token: {up.admin}"
    assert stat.S_IMODE((up.data / "setup-token").stat().st_mode) == 0o600
    assert stat.S_IMODE(up.data.stat().st_mode) == 0o700
    assert await up.end(signal.SIGINT) == 0
    async with serving(up.data) as again:
        assert len(again.said) == 1
        assert (await again.get("/healthz"))["revision"] == 1
        assert await again.end() == 0


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


async def test_the_node_inside_answers_for_the_registry(up: Up):
    status, report = await up.ask("POST", "/admin/api/mcp/servers/notes/test", token=up.admin)
    assert (status, report["ok"]) == (200, True)
    assert "read_note" in report["tools"]
    preview = await up.get("/admin/api/mcp/servers/notes/tools")
    assert "mcp__notes__read_note" in json.dumps(preview)
    async with asyncio.timeout(10):
        while (await up.get("/api/v1/mcp/servers/notes"))["status"]["state"] != "connected":
            await SYSTEM_CLOCK.sleep(0.05)


@pytest.mark.requirement("observability:metrics-endpoint")
async def test_metrics_are_for_those_who_may_read_them(up: Up):
    async with up.http.get(f"{up.url}/metrics") as answer:
        assert answer.status == 401
    headers = {"Authorization": f"Bearer {up.admin}"}
    async with up.http.get(f"{up.url}/metrics", headers=headers) as answer:
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


async def test_a_data_directory_is_served_by_one_process(up: Up):
    code, _, err = await run("up", "--port", "0", "--data-dir", str(up.data))
    assert code == 1
    assert "is served by another process" in err
    assert (await up.get("/healthz"))["status"] == "ok"
    assert (up.data / "url").read_text(encoding="utf-8").strip() == up.url


async def test_the_demo_can_be_left_out_afterwards(up: Up):
    assert (await up.get("/healthz"))["servers"] == {"disconnected": 1}
    await up.end()
    async with serving(up.data, "--empty") as again:
        assert (await again.get("/healthz"))["servers"] == {}


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


@pytest.mark.requirement("loading:reload:sighup")
async def test_a_hangup_signal_loads_the_files_anew(up: Up):
    (up.data / "demo" / "more.toml").write_text(record("more"), encoding="utf-8")
    up.process.send_signal(signal.SIGHUP)  # this folder is read at no other time
    async with asyncio.timeout(10):
        while (await up.get("/healthz"))["servers"] != {"disconnected": 2}:
            await SYSTEM_CLOCK.sleep(0.02)


@pytest.mark.requirement("loading:strict")
@pytest.mark.parametrize(
    "files",
    [
        {"a.toml": record("a") + '\n[surprise]\nx = "y"'},
        {"a.toml": "server_id = 3"},
        {"a.toml": record("a"), "b.toml": record("a")},
    ],
    ids=["unknown field", "invalid", "twice"],
)
async def test_a_strict_start_refuses_what_is_left_out_otherwise(
    tmp_path: Path, files: dict[str, str]
):
    folder = tmp_path / "mcp.d"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    words = ("--port", "0", "--data-dir", str(tmp_path / "data"), "--registry-dir", str(folder))
    code, out, err = await run("up", "--empty", *words, "--strict")
    assert (code, out) == (1, "")
    assert ".toml" in err
    async with serving(tmp_path / "data", "--empty", *words[4:]) as up:
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
    async with Bridge.open(service.snapshot()) as bridge, Sessions(bridge, tokens) as sessions:
        follower = Follower(LocalSource(service, SYSTEM_CLOCK), bridge)
        routes = all_routes(service, files, bridge, sessions, follower)
        committed = OPEN_ROUTES.read_text(encoding="utf-8").split("\n")[:-1]
        assert open_routes(GuardedApp(routes, tokens)) == tuple(committed)


async def test_a_rescan_can_be_asked_for_and_tried_first(service: RegistryService, tmp_path: Path):
    (tmp_path / "a.toml").write_text(record("a"), encoding="utf-8")
    settings = Settings(mcp=McpSettings(registry_dir=str(tmp_path)))
    tokens = make_tokens()
    app = GuardedApp(Reloading(service, settings, None, print).routes(), tokens)
    admin = await bearer(tokens)

    async def rescan(query: bytes) -> Answer:
        async def queried(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "query_string": query}, receive, send)

        return await ask(queried, "POST", "/admin/api/mcp/rescan", admin)

    tried = (await rescan(b"dry_run=true")).json
    assert (tried["changed"], tried["revision"]) == (False, 0)
    assert "server a" in tried["diff"][0]
    done = (await rescan(b"")).json
    assert (done["changed"], done["revision"]) == (True, 1)
    assert (await rescan(b"dry_run=perhaps")).status == 400
    assert (await ask(app, "POST", "/admin/api/mcp/rescan")).status == 401


async def test_an_order_to_reload_loads_and_a_bad_load_is_told(
    service: RegistryService, tmp_path: Path
):
    told: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()
    settings = Settings(mcp=McpSettings(registry_dir=str(tmp_path)))
    files = Reloading(service, settings, None, lambda said: told.put_nowait(tuple(said)))
    asked = asyncio.Event()
    loading = asyncio.create_task(files.on_order(asked))
    async with asyncio.timeout(5):
        (tmp_path / "a.toml").write_text(record("a"), encoding="utf-8")
        asked.set()
        assert await told.get() == ()
        assert set(service.snapshot().servers) == {"a"}
        (tmp_path / "b.toml").write_text("server_id = 3", encoding="utf-8")
        asked.set()
        [problem] = await told.get()
        assert "b.toml" in problem
        assert set(service.snapshot().servers) == {"a"}
    loading.cancel()
    await asyncio.wait([loading])
