"""The laws of the definition digest."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.model.tool import definition_digest

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    LEAVES | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
DEFINITIONS = st.dictionaries(st.text(max_size=5), VALUES, min_size=1, max_size=4)


def shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict):
        items = list(value.items())
        rng.shuffle(items)
        return {key: shuffled(item, rng) for key, item in items}
    return [shuffled(item, rng) for item in value] if isinstance(value, list) else value


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the way to every leaf; an empty list or table is one too."""
    if isinstance(value, dict) and value:
        return [p for key in value for p in leaves(value[key], (*path, key))]
    if isinstance(value, list) and value:
        return [p for index, item in enumerate(value) for p in leaves(item, (*path, index))]
    return [path]


def changed(value: Any, path: tuple[Any, ...], leaf: Any) -> Any:
    result = copy.deepcopy(value)
    inner = result
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = leaf
    return result


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def spelled(value: Any) -> str:
    """Write a value so that only the same JSON value looks the same (1, 1.0 and true differ)."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{spelled(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(spelled, value)) + "]"
    return repr(value)


@pytest.mark.requirement("record:descriptor:digest")
@given(DEFINITIONS, st.randoms(use_true_random=False))
def test_the_digest_is_stable_under_the_order_of_keys(
    definition: dict[str, Any], rng: random.Random
):
    assert definition_digest(shuffled(definition, rng)) == definition_digest(definition)


@pytest.mark.requirement("record:descriptor:digest")
@given(DEFINITIONS, VALUES)
def test_the_digest_changes_with_every_leaf(definition: dict[str, Any], leaf: Any):
    for path in leaves(definition):
        same = spelled(at(definition, path)) == spelled(leaf)
        other = definition_digest(changed(definition, path, leaf))
        assert (other == definition_digest(definition)) == same


@pytest.mark.requirement("record:descriptor:digest")
@given(DEFINITIONS)
def test_the_digest_changes_with_every_key_that_goes(definition: dict[str, Any]):
    for key in definition:
        rest = {other: value for other, value in definition.items() if other != key}
        assert definition_digest(rest) != definition_digest(definition)
