"""What a server says beside a JSON-RPC error: carried on, cleaned, and within a bound."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.errors import RemoteError
from bascule.model.json import JsonValue
from bascule.wire.faults import tool_message
from tests.node.fakes import World, failed
from tests.policy.build import server

SECRET = "hunter2-but-longer"
AWS_KEY = "AKIA" + "Q3ZK7WXN5PLM2RTV"
pytestmark = pytest.mark.requirement("bridge:error-data")


async def details(data: Any, **record: Any) -> Any:
    world = World(server("fs", **record))
    world.caller.hide(SECRET)
    world.caller.answers("read", RemoteError(-32000, "no", data))
    outcome = failed(await world.session().call("mcp__fs__read"), "mcp_tool_error")
    assert SECRET not in tool_message(outcome)
    assert SECRET not in repr(world.ledger.events)
    return outcome.error.details


@pytest.mark.parametrize("data", [{"retry": [1, {"at": 2.5}]}, "why", 0, False, [], "x" * 4000])
async def test_the_data_of_an_error_are_carried_on_as_they_came(data: JsonValue):
    assert await details(data) == {"rpc_code": -32000, "rpc_data": data}


@pytest.mark.parametrize(
    "data", [None, "x" * 4095, "é" * 2048, ["x"] * 1025, "\x7f" * 4000, {"a": object()}]
)
async def test_data_beyond_the_bound_are_left_out_whole(data: Any):
    assert await details(data) == {"rpc_code": -32000}


@pytest.mark.parametrize("leaks", ["mask", "off"])
async def test_the_data_of_an_error_are_cleaned(leaks: str):
    data = {f"a\u202e{SECRET}": [f"b\x1b {AWS_KEY}"]}
    told = await details(data, hygiene={"leaks": leaks})
    [(key, [value])] = told["rpc_data"].items()
    assert key == "a[masked:known-value]"
    assert value.startswith("b\\x1b [masked:")
    assert AWS_KEY not in repr(told)
