"""What is written down of a call's arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.model.server import Redaction, RedactKeys
from bascule.policy.redact import HIDDEN, redact

ARGUMENTS: dict[str, Any] = {
    "path": "/srv/letters/first.txt",
    "count": 12345,
    "flag": True,
    "none": None,
    "list": ["first-item", {"inner": "x"}],
    "auth": {"Password": "hunter2", "user": "alice"},
}
MODES: list[Redaction] = ["shape", "full", RedactKeys(keys=("password",)), RedactKeys(keys=())]


def written(arguments: dict[str, Any], mode: Redaction, *known: str) -> str:
    return json.dumps(redact(arguments, mode, known), ensure_ascii=False)


@pytest.mark.requirement("hygiene:redact:shape")
def test_the_shape_shows_structure_and_no_value():
    shape = redact(ARGUMENTS, "shape")
    assert list(shape) == list(ARGUMENTS)
    assert shape["path"] == "string(22)"
    assert (shape["count"], shape["flag"], shape["none"]) == ("number", "boolean", "null")
    assert set(shape["auth"]) == {"Password", "user"}
    text = written(ARGUMENTS, "shape")
    for value in ("alice", "12345", "first-item", "hunter2", "true"):
        assert value not in text


@pytest.mark.requirement("hygiene:redact:keys")
def test_the_values_of_named_keys_are_replaced_at_any_depth():
    deep = {"a": [{"b": {"PASSWORD": ["x1"], "keep": "y"}}], "password": {"z": "x2"}}
    assert redact(deep, RedactKeys(keys=("Password",))) == {
        "a": [{"b": {"PASSWORD": HIDDEN, "keep": "y"}}],
        "password": HIDDEN,
    }
    kept = redact(ARGUMENTS, RedactKeys(keys=("password",)))
    assert kept == ARGUMENTS | {"auth": {"Password": HIDDEN, "user": "alice"}}


@pytest.mark.requirement("hygiene:redact:full")
def test_nothing_is_written_when_everything_is_redacted():
    assert redact(ARGUMENTS, "full") == HIDDEN


@pytest.mark.requirement("hygiene:redact:references")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "arguments",
    [
        {"a": "s3cr3t-value"},
        {"a": "Bearer s3cr3t-value!"},
        {"a": ["x", {"b": "s3cr3t-value"}]},
        {"a": {"b": {"c": ["s3cr3t-value"]}}},
        {"s3cr3t-value": 1},
        {"a": {"x-s3cr3t-value": True}},
    ],
)
def test_a_value_that_came_from_a_reference_is_never_written(
    arguments: dict[str, Any], mode: Redaction
):
    assert "s3cr3t-value" not in written(arguments, mode, "s3cr3t-value")


@pytest.mark.requirement("hygiene:redact:references")
def test_an_empty_reference_hides_nothing_else():
    assert redact({"a": "text"}, RedactKeys(keys=()), [""]) == {"a": "text"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.just("s3cr3t") | st.just("a s3cr3t b"),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["k", "l"]), inner, max_size=2)
        ),
        max_leaves=10,
    ),
    st.sampled_from(MODES),
)
def test_no_depth_or_mode_lets_a_resolved_secret_through(value: Any, mode: Redaction):
    assert "s3cr3t" not in written({"value": value}, mode, "s3cr3t")


@pytest.mark.parametrize("kind", ["objects", "arrays"])
def test_what_named_keys_leave_is_kept_down_to_sixteen_levels(kind: str):
    def nested(levels: int) -> dict[str, Any]:
        value: Any = "kept"
        for _ in range(levels - 1):
            value = {"a": value} if kind == "objects" else [value]
        return {"a": value}

    mode = RedactKeys(keys=("password",))
    assert redact(nested(15), mode) == nested(15)
    assert "kept" not in repr(redact(nested(16), mode))


@pytest.mark.parametrize("mode", MODES)
def test_very_deep_and_very_wide_arguments_come_to_an_end(mode: Redaction):
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"a": deep}
    wide = {f"k{i}": i for i in range(5_000)}
    assert len(written(deep, mode)) < 10_000
    assert written(wide, mode)
