"""``bascule tools list``, ``call`` and ``explain``, run as commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bascule.testing import ScriptedServer, do, tool
from tests.cli.served import command
from tests.cli.terminal import Terminal

OUTCOME = {
    "ok", "text", "structured", "content", "error", "truncated", "request_id", "revision",
    "warnings",
}  # fmt: skip
ESCAPE, OVERRIDE = "\x1b[2J", "\u202e"


class Registry:
    """A directory of records, and the command that works on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.mkdir()

    def add(self, server_id: str, server: ScriptedServer | None = None, **fields: Any) -> None:
        demo = {"command": sys.executable, "args": ["-m", "bascule.demo.server"]}
        record = {
            "server_id": server_id,
            "transport": "stdio",
            "allowed_tools": ["*"],
            "stdio": demo if server is None else server.stdio,
            **fields,
        }
        (self.path / f"{server_id}.json").write_text(json.dumps(record), encoding="utf-8")

    def command(self, *words: str | Path) -> list[str]:
        tools = [sys.executable, "-m", "bascule", "tools", *map(str, words)]
        return [*tools, "--registry-dir", str(self.path)]

    def __call__(self, *words: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
        typed = self.command(*words)
        done = command(*typed[3:], given=given)
        return subprocess.CompletedProcess(typed, done.code, done.out, done.err)

    def json(self, *words: str | Path) -> Any:
        return json.loads(self(*words, "--json").stdout)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "mcp.d")


@pytest.fixture
def notes(registry: Registry) -> Registry:
    registry.add(
        "notes",
        effects={"read": ["list_*", "read_*"]},
        approval_policy={"per_tool": {"delete_*": "always"}},
    )
    return registry


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


# --- list


@pytest.mark.requirement("cli:tools")
def test_list_shows_effect_approval_and_description(notes: Registry) -> None:
    done = notes("list")
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert done.returncode == 0
    assert rows["mcp__notes__read_note"][:4] == ["notes", "read", "none", "Read"]
    assert rows["mcp__notes__delete_note"][:3] == ["notes", "write", "required"]
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_list_in_json_carries_the_schemas(notes: Registry) -> None:
    found = notes.json("list")
    row = next(row for row in found["tools"] if row["tool"] == "read_note")
    assert (row["name"], row["effect"], row["approval"]) == (
        "mcp__notes__read_note",
        "read",
        "none",
    )
    assert row["input_schema"]["required"] == ["name"]
    assert (found["revision"], found["warnings"]) == (1, [])


def test_a_server_that_is_down_is_a_warning_and_the_others_are_listed(notes: Registry) -> None:
    notes.add("down", stdio={"command": "/no/such/program"})
    done = notes("list")
    assert done.returncode == 0
    assert "mcp__notes__read_note" in done.stdout
    assert "warning: down: unavailable: " in done.stderr
    assert "/no/such/program" in done.stderr


def test_a_broken_record_and_one_that_allows_nothing_are_warnings(notes: Registry) -> None:
    (notes.path / "broken.toml").write_text("server_id = 1", encoding="utf-8")
    notes.add("closed", allowed_tools=[])
    done = notes("list")
    assert done.returncode == 0
    assert "broken.toml" in done.stderr
    assert "closed: denied at the platform layer" in done.stderr


def test_only_the_servers_named_are_used(notes: Registry) -> None:
    notes.add("other", ScriptedServer())
    assert {row["server"] for row in notes.json("list")["tools"]} == {"notes", "other"}
    found = notes.json("list", "--server", "other")
    assert [row["name"] for row in found["tools"]] == ["mcp__other__echo"]


def test_approval_that_depends_on_the_arguments_says_so(registry: Registry) -> None:
    rule = {"tools": ["echo"], "when": "args.text == 'x'", "effect": "require_approval"}
    registry.add("a", ScriptedServer(), approval_policy={"default": "policy", "rules": [rule]})
    assert registry.json("list")["tools"][0]["approval"] == "by arguments"


def test_a_task_and_a_session_narrow_the_list(notes: Registry, tmp_path: Path) -> None:
    task = write(tmp_path / "task.json", {"mcp.enabled": True, "mcp.default_server_ids": ["notes"]})
    session = write(tmp_path / "session.json", {"mcp.tool_allowlist": ["read_*"]})
    found = notes.json("list", "--task", task, "--session", session)
    assert [row["tool"] for row in found["tools"]] == ["read_note"]


# --- call


@pytest.mark.requirement("cli:tools")
def test_call_prints_the_tools_text(notes: Registry) -> None:
    done = notes("call", "mcp__notes__read_note", "--arg", "name=drawbridge")
    assert done.returncode == 0
    assert "lowered for those who may cross" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("form", ["text", "file", "stdin"])
def test_arguments_come_as_json_from_a_file_or_from_standard_input(
    notes: Registry, tmp_path: Path, form: str
) -> None:
    text = json.dumps({"name": "drawbridge"})
    path = write(tmp_path / "arguments.json", {"name": "drawbridge"})
    word = {"text": text, "file": f"@{path}", "stdin": "-"}[form]
    done = notes("call", "notes/read_note", word, given=text)
    assert (done.returncode, "counterweight" in done.stdout) == (0, True)


def test_values_of_arg_are_json_where_they_are_json_and_text_elsewhere(registry: Registry) -> None:
    registry.add("a", ScriptedServer(behaviours={"say": "structured"}))
    words = ["--arg", "n=7", "--arg", "s=seven", "--arg", 'q="7"', "--arg", "e=", "--arg", "f=a=b"]
    found = registry.json("call", "a/say", '{"n": 1, "kept": [true]}', *words)
    expected = {"n": 7, "kept": [True], "s": "seven", "q": "7", "e": "", "f": "a=b"}
    assert found["structured"] == expected


def test_json_has_the_same_fields_whatever_came_of_the_call(notes: Registry) -> None:
    good = notes.json("call", "notes/list_notes")
    bad = notes.json("call", "notes/read_note", "--arg", "name=nope")
    assert good.keys() == bad.keys() == OUTCOME
    assert (good["ok"], good["error"], good["revision"]) == (True, None, 1)
    assert (bad["ok"], bad["error"]["code"]) == (False, "mcp_tool_error")


def test_a_tool_that_fails_exits_1_with_code_and_message(notes: Registry) -> None:
    done = notes("call", "notes/read_note", "--arg", "name=nope")
    assert done.returncode == 1
    assert done.stderr.startswith("mcp_tool_error: there is no note 'nope'")


def test_what_a_task_denies_exits_10_with_the_rule(notes: Registry, tmp_path: Path) -> None:
    config = {"mcp.enabled": True, "mcp.default_server_ids": ["notes"], "mcp.read_only": True}
    task = write(tmp_path / "task.json", config)
    done = notes("call", "notes/write_note", '{"name": "a", "text": "b"}', "--task", task)
    assert done.returncode == 10
    assert done.stderr.startswith("mcp_policy_denied: notes/write_note: denied at the task layer")


def test_a_session_outside_its_task_is_refused_with_10(notes: Registry, tmp_path: Path) -> None:
    task = write(tmp_path / "task.json", {"mcp.enabled": True, "mcp.allowed_server_ids": []})
    done = notes("call", "notes/list_notes", "--task", task, "--server", "notes", "--json")
    assert done.returncode == 10
    assert json.loads(done.stdout)["refused"]["reason"] == "not_allowed"


def test_what_needs_approval_is_refused_where_nobody_can_be_asked(notes: Registry) -> None:
    words = ("call", "notes/delete_note", "--arg", "name=shopping")
    refused, approved = notes(*words), notes(*words, "--yes")
    assert refused.returncode == 10
    assert refused.stderr.startswith("mcp_approval_required: delete_note needs approval")
    assert "--yes" in refused.stderr
    assert approved.returncode == 0
    assert '"deleted": true' in approved.stdout


def test_an_output_over_its_cap_is_cut_and_says_so(notes: Registry) -> None:
    words = ("call", "notes/read_note", "--arg", "name=welcome", "--max-output-bytes", "90")
    done, found = notes(*words), notes.json(*words)
    assert done.returncode == 0
    assert len(done.stdout.strip()) <= 90
    assert (found["ok"], found["error"]["code"]) == (True, "mcp_output_too_large")
    assert done.stderr.startswith("mcp_output_too_large: ")
    assert found["truncated"]["total"] > found["truncated"]["shown"]
    assert found["truncated"]["handle"]


def test_a_call_gives_up_at_its_timeout(registry: Registry) -> None:
    registry.add("a", ScriptedServer(behaviours={"wait": "never"}))
    done = registry("call", "a/wait", "--timeout", "0.5")
    assert (done.returncode, done.stderr.split(":")[0]) == (1, "mcp_timeout")


@pytest.mark.requirement("names:unknown:told")
@pytest.mark.parametrize(
    "name", ["notes/read_not", "notes.read_not", "read_not", "mcp__notes__raed_note"]
)
def test_an_unknown_tool_gets_the_nearest_names(notes: Registry, name: str) -> None:
    done = notes("call", name)
    assert done.returncode == 1
    assert done.stderr.startswith("mcp_invalid_arguments: ")
    assert "did you mean mcp__notes__read_note" in done.stderr
    error = json.loads(notes("call", name, "--json").stdout)["error"]
    assert (error["code"], error["details"]["reason"]) == ("mcp_invalid_arguments", "unknown_tool")


@pytest.mark.requirement("names:unknown:told")
def test_a_slip_on_a_server_that_allows_little_is_no_denial(notes: Registry) -> None:
    notes.add("notes", allowed_tools=["list_*"])
    assert notes("call", "notes.lst_notes").stderr.startswith("mcp_invalid_arguments: ")
    assert notes("call", "notes.delete_note").returncode == 10


@pytest.mark.requirement("names:spellings")
@pytest.mark.parametrize(
    "name",
    ["notes.list_notes", "notes/list_notes", "mcp.notes.list_notes", "list_notes"],
)
def test_every_spelling_calls_and_explains_the_tool(notes: Registry, name: str) -> None:
    assert notes("call", name).returncode == 0
    assert notes("explain", name).returncode == 0


def test_a_servers_words_cannot_repaint_the_terminal(registry: Registry) -> None:
    listed = [tool("echo", description=f"clean{ESCAPE}{OVERRIDE} me\nnow")]
    answer = {"content": [{"type": "text", "text": f"a\rb{ESCAPE}{OVERRIDE}"}]}
    behaviour = do("fixed", result=answer)
    registry.add("a", ScriptedServer(tools=listed, behaviours={"echo": behaviour}))
    shown = registry("list").stdout + registry("call", "a/echo").stdout
    assert not {"\x1b", "\r", OVERRIDE} & set(shown)
    assert "clean\\x1b[2J\\u202e me now" in shown
    assert "a\\rb\\x1b[2J" in shown


# --- wrong usage


def test_a_directory_without_servers_says_what_to_do(registry: Registry) -> None:
    done = registry("list")
    assert done.returncode == 1
    assert "there is no server record" in done.stderr
    assert "bascule tour" in done.stderr


def test_servers_that_are_all_disabled_are_said_to_be(notes: Registry) -> None:
    notes.add("notes", enabled=False)
    done = notes("list")
    assert (done.returncode, "enabled = false" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "--server", "nots"], "no server 'nots'"),
        (["call", "notes/list_notes", "{"], "ARGS: "),
        (["call", "notes/list_notes", "[1]"], "must be a JSON object"),
        (["call", "notes/list_notes", '{"a": 1, "a": 2}'], "ARGS: "),
        (["call", "notes/list_notes", "@/no/such/file"], "ARGS: "),
        (["call", "notes/list_notes", "--arg", "name"], "must be KEY=VALUE"),
        (["call", "notes/list_notes", "--timeout", "0"], "more than 0"),
        (["call", "notes/list_notes", "--max-output-bytes", "0"], "1 or more"),
        (["call", "notes/list_notes", "--yes", "--no-input"], "not allowed with"),
    ],
)
def test_wrong_usage_exits_2_and_names_the_mistake(
    notes: Registry, words: list[str], message: str
) -> None:
    done = notes(*words)
    assert done.returncode == 2
    assert message in done.stderr


def test_servers_are_chosen_in_one_place_only(notes: Registry, tmp_path: Path) -> None:
    session = write(tmp_path / "session.json", {"mcp.server_ids": ["notes"]})
    done = notes("list", "--server", "notes", "--session", session)
    assert (done.returncode, "give one" in done.stderr) == (2, True)


# --- explain


@pytest.mark.requirement("cli:tools", "policy:explain:code")
def test_explain_prints_layer_reason_and_rule(notes: Registry) -> None:
    notes.add("notes", allowed_tools=["read_*"])
    done = notes("explain", "notes/delete_note")
    assert done.returncode == 10
    assert "notes/delete_note: denied" in done.stdout
    assert "merged  allow read_*; deny nothing" in done.stdout
    assert "not_in_allowed_tools" in done.stdout
    found = notes.json("explain", "notes/delete_note")
    assert (found["allowed"], found["layer"]) == (False, "platform")
    assert found["reason"] == "not_in_allowed_tools"


def test_explain_knows_which_tools_there_really_are(notes: Registry) -> None:
    assert notes.json("explain", "notes/delete_note")["notes"] == [
        "write tool; approval required (approval_policy is 'always')"
    ]
    done = notes("explain", "notes/delete_notes")
    assert done.returncode == 1
    assert "unknown_tool" in done.stdout
    assert "did you mean mcp__notes__delete_note" in done.stderr


# --- on a terminal


@pytest.mark.parametrize(
    ("answer", "code", "word"),
    [("y", 0, '"deleted": true'), ("n", 10, "mcp_approval_denied"), ("", 10, "mcp_approval_")],
)
def test_a_person_at_a_terminal_is_asked(
    notes: Registry, answer: str, code: int, word: str
) -> None:
    arguments = json.dumps({"name": "shopping"})
    terminal = Terminal(notes.command("call", "notes/delete_note", arguments))
    terminal.until("[y/N]")
    os.write(terminal.ours, f"{answer}\n".encode())
    assert terminal.finish() == code
    assert word in terminal.shown
    assert "server     notes" in terminal.shown
    assert 'arguments  {"name":"shopping"}' in terminal.shown


def test_no_input_means_that_nobody_is_asked(notes: Registry) -> None:
    words = ("call", "notes/delete_note", "--arg", "name=shopping", "--no-input")
    terminal = Terminal(notes.command(*words))
    assert terminal.finish() == 10
    assert "mcp_approval_required" in terminal.shown


def test_progress_is_shown_in_place(registry: Registry) -> None:
    behaviour = do("progress", count=3, then="never")
    registry.add("a", ScriptedServer(behaviours={"work": behaviour}))
    terminal = Terminal(registry.command("call", "a/work", "--timeout", "2"))
    terminal.until("3 of 3")
    assert terminal.finish() == 1
    assert "\r\x1b[K" in terminal.shown


def test_an_interrupt_ends_a_wait(registry: Registry) -> None:
    registry.add("a", ScriptedServer(behaviours={"wait": "never"}))
    terminal = Terminal(registry.command("call", "a/wait"))
    terminal.until("calling a/wait")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.finish() == 130


def test_colour_is_for_terminals_and_no_color_is_honoured(notes: Registry) -> None:
    coloured, plain = Terminal(notes.command("list")), Terminal(notes.command("list"), NO_COLOR="1")
    assert (coloured.finish(), plain.finish()) == (0, 0)
    assert "\x1b[32mread" in coloured.shown
    assert "\x1b[32m" not in plain.shown


def test_descriptions_are_cut_to_the_terminal(registry: Registry) -> None:
    registry.add("a", ScriptedServer(tools=[tool("echo", description="long " * 100)]))
    terminal = Terminal(registry.command("list"), NO_COLOR="1")
    terminal.finish()
    assert max(map(len, terminal.shown.splitlines())) <= 100
    assert "…" in terminal.shown
