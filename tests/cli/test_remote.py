"""The commands with servers that are reached by URL."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bascule.cli.main import run
from bascule.testing import ScriptedHttpServer, ScriptedServer
from bascule.testing.http_dialects import Dialect


async def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run a command beside the server, and return its exit code and what it printed."""
    code = await asyncio.to_thread(run, arguments)
    return code, capsys.readouterr().out


@pytest.mark.requirement("cli:doctor:urls")
@pytest.mark.parametrize("dialect", ["modern", "legacy", "sse"])
async def test_doctor_and_tools_work_with_urls(
    dialect: Dialect, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    script = ScriptedServer(behaviours={"echo": "echo"})
    async with ScriptedHttpServer(script, dialects=(dialect,)) as http:
        record = {
            "server_id": "web",
            "transport": "http",
            "http": {"url": http.url},
            "allowed_tools": ["*"],
        }
        (tmp_path / "web.json").write_text(json.dumps(record), encoding="utf-8")
        where = ("--registry-dir", str(tmp_path))
        code, report = await printed(capsys, "doctor", *where, "--json")
        assert code == 0
        assert '"web"' in report
        code, listed = await printed(capsys, "tools", "list", *where)
        assert (code, "mcp__web__echo" in listed) == (0, True)
        call = ("tools", "call", "web/echo", '{"text": "hello"}')
        assert await printed(capsys, *call, *where) == (0, "hello\n")


async def test_a_server_that_nobody_serves_is_named_by_the_doctor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    async with ScriptedHttpServer(ScriptedServer(behaviours={"echo": "echo"})) as http:
        gone = http.url
    record = {
        "server_id": "web",
        "transport": "http",
        "http": {"url": gone},
        "allowed_tools": ["*"],
    }
    (tmp_path / "web.json").write_text(json.dumps(record), encoding="utf-8")
    code, report = await printed(capsys, "doctor", "--registry-dir", str(tmp_path))
    assert code == 1
    assert "cannot connect" in report


async def test_a_private_address_is_refused_with_the_option_that_allows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    record = {
        "server_id": "web",
        "transport": "http",
        "http": {"url": "http://10.255.255.1/mcp", "insecure": True},
        "allowed_tools": ["*"],
        "budgets": {"connect_timeout_ms": 50},
    }
    (tmp_path / "web.json").write_text(json.dumps(record), encoding="utf-8")
    where = ("doctor", "--registry-dir", str(tmp_path))
    code, report = await printed(capsys, *where)
    assert (code, "--allow-egress 10.255.255.1" in report) == (1, True)
    code, report = await printed(capsys, *where, "--allow-egress", "10.*")
    assert (code, "10.*" in report) == (1, True)  # the rules were given it, and want a network
