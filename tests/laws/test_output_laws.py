"""Laws of the output cap: it holds, it keeps what it can, and doing it twice is doing it once."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from bascule.policy.output import SMALLEST_WITH_MARKER, cap_content, cap_text, weight

texts = st.text(max_size=400)
limits = st.integers(0, 600)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | texts
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=20,
)
data = st.text(alphabet="ABCDwxyz0123+/", max_size=400)
blocks = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts}),
    st.fixed_dictionaries(
        {"type": st.just("image"), "data": data, "mimeType": st.text(max_size=9)}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("resource"),
            "resource": st.fixed_dictionaries({"uri": st.text(max_size=9), "text": texts}),
        }
    ),
    st.dictionaries(st.text(max_size=9), values, max_size=3),
)
contents = st.lists(blocks, max_size=5)
structures = st.none() | st.dictionaries(st.text(max_size=9), values, max_size=4)


@given(texts, limits)
def test_a_text_never_exceeds_its_cap(text: str, limit: int):
    assert len(cap_text(text, limit).text.encode()) <= limit


@given(texts, limits)
def test_what_is_shown_is_a_prefix_and_the_figures_are_true(text: str, limit: int):
    cut = cap_text(text, limit)
    raw = text.encode()
    assert cut.total == len(raw)
    assert cut.text.encode()[: cut.shown] == raw[: cut.shown]
    assert cut.truncated == (len(raw) > limit)
    if cut.truncated and limit >= SMALLEST_WITH_MARKER:
        assert cut.text.endswith(f"[truncated: {cut.shown} of {cut.total} bytes shown]")


@given(texts, limits)
def test_a_text_below_the_cap_is_itself_and_capping_again_changes_nothing(text: str, limit: int):
    once = cap_text(text, limit).text
    assert cap_text(once, limit).text == once
    if len(text.encode()) <= limit:
        assert once == text


@given(contents, structures, limits)
def test_a_result_never_weighs_more_than_its_cap(content: list[Any], structured: Any, limit: int):
    capped = cap_content(content, structured, limit)
    assert weight(capped.content, capped.structured) <= limit
    assert capped.total == weight(content, structured)
    assert capped.shown <= capped.total
    assert capped.truncated == (capped.total > limit)


@given(contents, structures, limits)
def test_a_capped_result_is_valid_json(content: list[Any], structured: Any, limit: int):
    capped = cap_content(content, structured, limit)
    again = orjson.loads(orjson.dumps([list(capped.content), capped.structured]))
    assert again == [list(capped.content), capped.structured]


@given(contents, structures, limits)
def test_capping_a_result_twice_is_capping_it_once(content: list[Any], structured: Any, limit: int):
    once = cap_content(content, structured, limit)
    twice = cap_content(once.content, once.structured, limit)
    assert (twice.content, twice.structured) == (once.content, once.structured)
    assert not twice.truncated


@given(contents, structures)
def test_a_cap_that_fits_exactly_leaves_the_result_alone(content: list[Any], structured: Any):
    capped = cap_content(content, structured, weight(content, structured))
    assert (capped.content, capped.structured) == (content, structured)
