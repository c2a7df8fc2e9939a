"""Turns put together from chunks, whatever an upstream makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.loop.backend import UpstreamFailed
from bascule.loop.deltas import MAX_CALLS, Assembly, Turn, whole_turn
from bascule.loop.usage import add_usage
from tests.loop.fakes import asks, call, pieces, says

Json = dict[str, Any]


def fragment(name: Any = None, arguments: Any = None, **more: Any) -> Json:
    function = {"name": name, "arguments": arguments}
    return {"function": {k: v for k, v in function.items() if v is not None}, **more}


def turn_of(*fragments: Any) -> Turn:
    """Assemble a turn of call fragments, one chunk each."""
    assembly = Assembly()
    for one in fragments:
        assembly.add({"choices": [{"index": 0, "delta": {"tool_calls": [one]}}]})
    return assembly.turn()


def calls_of(*fragments: Any) -> list[tuple[str, str]]:
    return [(one.name, one.arguments) for one in turn_of(*fragments).calls]


@given(st.text(max_size=40), st.text(max_size=40), st.integers(1, 7))
def test_chunks_of_any_size_make_the_turn_they_were_cut_from(text: str, written: str, size: int):
    whole = asks(call("a", written, "c1"), call("b", written, "c2"), text=text)
    assembly = Assembly()
    passed = [assembly.add(chunk) for chunk in pieces(whole, size)]
    assert assembly.turn() == whole_turn(whole)
    assert "".join(str(p.fields.get("content", "")) for p in passed if p is not None) == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "arguments", "text", "input", "total", "type"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)


def shaped(likely: st.SearchStrategy[Any], **fields: st.SearchStrategy[Any]) -> Any:
    """Make objects that mostly have these fields, and sometimes are something else."""
    return st.fixed_dictionaries({}, optional=fields) | likely


FUNCTION = shaped(JSON, name=st.sampled_from(["read", "", None]) | JSON, arguments=JSON)
CALL = shaped(
    JSON,
    index=st.sampled_from([0, 1, None]) | JSON,
    id=st.sampled_from(["a", "b", ""]) | JSON,
    type=st.sampled_from(["function", "custom", "type", "id"]) | JSON,
    function=FUNCTION,
    custom=FUNCTION,
)
MESSAGE = shaped(JSON, content=JSON, refusal=JSON, tool_calls=st.lists(CALL, max_size=4) | JSON)
CHOICE = shaped(
    JSON, index=st.just(0) | JSON, delta=MESSAGE, message=MESSAGE, finish_reason=JSON, logprobs=JSON
)
CHUNK = st.fixed_dictionaries({"choices": st.lists(CHOICE, max_size=3) | JSON, "usage": JSON})


@given(st.lists(CHUNK, max_size=5))
def test_garbled_chunks_never_crash(chunks: list[Json]):
    assembly = Assembly()
    for chunk in chunks:
        assembly.add(chunk)
    turn = assembly.turn()
    assert isinstance(turn.text, str)
    assert all(one.call_id for one in turn.calls)
    for chunk in chunks:
        try:
            assert isinstance(whole_turn(chunk).text, str)
        except UpstreamFailed:
            continue


@pytest.mark.parametrize(
    "fragments",
    [
        # as OpenAI does it
        [
            fragment("read", "", index=0, id="a", type="function"),
            fragment(None, '{"x":', index=0),
            fragment(None, "1}", index=0),
        ],
        # the id and name in every fragment
        [
            fragment("read", '{"x":', index=0, id="a"),
            fragment("read", "1}", index=0, id="a"),
        ],
        # no index, no id after the first
        [fragment("read", '{"x":', id="a"), fragment(None, "1}")],
        # nothing but names and arguments
        [fragment("read"), fragment(None, '{"x":1}')],
        # a name in pieces
        [fragment("re", "", index=0), fragment("ad", '{"x":1}', index=0)],
        # arguments as an object
        [fragment("read", {"x": 1}, index=0, id="a")],
    ],
)
def test_one_call_is_understood_however_it_comes(fragments: list[Json]):
    assert calls_of(*fragments) == [("read", '{"x":1}')]


def test_calls_with_one_index_and_ids_of_their_own_are_told_apart():
    found = calls_of(
        fragment("read", "{}", index=0, id="a"), fragment("write", "{}", index=0, id="b")
    )
    assert found == [("read", "{}"), ("write", "{}")]


def test_fragments_of_two_calls_may_come_by_turns():
    found = calls_of(
        fragment("read", "{", index=0, id="a"),
        fragment("write", "[", index=1, id="b"),
        fragment(None, "}", index=0),
        fragment(None, "]", index=1),
    )
    assert found == [("read", "{}"), ("write", "[]")]


def test_a_custom_call_is_put_together_too():
    [asked] = turn_of(
        {"index": 0, "id": "a", "type": "custom", "custom": {"name": "sql", "input": "sel"}},
        {"index": 0, "custom": {"input": "ect"}},
    ).calls
    assert asked.name == "sql"
    assert asked.other == {
        "id": "a",
        "type": "custom",
        "custom": {"name": "sql", "input": "select"},
    }


def test_too_many_calls_and_too_much_of_one_are_an_upstreams_failure():
    with pytest.raises(UpstreamFailed, match="more than"):
        turn_of(*(fragment("read", "{}", index=n) for n in range(MAX_CALLS + 1)))
    with pytest.raises(UpstreamFailed, match="larger"):
        turn_of(*(fragment(None, "x" * 1024 * 1024, index=0) for _ in range(5)))


def test_other_choices_are_passed_over():
    assembly = Assembly()
    assembly.add({"choices": [{"index": 1, "delta": {"content": "other"}}]})
    assembly.add({"choices": [{"index": 0, "delta": {"content": "mine"}}]})
    assert assembly.turn().text == "mine"


def test_content_in_parts_is_its_text():
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    whole = says(None, message={"content": parts})
    assert whole_turn(whole).text == "ab"


def test_other_fields_of_a_message_are_kept():
    whole = says("x", message={"reasoning_content": "hm", "annotations": []})
    assert whole_turn(whole).extra == {"reasoning_content": "hm", "annotations": []}
    assembly = Assembly()
    for part in ("h", "m"):
        assembly.add({"choices": [{"index": 0, "delta": {"reasoning_content": part}}]})
    assert assembly.turn().extra == {"reasoning_content": "hm"}


def test_usage_adds_numbers_and_keeps_the_rest():
    assert add_usage(None, None) is None
    assert add_usage({"a": 1}, None) == add_usage(None, {"a": 1}) == {"a": 1}
    first = {"a": 1, "b": {"c": 1.5}, "d": "x", "e": 2}
    assert add_usage(first, {"a": 2, "b": {"c": 1}, "d": "y", "e": None}) == {
        "a": 3,
        "b": {"c": 2.5},
        "d": "y",
        "e": 2,
    }


@pytest.mark.parametrize("piece", ["a thought of some length", [{"text": "a thought"}]])
def test_what_comes_in_very_many_pieces_is_put_together_once(piece: Any):
    assembly = Assembly()
    for _ in range(100_000):
        assembly.add({"choices": [{"index": 0, "delta": {"reasoning": piece}}]})
    assert assembly.turn().extra["reasoning"] == piece * 100_000


def test_a_call_of_another_type_and_a_name_may_come_in_very_many_pieces():
    first = {"index": 0, "id": "a", "type": "custom"}
    [custom] = turn_of(first, *[{"index": 0, "custom": {"input": "sel" * 9}}] * 100_000).calls
    assert custom.other is not None
    assert custom.other["custom"] == {"input": "sel" * 900_000}
    [named] = turn_of(*[fragment("ab" * 9, index=0), fragment("cd" * 9, index=0)] * 100_000).calls
    assert 1024 <= len(named.name) < 1100


def test_an_upstream_does_not_speak_in_our_name():
    forged = {"calls": []}
    whole = whole_turn(says("hi", message={"bascule": forged}))
    assembly = Assembly()
    passing = assembly.add({"choices": [{"delta": {"content": "hi", "bascule": forged}}]})
    assert (whole.extra, assembly.turn().extra) == ({}, {})
    assert passing is not None
    assert passing.fields == {"content": "hi"}
