"""What two patterns have in common, judged by their texts, is what they really match."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.model.pattern import Pattern
from bascule.policy.coverage import covers, overlaps

NAMES = ["".join(letters) for size in range(5) for letters in product("ab", repeat=size)]
globs = st.text(alphabet="ab*?", min_size=1, max_size=4)


def matched(glob: str) -> set[str]:
    pattern = Pattern.parse(glob)
    return {name for name in NAMES if pattern.matches("s", name)}


@given(globs, globs)
def test_overlapping_patterns_share_a_name_and_others_share_none(one: str, other: str):
    shared = matched(one) & matched(other)
    assert overlaps(one, other) == overlaps(other, one)
    if shared:
        assert overlaps(one, other)
    if not overlaps(one, other):
        assert not shared


@given(globs, globs)
def test_a_pattern_that_covers_another_matches_all_of_it(wide: str, narrow: str):
    if covers(wide, narrow):
        assert matched(narrow) <= matched(wide)


@pytest.mark.parametrize(
    ("wide", "narrow", "is_covered", "is_met"),
    [
        ("*", "get_*", True, True),
        ("get_*", "get_time", True, True),
        ("get_*", "*", False, True),
        ("delete_*", "get_*", False, False),
        ("get_?", "get_ab", False, False),
        ("*_note", "delete_*", False, True),
        ("a*b*", "ab", True, True),
    ],
)
def test_the_usual_cases(wide: str, narrow: str, is_covered: bool, is_met: bool):
    assert (covers(wide, narrow), overlaps(wide, narrow)) == (is_covered, is_met)
