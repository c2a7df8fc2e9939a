"""What was misspelt is named, with what was meant; what is empty or refused says what to type."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bascule.cli.command_line import program
from bascule.cli.table import render_table
from tests.cli.served import Served, command, served

DEMO = ("--", sys.executable, "-m", "bascule.demo.server")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("up")) as up:
        yield up


@pytest.mark.requirement("cli:misspelt")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serverz", "list"), "there is no command 'serverz'; did you mean 'servers'?"),
        (("servers", "lst"), "there is no action 'lst'; did you mean 'list'?"),
        (("tools", "list", "--jsn"), "bascule tools list: error: unrecognized arguments: --jsn; "),
        (("tools", "list", "--jsn"), "did you mean --json?"),
        (("servers", "add", "x", "--alow=*", *DEMO), "did you mean --allow?"),
        (("tokens", "create", "--role", "clint"), "did you mean 'client'?"),
        (("tools", "call", "a/b", "name=welcome"), "did you mean --arg name=welcome?"),
    ],
)
def test_a_word_that_is_none_is_named_with_the_nearest(words: tuple[str, ...], said: str):
    done = command(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.requirement("cli:misspelt")
@pytest.mark.parametrize("group", ["servers", "tasks", "tools", "tokens", "agents"])
def test_a_group_of_commands_alone_says_what_there_is(group: str):
    done = command(group)
    assert done.code == 2
    assert "list" in done.err
    assert f"bascule {group}: error: the following arguments are required: ACTION" in done.err


@pytest.mark.requirement("cli:misspelt")
def test_a_record_that_is_not_there_is_named_with_the_nearest(up: Served):
    for words in (
        ("servers", "get", "nots"),
        ("servers", "allow", "nots", "*"),
        ("servers", "set", "nots", "enabled=true"),
        ("servers", "remove", "nots"),
        ("servers", "adopt", "nots"),
    ):
        done = up(*words)
        assert done.code == 1
        assert "there is no server 'nots'; did you mean 'notes'?" in done.err, words
    assert "there is no task 'dmo'; did you mean 'demo'?" in up("tasks", "get", "dmo").err


@pytest.mark.requirement("cli:misspelt")
def test_a_task_that_is_not_there_is_nobody_elses_fault(up: Served):
    for words in (("tools", "list"), ("tools", "call", "notes/list_notes"), ("chat", "hello")):
        done = up(*words, "--task", "dmo")
        assert done.code == 1
        assert "there is no task 'dmo'; did you mean demo?" in done.err
    place = ("--data-dir", str(up.data))
    done = command("tools", "list", *place, BASCULE_TASK="dmo")
    assert (done.code, "did you mean demo?" in done.err) == (1, True)


@pytest.mark.requirement("cli:next-command")
def test_an_empty_list_of_tools_says_why(up: Served):
    up("servers", "add", "bare", "--allow", "*", *DEMO)
    up("tasks", "add", "reader", "--server", "bare", "--read-only")
    done = up("tools", "list", "--task", "reader")
    assert done.out == "no tools\n"
    assert "the task is read-only and the tool is not classed as read (and 5 more)" in done.err
    assert f"{program()} tools explain bare/" in done.err


@pytest.mark.requirement("cli:next-command")
def test_an_explanation_speaks_of_its_own_server_alone(up: Served):
    up("servers", "add", "away", "--allow", "*", "--", "no-such-program")
    up("tasks", "add", "both", "--server", "notes", "--server", "away")
    task = ("--task", "both")
    assert "warning: away: " in up("tools", "list", *task).err
    assert up("tools", "explain", "notes/list_notes", *task).err == ""
    assert "no-such-program" in up("tools", "explain", "away/x", *task).err
    assert "warning: away: " in up("tools", "explain", "who_knows", *task).err


@pytest.mark.requirement("cli:next-command")
def test_the_next_steps_of_many_servers_stay_short_and_leave_none_out(up: Served, tmp_path: Path):
    names = [f"bulk-{number:02}" for number in range(20)]
    path = tmp_path / "mcp.json"
    path.write_text(
        json.dumps({"mcpServers": {name: {"command": "x"} for name in names}}), encoding="utf-8"
    )
    steps = up("servers", "import", str(path)).err.partition("Next:")[2].splitlines()
    assert len(steps) < 10
    assert all(any(name in step for step in steps) for name in names)
    assert steps[-2].strip().startswith("# likewise: bulk-03, bulk-04")


@pytest.mark.requirement("registry:import:credentials")
def test_a_credential_in_a_header_is_warned_about_as_one_in_a_variable_is(
    up: Served, tmp_path: Path
):
    entry = {"url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer abc"}}
    keyed = {"url": "https://mcp.example.com/mcp", "headers": {"X-Api-Key": "abc"}}
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"far": entry, "keyed": keyed}}), encoding="utf-8")
    done = up("servers", "import", str(path), "--preview")
    assert "far.headers.Authorization: holds a credential as plain text" in done.err
    assert "keyed.headers.X-Api-Key: holds a credential as plain text" in done.err


@pytest.mark.requirement("cli:tables")
def test_a_table_breaks_paths_before_it_breaks_plain_words(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "30")
    path = f"/{'a-long-folder/' * 8}server"
    lines = render_table(("server", "state", "at"), [("notes", "disconnected", path)]).splitlines()
    assert max(map(len, lines)) <= 30
    assert lines[1].startswith("notes   disconnected  /a-long-")
