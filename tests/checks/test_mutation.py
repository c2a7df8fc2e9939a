"""The mutation check: which changes it makes, and what it reports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from checks.mutants import changes
from checks.mutation import (
    WITNESSES,
    Mutant,
    Trial,
    page,
    read_equivalent,
    sampled,
    stages,
)
from checks.tree import ROOT

SOURCE = """
LIMIT = 3

def allowed(used: int, reserved: int = 0) -> bool:
    if used + reserved >= LIMIT and not used < 0:
        raise ValueError("too much")
    self.note(used)
    return True
"""


def changed(number: int) -> str:
    tree = ast.parse(SOURCE)
    changes(tree)[number].make()
    return ast.unparse(tree)


def test_each_change_is_one_and_leaves_the_rest():
    found = changes(ast.parse(SOURCE))
    assert {change.what for change in found} == {
        "raise left out",
        "expr left out",
        "condition negated",
        "and to or",
        ">= to >",
        "< to <=",
        "+ to -",
        "0 plus one",
        "True flipped",
        "returns None",
    }
    whole = ast.unparse(ast.parse(SOURCE)).splitlines()
    for number, change in enumerate(found):
        lines = changed(number).splitlines()
        assert sum(a != b for a, b in zip(whole, lines, strict=True)) == 1, change.what


def test_constants_outside_functions_and_annotations_stay():
    assert all(change.line > 3 for change in changes(ast.parse(SOURCE)))
    assert changes(ast.parse("def f(a: Literal[1]) -> Literal[2]: ...")) == []


TRY = """
import checks.mutation as check
[mutant] = [one for one in check.sampled(0) if one.file.endswith("policy/budget.py")][:1]
witness = ["tests/policy/test_budget.py"]
for one in (None, mutant):
    process = check.started(one, [witness])
    process.join()
    print(process.exitcode)
import bascule.policy.budget
check.started(mutant, [witness])
"""


def test_a_change_reaches_its_tests_and_one_made_too_late_is_an_error():
    ended = subprocess.run(
        (sys.executable, "-c", TRY), cwd=ROOT, check=False, capture_output=True, encoding="utf-8"
    )
    assert ended.stdout.split() == ["0", "1"]
    assert ended.stderr.splitlines()[-1] == (
        "RuntimeError: bascule.policy.budget was imported before it could be changed"
    )


def test_the_tests_of_a_modules_name_run_first():
    assert stages("bascule/policy/budget.py") == [
        ["tests/policy/test_budget.py", "tests/laws/test_budget_laws.py"],
        ("tests/policy", "tests/node/bridge"),
    ]
    assert stages("bascule/node/bridge/call.py") == [WITNESSES["bascule/node/bridge"]]


def test_a_sample_is_the_same_every_time_and_bounded_for_each_module():
    sample = sampled(2)
    assert sample == sampled(2)
    assert len(sample) == len(set(sample))
    files = [mutant.file for mutant in sample]
    assert max(map(files.count, files)) == 2
    assert {"bascule/policy/budget.py", "bascule/loop/budgets.py"} <= set(files)


def test_the_page_counts_by_module_and_names_what_survived(tmp_path: Path):
    one = Mutant("a.py", 0, 7, "< to <=", "if a < b:")
    other = Mutant("a.py", 1, 9, "0 plus one", "return 0")
    known = tmp_path / "equivalent.txt"
    known.write_text(f"# why\n{other.key}\n  nobody reads it\n", encoding="utf-8")
    trials = [Trial(one, "survived"), Trial(other, "survived"), Trial(one, "killed")]
    text = page(trials, read_equivalent(known))
    assert "| `a.py` | 1 | 0 | 2 | 0 |" in text
    assert "## Survived: 1\n\n- `a.py:7` < to <=: `if a < b:`" in text
    assert "## Equivalent: 1\n\n- `a.py:9` 0 plus one: `return 0`: nobody reads it" in text
