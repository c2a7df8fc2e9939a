"""The tables of a server record: what is read from each, and which a transport needs."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.errors import InvalidRecord
from bascule.model.server import Budgets, ServerRecord
from bascule.wire.records import decode, parse


def read(plain: dict[str, Any]) -> ServerRecord:
    return decode(ServerRecord, plain)[0]


def problems(plain: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidRecord) as refused:
        read(plain)
    return list(refused.value.problems)


@pytest.mark.requirement("record:budgets:fields")
@pytest.mark.parametrize("field", ["tool_timeout_ms", "max_concurrency", "max_tool_output_bytes"])
def test_a_budget_is_read_from_its_table_and_leaves_the_others(field: str):
    toml = (
        f'server_id = "fs"\ntransport = "stdio"\n[stdio]\ncommand = "uvx"\n[budgets]\n{field} = 7\n'
    )
    found = read(dict(parse(toml.encode(), "toml"))).budgets
    assert found == Budgets(**{field: 7})
    assert found != Budgets()


@pytest.mark.requirement("record:transport:streamable-http")
def test_streamable_http_needs_an_http_table_with_a_url():
    bare = {"server_id": "fs", "transport": "streamable_http"}
    missing = "http: is required by transport 'streamable_http'"
    assert problems(bare) == [missing]
    assert problems(bare | {"stdio": {"command": "uvx"}})[0] == missing
    assert problems(bare | {"http": {"headers": {}}}) == ["http.url: is required"]
    found = read(bare | {"http": {"url": "https://example.org/mcp"}})
    assert found.http is not None
    assert (found.transport, found.http.url) == ("streamable_http", "https://example.org/mcp")
