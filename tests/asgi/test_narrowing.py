"""What a caller asks of its session, in headers and in JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from bascule.asgi.errors import Refused
from bascule.asgi.narrowing import narrowing, narrowing_of
from bascule.errors import InvalidRecord
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


@given(REQUESTS)
def test_whatever_a_session_asks_for_goes_through_headers_unharmed(asked: SessionRequest):
    headers = headers_of(asked)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert narrowing(Headers(headers)) == ((asked,) if headers else ())


def test_without_headers_nothing_is_asked():
    assert narrowing(Headers({"Accept": "*/*"})) == ()


def test_an_empty_list_is_not_an_absent_one():
    asked = narrowing(Headers({"X-Bascule-Servers": "", "X-Bascule-Tools-Allow": " "}))
    assert asked == (SessionRequest(server_ids=(), tool_allowlist=()),)


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


def test_long_lists_are_refused_before_they_are_worked_off():
    many = [f"x{number}*" for number in range(5_000)]
    with pytest.raises(InvalidRecord, match=r"mcp.tool_denylist: has more than 1024 entries"):
        narrowing_of({"tool_denylist": many})
    with pytest.raises(Refused, match="has more than 1024 entries"):
        narrowing(Headers({"X-Bascule-Servers": ",".join("s" * 5_000)}))


@pytest.mark.requirement("budgets:request-output")
@pytest.mark.parametrize("bad", ["", "0", "-1", "1.5", "many", "104857601", "1" * 400, "\u0661"])
def test_a_limit_that_is_no_number_of_bytes_is_refused(bad: str):
    with pytest.raises(Refused, match="X-Bascule-Max-Tool-Output-Bytes"):
        narrowing(Headers(raw=[(b"x-bascule-max-tool-output-bytes", bad.encode())]))
