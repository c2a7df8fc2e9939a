"""The table of figures: goals are judged in one place, and a miss cannot be overlooked."""

from __future__ import annotations

import json
from pathlib import Path

from bench.__main__ import combined
from bench.table import Row, at_least, at_most, markdown, missed, plain


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


def test_the_page_shows_every_kept_figure(tmp_path: Path):
    machine = {"python": "3", "system": "x", "cores": 2, "load": 0.1, "bytecode": "compiled"}
    rows = [{"name": "a", "value": 1, "unit": "s", "goal": None, "met": None}]
    kept = {"name": "policy", "title": "T.", "date": "d", "machine": machine, "rows": rows}
    (tmp_path / "policy.json").write_text(json.dumps(kept), encoding="utf-8")
    (tmp_path / "soak.json").write_text("{}", encoding="utf-8")
    page = combined(tmp_path)
    assert "## policy" in page
    assert "| a | 1 s |  |  |" in page
