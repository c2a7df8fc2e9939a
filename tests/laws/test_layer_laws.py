"""The laws of a session's requests: any number of them, in any order, leave what all of them do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bascule.errors import SessionRefused
from tests.laws import oracle
from tests.laws.oracle import Case
from tests.laws.strategies import ANY_SERVER, cases, composed, lively_cases, sessions, tools_of

Plain = dict[str, Any]
LAYERS = st.lists(sessions(), max_size=3)


def choosing_all(case: Case) -> Case:
    """Return the case with a session that names every server it may name."""
    allowed = oracle.task_layer(case).allowed
    named = list(ANY_SERVER) if allowed is None else sorted(allowed)
    return replace(case, session={"server_ids": named})


def within(case: Case, layers: Sequence[Plain]) -> list[Plain]:
    """Return the requests, each naming only servers that the case's session names."""
    named = case.session["server_ids"]
    return [
        layer | {"server_ids": [s for s in layer["server_ids"] if s in named]}
        if "server_ids" in layer
        else layer
        for layer in layers
    ]


@pytest.mark.requirement("policy:narrowing-law")
@given(case=cases() | lively_cases(), layers=LAYERS, keep=st.booleans())
def test_any_number_of_requests_leaves_what_each_of_them_leaves(
    case: Case, layers: list[Plain], keep: bool
):
    case = choosing_all(case)
    layers = layers if keep else within(case, layers)
    each = [tools_of(case, layer) for layer in layers]
    assert tools_of(case, *layers) == tools_of(case).intersection(*each)


@pytest.mark.requirement("policy:narrowing-law")
@given(case=cases() | lively_cases(), layers=LAYERS)
def test_the_order_of_requests_decides_nothing(case: Case, layers: list[Plain]):
    found = [
        tools_of(replace(case, session=first), *rest)
        for first, *rest in permutations([case.session, *layers])
    ]
    assert all(tools == found[0] for tools in found)


@pytest.mark.requirement("policy:narrowing-law", "policy:constraint-law")
@given(case=cases() | lively_cases(), layers=LAYERS, added=sessions())
def test_one_more_request_never_adds_a_tool(case: Case, layers: list[Plain], added: Plain):
    """Unless it is the first that names servers: that one chooses among all its task allows."""
    chosen = any("server_ids" in layer for layer in (case.session, *layers))
    assume(chosen or "server_ids" not in added)
    assert tools_of(case, *layers, added) <= tools_of(case, *layers)


@given(case=cases() | lively_cases())
def test_a_request_made_twice_is_as_good_as_once(case: Case):
    assert tools_of(case, case.session) == tools_of(case)


@given(case=lively_cases(), layers=st.lists(sessions(), min_size=1, max_size=3))
def test_whatever_a_request_denies_names_that_request(case: Case, layers: list[Plain]):
    try:
        effective = composed(case, *layers)
    except SessionRefused:
        return
    found = [
        objection
        for server, tool in some_tools(case)
        for objection in effective.objections(server, tool)
        if objection.layer == "session"
    ]
    places = {f"session layer {place}" for place in range(1, len(layers) + 2)}
    assert all(any(place in one.rule for place in places) for one in found)


def some_tools(case: Case) -> list[tuple[str, str]]:
    return [(server, tool) for server in case.servers for tool in ("read", "write_file")]
