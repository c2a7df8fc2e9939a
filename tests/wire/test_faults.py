"""One table: how each error looks at every face, and what a model reads of an outcome."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from bascule import errors
from bascule.errors import BasculeError, ToolError
from bascule.model.code import CODES, ErrorCode, call_status
from bascule.model.outcome import Failed, Success, failure
from bascule.wire.faults import FACES, face, failure_of, tool_message

SEEDS = {
    "mcp_unavailable",
    "mcp_timeout",
    "mcp_invalid_arguments",
    "mcp_policy_denied",
    "mcp_output_too_large",
}
OURS = {
    "mcp_approval_required",
    "mcp_approval_denied",
    "mcp_budget_exceeded",
    "mcp_outcome_unknown",
    "mcp_tool_error",
    "tool_exec_failed",
}
GRPC = {
    "OK",
    "UNIMPLEMENTED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "ABORTED",
    "OUT_OF_RANGE",
    "DEADLINE_EXCEEDED",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "UNAVAILABLE",
}
GUEST_ERRNOS = {1, 2, 5, 9, 11, 12, 13, 14, 22, 28, 32, 38, 104, 107, 110}


def failed(code: ErrorCode) -> Failed:
    return Failed(error=failure(code, "no"), request_id="r", revision=1)


def every_error(root: type[BasculeError] = BasculeError) -> list[type[BasculeError]]:
    return [root, *(below for direct in root.__subclasses__() for below in every_error(direct))]


@pytest.mark.requirement("outcomes:shape")
@pytest.mark.parametrize("code", get_args(ErrorCode))
def test_a_failed_call_is_an_error_with_code_message_and_retryable(code: ErrorCode):
    body = json.loads(tool_message(failed(code)))
    assert {key: body["error"][key] for key in ("code", "message", "retryable")} == {
        "code": code,
        "message": "no",
        "retryable": code in ("mcp_unavailable", "mcp_timeout"),
    }


@pytest.mark.requirement("outcomes:codes-closed")
def test_the_codes_are_the_seeds_five_and_ours():
    assert set(get_args(ErrorCode)) == SEEDS | OURS == set(CODES)


@pytest.mark.requirement("outcomes:one-table")
def test_every_code_and_every_error_has_a_face():
    codes = {
        *get_args(ErrorCode),
        *(error.code for error in every_error() if "code" in vars(error)),
    }
    assert codes <= set(FACES)
    for code in codes:
        assert 200 <= face(code).http < 600
        assert face(code).grpc in GRPC
        assert face(code).errno in GUEST_ERRNOS
    assert face("never heard of") == face("internal")


@pytest.mark.requirement("outcomes:one-table")
def test_an_errors_failure_has_the_code_that_the_tree_gives_it():
    given: dict[BasculeError, tuple[str, bool]] = {
        errors.ServerUnavailable("x"): ("mcp_unavailable", True),
        errors.NotDelivered("x"): ("mcp_unavailable", True),
        errors.LaunchDenied("x"): ("mcp_unavailable", False),
        errors.OutcomeUnknown("x"): ("mcp_outcome_unknown", False),
        errors.DeadlineExceeded("x"): ("mcp_timeout", True),
        errors.RemoteError(-32603, "x"): ("mcp_tool_error", False),
        errors.RemoteError(-32602, "x"): ("mcp_invalid_arguments", False),
        errors.MalformedReply("x"): ("mcp_tool_error", False),
    }
    for error, (code, retryable) in given.items():
        found = failure_of(error)
        assert (found.code, found.retryable) == (code, retryable), error
        assert "x" in found.message


@pytest.mark.requirement("outcomes:shape")
def test_an_outcome_is_either_a_success_or_a_failure():
    success = Success(
        text="hi", content=({"type": "text", "text": "hi"},), request_id="r", revision=1
    )
    assert (success.ok, success.error, success.unwrap()) == (True, None, "hi")
    refused = failed("mcp_policy_denied")
    assert not refused.ok
    with pytest.raises(ToolError) as raised:
        refused.unwrap()
    assert (raised.value.code, raised.value.retryable) == ("mcp_policy_denied", False)


def test_a_denied_approval_is_called_the_same_by_ledger_and_chat():
    assert {code for code in CODES if call_status(code) == "denied"} == {
        "mcp_policy_denied",
        "mcp_approval_denied",
    }
    assert (call_status(None), call_status("mcp_outcome_unknown")) == ("ok", "unknown")
