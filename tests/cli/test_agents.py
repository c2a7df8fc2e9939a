"""``bascule agents``: servers of agents, on a file and on a process that serves them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bascule.asgi.serve import Serving
from bascule.cli import agents
from bascule.cli.failures import report
from bascule.cli.parser import Parser
from bascule.doors.agents.api import agents_app
from bascule.errors import BasculeError
from bascule.manager import AgentFleet
from tests.asgi.caller import bearer, make_tokens
from tests.cli.served import Done
from tests.manager.agents import BROKEN, entry, put, text_of, write

pytestmark = pytest.mark.requirement("cli:agents")


def command(*words: str) -> Done:
    """Run ``bascule agents`` in this process; what stands after ``--`` is a server's command."""
    parser = Parser(prog="bascule agents")
    agents.fill(parser)
    end = words.index("--") if "--" in words else len(words)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            arguments = parser.parse_args(words[:end])
            arguments.rest = words[end + 1 :]
            code: int = arguments.run(arguments)
        except BasculeError as error:
            code = report(error, as_json="--json" in words)
        except SystemExit as usage:
            code = int(usage.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


# --- on a file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "agents.toml", {"id": "main"}, {"id": "two"}, defaults=[entry("all")])


def own(path: Path, agent: int = 0) -> list[Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))["agents"][agent].get("mcp", [])


def test_servers_are_added_listed_changed_and_removed_in_a_file(path: Path):
    put(path, text_of(path) + "\n# by hand\n")
    file = ("--file", str(path))
    words = ("--env", "LOG=warn", "--include", "get_*", *file, "--", "uvx", "mcp-server-time", "-v")
    assert command("add", "main", "time", *words).code == 0
    assert own(path) == [
        {
            "name": "time",
            "transport": "stdio",
            "command": "uvx",
            "args": ["mcp-server-time", "-v"],
            "env": {"LOG": "warn"},
            "tools": {"include": ["get_*"]},
        }
    ]
    listed = command("list", *file)
    assert [line.split() for line in listed.out.splitlines()] == [
        ["AGENT", "SERVER", "TRANSPORT", "ENABLED", "FROM"],
        ["main", "all", "stdio", "yes", "defaults"],
        ["main", "time", "stdio", "yes", "agent"],
        ["two", "all", "stdio", "yes", "defaults"],
    ]
    assert command("disable", "main", "time", *file).code == 0
    assert own(path)[0]["enabled"] is False
    assert command("enable", "main", "time", *file).code == 0
    assert "enabled" not in own(path)[0]
    assert command("update", "main", "time", "--timeout-ms", "900", *file).code == 0
    assert (own(path)[0]["timeout_ms"], own(path)[0]["command"]) == (900, "uvx")
    assert command("update", "main", "time", *file, "--", "other").code == 0
    assert (own(path)[0]["command"], own(path)[0].get("args")) == ("other", None)
    done = command("remove", "main", "time", "--json", *file)
    assert done.json == {"agent_id": "main", "server_name": "time"}
    assert own(path) == []
    assert text_of(path).endswith("# by hand\n")


def test_a_default_is_added_for_all_and_switched_off_for_one(path: Path):
    file = ("--file", str(path))
    url = ("--url", "https://mcp.example.com/mcp", "--header", "Authorization=Bearer ${TOKEN}")
    assert command("add", "defaults", "docs", *url, *file).code == 0
    assert command("disable", "two", "docs", *file).code == 0
    listed = command("list", "two", "--json", *file).json
    [agent] = listed["agents"]
    assert [(one["name"], one.get("enabled", True)) for one in agent["servers"]] == [
        ("all", True),
        ("docs", False),
    ]
    assert agent["servers"][1]["headers"] == {"Authorization": "Bearer ${TOKEN}"}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("remove", "main", "all"), 1, "comes from [[defaults.mcp]]"),
        (("remove", "main", "missing"), 1, "has no server 'missing'"),
        (("enable", "nobody", "all"), 1, "no agent 'nobody'"),
        (("add", "main", "all", "--url", "https://x.example"), 1, "already"),
        (("add", "main", "n", "--url", "nonsense"), 1, "url:"),
        (("add", "main", "n"), 2, "a command after --, or --url"),
        (("add", "main", "n", "--url", "https://x.example", "--", "x"), 2, "one of the two"),
        (("update", "main", "all"), 2, "say what to change"),
        (("list", "nobody"), 2, "no agent 'nobody'"),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(
    path: Path, words: tuple[str, ...], code: int, said: str
):
    before = text_of(path)
    end = words.index("--") if "--" in words else len(words)
    done = command(*words[:end], "--file", str(path), *words[end:])
    assert done.code == code
    assert said in done.err
    assert text_of(path) == before


def test_a_broken_file_is_told_problem_by_problem(path: Path):
    put(path, "[[mcp]]\n[[agents]]\n")
    done = command("list", "--file", str(path))
    assert done.code == 1
    assert len(done.err.splitlines()) == 2
    assert "write [[defaults.mcp]]" in done.err


# --- on a process


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[str, ...]]:
    """A process that serves agents, as options that lead to it."""
    broken = {"name": BROKEN.name, "transport": "stdio", "command": BROKEN.command}
    path = write(tmp_path / "agents.toml", {"id": "main", "mcp": [entry("a"), broken]})
    tokens = make_tokens()
    token = (await bearer(tokens))["Authorization"].removeprefix("Bearer ")
    async with (
        AgentFleet(path) as fleet,
        Serving(agents_app(fleet, tokens), "127.0.0.1", 0) as server,
    ):
        data = ("--data-dir", str(tmp_path / "data"))
        yield ("--api-url", server.url, "--token", token, *data)


async def ask(*words: str) -> Done:
    async with asyncio.timeout(20):
        return await asyncio.to_thread(command, *words)


async def test_a_process_is_asked_how_servers_stand(
    served: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")
    listed = await ask("list", *served)
    assert listed.out.splitlines()[1].split() == ["main", "2", "1", "1"]
    told = await ask("status", *served)
    assert [line.split()[:5] for line in told.out.splitlines()[1:]] == [
        ["main", "a", "Connected", "connected", "1"],
        ["main", "broken", "Down", "down", "0"],
    ]
    assert "command not found" in told.out
    plain = await ask("status", "main", "--json", *served)
    assert [one["state"] for one in plain.json["servers"]] == ["connected", "down"]


async def test_a_process_is_told_to_change_its_servers(served: tuple[str, ...]):
    given = entry("n")
    words = (given["command"], *given["args"])
    made = await ask("add", "main", "n", "--env", "KEY=value", "--json", *served, "--", *words)
    assert made.code == 0, made.err
    assert made.json["server"]["state"] == "connected"
    assert made.json["server"]["config"]["env"] == {"KEY": "***"}
    off = await ask("disable", "main", "n", *served)
    assert off.out.splitlines()[1].split()[:4] == ["main", "n", "Down", "disabled"]
    changed = await ask("update", "main", "n", "--exclude", "x", "--json", *served)
    assert changed.json["server"]["config"]["tools"] == {"exclude": ["x"]}
    assert (await ask("remove", "main", "n", *served)).code == 0
    assert "n" not in (await ask("status", *served)).out.split()


async def test_reconnecting_tells_what_came_of_it(served: tuple[str, ...]):
    well = await ask("reconnect", "main", "a", "--json", *served)
    assert (well.code, well.json["server"]["state"]) == (0, "connected")
    ill = await ask("reconnect", "main", "broken", "--json", *served)
    assert (ill.code, json.loads(ill.out)["error"]["code"]) == (1, "mcp_unavailable")
    assert "command not found" in ill.err
    by_name = await ask("reconnect", "a", "--json", *served)
    assert (by_name.code, by_name.json["agent_id"]) == (0, "main")
    assert by_name.json["server"]["health"] == "Connected"
    unknown = await ask("reconnect", "c", *served)
    assert (unknown.code, "no agent has a server 'c'" in unknown.err) == (1, True)
    missing = await ask("reconnect", "nobody", "a", *served)
    assert (missing.code, "no agent" in missing.err) == (1, True)
