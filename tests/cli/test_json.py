"""``--json`` on every command: one document on standard output, whatever happens."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bascule.cli.main import build_parser
from tests.cli.served import command

REMOTE = ("servers", "tasks", "profiles", "backends", "users", "rescan")


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Every command that does something."""
    inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not inner:
        yield parser
    for action in inner:
        for child in action.choices.values():
            yield from commands(child)


ALL = list(commands(build_parser()))
HERE = {"bascule servers clean"}  # what a machine keeps is nobody else's business
ASKING = [p for p in ALL if p.prog.split()[1] in REMOTE and p.prog not in HERE]


def words_for(parser: argparse.ArgumentParser, file: Path) -> list[str]:
    """Words that a parser accepts: the fewest."""
    samples = {"FIELD=VALUE": "enabled=false", "FILE": str(file)}
    words: list[str] = []
    for action in parser._actions:
        if action.required and action.option_strings:
            words += [action.option_strings[0], "https://a.example.com/v1"]
        elif not action.option_strings:
            words.append(samples.get(str(action.metavar), "1"))
    return words


@pytest.mark.requirement("cli:json")
@pytest.mark.parametrize("parser", ALL, ids=lambda parser: parser.prog)
def test_every_command_can_print_json(parser: argparse.ArgumentParser):
    options = {name for action in parser._actions for name in action.option_strings}
    assert "--json" in options


@pytest.mark.requirement("cli:json")
@pytest.mark.parametrize("parser", ASKING, ids=lambda parser: parser.prog)
def test_a_failure_is_one_document_too(parser: argparse.ArgumentParser, tmp_path: Path):
    file = tmp_path / "record.json"
    file.write_text('{"mcpServers": {}}' if "import" in parser.prog else "{}", encoding="utf-8")
    words = [*parser.prog.split()[1:], *words_for(parser, file)]
    after = ["--", "true"] if parser.prog == "bascule servers add" else []
    done = command(*words, "--data-dir", str(tmp_path / "none"), "--json", *after)
    assert done.code == 1, done.err
    assert json.loads(done.out)["error"]["code"] == "not_serving"
    assert done.err.startswith("error: nothing serves")
