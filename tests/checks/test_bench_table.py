"""The table of figures: goals are judged in one place, and a miss cannot be overlooked."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bench.__main__ import BEGIN, END, PERFORMANCE, combined, with_table
from bench.table import Row, at_least, at_most, markdown, missed, plain

MACHINE = {"python": "3", "system": "x", "cores": 2, "load": 0.1, "bytecode": "compiled"}


def test_a_goal_is_met_at_its_limit_and_missed_beyond_it():
    assert at_most("a", 5, "ms", 5).met is True
    assert at_most("a", 5.1, "ms", 5).met is False
    assert at_least("a", 4, "times", 4).met is True
    assert at_least("a", 3.9, "times", 4).met is False


def test_a_row_without_a_goal_is_never_missed():
    assert missed([Row("a", 1, "s"), at_most("b", 2, "s", 1)]) == [at_most("b", 2, "s", 1)]


def test_a_miss_stands_out_in_both_tables():
    rows = [at_most("decide", 0.31, "µs", 0.5), at_most("compose", 61234, "ms", 50)]
    assert plain(rows).splitlines() == [
        "figure       value  goal            met",
        "decide     0.31 µs  at most 0.5 µs  yes",
        "compose  61,234 ms  at most 50 ms   NO",
    ]
    assert "| compose | 61,234 ms | at most 50 ms | NO |" in markdown(rows)


def test_a_goal_says_on_what_machine_it_is_meant():
    row = at_most("start", 0.4, "s", 0.35, "on a quiet machine")
    assert row.goal == "at most 0.35 s on a quiet machine"
    assert row.met is False


def test_the_page_begins_with_every_figure_that_has_a_goal(tmp_path: Path):
    for name, rows in (
        ("http", [at_least("p50", 4, "x", 13), Row("shown", 1, "us")]),
        ("stdio", [at_most("p50", 1, "x", 1.8)]),
    ):
        kept = {"name": name, "title": "T.", "date": "d", "machine": MACHINE}
        text = json.dumps({**kept, "rows": [asdict(row) for row in rows]})
        (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
    goals = combined(tmp_path).partition("## http")[0]
    assert "| http: p50 | 4 x | at least 13 x | NO |" in goals
    assert "| stdio: p50 | 1 x | at most 1.8 x | yes |" in goals
    assert "shown" not in goals


def test_the_page_says_how_much_of_the_machine_others_took(tmp_path: Path):
    kept = {"name": "a", "title": "T.", "date": "d", "machine": {**MACHINE, "others": 85}}
    (tmp_path / "a.json").write_text(json.dumps({**kept, "rows": []}), encoding="utf-8")
    assert "load 0.1, others 85 % of the cores" in combined(tmp_path)


def test_the_page_shows_every_kept_figure(tmp_path: Path):
    rows = [{"name": "a", "value": 1, "unit": "s", "goal": None, "met": None}]
    kept = {"name": "policy", "title": "T.", "date": "d", "machine": MACHINE, "rows": rows}
    (tmp_path / "policy.json").write_text(json.dumps(kept), encoding="utf-8")
    (tmp_path / "soak.json").write_text("{}", encoding="utf-8")
    page = combined(tmp_path)
    assert "## policy" in page
    assert "| a | 1 s |  |  |" in page


def test_the_table_of_goals_is_renewed_and_the_rest_of_the_page_stays():
    page = f"above\n{BEGIN}\nold\n{END}\nbelow\n"
    assert with_table(page, "new") == f"above\n{BEGIN}\nnew\n{END}\nbelow\n"
    with pytest.raises(ValueError, match="no table"):
        with_table("above", "new")
    assert with_table(PERFORMANCE.read_text(encoding="utf-8"), "new")
