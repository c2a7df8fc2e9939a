"""How an error ends a call: with the status of the one table, and what else it says as a message.

The details are those that HTTP has. Where a watch cannot go on they are messages of their own.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import NoReturn

import grpc
from google.protobuf.message import DecodeError, Message

from bascule.asgi.errors import Refused, as_refused
from bascule.control.rpc.calls import Context
from bascule.model.json import JsonObject
from bascule.wire.faults import FACES
from bascule.wire.pb import errors_pb2
from bascule.wire.protobuf import message_of
from bascule.wire.rpc_errors import DETAILS, MESSAGES

logger = logging.getLogger(__name__)

#: Codes that the guard has at other faces, and no error of the registry.
_STATUSES: Mapping[str, grpc.StatusCode] = {
    "unauthenticated": grpc.StatusCode.UNAUTHENTICATED,
    "shutting_down": grpc.StatusCode.UNAVAILABLE,
}


async def end_with(error: Exception, context: Context) -> NoReturn:
    """End a call as an error says; what must not be told is logged, under an id."""
    refused = _refused(error)
    if refused is None:
        number = secrets.token_hex(4)
        logger.error("a call over gRPC failed (%s)", number, exc_info=error)
        refused = Refused("internal", f"something went wrong inside; the log has it under {number}")
    status = status_of(refused.code)
    whole = errors_pb2.Status(code=status.value[0], message=str(refused))
    whole.details.add().Pack(_details(refused))
    await context.abort(status, str(refused), ((DETAILS, whole.SerializeToString()),))


def status_of(code: str) -> grpc.StatusCode:
    """Return the gRPC status of a code; an answer that is an error is never OK."""
    if code in _STATUSES:
        return _STATUSES[code]
    found = grpc.StatusCode[FACES[code].grpc] if code in FACES else grpc.StatusCode.INTERNAL
    return grpc.StatusCode.UNKNOWN if found is grpc.StatusCode.OK else found


def _refused(error: Exception) -> Refused | None:
    if isinstance(error, DecodeError):
        return Refused("invalid_request", "the message cannot be read")
    return as_refused(error)


def _details(refused: Refused) -> Message:
    if refused.code in MESSAGES:
        return message_of(MESSAGES[refused.code], refused.details)
    return message_of(errors_pb2.Refusal, _refusal(refused))


def _refusal(refused: Refused) -> JsonObject:
    details = dict(refused.details)
    problems = details.pop("problems", [])
    field = details.get("field") or details.get("parameter") or ""
    return {"code": refused.code, "field": field, "problems": problems, "details": details}
