"""The law of merging: one request in place of several never leaves more than they do."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import convert, to_builtins

from bascule.errors import SessionRefused
from bascule.model.session import SessionRequest
from bascule.policy.merging import merged
from tests.laws.oracle import Case
from tests.laws.strategies import PATTERNS, SERVERS, composed, lists, lively_cases, tools_of

REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans(),
        "server_ids": lists(SERVERS, 3),
        "tool_allowlist": lists(PATTERNS, 4),
        "tool_denylist": lists(PATTERNS, 2),
        "read_only": st.booleans(),
        "max_tool_output_bytes": st.integers(1, 100),
    },
)


def together(requests: list[dict[str, Any]]) -> SessionRequest:
    return merged([convert(one, SessionRequest) for one in requests])


@given(lively_cases(), st.lists(REQUESTS, min_size=1, max_size=3))
def test_requests_sent_as_one_leave_no_more_than_all_of_them(
    case: Case, requests: list[dict[str, Any]]
):
    try:
        composed(case, *requests)
    except SessionRefused:
        assume(False)
    allowed = tools_of(case, to_builtins(together(requests)))
    assert allowed <= tools_of(case, *requests)


@given(st.lists(REQUESTS, max_size=3))
def test_the_lowest_limit_of_requests_sent_as_one_counts(requests: list[dict[str, Any]]):
    caps = [one["max_tool_output_bytes"] for one in requests if "max_tool_output_bytes" in one]
    assert together(requests).max_tool_output_bytes == min(caps, default=None)


def test_of_two_allowlists_the_narrower_patterns_stay():
    lists = [["read_*", "fs/*", "x"], ["read_file", "write", "y"]]
    found = together([{"tool_allowlist": one} for one in lists])
    assert found.tool_allowlist == ("read_file", "fs/read_file", "fs/write", "fs/y")
