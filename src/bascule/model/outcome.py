"""Outcomes: what came of a call, as data for a model rather than the end of a conversation.

``ok`` narrows: a ``Success`` has no error, a ``Failed`` always has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NoReturn, TypeAlias

from msgspec import Struct

from bascule.errors import ToolError
from bascule.model.code import CODES, ErrorCode


class Failure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a call failed, in the form every face shows."""

    code: ErrorCode
    message: str
    retryable: bool
    retry_after: float | None = None
    details: Mapping[str, Any] | None = None


class Truncation(Struct, frozen=True, kw_only=True):
    """An output that was cut: bytes shown, bytes in all, and the handle of the full text."""

    shown: int
    total: int
    handle: str | None = None

    @property
    def error(self) -> Failure:
        """Return the cut as the structured error that JSON faces show beside what is left."""
        message = f"the output was cut: {self.shown} of {self.total} bytes are shown"
        return failure("mcp_output_too_large", message)


class Success(Struct, frozen=True, kw_only=True, gc=False):
    """A tool's answer. One that was cut is still an answer: ``truncated`` says so."""

    text: str
    content: tuple[Mapping[str, Any], ...]
    request_id: str
    revision: int
    structured: Any = None
    truncated: Truncation | None = None
    warnings: tuple[str, ...] = ()
    #: What the result has besides: ``_meta``, and fields that nobody here knows.
    extra: Mapping[str, Any] = {}

    @property
    def ok(self) -> Literal[True]:
        """Say that the call succeeded."""
        return True

    @property
    def error(self) -> None:
        """Say that there is no error."""
        return

    def unwrap(self) -> Any:
        """Return the value: structured content where there is any, otherwise the text.

        Of a result that was cut it is the text, which says at its end that it was cut.
        """
        whole = self.structured is not None and self.truncated is None
        return self.structured if whole else self.text


class Failed(Struct, frozen=True, kw_only=True):
    """A call that did not succeed; ``text`` and ``content`` keep what the tool did say."""

    error: Failure
    request_id: str
    revision: int
    text: str = ""
    content: tuple[Mapping[str, Any], ...] = ()
    structured: Any = None
    truncated: Truncation | None = None
    warnings: tuple[str, ...] = ()
    extra: Mapping[str, Any] = {}

    @property
    def ok(self) -> Literal[False]:
        """Say that the call failed."""
        return False

    def unwrap(self) -> NoReturn:
        """Raise the failure as a ``ToolError``."""
        raise ToolError(self.error.code, self.error.message, retryable=self.error.retryable)


Outcome: TypeAlias = Success | Failed


def shown_error(outcome: Outcome) -> Failure | None:
    """Return what JSON faces show as ``error``: why a call failed, or that its output was cut."""
    if outcome.error is not None or outcome.truncated is None:
        return outcome.error
    return outcome.truncated.error


def failure(code: ErrorCode, message: str, **extra: Any) -> Failure:
    """Make a failure with the code's usual answer to "may I try again?"."""
    return Failure(code=code, message=message, retryable=CODES[code].retryable, **extra)
