"""Conditions in CEL: parsed once, failing closed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bascule.model.condition import MAX_CONDITION_LENGTH, Condition, ConditionError

FACTS = {"args": {"path": "/etc/passwd", "n": 3}, "tool": "write_file", "server": "fs"}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("args.path.startsWith('/etc')", True),
        ("args.path.startsWith('/srv')", False),
        ("args.n > 2 && tool == 'write_file'", True),
        ("server in ['gitlab', 'jira']", False),
        ("has(args.missing)", False),
    ],
)
def test_a_condition_answers_from_the_facts(text: str, answer: bool):
    assert Condition.parse(text).holds(FACTS) is answer


@pytest.mark.parametrize("text", ["", "  ", "args.path ==", "((", "a b", "args.path = 1"])
def test_what_is_not_an_expression_is_refused(text: str):
    with pytest.raises(ConditionError):
        Condition.parse(text)


def test_an_unknown_variable_is_refused_with_what_there_is():
    with pytest.raises(ConditionError, match=r"arguments.*args, caller, server, task, tool"):
        Condition.parse("arguments.path == '/etc'")


def test_a_very_long_condition_is_refused():
    with pytest.raises(ConditionError, match="at most"):
        Condition.parse("true || " * MAX_CONDITION_LENGTH + "true")


@pytest.mark.parametrize(
    "text",
    [
        "args.missing == 1",
        "caller == 'alice'",
        "args.path > 1",
        "args.n / 0 == 1",
        "args.path",
        "args.n",
        "args.path.matches('(')",
    ],
)
def test_a_condition_that_cannot_be_answered_raises(text: str):
    condition = Condition.parse(text)
    with pytest.raises(ConditionError):
        condition.holds(FACTS)


@pytest.mark.requirement("approval:policy:lazy-cel")
def test_the_condition_language_is_loaded_only_for_a_condition():
    program = (
        "import sys\n"
        "from bascule.wire.records import decode\n"
        "from bascule.model.server import ServerRecord\n"
        "plain = {'server_id': 'fs', 'transport': 'stdio', 'stdio': {'command': 'x'}}\n"
        "rule = {'tools': ['*'], 'effect': 'deny'}\n"
        "decode(ServerRecord, plain | {'approval_policy': {'rules': [rule]}})\n"
        "before = 'cel' in sys.modules\n"
        "rule['when'] = 'true'\n"
        "decode(ServerRecord, plain | {'approval_policy': {'rules': [rule]}})\n"
        "print(before, 'cel' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=20,
    )
    assert done.stdout.split() == ["False", "True"], done.stderr
