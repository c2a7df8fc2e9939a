"""``bascule policy explain``, run as a command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.served import command

EXAMPLES = Path(__file__).parents[2] / "examples"
TASK = {
    "mcp.enabled": "true",
    "mcp.default_server_ids": '["gitlab","fs"]',
    "mcp.allowed_server_ids": '["gitlab","fs","duckduckgo-search"]',
    "mcp.tool_allowlist": '["*"]',
    "mcp.tool_denylist": '["delete_*"]',
}


def bascule(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    done = command(*map(str, arguments), COLUMNS="200")
    return subprocess.CompletedProcess(arguments, done.code, done.out, done.err)


def explain(
    tmp_path: Path, task: Any = TASK, session: Any = None, *more: str
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "task.json").write_text(json.dumps(task), encoding="utf-8")
    arguments = ["--registry-dir", str(EXAMPLES / "mcp.d"), "--task", str(tmp_path / "task.json")]
    if session is not None:
        (tmp_path / "session.json").write_text(json.dumps(session), encoding="utf-8")
        arguments += ["--session", str(tmp_path / "session.json")]
    return bascule("policy", "explain", *arguments, *more)


@pytest.mark.requirement("cli:policy-explain:json")
def test_json_has_servers_tools_dropped_servers_and_warnings(tmp_path: Path) -> None:
    done = explain(tmp_path, TASK, None, "--json", "--tool", "fs/write_file")
    report = json.loads(done.stdout)
    assert done.returncode == 10
    assert report["effective_servers"] == ["gitlab", "fs"]
    rows = {row["name"]: row for row in report["tools"]}
    assert rows["mcp__gitlab__create_issue"]["allowed"] is True
    denied = rows["mcp__gitlab__delete_branch"]
    assert (denied["allowed"], denied["layer"], denied["reason"]) == (False, "task", "task_denied")
    assert rows["mcp__fs__write_file"]["reason"] == "not_in_allowed_tools"
    dropped = report["dropped_servers"][0]
    assert {name: dropped[name] for name in ("server", "layer", "reason")} == {
        "server": "duckduckgo-search",
        "layer": "platform",
        "reason": "unknown_server",
    }
    assert [row["reason"] for row in denied["blocked_by"]] == ["task_denied"]
    assert report["filters"]["gitlab"]["merged"]["deny"] == ["delete_*"]
    assert report["warnings"] == []


def test_a_session_narrows_to_a_smaller_subset(tmp_path: Path) -> None:
    done = explain(tmp_path, TASK, {"mcp.server_ids": ["gitlab"]}, "--json")
    assert json.loads(done.stdout)["effective_servers"] == ["gitlab"]


@pytest.mark.requirement("cli:policy-explain:refused")
def test_a_session_that_asks_for_more_exits_10_with_the_reason(tmp_path: Path) -> None:
    done = explain(tmp_path, TASK, {"mcp.server_ids": ["jira"]}, "--json")
    assert done.returncode == 10
    assert "not_allowed" in done.stderr
    assert "'jira'" in done.stderr
    assert json.loads(done.stdout)["refused"]["reason"] == "not_allowed"


@pytest.mark.requirement("cli:policy-explain")
def test_people_get_a_table_that_names_the_rule(tmp_path: Path) -> None:
    done = explain(tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("effective servers: gitlab, fs\n")
    assert "task tool_denylist 'delete_*'" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.requirement("policy:explain:code")
@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["fs/search_files"], 0),
        (["fs.search_files"], 0),
        (["search_files"], 0),
        (["fs/write_file"], 10),
        (["fs/search_files", "gitlab/delete_branch"], 10),
        (["nowhere/read"], 10),
    ],
)
def test_a_tool_that_is_named_and_denied_is_the_exit_code(
    tmp_path: Path, names: list[str], code: int
) -> None:
    asked = [word for name in names for word in ("--tool", name)]
    assert explain(tmp_path, TASK, None, *asked).returncode == code


@pytest.mark.requirement("policy:explain:layers")
def test_the_filters_and_every_objection_are_printed(tmp_path: Path) -> None:
    limits = {"mcp.tool_allowlist": ["create_*"], "mcp.tool_denylist": ["delete_branch"]}
    done = explain(tmp_path, TASK, limits)
    assert "tools of gitlab: allow " in done.stdout
    assert "session (session) allows create_*; denies delete_branch" in done.stdout
    for reason in ("task_denied", "session_not_allowlisted", "session_denied"):
        assert reason in done.stdout


def test_a_bare_tool_name_is_explained_for_every_server_in_play(tmp_path: Path) -> None:
    done = explain(tmp_path, TASK, None, "--json", "--tool", "search_files")
    rows = {row["name"]: row["allowed"] for row in json.loads(done.stdout)["tools"]}
    assert rows["mcp__fs__search_files"] is True
    assert rows["mcp__gitlab__search_files"] is False


def test_a_full_task_record_is_read_too(tmp_path: Path) -> None:
    task = {"task_id": "review", "mcp": {"enabled": True, "default_server_ids": ["fs"]}}
    done = explain(tmp_path, task, None, "--json")
    assert json.loads(done.stdout)["effective_servers"] == ["fs"]


@pytest.mark.requirement("cli:policy-explain:bad-input")
@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"mcp.enabled": "maybe"}, "mcp.enabled: must be true or false"),
        ({"mcp.enabled": "true", "mcp.default_server_ids": "[1]"}, "mcp.default_server_ids[0]"),
        (
            {"mcp.enabled": "true", "mcp.tool_denylist": "[oops"},
            "mcp.tool_denylist: is not valid JSON",
        ),
    ],
)
def test_a_bad_task_names_the_key_and_exits_1(tmp_path: Path, task: Any, message: str) -> None:
    done = explain(tmp_path, task)
    assert done.returncode == 1
    assert message in done.stderr


def test_a_missing_file_is_said_plainly(tmp_path: Path) -> None:
    done = bascule(
        "policy", "explain", "--registry-dir", EXAMPLES / "mcp.d", "--task", tmp_path / "no.json"
    )
    assert done.returncode == 1
    assert "no.json: cannot be read: No such file or directory" in done.stderr


def test_broken_records_are_warnings_and_strict_refuses_them(tmp_path: Path) -> None:
    registry = tmp_path / "mcp.d"
    registry.mkdir()
    (registry / "a.toml").write_text("server_id = 1", encoding="utf-8")
    (tmp_path / "task.json").write_text(json.dumps(TASK), encoding="utf-8")
    arguments = ("policy", "explain", "--registry-dir", registry, "--task", tmp_path / "task.json")
    assert "a.toml" in bascule(*arguments).stderr
    assert bascule(*arguments).returncode == 0
    assert bascule(*arguments, "--strict").returncode == 1


def test_help_shows_examples_and_a_wrong_usage_exits_2() -> None:
    assert "examples:" in bascule("policy", "explain", "--help").stdout
    assert bascule("policy", "explain").returncode == 2
    assert bascule("--version").stdout.startswith("bascule ")


@pytest.mark.requirement("people:explained")
def test_a_person_of_the_records_is_explained_and_one_without_a_record_refused(tmp_path: Path):
    records = tmp_path / "mcp.d"
    (records / "users").mkdir(parents=True)
    server = {"server_id": "fs", "transport": "stdio", "stdio": {"command": "x"}}
    plain = json.dumps(server | {"allowed_tools": ["read_file", "delete_file"]})
    (records / "fs.json").write_text(plain, encoding="utf-8")
    person = {"user_id": "bob", "tool_denylist": ["delete_*"]}
    (records / "users" / "bob.json").write_text(json.dumps(person), encoding="utf-8")
    task = tmp_path / "task.json"
    task.write_text('{"mcp.enabled": "true", "mcp.default_server_ids": "fs"}', encoding="utf-8")
    words = ("policy", "explain", "--registry-dir", records, "--task", task, "--json")

    rows = {
        row["tool"]: row for row in json.loads(bascule(*words, "--user", "bob").stdout)["tools"]
    }
    assert rows["read_file"]["allowed"] is True
    denied = rows["delete_file"]
    assert (denied["layer"], denied["reason"]) == ("user", "user_denied")
    assert denied["rule"] == "user bob tool_denylist 'delete_*'"
    refused = bascule(*words, "--user", "mallory")
    assert refused.returncode == 10
    assert json.loads(refused.stdout)["refused"]["reason"] == "unknown_user"
