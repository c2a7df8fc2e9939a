"""One table: how each internal error looks at every face.

Nothing else decides what an error looks like.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from bascule.errors import (
    BasculeError,
    BudgetExceeded,
    DeadlineExceeded,
    OutcomeUnknown,
    RemoteError,
    ServerUnavailable,
)
from bascule.model.code import CODES, ErrorCode, Face
from bascule.model.content import block_text, noted
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.outcome import (
    Failed,
    Failure,
    Outcome,
    Success,
    Truncation,
    failure,
)
from bascule.wire.rpc_codes import INVALID_PARAMS
from bascule.wire.strict_json import StrictJsonError, dumps

FACES: Mapping[str, Face] = {
    **CODES,
    "invalid_record": Face(422, "INVALID_ARGUMENT", 22),
    "invalid_schema": Face(502, "FAILED_PRECONDITION", 5),
    "session_refused": Face(403, "PERMISSION_DENIED", 13),
    "not_found": Face(404, "NOT_FOUND", 2),
    "already_exists": Face(409, "ALREADY_EXISTS", 22),
    "conflict": Face(412, "ABORTED", 11),
    "forbidden": Face(403, "PERMISSION_DENIED", 13),
    "confirmation_required": Face(403, "PERMISSION_DENIED", 13),
    "invalid_code": Face(401, "PERMISSION_DENIED", 13),
    "pair_not_accepted": Face(403, "PERMISSION_DENIED", 13),
    "owned_by_file": Face(409, "FAILED_PRECONDITION", 13),
    "compacted": Face(410, "FAILED_PRECONDITION", 22),
    "store_changed": Face(410, "FAILED_PRECONDITION", 22),
    "future_revision": Face(400, "OUT_OF_RANGE", 22),
    "store_unavailable": Face(503, "UNAVAILABLE", 5),
    "no_node": Face(503, "UNAVAILABLE", 107),
    "invalid_request": Face(400, "INVALID_ARGUMENT", 22),
    "not_copied": Face(409, "FAILED_PRECONDITION", 22),
    "wrong_state": Face(409, "FAILED_PRECONDITION", 22),
    "wrong_conversation": Face(409, "FAILED_PRECONDITION", 22),
    "in_use": Face(409, "ABORTED", 11),
    "unknown_model": Face(404, "NOT_FOUND", 2),
    "tool_results_expired": Face(400, "FAILED_PRECONDITION", 22),
    "upstream_failed": Face(502, "UNAVAILABLE", 107),
    "chat_failed": Face(502, "UNKNOWN", 5),
    "unreachable": Face(502, "UNAVAILABLE", 107),
    "not_serving": Face(503, "UNAVAILABLE", 107),
    "registry_missing": Face(503, "FAILED_PRECONDITION", 2),
    "unknown_url": Face(404, "NOT_FOUND", 2),
    "no_token": Face(401, "PERMISSION_DENIED", 13),
    "guest_refused": Face(403, "PERMISSION_DENIED", 13),
    "bad_module": Face(422, "FAILED_PRECONDITION", 22),
    "guest_failed": Face(502, "UNKNOWN", 5),
    "no_engine": Face(501, "UNIMPLEMENTED", 38),
    "internal": Face(500, "INTERNAL", 5),
}

# So many bytes of JSON of what a server says beside its error are carried on.
_DATA, _MAX_DATA = "rpc_data", 4096


def face(code: str) -> Face:
    """Return what a code looks like; an unknown one is internal."""
    return FACES.get(code, FACES["internal"])


def failure_of(error: BasculeError) -> Failure:
    """Return a transport's error as the failure a caller sees."""
    if isinstance(error, ServerUnavailable) and error.reason == "launch_denied":
        return Failure(code="mcp_unavailable", message=str(error), retryable=False)
    if isinstance(error, ServerUnavailable) and error.reason == "ledger_unavailable":
        return failure("mcp_unavailable", str(error), details={"reason": error.reason})
    if isinstance(error, BudgetExceeded):
        return failure("mcp_budget_exceeded", str(error), retry_after=error.retry_after)
    if isinstance(error, RemoteError):
        return _remote(error)
    return failure(_code_of(error), str(error))


def _code_of(error: BasculeError) -> ErrorCode:
    if isinstance(error, ServerUnavailable):
        return "mcp_unavailable"
    if isinstance(error, DeadlineExceeded):
        return "mcp_timeout"
    return "mcp_outcome_unknown" if isinstance(error, OutcomeUnknown) else "mcp_tool_error"


def _remote(error: RemoteError) -> Failure:
    details: JsonObject = {"rpc_code": error.rpc_code, _DATA: error.data}
    invalid = error.rpc_code == INVALID_PARAMS
    code: ErrorCode = "mcp_invalid_arguments" if invalid else "mcp_tool_error"
    return failure(code, error.message, details=bounded(details))


def bounded(details: JsonObject) -> JsonObject:
    """Return the details of a failure; a server's own data are left out where they are too long."""
    if _DATA not in details or _is_small(details[_DATA]):
        return details
    return _without_data(details)


def _without_data(details: JsonObject) -> JsonObject:
    return {name: value for name, value in details.items() if name != _DATA}


def _is_small(data: JsonValue) -> bool:
    try:
        return data is not None and len(dumps(data)) <= _MAX_DATA
    except StrictJsonError:
        return False


def error_object(error: Failure) -> dict[str, JsonValue]:
    """Return ``{"code", "message", "retryable", ...}`` as a model reads it.

    A server's own data are for programs: often they are a stack trace.
    """
    if error.details is not None and _DATA in error.details:
        error = replace(error, details=_without_data(error.details))
    plain: dict[str, JsonValue] = msgspec.to_builtins(error)
    return plain


def tool_message(outcome: Outcome, *, always_json: bool = False) -> str:
    """Return what a model reads of an outcome.

    The tool's own text when that is all there is; JSON when the result is structured, has several
    blocks, was cut, or is an error. Media are a note. ``always_json`` gives the seeds' JSON form
    for everything.
    """
    if isinstance(outcome, Failed):
        return _json(_failed_body(outcome))
    content, structured = noted(outcome.content, outcome.structured)
    if outcome.truncated is not None:
        return _json(_cut_body(outcome, outcome.truncated, content, structured))
    if structured is not None:
        return _json(structured)
    if not always_json and _is_plain_text(content):
        return _text(content[0]) if content else outcome.text
    return _json({"content": content})


def _failed_body(outcome: Failed) -> dict[str, JsonValue]:
    body: dict[str, JsonValue] = {"error": error_object(outcome.error)}
    if outcome.truncated is not None:
        body["truncated"] = msgspec.to_builtins(outcome.truncated)
    return body


def _cut_body(
    outcome: Success, cut: Truncation, content: list[JsonObject], structured: JsonValue
) -> dict[str, JsonValue]:
    """Return what is left of a cut result, once, and that it was cut."""
    if structured is None or _is_left_to(outcome.text, structured):
        body = {"text": "\n".join(map(_text, content)) if content else outcome.text}
    else:
        body = {"structured": structured}
    return {**body, "truncated": msgspec.to_builtins(cut), "error": error_object(cut.error)}


def _is_left_to(text: str, structured: JsonValue) -> bool:
    """Say whether a cut form of structured content holds nothing that the text does not say."""
    if not is_object(structured) or not structured.keys() <= {"truncated", "json"}:
        return False
    return bool(text) and structured.get("json", text) == text


def _text(block: JsonObject) -> str:
    text = block_text(block)
    return _json(block) if text is None else text


def _is_plain_text(content: list[JsonObject]) -> bool:
    if len(content) > 1:
        return False
    return all(
        block.get("type") == "text" and isinstance(block.get("text"), str) for block in content
    )


def _json(value: JsonValue) -> str:
    return msgspec.json.encode(value).decode()
