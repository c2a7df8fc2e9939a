"""Answers that a call brings along: ill-formed ones are refused, those nobody asked for ignored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bascule.asgi.guard import GuardedApp
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.gateway import Gateway
from bascule.wire.era import META, MODERN
from tests.asgi.caller import ask
from tests.doors.door import Door

META_FIELDS = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}


async def call(**more: Any) -> tuple[int, dict[str, Any]]:
    """Call a tool in the modern generation, with more than its arguments."""
    door = Door()
    app = GuardedApp(gateway_routes(Gateway(door.sessions, door.tokens.key_for)), door.tokens)
    params = {"name": "read", "arguments": {}, "_meta": META_FIELDS, **more}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "Content-Type": "application/json",
        "Content-Length": "1",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "read",
        **await door.token(),
    }
    chunks = [json.dumps(body).encode()]
    answer = await ask(app, "POST", "/mcp/servers/fs", headers, chunks=chunks)
    return answer.status, answer.json


@pytest.mark.parametrize("answers", [None, 7, [], {"name": 12345}, {"name": None}])
async def test_ill_formed_answers_are_invalid_parameters(answers: Any):
    status, said = await call(inputResponses=answers)
    assert (status, said["error"]["code"]) == (400, -32602)
    assert said["error"]["message"].startswith("params.inputResponses:")


async def test_answers_that_nobody_asked_for_change_nothing():
    status, said = await call(inputResponses={"name": {"action": "accept"}})
    assert (status, said["result"]) == (200, (await call())[1]["result"])
