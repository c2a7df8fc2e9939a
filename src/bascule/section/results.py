"""From what the bridge answers to what a tool gives: the one place where a result is translated.

Nothing is cleaned or cut here, the bridge has done it.

- ``value`` of a tool without an output schema is the result as MCP spells it: ``{"content": […]}``,
  with ``structuredContent`` where there is any.
- ``value`` of a tool with an output schema is the dataclass of that schema. Whether an answer that
  does not fit it is a failure is the bridge's word (``hygiene.output_schema``); where it is none,
  its value is the result as above.
- An output that was cut is a success that says so. Where it does not fit the output schema any
  more, its value is the result as above.
- A failure keeps the content that there is, as a tool has that says ``isError``; without any it has
  no value.
"""

from __future__ import annotations

from bascule.model.code import ErrorCode
from bascule.model.json import JsonValue
from bascule.model.outcome import Failed, Outcome, Success, failure
from bascule.section.dataclasses import SchemaType
from bascule.section.runtime import AnyResult, ToolResult

SUCCESS = "Success"


def result_of(outcome: Outcome, schema: SchemaType | None, *, timeout: float) -> AnyResult:
    """Translate an outcome of a call that had so many seconds."""
    if isinstance(outcome, Failed):
        return _failure(outcome, timeout)
    value = _spelled(outcome) if schema is None else _typed(outcome, schema)
    return ToolResult(_message(outcome), value, True, outcome.content, None, outcome.truncated)  # noqa: FBT003 - by position: this is the hot path


def failed(code: ErrorCode, message: str) -> AnyResult:
    """Return the result of a call that gave nothing."""
    return ToolResult(message, None, success=False, error=failure(code, message))


def _failure(outcome: Failed, timeout: float) -> AnyResult:
    error = outcome.error
    late = error.code == "mcp_timeout"
    message = f"timeout after {timeout:g} s: {error.message}" if late else error.message
    value = _spelled(outcome) if outcome.content or outcome.structured is not None else None
    return ToolResult(message, value, False, outcome.content, error, outcome.truncated)  # noqa: FBT003 - as above


def _typed(outcome: Success, schema: SchemaType) -> object:
    """Return the value as its dataclass; an answer that is of another shape as MCP spells it."""
    try:
        return _spelled(outcome) if outcome.structured is None else schema.load(outcome.structured)
    except ValueError:
        return _spelled(outcome)


def _message(outcome: Success) -> str:
    notes = outcome.warnings
    if outcome.truncated is not None:
        notes = (outcome.truncated.error.message, *notes)
    return f"{SUCCESS} ({'; '.join(notes)})" if notes else SUCCESS


def _spelled(outcome: Outcome) -> dict[str, JsonValue]:
    """Return a result as MCP spells it; ``isError`` is for what the tool itself says."""
    value: dict[str, JsonValue] = {"content": list(outcome.content)}
    if outcome.structured is not None:
        value["structuredContent"] = outcome.structured
    error = outcome.error
    if error is not None and error.code == "mcp_tool_error" and not error.details:
        value["isError"] = True
    return value
