"""The other kinds follow the pattern of servers; a task has two forms that never disagree."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control.api.desk import ADMIN, Desk

RECORDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "tasks": ("review", {"task_id": "review", "name": "Review"}, {"description": "of code"}),
    "profiles": ("code", {"name": "code", "tool_denylist": ["rm_*"]}, {"description": "of code"}),
    "backends": ("local", {"name": "local", "base_url": "https://x.example"}, {"models": ["m"]}),
    "users": ("a@b.example", {"user_id": "a@b.example", "groups": ["g"]}, {"read_only": True}),
}
POLICY = {"enabled": True, "default_server_ids": ["fs"]}
#: What every task has beside what it was given.
USUAL = {
    "tool_denylist": [],
    "read_only": False,
    "max_tools": 128,
    "users": "records",
    "user_from_request": False,
}
KEYS = {"mcp.enabled": "true", "mcp.default_server_ids": '["fs"]'}


@pytest.mark.requirement("admin:other-kinds")
@pytest.mark.parametrize("name", RECORDS)
async def test_a_kind_is_created_listed_read_merged_replaced_and_deleted(desk: Desk, name: str):
    key, record, change = RECORDS[name]
    kind, place = name.removesuffix("s"), f"{ADMIN}/{name}"

    created = await desk.ask("POST", place, record)
    assert (created.status, created.header("location")) == (201, f"{place}/{key}")
    assert (await desk.ask("POST", place, record)).status == 409
    listed = await desk.ask("GET", place, role="viewer")
    assert [listed.json["revision"], len(listed.json[name])] == [1, 1]
    merged = await desk.ask("PATCH", f"{place}/{key}", change, headers={"If-Match": '"1"'})
    assert (merged.status, merged.header("etag")) == (200, '"2"')
    assert {**record, **change}.items() <= merged.json[kind].items()
    replaced = await desk.ask("PUT", f"{place}/{key}", record, headers={"If-Match": '"1"'})
    assert replaced.status == 412
    assert (await desk.ask("PUT", f"{place}/{key}", record)).json["revision"] == 3
    assert (await desk.ask("GET", f"{place}/{key}")).json["revision"] == 3
    assert (await desk.ask("DELETE", f"{place}/{key}")).json == {"revision": 4, "deleted": key}
    assert (await desk.ask("GET", f"{place}/{key}")).status == 404


@pytest.mark.requirement("admin:other-kinds")
async def test_the_platform_is_one_record_that_is_there_before_it_is_written(desk: Desk):
    place = f"{ADMIN}/platform"
    before = await desk.ask("GET", place)
    merged = await desk.ask(
        "PATCH", place, {"tool_denylist": ["rm_*"]}, headers={"If-Match": '"0"'}
    )
    stale = await desk.ask("PUT", place, {}, headers={"If-Match": '"0"'})
    replaced = await desk.ask("PUT", place, {"default_approval": "always"})

    assert (before.status, before.header("etag"), before.json["updated_at"]) == (200, '"0"', None)
    assert (merged.status, merged.json["platform"]["tool_denylist"]) == (200, ["rm_*"])
    assert stale.status == 412
    assert replaced.json["platform"]["tool_denylist"] == []
    assert (await desk.ask("DELETE", place)).status == 200
    assert (await desk.ask("GET", place)).json["version"] == 1


async def test_the_answer_to_a_first_write_says_where_the_record_is(desk: Desk):
    written = await desk.ask("PUT", f"{ADMIN}/platform", {"tool_denylist": ["rm_*"]})
    assert (written.status, written.header("location")) == (201, f"{ADMIN}/platform")
    assert (await desk.ask("GET", f"{ADMIN}/platform")).json["tool_denylist"] == ["rm_*"]


async def test_literals_of_backends_and_tasks_are_masked(desk: Desk):
    backend = {"name": "b", "base_url": "https://x.example", "headers": {"X-Key": "s3cret"}}
    task = {"task_id": "t", "executable": {"path": "a.wasm", "env": {"KEY": "s3cret"}}}
    answers = [
        await desk.ask("POST", f"{ADMIN}/backends", backend),
        await desk.ask("POST", f"{ADMIN}/tasks", task),
        await desk.ask("GET", f"{ADMIN}/backends", role="viewer"),
        await desk.ask("GET", f"{ADMIN}/tasks/t", role="viewer"),
    ]
    assert [answer.status for answer in answers] == [201, 201, 200, 200]
    assert all(b"s3cret" not in answer.body and b"***" in answer.body for answer in answers)
    assert b"s3cret" in (await desk.ask("GET", f"{ADMIN}/tasks/t", role="node")).body


@pytest.mark.parametrize("given", [{"mcp": POLICY}, {"config": {**KEYS, "colour": "blue"}}])
async def test_a_task_is_taken_in_either_form_and_shown_in_both(desk: Desk, given: dict[str, Any]):
    answer = await desk.ask("PUT", f"{ADMIN}/tasks/t", {"task_id": "t", "name": "T", **given})

    shown = answer.json["task"]
    assert (shown["task_id"], shown["name"], shown["description"]) == ("t", "T", "")
    assert shown["mcp"] == {**USUAL, **POLICY}
    assert shown["config"] == {**KEYS, **({"colour": "blue"} if "config" in given else {})}


async def test_a_task_without_a_policy_shows_that_it_is_off(desk: Desk):
    shown = (await desk.ask("PUT", f"{ADMIN}/tasks/t", {"task_id": "t"})).json["task"]
    assert shown["mcp"] == {**USUAL, "enabled": False}
    assert shown["config"] == {"mcp.enabled": "false"}


EDITS: dict[str, tuple[dict[str, Any], int, bool]] = {
    "nothing": ({}, 200, True),
    "the object": ({"mcp": {"enabled": False}}, 200, False),
    "the keys": ({"config": {"mcp.enabled": "false"}}, 200, False),
    "both alike": ({"mcp": {"enabled": False}, "config": {"mcp.enabled": "no"}}, 200, False),
    "both, differently": (
        {"mcp": {"enabled": False}, "config": {"mcp.read_only": "true"}},
        422,
        True,
    ),
    "the keys, wrongly": ({"config": {"mcp.enabled": "perhaps"}}, 422, True),
    "the object, wrongly": ({"mcp": {"enabled": 3}}, 422, True),
}


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize("edit", EDITS)
async def test_of_two_forms_the_edited_one_counts(desk: Desk, edit: str, method: str):
    fields, status, enabled = EDITS[edit]
    await desk.ask("PUT", f"{ADMIN}/tasks/t", {"task_id": "t", "mcp": POLICY})
    shown = (await desk.ask("GET", f"{ADMIN}/tasks/t")).json

    answer = await desk.ask(method, f"{ADMIN}/tasks/t", {**shown, **fields})

    assert answer.status == status
    assert desk.service.snapshot().tasks["t"].mcp.enabled is enabled
    assert desk.service.view.revision == (2 if not enabled else 1)


async def test_a_key_of_the_map_is_merged_without_dropping_the_others(desk: Desk):
    await desk.ask("PUT", f"{ADMIN}/tasks/t", {"task_id": "t", "config": {**KEYS, "a": "1"}})
    answer = await desk.ask("PATCH", f"{ADMIN}/tasks/t", {"config": {"mcp.enabled": "false"}})

    task = answer.json["task"]
    assert (task["mcp"]["enabled"], task["mcp"]["default_server_ids"]) == (False, ["fs"])
    assert task["config"]["a"] == "1"
