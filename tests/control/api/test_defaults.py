"""What a record leaves at its defaults: shown, or left out for whoever asks for that."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control.api.desk import ADMIN, Desk

BESIDE = {"version", "status", "revision", "updated_at", "owner", "config"}
WRITTEN: dict[str, tuple[str, dict[str, Any]]] = {
    "servers": ("fs", {"server_id": "fs", "transport": "stdio", "stdio": {"command": "x"},
                       "tool_namespace": "mcp.fs"}),
    "tasks": ("t", {"task_id": "t", "mcp": {"enabled": True, "default_server_ids": []}}),
    "profiles": ("p", {"name": "p", "tool_denylist": ["drop_*"]}),
    "backends": ("b", {"name": "b", "base_url": "http://127.0.0.1:9/v1"}),
    "users": ("u", {"user_id": "u", "tool_allowlist": []}),
}  # fmt: skip
DEFAULTS: dict[str, dict[str, Any]] = {
    "servers": {"display_name": "", "enabled": True, "tags": [], "allowed_tools": []},
    "tasks": {"name": "", "description": ""},
    "profiles": {"read_only": False},
    "backends": {"enabled": True},
    "users": {"enabled": True, "read_only": False, "groups": [], "display_name": ""},
}


@pytest.mark.requirement("admin:defaults")
@pytest.mark.parametrize("name", WRITTEN)
async def test_without_its_defaults_a_record_is_what_was_written(desk: Desk, name: str):
    key, record = WRITTEN[name]
    place = f"{ADMIN}/{name}/{key}"
    await desk.ask("PUT", place, record)
    shown = (await desk.ask("GET", place)).json
    bare = (await desk.ask("GET", f"{place}?defaults=false")).json
    [listed] = (await desk.ask("GET", f"{ADMIN}/{name}?defaults=false")).json[name]

    assert {field: shown[field] for field in DEFAULTS[name]} == DEFAULTS[name]
    for one in (bare, listed):
        assert {field: value for field, value in one.items() if field not in BESIDE} == record


@pytest.mark.requirement("admin:defaults")
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_a_write_with_a_wrong_parameter_writes_nothing(desk: Desk, method: str):
    key, record = WRITTEN["servers"]
    place = f"{ADMIN}/servers/{key}"
    await desk.ask("PUT", place, record)
    refused = await desk.ask(method, f"{place}?defaults=x", {**record, "enabled": False})
    assert (refused.status, refused.json["error"]["details"]) == (400, {"parameter": "defaults"})
    assert (await desk.ask("GET", place)).json["enabled"]


@pytest.mark.requirement("admin:defaults")
async def test_a_wrong_parameter_is_refused_to_whoever_has_the_record(desk: Desk):
    key, record = WRITTEN["servers"]
    await desk.ask("PUT", f"{ADMIN}/servers/{key}", record)
    place, held = f"{ADMIN}/servers/{key}?defaults=x", {"If-None-Match": "*"}
    assert (await desk.ask("GET", place, headers=held)).status == 400
