"""JSON-RPC at the gateway: one strict parse on the way in, ready frames on the way out."""

from __future__ import annotations

import asyncio
from typing import NoReturn, TypeGuard

from msgspec import Struct

from bascule.errors import BasculeError
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.wire.frames import RequestId
from bascule.wire.rpc_codes import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)
from bascule.wire.strict_json import StrictJsonError, dumps, loads

NOTIFICATION = "notifications/"
#: How long the id of a request may be: it is kept while the request is under way.
MAX_ID_LENGTH = 256
NO_ID = f"must be a whole number or a string of at most {MAX_ID_LENGTH} characters"
_LARGE = 64 * 1024
_BAD_REQUEST, _NOT_FOUND = 400, 404
_STATUSES = {
    **dict.fromkeys((PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS), _BAD_REQUEST),
    **dict.fromkeys((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION), _BAD_REQUEST),
    METHOD_NOT_FOUND: _NOT_FOUND,
}
_OK = 200
_NO_PARAMS: JsonObject = {}


class Message(Struct, gc=False):
    """A request, or a notification: that has no id."""

    method: str
    params: JsonObject
    id: RequestId | None


class RpcError(BasculeError):
    """What is refused, as JSON-RPC says it.

    ``status`` is for what HTTP itself must refuse, in every generation; without it, modern clients
    get the status that belongs to the code, and legacy ones 200.
    """

    def __init__(
        self,
        code: int,
        message: str,
        data: JsonObject | None = None,
        *,
        status: int | None = None,
        id: RequestId | None = None,
    ) -> None:
        super().__init__(message)
        self.rpc_code = code
        self.data = data
        self.status = status
        self.id = id

    def status_for(self, *, modern: bool) -> int:
        """Return the HTTP status."""
        if self.status is not None:
            return self.status
        return _STATUSES.get(self.rpc_code, _OK) if modern else _OK


async def read_message(body: bytes) -> Message:
    """Read one message; a large one beside the event loop. Raise RpcError, with its id if told."""
    try:
        value = await asyncio.to_thread(loads, body) if len(body) > _LARGE else loads(body)
    except StrictJsonError as error:
        raise RpcError(PARSE_ERROR, f"not valid JSON: {error}", status=_BAD_REQUEST) from None
    if not is_object(value):
        batch = "batches are not served: send one message" if isinstance(value, list) else ""
        _refuse(batch or "a message must be a JSON object")
    return _message(value)


def _message(value: JsonObject) -> Message:
    id = _id(value)
    if value.get("jsonrpc") != "2.0":
        _refuse('jsonrpc: must be "2.0"', id)
    method, params = value.get("method"), value.get("params", _NO_PARAMS)
    if type(method) is not str:
        if "result" in value or "error" in value:
            _refuse("this server has asked nothing: there is nothing to answer", id)
        _refuse("method: must be a string", id)
    if id is not None and method.startswith(NOTIFICATION):
        _refuse("id: a notification has none", id)
    if not is_object(params):
        raise RpcError(INVALID_PARAMS, "params: must be an object", status=_BAD_REQUEST, id=id)
    return Message(method, params, id)


def _id(value: JsonObject) -> RequestId | None:
    if "id" not in value:
        return None
    id = value["id"]
    if not is_request_id(id):
        _refuse(f"id: {NO_ID}")
    return id


def is_request_id(value: JsonValue) -> TypeGuard[RequestId]:
    """Say whether a value can be the id of a request, or a token of progress."""
    return type(value) is int or (type(value) is str and len(value) <= MAX_ID_LENGTH)


def _refuse(words: str, id: RequestId | None = None) -> NoReturn:
    raise RpcError(INVALID_REQUEST, words, status=_BAD_REQUEST, id=id)


def error_frame(error: RpcError, id: RequestId | None = None) -> bytes:
    """Return an error; one about a message whose id cannot be told has an empty one.

    The protocol lets it have none then, but an official client reads no error without one.
    """
    known = id if id is not None else error.id
    fields: dict[str, JsonValue] = {"code": error.rpc_code, "message": str(error)}
    if error.data is not None:
        fields["data"] = error.data
    owner = "" if known is None else known
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (dumps(owner), dumps(fields))
