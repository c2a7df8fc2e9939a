"""The functions that the tour names exist, and each fits on a screen."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tour-of-the-code.md"
LINK = re.compile(r"\[`([A-Za-z_.]+)`\]\((\.\./src/[a-z_/.]+\.py)\)")
SCREEN = 60

NAMED = LINK.findall(PAGE.read_text("utf-8"))


def function(name: str, source: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    body = ast.parse(source).body
    *owners, last = name.split(".")
    for owner in owners:
        (found,) = [one for one in body if isinstance(one, ast.ClassDef) and one.name == owner]
        body = found.body
    functions = (one for one in body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    return next((one for one in functions if one.name == last), None)


@pytest.mark.parametrize(("name", "path"), NAMED, ids=[name for name, _ in NAMED])
def test_a_function_of_the_tour_is_there_and_fits_on_a_screen(name: str, path: str):
    found = function(name, (PAGE.parent / path).read_text("utf-8"))
    assert found is not None, f"{name} is not in {path}: mend the link"
    assert (found.end_lineno or 0) - found.lineno < SCREEN


def test_the_tour_names_the_path_of_a_call():
    assert ("call", "../src/bascule/node/bridge/call.py") in NAMED
    assert len(NAMED) >= 6
