"""A history that grows: its JSON is put together, and is that of the whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.loop.history import History, encoded_request
from bascule.wire.strict_json import MAX_DEPTH, StrictJsonError

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=3)


def said(body: dict[str, Any]) -> object:
    """Return what a request says as JSON, or why it cannot be sent."""
    try:
        return json.loads(encoded_request(body))
    except StrictJsonError as error:
        return str(error)


@given(OBJECTS, st.lists(OBJECTS, max_size=3), st.lists(OBJECTS, max_size=3))
def test_a_request_with_a_history_is_the_request_with_a_list(
    rest: dict[str, Any], first: list[dict[str, Any]], added: list[dict[str, Any]]
):
    history = History(first)
    messages = list(first)
    for message in (None, *added):
        if message is not None:
            history.append(message)
            messages.append(message)
        assert said({**rest, "messages": history}) == said({**rest, "messages": messages})


def test_what_was_encoded_is_not_encoded_again():
    first = {"role": "user", "content": "hello"}
    history = History([first])
    before = encoded_request({"model": "m", "messages": history})
    first["content"] = "changed behind its back"
    history.append({"role": "assistant", "content": None})
    after = encoded_request({"model": "m", "messages": history})
    assert b"hello" in before
    assert b"hello" in after
    assert b'"content":null' in after


@pytest.mark.parametrize("depth", [MAX_DEPTH - 4, MAX_DEPTH - 3, MAX_DEPTH - 2])
def test_a_history_may_be_nested_as_deep_as_in_any_request(depth: int):
    deep: Any = 0
    for _ in range(depth):
        deep = [deep]
    messages = [{"content": deep}]
    assert said({"messages": History(messages)}) == said({"messages": messages})
    assert isinstance(said({"messages": messages}), str) == (depth + 3 > MAX_DEPTH)
