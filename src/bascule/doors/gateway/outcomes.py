"""How each outcome of a call looks to an MCP client: one table, beside those of the other faces.

| outcome | as MCP |
|---|---|
| the tool's answer, its own ``isError`` too | a result |
| a server's own JSON-RPC error | that error; a code that is not for it to use becomes -32603 |
| a tool that is hidden or that there is not | -32602, in the same words |
| a capability that the client lacks | -32021 (modern) |
| every other failure | a result with ``isError``, a text for the model, ``bascule/error`` |
| an answer that was cut | a result with the marker and ``bascule/truncated`` |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bascule.clock import rfc3339
from bascule.doors.gateway.caller import Caller
from bascule.doors.gateway.generation import SERVER_META
from bascule.doors.gateway.kept_outputs import NAME as READ_OUTPUT_NAME
from bascule.doors.gateway.messages import RpcError
from bascule.doors.gateway.shapes import ResultFields, is_plain_text, result_for
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.outcome import Failed, Failure, Outcome, Success, Truncation
from bascule.wire.rpc_codes import INTERNAL_ERROR, INVALID_PARAMS, MISSING_CAPABILITY
from bascule.wire.strict_json import dumps

ERROR_KEY: Final = "bascule/error"
TRUNCATED_KEY: Final = "bascule/truncated"
WARNINGS_KEY: Final = "bascule/warnings"
#: JSON-RPC's own codes and the specification's are not for servers to use through us; of the
#: former, -32603 says what it says, and the older ones of servers mean nothing to anybody.
_RESERVED = range(-32768, -32019)
#: How much of a name that a caller made up is told back.
_MAX_NAME = 128
_COMPLETE = b'"resultType":"complete","_meta":' + dumps(SERVER_META)


def result_of(outcome: Outcome, caller: Caller) -> bytes:
    """Return the result of a call, serialised; raise RpcError where it is none."""
    if type(outcome) is Success and _is_plain(outcome):
        content = dumps(outcome.content)
        if caller.modern:
            return b'{"content":%b,%b}' % (content, _COMPLETE)
        return b'{"content":%b}' % content
    if isinstance(outcome, Failed):
        _raise_rpc_error(outcome.error, caller)
    return dumps(result_for(_fields(outcome, caller), caller.version))


def _is_plain(outcome: Success) -> bool:
    """Say whether a result is one text and nothing else, as most are."""
    if outcome.structured is not None or outcome.truncated is not None or outcome.extra:
        return False
    content = outcome.content
    return not outcome.warnings and len(content) == 1 and is_plain_text(content[0])


def _raise_rpc_error(error: Failure, caller: Caller) -> None:
    """Raise a server's own JSON-RPC error, as far as it may be shown."""
    details: Mapping[str, Any] = error.details or {}
    code = details.get("rpc_code")
    if type(code) is not int or error.code == "mcp_invalid_arguments":
        return
    data = details.get("rpc_data")
    if code == MISSING_CAPABILITY:
        _raise_missing(error, data, caller)
        return
    said: JsonObject | None = data if is_object(data) else None
    if code in _RESERVED and code != INTERNAL_ERROR:
        code, said = INTERNAL_ERROR, {"rpc_code": code, **(said or {})}
    raise RpcError(code, error.message, said)


def _raise_missing(error: Failure, data: JsonValue, caller: Caller) -> None:
    """Tell the client what it lacks; what it has and nobody passes on is a plain failure."""
    required = data.get("requiredCapabilities") if is_object(data) else None
    if not caller.modern or not is_object(required):
        return
    missing: JsonObject = {
        name: wanted for name, wanted in required.items() if name not in caller.capabilities
    }
    if missing:
        raise RpcError(MISSING_CAPABILITY, error.message, {"requiredCapabilities": missing})


def _fields(outcome: Outcome, caller: Caller) -> ResultFields:
    content = [dict(block) for block in outcome.content]
    meta: dict[str, JsonValue] = dict(SERVER_META) if caller.modern else {}
    if outcome.warnings:
        meta[WARNINGS_KEY] = list(outcome.warnings)
    if isinstance(outcome, Failed):
        meta[ERROR_KEY] = _error(outcome, caller)
        if not _is_servers_own(outcome):
            content.insert(0, {"type": "text", "text": words_of(outcome.error, caller)})
    if outcome.truncated is not None:
        meta[TRUNCATED_KEY] = _truncated(outcome.truncated)
        content += _how_to_go_on(outcome.truncated)
    extra = {**outcome.extra, "_meta": {**_meta_of(outcome), **meta}} if meta else outcome.extra
    return ResultFields(content, outcome.structured, is_error=not outcome.ok, extra=extra)


def _meta_of(outcome: Outcome) -> JsonObject:
    found = outcome.extra.get("_meta")
    return found if is_object(found) else {}


def _is_servers_own(outcome: Failed) -> bool:
    """Say whether the tool itself said what went wrong: its words will do."""
    return outcome.error.code == "mcp_tool_error" and bool(outcome.content)


def _error(outcome: Failed, caller: Caller) -> JsonObject:
    """Return a failure for programs: the ledger's own code, and what to do about it."""
    error = outcome.error
    said: dict[str, JsonValue] = {
        "code": error.code,
        "message": error.message,
        "retryable": error.retryable,
        "request_id": outcome.request_id,
    }
    if error.retry_after is not None:
        said["retry_after"] = error.retry_after
    details: Mapping[str, Any] = error.details or {}
    if "approval_id" in details:
        said["approval_id"] = details["approval_id"]
        said["approval_url"] = _approval_url(details["approval_id"], caller)
        if isinstance(details.get("expires_at"), int | float):
            said["expires_at"] = rfc3339(details["expires_at"])
    return said


def _approval_url(id: str, caller: Caller) -> str:
    return f"{caller.address}/api/v1/approvals/{id}"


def words_of(error: Failure, caller: Caller) -> str:
    """Return a failure in words that a model can use."""
    words = f"{error.code}: {error.message}"
    details: Mapping[str, Any] = error.details or {}
    if error.code == "mcp_approval_required" and "approval_id" in details:
        id = details["approval_id"]
        return (
            f"{words}\nThe approval is {id}, at {_approval_url(id, caller)}. Somebody else has to "
            f"decide: bascule approvals approve {id}. Then make exactly the same call again: it "
            "goes through once."
        )
    if error.retryable:
        after = "" if error.retry_after is None else f" in {error.retry_after:g} s"
        return f"{words}\nThe same call may be tried again{after}."
    return words


def _truncated(cut: Truncation) -> JsonObject:
    return {"shown": cut.shown, "total": cut.total, "handle": cut.handle}


def _how_to_go_on(cut: Truncation) -> list[dict[str, JsonValue]]:
    if cut.handle is None:
        return []
    words = f"[cut output: read the rest with {READ_OUTPUT_NAME}, handle {cut.handle}]"
    return [{"type": "text", "text": words}]


def unknown_tool(name: str) -> RpcError:
    """Return the refusal of a name that means nothing to this caller: hidden, or not there."""
    shown = name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"
    return RpcError(INVALID_PARAMS, f"Unknown tool: {shown}")
