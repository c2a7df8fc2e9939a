"""``bascule tools`` without ``--registry-dir``: at a running process, as a task's client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bascule.auth.token_store import open_tokens
from tests.cli.served import Served, command, served


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("up")) as up:
        yield up


def client_token(data: Path, task: str) -> str:
    async def minted() -> str:
        async with open_tokens(data) as tokens:
            return (await tokens.mint("test", "client", task_id=task)).token

    return asyncio.run(minted())


def test_the_tools_of_the_only_task_are_listed(up: Served):
    listed = up.json("tools", "list")
    assert listed["revision"] == up.revision
    notes = {tool["name"]: tool for tool in listed["tools"]}
    assert notes["mcp__notes__read_note"]["input_schema"]["type"] == "object"
    assert notes["mcp__notes__read_note"]["approval"] is None
    said = up("tools", "list")
    assert (said.code, said.err) == (0, "")
    assert said.out.split()[:3] == ["name", "server", "description"]


def test_a_tool_is_called_and_answers(up: Served):
    outcome = up.json("tools", "call", "notes/read_note", "--arg", "name=welcome")
    assert outcome["ok"]
    said = up("tools", "call", "notes/read_note", "--arg", "name=welcome")
    assert (said.code, said.out.strip()) == (0, outcome["text"].strip())


def test_what_needs_approval_there_is_not_approved_here(up: Served):
    words = ("tools", "call", "notes/delete_note", "--arg", "name=welcome")
    done = up(*words, "--json")
    assert (done.code, done.json["error"]["code"]) == (11, "mcp_approval_required")
    assert done.json["error"]["details"]["approval_id"] in done.json["error"]["message"]
    assert "nobody can use that approval later" in done.err
    assert up(*words, "--yes").code == 2


def test_a_session_is_narrowed_by_server_and_by_its_file(up: Served, tmp_path: Path):
    path = tmp_path / "session.json"
    path.write_text(json.dumps({"mcp.tool_allowlist": ["read_*"]}), encoding="utf-8")
    names = [tool["tool"] for tool in up.json("tools", "list", "--session", str(path))["tools"]]
    assert names == ["read_note"]
    path.write_text(json.dumps({"mcp.enabled": False}), encoding="utf-8")
    assert up.json("tools", "list", "--session", str(path))["tools"] == []
    assert up.json("tools", "list", "--server", "notes")["tools"]


def test_a_tool_is_explained_by_the_process(up: Served):
    allowed = up.json("tools", "explain", "notes/read_note")
    assert allowed["allowed"] is True
    unknown = up("tools", "explain", "notes/read_not")
    assert (unknown.code, "did you mean mcp__notes__read_note" in unknown.err) == (1, True)


def test_with_several_tasks_and_no_default_one_has_to_be_named(up: Served):
    up("tasks", "add", "reader", "--server", "notes", "--read-only")
    try:
        assert up("tools", "list").code == 0
        up("tasks", "default", "--none")
        unsaid = up("tools", "list")
        assert unsaid.code == 1
        assert "known: demo, reader" in unsaid.err
        denied = up("tools", "call", "notes/write_note", "--task", "reader", "--json")
        assert (denied.code, denied.json["error"]["code"]) == (10, "mcp_policy_denied")
    finally:
        up("tasks", "remove", "reader")
        up("tasks", "default", "demo")
    nobody = up("tools", "list", "--task", "nobody")
    assert (nobody.code, "there is no task 'nobody'" in nobody.err) == (1, True)


def test_a_clients_own_token_is_enough(up: Served, tmp_path: Path):
    token = client_token(up.data, "demo")
    words = ("--url", up.url, "--token", token, "--data-dir", str(tmp_path))
    done = command("tools", "list", *words, "--json")
    assert done.code == 0, done.err
    assert done.json["tools"]


def test_where_nothing_serves_both_ways_are_said(tmp_path: Path):
    done = command("tools", "list", "--data-dir", str(tmp_path), "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "not_serving")
    assert "bascule up" in done.err
    assert "--registry-dir" in done.err


def test_files_and_a_process_exclude_each_other(tmp_path: Path):
    both = command("tools", "list", "--registry-dir", str(tmp_path), "--token", "x")
    assert both.code == 2
    assert command("tools", "list", "--environment", "prod").code == 2
