"""What a body must be to be a message, and what is said of one that is not."""

from __future__ import annotations

import json

import pytest

from bascule.doors.gateway.messages import (
    Message,
    RpcError,
    error_frame,
    read_message,
)
from bascule.wire.frames import response
from bascule.wire.rpc_codes import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR

PING = '{"jsonrpc":"2.0","id":1,"method":"ping"'
BAD = {
    "nothing": ("", PARSE_ERROR, None),
    "half": ('{"jsonrpc":"2.0"', PARSE_ERROR, None),
    "a key twice": (PING + ',"id":2}', PARSE_ERROR, None),
    "a number that is none": (PING + ',"params":{"x":NaN}}', PARSE_ERROR, None),
    "an infinite number": (PING + ',"params":{"x":1e999}}', PARSE_ERROR, None),
    "too deep": (PING + ',"params":{"x":' + "[" * 70 + "]" * 70 + "}}", PARSE_ERROR, None),
    "half a character": (PING + ',"params":{"x":"\\ud800"}}', PARSE_ERROR, None),
    "a batch": (f"[{PING}}}]", INVALID_REQUEST, None),
    "an empty batch": ("[]", INVALID_REQUEST, None),
    "a text": ('"ping"', INVALID_REQUEST, None),
    "another version": ('{"jsonrpc":"1.0","id":1,"method":"ping"}', INVALID_REQUEST, 1),
    "no version": ('{"id":1,"method":"ping"}', INVALID_REQUEST, 1),
    "no method": ('{"jsonrpc":"2.0","id":1}', INVALID_REQUEST, 1),
    "a method that is no text": ('{"jsonrpc":"2.0","id":1,"method":5}', INVALID_REQUEST, 1),
    "an id of null": ('{"jsonrpc":"2.0","id":null,"method":"ping"}', INVALID_REQUEST, None),
    "an id that is true": ('{"jsonrpc":"2.0","id":true,"method":"ping"}', INVALID_REQUEST, None),
    "half an id": ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', INVALID_REQUEST, None),
    "an endless id": (
        f'{{"jsonrpc":"2.0","id":"{"x" * 300}","method":"ping"}}',
        INVALID_REQUEST,
        None,
    ),
    "an answer": ('{"jsonrpc":"2.0","id":7,"result":{}}', INVALID_REQUEST, 7),
    "an error": ('{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":""}}', INVALID_REQUEST, 7),
    "a notice with an id": (
        '{"jsonrpc":"2.0","id":7,"method":"notifications/cancelled"}',
        INVALID_REQUEST,
        7,
    ),
    "parameters in a list": (PING + ',"params":[1]}', INVALID_PARAMS, 1),
    "parameters of null": (PING + ',"params":null}', INVALID_PARAMS, 1),
}


@pytest.mark.parametrize(("body", "code", "id"), BAD.values(), ids=BAD)
@pytest.mark.requirement("gateway:sessions")
async def test_what_is_no_message_is_refused_with_its_code_and_id(
    body: str, code: int, id: int | None
):
    with pytest.raises(RpcError) as refused:
        await read_message(body.encode())
    error = refused.value
    assert (error.rpc_code, error.id) == (code, id)
    for modern in (False, True):
        assert error.status_for(modern=modern) == 400
    frame = json.loads(error_frame(error))
    assert frame["error"]["code"] == code
    assert frame["id"] == ("" if id is None else id)


@pytest.mark.parametrize("id", [0, -1, 2**70, "", "a", "1", "é"])
async def test_an_id_comes_back_as_it_came(id: int | str):
    body = json.dumps({"jsonrpc": "2.0", "id": id, "method": "ping"}).encode()
    message = await read_message(body)
    assert message == Message("ping", {}, id)
    assert message.id is not None
    assert json.loads(response(message.id, b"{}"))["id"] == id


async def test_a_notification_has_no_id():
    message = await read_message(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    assert message.id is None


async def test_a_large_message_is_read_as_strictly():
    large = '"%s"' % ("x" * 100_000)
    found = await read_message(f'{PING},"params":{{"x":{large}}}}}'.encode())
    assert found.params["x"] == "x" * 100_000
    with pytest.raises(RpcError) as refused:
        await read_message(f'{PING},"params":{{"x":{large},"x":1}}}}'.encode())
    assert refused.value.rpc_code == PARSE_ERROR


@pytest.mark.parametrize("member", ['"result":{}', '"error":{"code":1,"message":"no"}'])
async def test_an_answer_that_nobody_asked_for_is_told_so(member: str):
    with pytest.raises(RpcError, match="has asked nothing"):
        await read_message(f'{{"jsonrpc":"2.0","id":1,{member}}}'.encode())
    with pytest.raises(RpcError, match="method: must be a string"):
        await read_message(b'{"jsonrpc":"2.0","id":1}')
