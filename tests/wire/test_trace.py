"""Which trace of a caller goes on to a server."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.wire.trace import trace_of

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"


@pytest.mark.requirement("call:trace")
@pytest.mark.parametrize("state", [STATE, "a=b, c=d e", "~" * 512])
def test_a_valid_trace_is_taken_exactly_as_it_came(state: str):
    meta: dict[str, Any] = {"traceparent": PARENT, "tracestate": state}
    assert trace_of(meta) == meta


@pytest.mark.requirement("call:trace")
def test_nothing_else_of_the_meta_is_taken():
    more = {"baggage": "user=alice", "progressToken": 1, "io.modelcontextprotocol/logLevel": "info"}
    assert trace_of({**more, "traceparent": PARENT}) == {"traceparent": PARENT}
    assert trace_of(more) == {}


@pytest.mark.parametrize(
    "parent",
    [
        None,
        7,
        "",
        [PARENT],
        PARENT.upper(),
        PARENT.replace("00-", "01-", 1),
        PARENT.replace("00-", "ff-", 1),
        PARENT + "-more",
        PARENT + "\n",
        " " + PARENT,
        PARENT[:-1],
        PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        PARENT.replace("b7ad6b7169203331", "0" * 16),
        PARENT.replace("b7ad", "b7a\uff44"),
    ],
)
def test_without_a_valid_parent_there_is_no_trace(parent: Any):
    assert trace_of({"traceparent": parent, "tracestate": STATE}) == {}


@pytest.mark.parametrize(
    "state", [None, 7, "", "a" * 513, "a=b\r\nc=d", "a=\x00", "a=ü", "a=b\t", [STATE]]
)
def test_a_state_that_is_not_valid_is_left_out_alone(state: Any):
    assert trace_of({"traceparent": PARENT, "tracestate": state}) == {"traceparent": PARENT}
