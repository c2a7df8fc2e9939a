"""One error tree with stable codes.

    BasculeError
    ├── InvalidRecord        what was given cannot be read: every problem, with its path
    ├── SessionRefused       a session asks for more than it may have
    ├── ToolError            a call that failed, raised by ``Outcome.unwrap``
    ├── ServerUnavailable    a server cannot be reached or started; nothing was delivered
    │   ├── NotDelivered     this request provably never left
    │   └── LaunchDenied     the node's own rules refuse to start or reach it
    ├── BudgetExceeded       a limit is used up; nothing was sent
    ├── OutcomeUnknown       the request left, and no answer will come
    ├── DeadlineExceeded     the time is up
    ├── RemoteError          the peer answered with a JSON-RPC error
    └── MalformedReply       the peer's answer cannot be read

How each one looks at a face (HTTP, tool JSON, errno) is one table in ``bascule.wire.faults``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class BasculeError(Exception):
    """Root of every error that Bascule raises on purpose."""

    code: str = "internal"


class InvalidRecord(BasculeError):
    """Input that cannot be accepted. ``problems`` are ``path: message`` lines, all of them."""

    code = "invalid_record"

    def __init__(self, problems: Sequence[str], *, source: str | None = None) -> None:
        self.problems = tuple(problems)
        self.source = source
        text = "; ".join(self.problems)
        super().__init__(f"{source}: {text}" if source else text)


def refuse_any(problems: Sequence[str], *, source: str | None = None) -> None:
    """Raise InvalidRecord if there is any problem."""
    if problems:
        raise InvalidRecord(problems, source=source)


class SessionRefused(BasculeError):
    """A session asked for more than its task allows. Nothing was opened."""

    code = "session_refused"

    def __init__(self, reason: str, message: str, *, server: str | None = None) -> None:
        self.reason = reason
        self.server = server
        super().__init__(message)


class ServerUnavailable(BasculeError):
    """A server cannot serve now. ``reason`` is the node layer's stable reason code."""

    code = "mcp_unavailable"

    def __init__(self, message: str, *, reason: str = "unavailable") -> None:
        self.reason = reason
        super().__init__(message)


class NotDelivered(ServerUnavailable):
    """The request provably never reached the server, so it may be sent again."""


class LaunchDenied(ServerUnavailable):
    """The node's own rules (executables, variables, egress) refuse this server."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="launch_denied")


class BudgetExceeded(BasculeError):
    """A limit is used up; nothing was sent."""

    code = "mcp_budget_exceeded"

    def __init__(self, message: str, *, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class OutcomeUnknown(BasculeError):
    """The request was sent and its answer is lost: it may or may not have been carried out."""

    code = "mcp_outcome_unknown"


class DeadlineExceeded(BasculeError):
    """A wait reached its absolute deadline."""

    code = "mcp_timeout"


class RemoteError(BasculeError):
    """The peer answered with a JSON-RPC error object."""

    code = "mcp_tool_error"

    def __init__(self, rpc_code: int, message: str, data: Any = None) -> None:
        self.rpc_code = rpc_code
        self.message = message
        self.data = data
        super().__init__(f"{message} ({rpc_code})")


class MalformedReply(BasculeError):
    """The peer's answer cannot be read: the call it belongs to fails, once."""

    code = "mcp_tool_error"


class ToolError(BasculeError):
    """A tool call that did not succeed, as an exception (see ``Outcome.unwrap``)."""

    def __init__(self, code: str, message: str, *, retryable: bool) -> None:
        self.code = code
        self.retryable = retryable
        super().__init__(f"{code}: {message}")
