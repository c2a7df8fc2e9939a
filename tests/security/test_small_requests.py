"""A small request costs little, however much is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bascule.errors import InvalidRecord
from bascule.model.server import ServerRecord
from bascule.wire.collector import MAX_LISTED
from bascule.wire.records import decode
from tests.doors.door import Door

PLAIN: dict[str, Any] = {"server_id": "x", "transport": "stdio", "stdio": {"command": "x"}}
UNKNOWN: dict[str, Any] = {f"argument{number}": 1 for number in range(20_000)}


@pytest.mark.parametrize(
    "fields",
    [
        UNKNOWN,
        {"arguments": {"a": [None] * 20_000}, "timeout_ms": 0},
        {"arguments": dict.fromkeys(UNKNOWN), "timeout_ms": 0},
    ],
)
async def test_a_body_that_is_all_wrong_is_answered_with_a_few_of_its_mistakes(
    fields: dict[str, Any],
):
    door = Door()
    answer = await door.call(await door.token(), {"name": "fs/read", **fields})
    assert answer.status >= 400
    assert len(answer.body) < 50_000
    assert len(answer.json["error"]["details"]["problems"]) == MAX_LISTED
    assert "more that is not listed" in json.dumps(answer.json)


def test_many_unknown_fields_hide_no_mistake():
    record, warnings = decode(ServerRecord, {**PLAIN, **UNKNOWN}, lenient=True)
    assert (record.server_id, len(warnings)) == ("x", MAX_LISTED)
    with pytest.raises(InvalidRecord, match="allowed_tools: must be a list"):
        decode(ServerRecord, {**UNKNOWN, **PLAIN, "allowed_tools": 3})
    with pytest.raises(InvalidRecord) as raised:
        decode(ServerRecord, {**PLAIN, **UNKNOWN})
    assert len(raised.value.problems) == MAX_LISTED
