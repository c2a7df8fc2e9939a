"""One thing is changed without retyping a list, and what is missing is named as a command."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bascule.cli.command_line import program
from tests.cli.served import Done, Served, command, process, served

DEMO = ("--", sys.executable, "-m", "bascule.demo.server")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("up")) as up:
        yield up


def named(said: str) -> list[str]:
    """Return the commands that a text names, as a shell would read them."""
    name = program()
    lines = [line.partition("    #")[0] for line in said.splitlines() if name in line]
    return [f"{name} {line.partition(f'{name} ')[2]}" for line in lines]


def type_in(command: str) -> Done:
    """Type a printed command into a shell."""
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=100,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def allowed(up: Served, server: str) -> list[str]:
    return up.json("servers", "get", server)["allowed_tools"]


# --- from nothing to a call


@pytest.mark.requirement("cli:next-command")
def test_what_is_printed_leads_from_a_new_server_to_a_call_of_its_tool(up: Served):
    added = up("servers", "add", "fresh", *DEMO)
    assert (added.code, added.out.split()[:3]) == (0, ["added", "server", "fresh"])
    commands = named(added.err)
    assert [shlex.split(command)[-5:-2] for command in commands] == [
        ["servers", "tools", "fresh"],
        ["allow", "fresh", "*"],
        ["use", "demo", "fresh"],
    ]
    for typed in commands:
        done = type_in(typed)
        assert done.code == 0, done.err
    assert up.json("tools", "call", "fresh/list_notes")["ok"]


@pytest.mark.requirement("cli:next-command")
def test_a_denial_names_the_command_that_lifts_it(up: Served):
    up("servers", "add", "narrow", "--allow", "list_*", *DEMO)
    for lifted in ("tasks use demo narrow", "servers allow narrow read_note"):
        denied = up("tools", "call", "narrow/read_note", "--arg", "name=welcome")
        assert denied.code == 10
        [command] = named(denied.err)
        assert command.startswith(f"{program()} {lifted} ")
        assert named(up("tools", "explain", "narrow/read_note").err) == [command]
        assert type_in(command).code == 0
    assert up.json("tools", "call", "narrow/read_note", "--arg", "name=welcome")["ok"]
    assert up("tools", "call", "narrow/write_note", "--json").code == 10


def test_a_session_that_is_refused_a_server_is_told_how_to_have_it(up: Served):
    up("servers", "add", "outside", "--allow", "*", *DEMO)
    refused = up("tools", "list", "--server", "outside")
    assert refused.code == 10
    [command] = named(refused.err)
    assert type_in(command).code == 0
    assert up.json("tools", "list", "--server", "outside")["tools"]


def test_a_denial_of_files_names_the_field(tmp_path: Path):
    record = {"server_id": "n", "transport": "stdio", "stdio": {"command": "true"}}
    (tmp_path / "n.json").write_text(json.dumps(record), encoding="utf-8")
    denied = command("tools", "call", "n/x", "--registry-dir", str(tmp_path))
    assert denied.code == 10
    assert 'add "x" to allowed_tools in the record of n' in denied.err


# --- allow and deny


@pytest.mark.requirement("cli:servers:allow")
def test_a_pattern_more_or_less_leaves_the_others(up: Served):
    up("servers", "add", "some", "--allow", "list_*", *DEMO)
    more = up.json("servers", "allow", "some", "read_*", "some/search_*", "list_*")
    assert more["server"]["allowed_tools"] == ["list_*", "read_*", "search_*"]
    assert up("servers", "allow", "some", "read_*").code == 0
    assert up.json("servers", "list")["revision"] == more["revision"]
    up("servers", "deny", "some", "read_*", "search_notes")
    assert allowed(up, "some") == ["list_*", "search_*"]
    assert up("servers", "allow", "nobody", "x").code == 1


@pytest.mark.parametrize("spelling", ["{}/{}", "{}.{}", "mcp__{}__{}", "mcp.{}.{}"])
def test_a_tool_is_allowed_and_denied_in_every_spelling(up: Served, spelling: str):
    up("servers", "add", "spelt", *DEMO)
    tool = spelling.format("spelt", "read_note")
    assert up("servers", "allow", "spelt", tool).code == 0
    assert allowed(up, "spelt") == ["read_note"]
    assert up("servers", "deny", "spelt", tool).code == 0
    assert allowed(up, "spelt") == []


@pytest.mark.requirement("cli:servers:allow")
def test_what_is_denied_is_denied_whatever_else_allows_it(up: Served):
    up("servers", "add", "wide", "--allow", "*", "--allow", "delete_note", *DEMO)
    up("tasks", "use", "demo", "wide")
    denied = up("servers", "deny", "wide", "delete_*")
    assert "delete_* is on the platform's denylist now" in denied.err
    assert denied.out.startswith("server wide allows *, but not delete_* (revision ")
    assert allowed(up, "wide") == ["*"]
    verdicts = {
        tool["tool"]: tool["allowed"] for tool in up.json("servers", "tools", "wide")["tools"]
    }
    assert (verdicts["delete_note"], verdicts["read_note"]) == (False, True)
    partly = up("servers", "allow", "wide", "delete_note")
    assert "the platform's denylist still denies some of it" in partly.err
    assert up("servers", "allow", "wide", "delete_*").err.count("denylist") == 0
    verdicts = {
        tool["tool"]: tool["allowed"] for tool in up.json("servers", "tools", "wide")["tools"]
    }
    assert verdicts["delete_note"] is True


@pytest.mark.requirement("cli:servers:allow")
def test_changes_at_the_same_time_are_all_kept(up: Served):
    up("servers", "add", "busy", *DEMO)
    patterns = [f"tool_{number}" for number in range(6)]
    place = ("--data-dir", str(up.data))
    with ThreadPoolExecutor(3) as threads:
        done = list(threads.map(lambda p: process("servers", "allow", "busy", p, *place), patterns))
    assert [one.code for one in done] == [0] * 6, [one.err for one in done]
    assert sorted(allowed(up, "busy")) == patterns


# --- tasks


@pytest.mark.requirement("cli:tasks:use")
def test_a_task_gets_a_server_more_or_less(up: Served):
    words = ("--server", "notes", "--may-use", "docs")
    up("tasks", "add", "job", *words)
    up("servers", "add", "extra", "--allow", "*", *DEMO)
    used = up.json("tasks", "use", "job", "extra")["task"]["mcp"]
    assert used["default_server_ids"] == ["notes", "extra"]
    assert used["allowed_server_ids"] == ["notes", "docs", "extra"]
    dropped = up.json("tasks", "drop", "job", "notes", "docs")["task"]["mcp"]
    assert dropped["default_server_ids"] == dropped["allowed_server_ids"] == ["extra"]
    names = {tool["server"] for tool in up.json("tools", "list", "--task", "job")["tools"]}
    assert names == {"extra"}
    up("tasks", "add", "tagged", "--server-tag", "t")
    refused = up("tasks", "use", "tagged", "extra")
    assert (refused.code, "chooses its servers by tags" in refused.err) == (1, True)
    assert up("tasks", "use", "nobody", "extra").code == 1


def test_a_task_for_a_server_that_is_not_there_warns_at_every_face(up: Served):
    added = up("tasks", "add", "typo", "--server", "note")
    assert "there is no server 'note'; did you mean 'notes'?" in added.err
    for words in (("set", "typo", "mcp.read_only=false", "name=x"), ("use", "typo", "nots")):
        assert "there is no server 'note'" in "".join(up.json("tasks", *words)["warnings"])
    strict = up("tasks", "add", "strict", "--server", "note", "--strict")
    assert (strict.code, "there is no server 'note'" in strict.err) == (1, True)


def test_a_read_only_task_says_when_nothing_is_classed_and_what_servers_claim(up: Served):
    up("servers", "add", "unclassed", "--allow", "*", *DEMO)
    added = up(
        "tasks", "add", "looker", "--server", "unclassed", "--server", "notes", "--read-only"
    )
    assert (added.code, "no tool of unclassed is classed as reading" in added.err) == (0, True)
    assert "of notes" not in added.err
    assert up.json("tools", "list", "--task", "looker", "--server", "unclassed")["tools"] == []
    [command] = named(added.err)
    assert "effects.read=" in command
    assert type_in(command).code == 0
    tools = up.json("tools", "list", "--task", "looker", "--server", "unclassed")["tools"]
    assert {tool["tool"] for tool in tools} >= {"read_note", "list_notes"}
    assert "write_note" not in {tool["tool"] for tool in tools}


# --- the default task


@pytest.mark.requirement("cli:tasks:default")
def test_a_second_task_breaks_no_command_that_names_none(up: Served):
    up("tasks", "add", "second", "--server", "notes", "--allow-tool", "list_*")
    assert up("tasks", "default").out == "demo\n"
    assert len(up.json("tools", "list")["tools"]) > 1
    assert up("chat", "call notes.list_notes with {}").code == 0
    place = ("--data-dir", str(up.data))
    other = command("tools", "list", "--json", *place, BASCULE_TASK="second")
    assert [tool["tool"] for tool in other.json["tools"]] == ["list_notes"]
    assert up.json("tasks", "default", "second") == {"default_task": "second"}
    assert [tool["tool"] for tool in up.json("tools", "list")["tools"]] == ["list_notes"]
    wrong = up("tasks", "default", "secnd")
    assert (wrong.code, "did you mean second?" in wrong.err) == (1, True)
    up("tasks", "default", "demo")


def test_a_default_task_that_is_gone_is_said_to_be(up: Served):
    for task in ("brief", "other"):  # with one task left there would be nothing to choose
        up("tasks", "add", task, "--server", "notes")
    up("tasks", "default", "brief")
    up("tasks", "remove", "brief")
    lost = up("tools", "list")
    assert (lost.code, "the default task brief is gone" in lost.err) == (1, True)
    [command] = named(lost.err.partition(";")[2].partition("; known")[0])
    assert type_in(command).code == 0
    up("tasks", "default", "demo")


# --- import


def written(up: Served, server: str) -> dict[str, Any]:
    """Return what is kept of a server; how it stands is reported when it is known."""
    shown = up.json("servers", "get", server)
    return {name: value for name, value in shown.items() if name != "status"}


@pytest.mark.requirement("registry:import:keeps-policy", "registry:import:changed-fields")
def test_a_file_that_is_imported_again_takes_nothing_away(up: Served, tmp_path: Path):
    path = tmp_path / "mcp.json"
    entry = {"command": sys.executable, "args": ["-m", "bascule.demo.server"]}
    path.write_text(json.dumps({"mcpServers": {"Mine": entry}}), encoding="utf-8")
    first = up("servers", "import", str(path))
    assert first.code == 0
    assert [shlex.split(c)[1:4] for c in named(first.err)][1:] == [
        ["servers", "allow", "mine"],
        ["tasks", "use", "demo"],
    ]
    up("servers", "allow", "mine", "list_*")
    up("servers", "set", "mine", 'effects.read=["list_*"]', 'tags=["t"]')
    before = written(up, "mine")
    again = up("servers", "import", str(path), "--allow", "*")
    assert (again.code, again.out) == (0, "no change\n")
    assert written(up, "mine") == before
    entry["args"] = ["-m", "bascule.demo.server", "--quiet"]
    path.write_text(json.dumps({"mcpServers": {"Mine": entry}}), encoding="utf-8")
    tried, done = (
        up("servers", "import", str(path), "--preview"),
        up("servers", "import", str(path)),
    )
    assert tried.out == done.out
    assert "stdio.args: -m, bascule.demo.server -> " in done.out
    assert allowed(up, "mine") == ["list_*"]


# --- what is printed


def test_tables_fit_eighty_columns_and_json_has_everything(up: Served):
    long = "https://mcp.example.com/a/very/long/path/that/nobody/would/type/in/full/by/hand/mcp"
    up("servers", "add", "far", "--url", long, "--allow", "*", "--allow", "a_rather_long_name_*")
    for words in (("servers", "list"), ("tools", "list"), ("tasks", "list"), ("servers", "status")):
        lines = up(*words).out.splitlines()
        assert lines
        assert max(map(len, lines)) <= 80, max(lines, key=len)
    assert long in json.dumps(up.json("servers", "list"))
    wide = command("servers", "list", "--data-dir", str(up.data), COLUMNS="300")
    assert long in wide.out


@pytest.mark.requirement("cli:short-help")
def test_the_name_alone_is_a_short_help():
    done = process()
    assert (done.code, done.err) == (0, "")
    assert f"{program()} up" in done.out
    assert max(map(len, done.out.splitlines()[-3:])) <= 80
