"""An event as bytes: valid JSON, whatever its names hold, and never too long."""

from __future__ import annotations

import json

import pytest

from bascule.audit.event_bytes import MAX_BYTES, event_bytes
from tests.audit.calls import Ended

LONG = {
    "four bytes a character": {"text": "🜁" * 20_000},
    "numbers beyond 64 bits": {f"n{i}": 10**30 for i in range(2_000)},
    "lone surrogates": {"\ud800" * 9_000: "\udfff" * 9_000},
}


@pytest.mark.parametrize("arguments", LONG.values(), ids=LONG)
def test_of_an_event_that_is_too_long_the_longest_goes_and_the_rest_is_json(
    arguments: dict[str, object],
):
    line = event_bytes(Ended(1, arguments=arguments).event())
    assert len(line) <= MAX_BYTES
    event = json.loads(line)
    assert event["arguments"] is None
    assert event["shortened_from"] > MAX_BYTES
    assert (event["request_id"], event["tool_name"]) == ("r1", "read")


def test_a_lone_surrogate_is_written_as_its_escape():
    line = event_bytes(Ended(1, arguments={"\ud800": "a\udfff"}).event())
    assert json.loads(line)["arguments"] == {"\\ud800": "a\\udfff"}
