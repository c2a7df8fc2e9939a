"""Errors in OpenAI's shape: ``{"error": {"message", "type", "param", "code"}}``.

The guard uses ``openai_error`` too, so that refusals before the endpoint have this shape.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from starlette.responses import Response
from starlette.types import Scope

from bascule.asgi.errors import as_refused, status_of
from bascule.asgi.json import json_response
from bascule.audit.parked_turns import TurnRefused
from bascule.doors.chat.held_results import ResultsGone
from bascule.errors import BasculeError, InvalidRecord, SessionRefused
from bascule.loop.backend import UpstreamFailed, naming
from bascule.loop.backends import UnknownModel
from bascule.loop.http_answers import NO_TYPE
from bascule.loop.request import BadChat
from bascule.model.json import JsonObject, JsonValue

logger = logging.getLogger(__name__)
_BACKENDS = logging.getLogger("bascule.backend")

_BAD_REQUEST, _FORBIDDEN, _NOT_FOUND, _INTERNAL = 400, 403, 404, 500
_TOO_MANY = 429
_BAD_GATEWAY, _UNAVAILABLE, _GATEWAY_TIMEOUT = 502, 503, 504
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
# For an upstream that gives no code of its own.
_CODES = {429: "rate_limit_exceeded"}
_NO_RETRY = {"X-Should-Retry": "false"}
# An upstream's refusal of our own key is nothing its caller could put right.
_OUR_FAULT = frozenset({401, 403, 407})


class UnknownUrl(BasculeError):
    """Nothing is served at this address below ``/v1``."""

    code = "unknown_url"


class Told(Struct, frozen=True, kw_only=True):
    """An error as a client of OpenAI's is told."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    type: str | None = None
    headers: Mapping[str, str] = {}
    beside: JsonObject = {}

    def body(self) -> JsonObject:
        usual = "server_error" if self.status >= _INTERNAL else "invalid_request_error"
        error = {
            "message": self.message,
            "type": self.type or _TYPES.get(self.status, usual),
            "param": self.param,
            "code": self.code,
        }
        return {"error": error, **self.beside}


def openai_error(error: Exception, scope: Scope) -> Response:
    """Return the answer to a request that ended in this error; log what must not be told."""
    told = tell_error(error, str(scope.get("request_id", "")))
    return json_response(told.body(), told.status, headers=told.headers)


def tell_error(error: Exception, request_id: str = "") -> Told:
    """Return an error in a client's terms."""
    if isinstance(error, UpstreamFailed):
        told = _upstream(error)
        _log_failure(error, told, request_id)
        return told
    told = _own(error)
    if told is not None:
        return told
    refused = as_refused(error)
    if refused is None:
        return _internal(error, request_id)
    status = status_of(refused.code)
    return Told(status=status, message=str(refused), code=refused.code, headers=refused.headers)


def _own(error: Exception) -> Told | None:
    """Return what only this door has, or says in other words than the rest."""
    if isinstance(error, UnknownModel | UnknownUrl):
        unknown = isinstance(error, UnknownModel)
        code, param = ("model_not_found", "model") if unknown else (error.code, None)
        return Told(status=_NOT_FOUND, message=str(error), code=code, param=param)
    if isinstance(error, BadChat | ResultsGone):
        return Told(status=_BAD_REQUEST, message=str(error), code=error.code, param=error.param)
    if isinstance(error, TurnRefused):
        return Told(
            status=status_of(error.code),
            message=str(error),
            code=error.code,
            param="mcp.resume",
            headers=_NO_RETRY,
        )
    if isinstance(error, InvalidRecord):
        return Told(status=_BAD_REQUEST, message=str(error), code=error.code, param="mcp")
    if isinstance(error, SessionRefused):
        return Told(status=_FORBIDDEN, message=str(error), code=error.reason)
    return None


def _upstream(error: UpstreamFailed) -> Told:
    headers: dict[str, str] = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    beside: dict[str, JsonValue] = {}
    if error.calls:
        headers |= _NO_RETRY  # OpenAI's clients would run the tools again
        beside["bascule"] = {"calls": msgspec.to_builtins(error.calls)}
    own: JsonObject = error.error or {}
    known = own if error.status not in _OUR_FAULT else {}
    status = _upstream_status(error)
    message = _text(known.get("message")) or str(error)
    if error.status in _OUR_FAULT:
        # in words of our own: the backend's may repeat the key
        message = (
            f"it refused our key (HTTP {error.status}); key_ref in its record says where that is"
        )
    kind = _text(known.get("type"))
    return Told(
        status=status,
        message=message if error.backend is None else naming(error.backend, message),
        type=kind if kind != NO_TYPE else None,
        code=_text(known.get("code")) or _CODES.get(status, error.code),
        param=_text(known.get("param")),
        headers=headers,
        beside=beside,
    )


def _log_failure(error: UpstreamFailed, told: Told, request_id: str) -> None:
    """Write a line: what is wrong with a backend is the operator's to mend, not the caller's."""
    failed = told.status >= _INTERNAL or told.status == _TOO_MANY
    fields = {"request_id": request_id, "backend": error.backend or "", "status": told.status}
    level = logging.WARNING if failed else logging.INFO
    _BACKENDS.log(level, "chat request failed: %s", told.message, extra={"fields": fields})


def _upstream_status(error: UpstreamFailed) -> int:
    """Return an honest status: the upstream's own if it is about the request, else a gateway's."""
    if error.timed_out:
        return _GATEWAY_TIMEOUT
    status = error.status or _BAD_GATEWAY
    if status in _OUR_FAULT or status < _BAD_REQUEST:
        return _BAD_GATEWAY
    return status if status < _INTERNAL or status in {_UNAVAILABLE} else _BAD_GATEWAY


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None


def _internal(error: Exception, request_id: str) -> Told:
    logger.error("chat request %s failed", request_id, exc_info=error)
    message = "something went wrong inside; the server's log has it under this request id: "
    return Told(status=_INTERNAL, message=message + request_id, code="internal")
