"""Laws of cleaning in slices: wherever the borders are, it is cleaning the whole."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.policy.characters import neutralise
from bascule.policy.cleaning import clean_value, json_slices, text_slices
from bascule.policy.copies import json_bytes
from bascule.policy.leaks import Scanner
from tests.laws.canaries import CANARIES, HIDDEN, KNOWN, KNOWN_LINES, ORDINARY, planted, values

SCANNER = Scanner([KNOWN, KNOWN_LINES])
sizes = st.integers(1, 300)


def joined(slices: Any) -> str:
    return "".join(piece.text for piece in slices)


@given(planted(CANARIES), sizes)
def test_slices_of_a_text_are_the_text_cleaned_as_a_whole(text: str, size: int):
    slices = list(text_slices(text, SCANNER, size))
    whole, leaks = SCANNER.mask(neutralise(text).text)
    assert joined(slices) == whole
    assert any(piece.leaks.total for piece in slices) == (leaks > 0)


@given(planted(CANARIES, HIDDEN), st.integers(12, 300))
def test_hidden_characters_are_gone_wherever_the_borders_are(text: str, size: int):
    lines = text.replace(" ", "\n")
    assert joined(text_slices(lines, None, size)) == neutralise(lines).text
    assert not neutralise(joined(text_slices(text, SCANNER, size))).counts


@given(st.lists(st.sampled_from(HIDDEN + ORDINARY), max_size=30).map("".join), sizes)
def test_a_seam_parts_a_text_and_loses_nothing(text: str, size: int):
    plain = "".join(filter(str.isascii, text))
    assert joined(text_slices(plain, None, size)) == neutralise(plain).text


@given(values(planted(CANARIES, HIDDEN, most=6)), sizes)
def test_slices_of_json_are_the_json_of_the_value_cleaned_as_a_whole(value: Any, size: int):
    cleaned = clean_value(value, SCANNER)
    slices = list(json_slices(value, SCANNER, max(size, 64)))
    assert joined(slices) == json_bytes(cleaned.value).decode()
    assert any(piece.leaks.total for piece in slices) == (cleaned.leaks.total > 0)


def neutralised(value: Any) -> Any:
    """Return a value with each of its strings neutralised."""
    if isinstance(value, str):
        return neutralise(value).text
    if isinstance(value, list):
        return [neutralised(item) for item in value]
    if isinstance(value, dict):
        return {neutralise(key).text: neutralised(member) for key, member in value.items()}
    return value


@given(values(planted(HIDDEN, most=4) | st.text(max_size=9)))
def test_no_string_of_a_value_keeps_what_a_text_would_lose(value: Any):
    assert clean_value(value, None).value == neutralised(value)


@pytest.mark.parametrize("canary", CANARIES)
def test_every_spelling_is_found_at_every_place_of_a_border_far_into_a_text(canary: str):
    rng = random.Random(canary)
    filler = "".join(rng.choices(ORDINARY, k=6000))
    size = 1 << 14
    for shift in range(0, len(canary) + 2, 1 + len(canary) // 5):
        text = f"{filler[: 2 * size - shift]}\n{canary}\n{filler[:size]}"
        cleaned = joined(text_slices(text, SCANNER, size))
        assert cleaned == SCANNER.mask(text)[0]
        assert canary not in cleaned
