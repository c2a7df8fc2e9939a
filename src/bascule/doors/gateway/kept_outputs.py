"""``bascule__read_output``: the rest of an output that was cut, for callers who have a handle."""

from __future__ import annotations

from bascule.errors import ToolError
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.outcome import Failed, Failure, Outcome, Success, failure
from bascule.node.bridge.session import Session

NAME = "bascule__read_output"
#: How much is read at once, if the session's own cap is not lower.
MAX_PART_BYTES = 64 * 1024
_PLACE: JsonObject = {"type": "integer", "minimum": 0}
READ_OUTPUT: JsonObject = {
    "name": NAME,
    "title": "Read the rest of an output",
    "description": "Reads bytes start to end of an output that was cut. The handle stands in the "
    'result that was cut, under _meta["bascule/truncated"] and in its text.',
    "inputSchema": {
        "type": "object",
        "properties": {
            "handle": {"type": "string", "description": "which output"},
            "start": {**_PLACE, "description": "the first byte, from 0 on"},
            "end": {**_PLACE, "description": f"after the last byte; at most {MAX_PART_BYTES} more"},
        },
        "required": ["handle"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
}


async def read_output(session: Session, arguments: JsonValue) -> Outcome:
    """Read a part of an output; everything that is wrong comes back as an outcome."""
    most = min(MAX_PART_BYTES, session.max_tool_output_bytes or MAX_PART_BYTES)
    part = _part(arguments, most)
    if part is None:
        words = (
            "handle: a string; start, end: whole numbers from 0 on, at most "
            f"{most} bytes apart; nothing else is taken"
        )
        return _failed(session, failure("mcp_invalid_arguments", words))
    try:
        text = await session.output(*part)
    except KeyError:
        words = "handle: no output is kept under it any more"
        return _failed(session, failure("mcp_invalid_arguments", words))
    except ToolError as error:
        return _failed(session, failure("mcp_policy_denied", str(error)))
    content = ({"type": "text", "text": text},)
    return Success(text=text, content=content, request_id="", revision=session.revision)


def _part(arguments: JsonValue, most: int) -> tuple[str, int, int] | None:
    """Return which bytes of which output are meant; None where that is not said."""
    if not is_object(arguments) or arguments.keys() - {"handle", "start", "end"}:
        return None
    handle, start = arguments.get("handle"), arguments.get("start", 0)
    if not isinstance(handle, str) or type(start) is not int:
        return None
    end = arguments.get("end", start + most)
    if type(end) is not int or not 0 <= start <= end <= start + most:
        return None
    return handle, start, end


def _failed(session: Session, error: Failure) -> Failed:
    return Failed(error=error, request_id="", revision=session.revision)
