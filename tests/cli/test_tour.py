"""The command as a whole: the tour, what ``--help`` costs, and the reference page."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bascule.cli.command_line import program
from bascule.cli.main import COMMANDS, build_parser

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
HEAVY = ("asyncio", "uvloop", "msgspec", "orjson", "bascule.node", "bascule.policy")


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=28,
        env={**os.environ, "COLUMNS": "200"},
    )


# --- the tour


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tour") / "demo.d"


@pytest.fixture(scope="module")
def walked(kept: Path) -> str:
    done = python("-m", "bascule", "tour", "--keep", str(kept))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_tour_shows_each_promise_with_its_real_output(walked: str) -> None:
    for words in (
        "bascule-notes 1.0.0",
        "mcp__notes__read_note",
        '"total": 1',
        "mcp_policy_denied: notes/write_note",
        "task_read_only",
        "mcp_approval_required",
        '"deleted": true',
        "handle=",
        "conceptual integrity",
    ):
        assert words in walked


def test_a_command_of_the_tour_can_be_typed_again(walked: str) -> None:
    wanted = f"$ {program()} tools list"
    command = next(line for line in walked.splitlines() if line.startswith(wanted))
    environ = {**os.environ, "COLUMNS": "200"}
    typed = shlex.split(command.removeprefix("$ "))
    done = subprocess.run(
        typed,
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=28,
        env=environ,
    )
    assert done.returncode == 0
    assert done.stdout in walked


def test_the_tour_writes_over_nobodys_files(walked: str, kept: Path) -> None:
    assert walked
    assert python("-m", "bascule", "tour", "--keep", str(kept)).returncode == 2


@pytest.mark.requirement("cli:json")
def test_the_tour_is_one_document_for_programs() -> None:
    done = python("-m", "bascule", "tour", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    *steps, last = document["steps"]
    assert document["ok"]
    assert [step["exit_code"] for step in steps] == [0, 0, 0, 10, 10, 10, 0]
    assert all(step["ok"] and step["command"][0] == "bascule" for step in steps)
    assert steps[2]["output"]["structured"]["total"] == 1
    assert steps[5]["output"]["error"]["code"] == "mcp_approval_required"
    assert "conceptual integrity" in last["output"]
    assert last["python"].startswith("def read_the_rest")


def test_make_up_is_bascule_up() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^up: .*\n\t@\$\(BIN\)/python -m bascule up\b", makefile, re.MULTILINE)


# --- what help costs


def test_help_loads_neither_the_node_nor_an_event_loop() -> None:
    program = (
        "import sys\n"
        "from bascule.cli.main import run\n"
        "try:\n"
        "    run(['--help'])\n"
        "except SystemExit:\n"
        f"    found = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "    print('loaded:', found)\n"
    )
    done = python("-c", program)
    assert done.stdout.splitlines()[-1] == "loaded: []"
    assert all(command in done.stdout for command in COMMANDS)


def test_policy_explain_does_without_the_node() -> None:
    records = str(ROOT / "examples" / "mcp.d")
    task = str(ROOT / "examples" / "task.json")
    program = (
        "import sys\n"
        "from bascule.cli.main import run\n"
        f"code = run(['policy', 'explain', '--registry-dir', {records!r}, '--task', {task!r}])\n"
        "print(code, 'bascule.node' in sys.modules, 'asyncio' in sys.modules)\n"
    )
    assert python("-c", program).stdout.splitlines()[-1] == "0 False False"


# --- the reference


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Every command that does something."""
    inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not inner:
        yield parser
    for action in inner:
        for child in action.choices.values():
            yield from parsers(child)


def section(parser: argparse.ArgumentParser) -> str:
    """What the reference says about one command."""
    found = re.search(rf"^## `{parser.prog}\b.*?(?=^## |\Z)", REFERENCE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/cli.md has no section '## `{parser.prog}`'"
    return found[0]


@pytest.mark.parametrize("parser", list(parsers(build_parser())), ids=lambda parser: parser.prog)
def test_the_reference_names_every_command_and_option(parser: argparse.ArgumentParser) -> None:
    text = section(parser)
    for action in parser._actions:
        names = [name for name in action.option_strings if name.startswith("--")]
        missing = [name for name in names if name != "--help" and f"`{name}" not in text]
        assert not missing, f"docs/cli.md, {parser.prog}: {missing}"
        if not action.option_strings:
            assert str(action.metavar) in text


def test_the_reference_invents_nothing() -> None:
    known = {
        name
        for parser in [build_parser(), *parsers(build_parser())]
        for action in parser._actions
        for name in action.option_strings
    }
    assert set(re.findall(r"--[a-z][a-z-]+", REFERENCE)) <= known
    headings = re.findall(r"^## `(bascule [a-z -]*[a-z])", REFERENCE, re.MULTILINE)
    assert headings
    assert set(headings) == {parser.prog for parser in parsers(build_parser())}
