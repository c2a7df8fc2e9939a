"""Every command that a page shows has the words and options that the program has."""

from __future__ import annotations

import re
import shlex

import pytest

from bascule.cli.main import _parse
from checks.tree import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"^ {4}(?:.*\| )?(?:\.venv/bin/)?bascule (?P<words>.+)$", re.MULTILINE)
#: What a shell takes for itself: a comment, another command, a file.
FOR_THE_SHELL = re.compile(r"\s+(?:# |\|\s|\d?[<>]).*$")
COMMANDS = [
    pytest.param(FOR_THE_SHELL.sub("", found["words"]), id=f"{page.stem}-{found['words'][:40]}")
    for page in PAGES
    for found in COMMAND.finditer(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_of_a_page_can_be_typed(words: str):
    assert callable(_parse(shlex.split(words)).run)


@pytest.mark.parametrize("page", ["approvals", "audit", "secrets", "operating", "registry"])
def test_the_pages_of_the_trail_and_the_secrets_show_commands(page: str):
    assert any(str(one.id).startswith(f"{page}-") for one in COMMANDS)
