"""Cuts between words: half a word is never left."""

from __future__ import annotations

import pytest

from bascule.model.whole_words import beginning, ending


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("", 3, ""),
        ("abc", 3, "abc"),
        ("abc def", 7, "abc def"),
        ("abc def", 6, "abc …"),
        ("abc def", 3, "abc …"),
        ("abcdef", 3, "…"),
        ("a\tbcdef", 4, "a\t…"),
    ],
)
def test_a_beginning_has_whole_words_only(text: str, most: int, expected: str):
    assert beginning(text, most) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("", ""), ("abc", ""), ("bc def", " def"), (" def", " def")]
)
def test_an_ending_begins_after_the_word_that_was_cut(text: str, expected: str):
    assert ending(text) == expected
