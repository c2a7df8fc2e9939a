"""One error shape at every HTTP face: ``{"error": {"code", "message", "details"}}``.

The status comes from the one table in ``bascule.wire.faults``; what only HTTP can get wrong
(methods, media types, bodies) has its codes here. An internal error says nothing of what happened
inside: it is logged, under an id that the answer carries.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from bascule.errors import (
    BasculeError,
    InvalidRecord,
    RemoteError,
    ServerUnavailable,
    SessionRefused,
    ToolError,
)
from bascule.model.json import JsonObject, is_object
from bascule.wire.api.errors import Error, ErrorWords
from bascule.wire.faults import FACES, face

logger = logging.getLogger(__name__)

#: Codes that only HTTP has. A code that other faces show too belongs to ``wire.faults``.
HTTP_STATUSES: Mapping[str, int] = {
    "invalid_json": 400,
    "unauthenticated": 401,
    "origin_refused": 403,
    "person_refused": 403,
    "own_call": 403,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "changed": 409,
    "not_shown_whole": 409,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "host_refused": 421,
    "too_many_connections": 503,
    "shutting_down": 503,
}
# What Starlette itself may raise; the first of two codes with one status is the general one.
_CODES = {
    **{status: code for code, status in reversed(HTTP_STATUSES.items())},
    400: "invalid_request",
    403: "forbidden",
    404: "not_found",
    409: "already_exists",
    412: "conflict",
}
_FIRST_ERROR = 400
_INTERNAL = 500
_BAD_GATEWAY = 502
#: What passes by itself, and when to ask again.
_PASSING = {"store_unavailable": {"Retry-After": "2"}}


class Refused(BasculeError):
    """A request that is not carried out; ``code`` says why, and gives the status."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: JsonObject | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.code = code
        self.details = dict(details or {})
        self.headers = dict(headers or {})
        super().__init__(message)

    @property
    def body(self) -> Error:
        """Return it in the shape that every error has."""
        return error_body(self.code, str(self), self.details)


class ClientGone(BasculeError):
    """Whoever asked has hung up: there is nobody left to answer."""


def status_of(code: str) -> int:
    """Return the HTTP status of a code; an answer that is an error is never a success.

    A tool's own failure has status 200 inside an outcome. Raised past its endpoint it is a
    gateway's failure.
    """
    status = face(code).http if code in FACES else HTTP_STATUSES.get(code, _INTERNAL)
    return status if status >= _FIRST_ERROR else _BAD_GATEWAY


def error_body(code: str, message: str, details: JsonObject | None = None) -> Error:
    """Return the shape that every error has."""
    return Error(ErrorWords(code, message, details or {}))


def error_response(error: Exception, scope: Scope) -> Response:
    """Return the answer to a request that ended in this error; log what must not be told."""
    refused = as_refused(error)
    if refused is None:
        return _internal(error, scope)
    headers = {**_PASSING.get(refused.code, {}), **refused.headers}
    return _answer(refused.body, status_of(refused.code), headers)


def as_refused(error: Exception) -> Refused | None:
    """Return an error in the terms of the table, or None if it is not one for callers."""
    refused = _refused(error)
    return refused if refused and status_of(refused.code) != _INTERNAL else None


def _refused(error: Exception) -> Refused | None:
    if isinstance(error, Refused):
        return error
    if isinstance(error, BasculeError):
        return Refused(error.code, str(error), details=_details(error))
    if isinstance(error, HTTPException) and error.status_code < _INTERNAL:
        code = _CODES.get(error.status_code, "invalid_request")
        return Refused(code, error.detail, headers=error.headers)
    if isinstance(error, msgspec.ValidationError):
        return Refused("invalid_record", str(error))
    return None


def _details(error: BasculeError) -> JsonObject:
    """Return what an error says beside its message; one with ``details`` of its own knows best."""
    own = getattr(error, "details", None)
    if is_object(own):
        return dict(own)
    if isinstance(error, InvalidRecord):
        return {"problems": list(error.problems)}
    if isinstance(error, SessionRefused):
        return {"reason": error.reason, "server": error.server}
    if isinstance(error, ServerUnavailable):
        return {"reason": error.reason}
    if isinstance(error, RemoteError):
        return {"rpc_code": error.rpc_code}
    return {"retryable": error.retryable} if isinstance(error, ToolError) else {}


def _internal(error: Exception, scope: Scope) -> Response:
    request_id = scope.get("request_id", "")
    logger.error(
        "request %s failed: %s %r", request_id, scope["method"], scope["path"], exc_info=error
    )
    body = error_body(
        "internal",
        "something went wrong inside; the server's log has it under this request id",
        {"request_id": request_id},
    )
    return _answer(body, _INTERNAL, {})


def _answer(body: Error, status: int, headers: Mapping[str, str]) -> Response:
    content = msgspec.json.encode(body)
    return Response(content, status, headers=headers, media_type="application/json")
