"""The committed description: made from the source, complete, and true."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.asgi.reference import DOCUMENT
from bascule.wire.faults import FACES
from checks.openapi import describe, render, routes_of_a_process
from tests.asgi.caller import ok_route
from tests.control.api.contract import described


def test_the_committed_description_is_what_the_source_gives():
    assert DOCUMENT.read_text(encoding="utf-8") == render()


async def test_every_route_of_the_process_is_described_and_nothing_else_is():
    routes = {(m, r.path_format): r.access for r in await routes_of_a_process() for m in r.verbs}
    operations = {
        (method.upper(), path): operation.get("x-permission", "open")
        for path, methods in described()["paths"].items()
        for method, operation in methods.items()
    }
    assert operations == routes
    assert {"/admin/api/mcp/rescan", "/admin/api/tokens", "/api/v1/tools/call", "/metrics"} <= set(
        described()["paths"]
    )
    assert all(
        operation["summary"].endswith(".")
        for methods in described()["paths"].values()
        for operation in methods.values()
    )


def test_a_token_is_asked_for_wherever_one_is_needed():
    for methods in described()["paths"].values():
        for operation in methods.values():
            assert ("x-permission" in operation) == (operation.get("security") == [{"token": []}])


def test_a_route_that_nobody_described_fails():
    with pytest.raises(KeyError):
        describe([ok_route("/new")])


def test_every_reference_leads_somewhere():
    found = list(_references(described()))
    components = described()["components"]
    assert found
    for reference in found:
        _, _, group, name = reference.split("/")
        assert name in components[group]


def test_names_of_operations_are_unique():
    names = [o["operationId"] for m in described()["paths"].values() for o in m.values()]
    assert len(names) == len(set(names))


def test_no_node_has_a_face():
    assert FACES["no_node"].http == 503


def _references(value: Any) -> Any:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)
