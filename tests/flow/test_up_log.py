"""``bascule up`` says what happens on standard error, and keeps it in the ledger."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.flow.up_process import Json, Up, record, run, serving
from tests.waits import until

SECRET = "correct-horse-battery-staple"
TASK = """
task_id = "job"
[mcp]
enabled = true
default_server_ids = ["notes", "gone"]
tool_denylist = ["delete_*"]
"""


def folder_of(tmp_path: Path) -> Path:
    """Write a server that works, one that cannot start, and a task for both."""
    folder = tmp_path / "mcp.d"
    folder.mkdir()
    broken = record("gone", KEY="${ENV:WATCH_SECRET}").replace(
        'args = ["-m", "bascule.demo.server"]',
        'args = ["-c", "import os, sys; sys.exit(os.environ[\'KEY\'])"]',
    )
    (folder / "gone.toml").write_text(broken, encoding="utf-8")
    (folder / "notes.toml").write_text(
        record("notes").replace('["list_*"]', '["*"]'), encoding="utf-8"
    )
    (folder / "tasks").mkdir()
    (folder / "tasks" / "job.toml").write_text(TASK, encoding="utf-8")
    return folder


async def busy(up: Up) -> str:
    """Do what is to be said; return the token it was done with."""
    token = await up.token("job")
    assert (await up.ask("GET", "/api/v1/tools?token=" + token))[0] == 401
    assert (await up.ask("GET", "/admin/api/mcp/servers", token=token))[0] == 403
    status, answer = await up.ask("GET", "/api/v1/tools", token=token)
    assert (status, bool(answer["warnings"])) == (200, True)
    assert (await up.call(token, "mcp__notes__list_notes"))[0] == 200
    assert (await up.call(token, "mcp__notes__delete_note", name="x"))[0] == 403
    assert (await up.call(token, "mcp__gone__list_all"))[0] == 503
    return token


async def said_by(up: Up) -> str:
    assert up.process.stderr is not None
    assert await up.end() == 0
    async with asyncio.timeout(10):
        return (await up.process.stderr.read()).decode()


@pytest.mark.requirement("observability:log", "observability:log-forms", "observability:log-masked")
async def test_a_log_for_machines_has_what_happened_under_the_requirements_names(tmp_path: Path):
    folder = folder_of(tmp_path)
    (folder / "broken.toml").write_text("server_id = 1\n", encoding="utf-8")
    words = ("--empty", "--registry-dir", str(folder), "--log-format", "json")
    env = {"WATCH_SECRET": SECRET, "BASCULE_LOG_LEVEL": "debug", "BASCULE_LOG_SLOW_CALL_MS": "1"}
    async with serving(tmp_path / "data", *words, **env) as up:
        token = await busy(up)
        text = await said_by(up)
        assert up.said[-1].startswith("Bascule serves at ")
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    assert all({"timestamp", "level", "logger", "message"} <= line.keys() for line in lines)
    said = {(line["level"], line["message"].partition(":")[0]) for line in lines}
    assert {
        ("info", "stopping"),
        ("info", "ended"),
        ("info", "session opened, effective servers"),
        ("warning", "401 unauthenticated for GET /api/v1/tools"),
        ("warning", "403 forbidden for GET /admin/api/mcp/servers"),
        ("warning", "server gone is down"),
    } <= said
    assert any(line["message"].startswith("broken.toml: ") for line in lines)
    assert f"serving at {up.url}" in {line["message"] for line in lines}
    [opened] = [line for line in lines if line.get("event") == "session_opened"]
    assert opened["mcp_effective_servers"] == ["notes", "gone"]
    calls = [line for line in lines if line.get("event") == "call"]
    assert [(c["server_id"], c["tool_name"], c["status"]) for c in calls] == [
        ("notes", "list_notes", "ok"),
        ("notes", "delete_note", "denied"),
        ("gone", "list_all", "failed"),
    ]
    assert [c["level"] for c in calls[:2]] == ["warning", "warning"]
    assert calls[0]["message"].startswith("slow call of notes/list_notes")
    kept = b"".join(path.read_bytes() for path in (tmp_path / "data").glob("ledger*"))
    assert b"list_notes" in kept
    for secret in (SECRET, token, up.admin):
        assert secret not in text
        assert secret.encode() not in kept


@pytest.mark.requirement("audit:file", "audit:session-refused")
async def test_the_ledger_is_private_and_has_the_requirements_names(tmp_path: Path):
    folder, data = folder_of(tmp_path), tmp_path / "data"
    words = ("--empty", "--registry-dir", str(folder))
    async with serving(data, *words, WATCH_SECRET=SECRET) as up:
        await busy(up)
        await up.end()
    files = [*data.glob("ledger*"), *(data / "journal").iterdir()]
    assert data / "ledger.db" in files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    with closing(sqlite3.connect(data / "ledger.db")) as connection:
        bodies = connection.execute("SELECT body FROM events ORDER BY number").fetchall()
    lines = [json.loads(body) for (body,) in bodies]
    [call, *_] = [line for line in lines if line["event"] == "call"]
    names = {"timestamp", "request_id", "session_id", "server_id", "tool_name", "status"}
    assert names <= call.keys()
    assert (call["server_id"], call["tool_name"], call["task_id"]) == ("notes", "list_notes", "job")
    assert call["token_id"].startswith("tok-")


@pytest.mark.requirement("observability:server-status")
async def test_the_status_of_servers_has_the_requirements_words_and_figures(tmp_path: Path):
    words = ("--empty", "--registry-dir", str(folder_of(tmp_path)))
    async with serving(tmp_path / "data", *words, WATCH_SECRET=SECRET) as up:
        await busy(up)

        async def reported() -> Json:
            listed = (await up.get("/admin/api/mcp/servers"))["servers"]
            status = {one["server_id"]: one["status"] for one in listed}
            both = status["notes"]["average_latency_ms"] and status["gone"]["last_error"]
            return status if both else {}

        status = await until(reported)
        table = (await run("servers", "status", "--data-dir", str(up.data)))[1]
    assert (status["notes"]["state"], status["notes"]["health"]) == ("connected", "Connected")
    assert (status["gone"]["health"], status["gone"]["reconnects"]) == ("Down", 0)
    assert status["notes"]["nodes"]["local"]["health"] == "Connected"
    rows = [line.split() for line in table.partition("\n\n")[0].splitlines()]
    assert rows[0][:5] == ["server", "status", "state", "tools", "reconnects"]
    assert {(row[0], row[1]) for row in rows[1:]} == {("notes", "Connected"), ("gone", "Down")}


async def test_a_log_and_a_ledger_can_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BASCULE_LEDGER_ENABLED", "false")  # for the process and for commands
    env = {"WATCH_SECRET": SECRET}
    words = ("--empty", "--registry-dir", str(folder_of(tmp_path)), "--log-level", "off")
    async with serving(tmp_path / "data", *words, **env) as up:
        await busy(up)
        assert await said_by(up) == ""
    assert not list((tmp_path / "data").glob("ledger*"))


@pytest.mark.requirement("observability:log")
async def test_what_a_start_does_by_itself_is_in_the_ledger_and_not_in_the_log(tmp_path: Path):
    async with serving(tmp_path / "data") as up:
        body = {"name": "board", "role": "viewer"}
        assert (await up.ask("POST", "/admin/api/tokens", token=up.admin, body=body))[0] == 201
        text = await said_by(up)
    lines = [line.partition(" INFO ")[2] for line in text.splitlines()]
    assert lines[0].startswith("bascule.up: serving at ")
    assert lines[1].startswith("bascule.act: token board made: viewer, by admin:setup")
    with closing(sqlite3.connect(tmp_path / "data" / "ledger.db")) as connection:
        kinds = {kind for (kind,) in connection.execute("SELECT event FROM events")}
    assert kinds == {"policy_loosened", "token_made"}
