"""The exceptions: one form for all of them, and they travel whole between processes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from bascule.section import (
    McpConfigError,
    McpConnectionError,
    McpError,
    McpSchemaError,
    McpTimeoutError,
    McpToolError,
    StdioTransport,
)

EVERY: list[McpError] = [
    McpError("it failed"),
    McpConfigError("it failed"),
    McpConnectionError("it failed", server_name="a", transport=StdioTransport(command="x")),
    McpToolError("it failed", server_name="a", tool_name="t", rpc_error={"code": -32000}),
    McpToolError("it failed", server_name="a", tool_name="t"),
    McpTimeoutError("it failed", server_name="a", timeout=1.5),
    McpSchemaError("it failed", server_name="a", tool_name="t", reason="too large"),
]


@pytest.mark.requirement("section:error:tree")
@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_an_exception_can_be_copied_and_pickled(error: McpError) -> None:
    unpickled = pickle.loads(pickle.dumps(error))  # noqa: S301 - what was pickled right here
    for again in (unpickled, copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert str(again) == "it failed"
        assert vars(again) == vars(error)


@pytest.mark.requirement("section:error:schema")
def test_a_schema_error_says_where_and_why() -> None:
    error = McpSchemaError("too large", server_name="a", tool_name="t")
    assert (error.server_name, error.tool_name, error.reason) == ("a", "t", "too large")
    assert str(error) == "a/t: too large"
    assert str(copy.copy(error)) == str(error)


@pytest.mark.requirement("section:error:tool")
def test_what_a_server_answered_is_kept_apart_from_the_callers_object() -> None:
    answer: dict[str, Any] = {"code": -32000, "message": "no"}
    error = McpToolError("no", server_name="a", tool_name="t", rpc_error=answer)
    answer.clear()
    assert error.rpc_error == {"code": -32000, "message": "no"}
