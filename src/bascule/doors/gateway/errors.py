"""Errors before the door, of the guard and of HTTP itself, as JSON-RPC errors."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Scope

from bascule.asgi.errors import Refused, as_refused, status_of
from bascule.asgi.guard import shutting_down
from bascule.doors.gateway.messages import RpcError, error_frame
from bascule.model.json import JsonValue
from bascule.wire.rpc_codes import INTERNAL_ERROR, INVALID_REQUEST, SERVER_ERROR

logger = logging.getLogger(__name__)

_INTERNAL = 500
#: About who asks and when, not what.
_CIRCUMSTANCES = frozenset({401, 403, 421, 429})
_HOW_TO = "bascule tokens create --role client --task T makes a token for this address"
_ADVICE: Mapping[str, str] = {
    "unauthenticated": f"send Authorization: Bearer TOKEN; {_HOW_TO}",
    "forbidden": _HOW_TO,
    "origin_refused": "the setting gateway.origins lists whose pages may use it",
    "host_refused": "the setting server.hosts lists the names of this server",
}


def rpc_error(error: Exception, scope: Scope) -> Response:
    """Return the answer to a request that ended in this error; log what must not be told."""
    refused = as_refused(error) or _internal(error, scope)
    said = _as_rpc(refused, scope)
    return Response(
        error_frame(said),
        status_of(refused.code),
        headers=refused.headers,
        media_type="application/json",
    )


def told(error: Exception, scope: Scope) -> RpcError:
    """Return what is told of an error where the answer has begun; log what must not be told."""
    return _as_rpc(as_refused(error) or _internal(error, scope), scope)


def cut_off(scope: Scope) -> RpcError | None:
    """Return what a call is told that is cancelled because the server ends, if it does."""
    refused = shutting_down(scope)
    return None if refused is None else _as_rpc(refused, scope)


def _as_rpc(refused: Refused, scope: Scope) -> RpcError:
    status = status_of(refused.code)
    request_id = str(scope.get("request_id", ""))
    data: dict[str, JsonValue] = {"code": refused.code, "request_id": request_id}
    if refused.details:
        data["details"] = refused.details
    advice = _ADVICE.get(refused.code)
    message = f"{refused}: {advice}" if advice else str(refused)
    return RpcError(_rpc_code(status), message, data, status=status)


def _rpc_code(status: int) -> int:
    if status == _INTERNAL:
        return INTERNAL_ERROR
    return SERVER_ERROR if status in _CIRCUMSTANCES or status > _INTERNAL else INVALID_REQUEST


def _internal(error: Exception, scope: Scope) -> Refused:
    logger.error("gateway request %s failed", scope.get("request_id", ""), exc_info=error)
    return Refused("internal", "something went wrong inside; the server's log has it")
