"""The table of journeys is whole, and every step that it calls built has its test."""

from __future__ import annotations

from pathlib import Path

from tests.journeys.table import JOURNEYS

HERE = Path(__file__).parent


def test_all_ten_journeys_are_listed_with_what_is_built_or_missing():
    assert [journey.number for journey in JOURNEYS] == list(range(1, 11))
    assert all(journey.built or journey.missing for journey in JOURNEYS)


def test_every_step_that_is_built_names_a_test_that_is_there():
    named = {place for journey in JOURNEYS for place in journey.built.values()}
    for place in sorted(named):
        file, _, test = place.partition("::")
        assert f"def {test}(" in (HERE / file).read_text(encoding="utf-8"), place
