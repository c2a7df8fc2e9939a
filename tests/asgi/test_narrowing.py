"""What a caller asks of its session: headers, JSON, and both together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from bascule.asgi.errors import Refused
from bascule.asgi.narrowing import narrowed, narrowing, narrowing_of
from bascule.errors import InvalidRecord
from bascule.model.pattern import PatternSet
from bascule.model.session import SessionRequest
from bascule.wire.narrowing import headers_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1)
LISTS = st.lists(TEXTS.map(lambda text: text[:40]), max_size=4).map(tuple)
REQUESTS = st.builds(
    SessionRequest,
    enabled=st.none() | st.booleans(),
    server_ids=st.none() | LISTS,
    tool_allowlist=st.none() | LISTS,
    tool_denylist=LISTS,
    read_only=st.booleans(),
    max_tool_output_bytes=st.none() | st.integers(1, 104_857_600),
)


def request(**fields: Any) -> SessionRequest:
    return narrowing_of(fields)


@given(REQUESTS)
def test_whatever_a_session_asks_for_goes_through_headers_unharmed(asked: SessionRequest):
    headers = headers_of(asked)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert (narrowing(Headers(headers)) or SessionRequest()) == asked


def test_without_headers_nothing_is_asked():
    assert narrowing(Headers({"Accept": "*/*"})) is None


def test_an_empty_list_is_not_an_absent_one():
    asked = narrowing(Headers({"X-Bascule-Servers": "", "X-Bascule-Tools-Allow": " "}))
    assert asked == SessionRequest(server_ids=(), tool_allowlist=())


def test_a_header_that_comes_twice_is_refused():
    twice = Headers(raw=[(b"x-bascule-servers", b"a"), (b"x-bascule-servers", b"b")])
    with pytest.raises(Refused, match="more than once"):
        narrowing(twice)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"server_ids": "fs"}, "mcp.server_ids: must be a list"),
        ({"server_ids": [""]}, "mcp.server_ids[0]: must not be empty"),
        ({"tool_allowlist": ["a", 3]}, "mcp.tool_allowlist[1]: must be a string"),
        ({"tool_denylist": ["*/x"]}, "mcp.tool_denylist[0]: the server part"),
        ({"read_only": 1}, "mcp.read_only: must be true or false"),
        ({"servers": []}, "mcp.servers: unknown field"),
        ([], "mcp: must be a table"),
    ],
)
def test_json_that_is_wrong_is_told_with_its_path(value: Any, problem: str):
    with pytest.raises(InvalidRecord) as refused:
        narrowing_of(value)
    assert refused.value.problems[0].startswith(problem)


def test_one_form_alone_is_what_counts():
    asked = request(read_only=True)
    assert narrowed(asked, None) is asked
    assert narrowed(None, asked) is asked
    assert narrowed(None, None) is None


def test_two_forms_narrow_together():
    both = narrowed(
        request(enabled=True, server_ids=["a", "b"], tool_denylist=["x"]),
        request(server_ids=["b", "c"], tool_denylist=["y", "x"], read_only=True),
    )
    assert both == request(enabled=True, server_ids=["b"], tool_denylist=["x", "y"], read_only=True)
    off = narrowed(request(enabled=True), request(enabled=False))
    assert off is not None
    assert off.enabled is False


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        (["read_*"], ["*"], ["read_*"]),
        (["read_*"], ["read_file"], ["read_file"]),
        (["read_*"], ["read_f*", "write"], ["read_f*"]),
        (["fs/read"], ["read", "db/read"], ["fs/read"]),
        (["fs/*"], ["read"], ["fs/read"]),
        (["fs/*"], ["db/*"], []),
        (["read_*"], ["write_*"], []),
        (["read"], ["write"], []),
        (["a?c"], ["a?c"], ["a?c"]),
        ([], ["*"], []),
    ],
)
def test_two_allowlists_leave_what_both_allow(
    first: list[str], second: list[str], common: list[str]
):
    for one, other in ((first, second), (second, first)):
        both = narrowed(request(tool_allowlist=one), request(tool_allowlist=other))
        assert both is not None
        assert list(both.tool_allowlist or ()) == common


def test_long_lists_are_refused_before_they_are_worked_off():
    many = [f"x{number}*" for number in range(5_000)]
    with pytest.raises(InvalidRecord, match=r"mcp.tool_denylist: has more than 1024 entries"):
        narrowing_of({"tool_denylist": many})
    with pytest.raises(Refused, match="has more than 1024 entries"):
        narrowing(Headers({"X-Bascule-Servers": ",".join("s" * 5_000)}))
    first = request(tool_allowlist=many[:1000])
    second = request(tool_allowlist=[f"y{number}*" for number in range(1000)])
    with pytest.raises(Refused, match="give them in one"):
        narrowed(first, second)
    assert narrowed(first, request(tool_allowlist=["x7*"])) is not None


def test_patterns_that_overlap_without_a_pattern_for_it_are_refused():
    with pytest.raises(Refused, match="give them in one"):
        narrowed(request(tool_allowlist=["read_*"]), request(tool_allowlist=["*_file"]))


GLOBS = st.text("ab*?", min_size=1, max_size=4)
PATTERNS = st.lists(GLOBS | GLOBS.map(lambda glob: f"s/{glob}"), max_size=3)


@given(PATTERNS, PATTERNS, st.text("ab", max_size=5), st.sampled_from(["s", "t"]))
def test_two_allowlists_never_allow_what_one_does_not(
    first: list[str], second: list[str], tool: str, server: str
):
    try:
        both = narrowed(request(tool_allowlist=first), request(tool_allowlist=second))
    except Refused:
        return
    assert both is not None
    allowed = PatternSet(both.tool_allowlist or ()).first(server, tool) is not None
    expected = all(PatternSet(given).first(server, tool) is not None for given in (first, second))
    assert allowed == expected


@pytest.mark.requirement("budgets:request-output")
@pytest.mark.parametrize("bad", ["", "0", "-1", "1.5", "many", "104857601", "1" * 400, "\u0661"])
def test_a_limit_that_is_no_number_of_bytes_is_refused(bad: str):
    with pytest.raises(Refused, match="X-Bascule-Max-Tool-Output-Bytes"):
        narrowing(Headers(raw=[(b"x-bascule-max-tool-output-bytes", bad.encode())]))


@pytest.mark.requirement("budgets:request-output")
def test_of_two_limits_the_lower_one_counts():
    low, high = request(max_tool_output_bytes=10), request(max_tool_output_bytes=20)
    for first, second in ((low, high), (high, low), (low, request()), (request(), low)):
        both = narrowed(first, second)
        assert both is not None
        assert both.max_tool_output_bytes == 10
