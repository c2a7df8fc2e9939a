"""The codes of failed calls, and every fact about each of them in one table.

Everything that depends on a code reads it here: whether to try again, whether a budget is spent,
what the ledger and a chat report call it, and how it looks over HTTP, gRPC and to a guest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

ErrorCode = Literal[
    "mcp_unavailable",
    "mcp_timeout",
    "mcp_invalid_arguments",
    "mcp_policy_denied",
    "mcp_output_too_large",
    "mcp_approval_required",
    "mcp_approval_denied",
    "mcp_budget_exceeded",
    "mcp_outcome_unknown",
    "mcp_tool_error",
    "tool_exec_failed",
]
CallStatus = Literal["ok", "denied", "failed", "cancelled", "unknown"]


class Face(Struct, frozen=True):
    """What a code looks like outside: HTTP status, gRPC status name, errno (Linux numbers)."""

    http: int
    grpc: str
    errno: int


class CodeFacts(Face, frozen=True, kw_only=True):
    """A code of a failed call.

    ``reached`` says that the tool may have run, so that the call counts against budgets.
    """

    retryable: bool = False
    reached: bool = False
    status: CallStatus = "failed"


CODES: Mapping[ErrorCode, CodeFacts] = {
    "mcp_unavailable": CodeFacts(503, "UNAVAILABLE", 107, retryable=True),
    "mcp_timeout": CodeFacts(504, "DEADLINE_EXCEEDED", 110, retryable=True, reached=True),
    "mcp_invalid_arguments": CodeFacts(422, "INVALID_ARGUMENT", 22),
    "mcp_policy_denied": CodeFacts(403, "PERMISSION_DENIED", 13, status="denied"),
    "mcp_output_too_large": CodeFacts(200, "OK", 28, reached=True),
    "mcp_approval_required": CodeFacts(409, "FAILED_PRECONDITION", 1),
    "mcp_approval_denied": CodeFacts(403, "PERMISSION_DENIED", 1, status="denied"),
    "mcp_budget_exceeded": CodeFacts(429, "RESOURCE_EXHAUSTED", 11),
    "mcp_outcome_unknown": CodeFacts(502, "UNKNOWN", 104, reached=True, status="unknown"),
    "mcp_tool_error": CodeFacts(200, "OK", 5, reached=True),
    "tool_exec_failed": CodeFacts(200, "OK", 5, reached=True),
}


def call_status(code: ErrorCode | None) -> CallStatus:
    """Return the word for how a call ended; without a code it went well."""
    return "ok" if code is None else CODES[code].status
