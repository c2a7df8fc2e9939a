"""A misspelt restriction is no missing one: writes refuse fields that nobody knows."""

from __future__ import annotations

import sqlite3
import tomllib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bascule.control.registry.service import open_registry
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.model.kinds import KINDS, Kind
from bascule.testing.clock import FakeClock
from tests.control.api.desk import ADMIN, Desk
from tests.control.registry.build import BY, PLAIN, server, write

Json = dict[str, Any]
NEAREST = "unknown field; did you mean"

#: Kind, place of the record, a body with a slip, and what is said of it.
SLIPS: dict[str, tuple[str, str, Json, str]] = {
    "server": ("servers", "fs", server(alowed_tools=["a"]), f"alowed_tools: {NEAREST}"),
    "inside a server": (
        "servers",
        "fs",
        server(budgets={"tool_timeot_ms": 5}),
        f"budgets.tool_timeot_ms: {NEAREST} 'tool_timeout_ms'?",
    ),
    "task": (
        "tasks",
        "t",
        {"task_id": "t", "mcp": {"enabled": True, "tool_denylst": ["x"]}},
        f"mcp.tool_denylst: {NEAREST} 'tool_denylist'?",
    ),
    "config of a task": (
        "tasks",
        "t",
        {"task_id": "t", "config": {"mcp.tool_denylst": '["x"]'}},
        f"mcp.tool_denylst: {NEAREST} 'mcp.tool_denylist'?",
    ),
    "profile": (
        "profiles",
        "p",
        {"name": "p", "tool_denylst": ["x"]},
        f"tool_denylst: {NEAREST} 'tool_denylist'?",
    ),
    "backend": (
        "backends",
        "b",
        {"name": "b", "base_url": "https://example.org/v1", "keyref": "secret://k"},
        f"keyref: {NEAREST} 'key_ref'?",
    ),
    "user": (
        "users",
        "u",
        {"user_id": "u", "tool_denylst": ["x"]},
        f"tool_denylst: {NEAREST} 'tool_denylist'?",
    ),
    "choice of a user": (
        "users",
        "u",
        {"user_id": "u", "own": {"tool_denylst": ["x"]}},
        f"own.tool_denylst: {NEAREST} 'tool_denylist'?",
    ),
    "pattern": (
        "tasks",
        "t",
        {"task_id": "t", "mcp": {"tool_denylist": ["mcp__fs__delete_*"]}},
        "mcp.tool_denylist[0]: 'mcp__fs__delete_*' looks like a name that models use",
    ),
}


def said(answer: Any) -> str:
    assert (answer.status, answer.json["error"]["code"]) == (422, "invalid_record")
    return " ".join(answer.json["error"]["details"]["problems"])


@pytest.mark.requirement("record:unknown-field:refused", "record:patterns:model-name")
@pytest.mark.parametrize(("many", "key", "body", "message"), SLIPS.values(), ids=SLIPS.keys())
async def test_a_slip_is_refused_by_every_way_of_writing(
    desk: Desk, many: str, key: str, body: Json, message: str
):
    assert message in said(await desk.ask("POST", f"{ADMIN}/{many}", body))
    assert message in said(await desk.ask("PUT", f"{ADMIN}/{many}/{key}", body))
    assert message in said(await desk.ask("POST", f"{ADMIN}/import", {many: [body]}))
    preview = {"mode": "preview", "records": {many: [body]}}
    assert message in said(await desk.ask("POST", f"{ADMIN}/import", preview))
    kind: Kind = next(kind for kind in KINDS if f"{kind}s" == many)
    await desk.ask("PUT", f"{ADMIN}/{many}/{key}", {**PLAIN[kind][1], _key(kind): key})
    names = ("server_id", "task_id", "user_id", "name", "transport", "base_url")
    patch = {name: value for name, value in body.items() if name not in names}
    assert message in said(await desk.ask("PATCH", f"{ADMIN}/{many}/{key}", patch))
    assert desk.service.view.revision == 1


def _key(kind: Kind) -> str:
    return {"server": "server_id", "task": "task_id", "user": "user_id"}.get(kind, "name")


@pytest.mark.requirement("record:unknown-field:refused")
async def test_the_platforms_slip_is_refused_too(desk: Desk):
    for method in ("PUT", "PATCH"):
        answer = await desk.ask(method, f"{ADMIN}/platform", {"tool_denylst": ["x"]})
        assert "tool_denylst: unknown field; did you mean 'tool_denylist'?" in said(answer)


@pytest.mark.requirement("record:unknown-field:refused")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("MCP.tool_denylist", ["x"]),
        (" mcp.tool_denylist", ["x"]),
        ("mcp\u2024tool_denylist", ["x"]),
        ("mcp", {"tool_denylist": ["x"]}),
    ],
)
async def test_a_restriction_in_a_tasks_config_is_not_dropped_for_its_spelling(
    desk: Desk, key: str, value: Any
):
    body = {"task_id": "review", "config": {"mcp.enabled": True, key: value}}
    for method, path in (("POST", "tasks"), ("PUT", "tasks/review")):
        assert key in said(await desk.ask(method, f"{ADMIN}/{path}", body))
    assert key in said(await desk.ask("POST", f"{ADMIN}/import", {"tasks": [body]}))
    await desk.ask("POST", f"{ADMIN}/tasks", PLAIN["task"][1])
    patch = {"config": {key: value}}
    assert key in said(await desk.ask("PATCH", f"{ADMIN}/tasks/review", patch))


@pytest.mark.requirement("record:unknown-field:refused")
@pytest.mark.parametrize(
    ("query", "beside", "named"),
    [
        ("", {"mod": "preview"}, "mod"),
        ("", {"dry_run": True}, "dry_run"),
        ("", {"mode": "preview", "whole": True}, "whole"),
        ("", {"Mode": "preview"}, "Mode"),
        ("?mod=preview", {}, "mod"),
        ("?dry_run=true", {}, "dry_run"),
    ],
)
async def test_a_misspelt_mode_of_an_import_imports_nothing(
    desk: Desk, query: str, beside: Json, named: str
):
    """Whoever asks for a preview by another name means no writing."""
    body = {"records": {"tasks": [{"task_id": "t"}]}, **beside}
    answer = await desk.ask("POST", f"{ADMIN}/import{query}", body)
    assert answer.status in (400, 422)
    assert f"{named}: " in answer.json["error"]["message"]
    assert desk.service.view.revision == 0


@pytest.mark.requirement("record:unknown-field:refused")
async def test_a_misspelt_parameter_of_a_write_is_refused(desk: Desk):
    body = PLAIN["task"][1]
    for method, path in (
        ("POST", "tasks?strct=true"),
        ("PUT", "tasks/review?Strict=true"),
        ("PATCH", "tasks/review?dryrun=true"),
        ("DELETE", "tasks/review?dryrun=true"),
        ("POST", "rollback?dryrun=true"),
    ):
        answer = await desk.ask(method, f"{ADMIN}/{path}", None if method == "DELETE" else body)
        assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request")
    assert desk.service.view.revision == 0


@pytest.mark.requirement("record:unknown-field:refused")
@pytest.mark.parametrize(
    "patch",
    [
        {"mcp": {"tool_alowlist": None}},
        {"config": {"mcp.tool_alowlist": None}},
        {"descripton": None},
    ],
)
async def test_taking_away_what_nobody_knows_is_refused(desk: Desk, patch: Json):
    await desk.ask("POST", f"{ADMIN}/tasks", PLAIN["task"][1])
    answer = await desk.ask("PATCH", f"{ADMIN}/tasks/review", patch)
    assert "unknown field; did you mean" in said(answer)


@pytest.mark.requirement("record:unknown-field:refused")
@pytest.mark.parametrize("kind", ["server", "task", "profile", "backend", "user"])
async def test_what_is_shown_can_be_sent_back_as_it_is(desk: Desk, kind: Kind):
    place = f"{ADMIN}/{kind}s/{PLAIN[kind][0]}"
    await desk.ask("PUT", place, PLAIN[kind][1])
    shown = (await desk.ask("GET", place)).json
    answer = await desk.ask("PUT", place, shown)
    assert (answer.status, answer.json["changed"], answer.json["revision"]) == (200, False, 1)


@pytest.mark.requirement("registry:import")
async def test_a_clients_file_is_read_by_its_own_rules(desk: Desk):
    entry = {"command": "true", "autoApprove": ["x"], "alwaysAllow": [], "timeout": 60}
    content = {"mcpServers": {"fs": entry}, "theme": "dark", "globalShortcut": ""}
    answer = await desk.ask("POST", f"{ADMIN}/import", content)
    assert answer.status == 200
    assert any("fs.autoApprove" in warning for warning in answer.json["warnings"])


# --- what a store holds from elsewhere


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[SqliteStore, None]:
    """Open a store whose records have fields that another version wrote."""
    path = tmp_path / "r.db"
    made = await SqliteStore(path, synchronous="OFF").open()
    await made.write([write("fs"), write("review", kind="task")], BY)
    await made.close()
    with sqlite3.connect(path) as raw:
        for key, extra in (
            ("fs", {"colour": "red", "hygiene": {"depth": 3}, "vault_token": "s3cr3t-value"}),
            ("review", {"mcp": {"enabled": True, "mood": "calm"}}),
        ):
            [body] = raw.execute("SELECT body FROM objects WHERE id = ?", (key,)).fetchone()
            plain = msgspec.json.decode(body) | extra
            text = msgspec.json.encode(plain, order="deterministic").decode()
            raw.execute("UPDATE objects SET body = ? WHERE id = ?", (text, key))
    raw.close()
    opened = await SqliteStore(path, synchronous="OFF").open()
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture
async def old(store: SqliteStore) -> AsyncGenerator[Desk, None]:
    clock = FakeClock()
    async with open_registry(store, clock=clock) as service:
        yield await Desk(service, clock, None).ready()


PLACES = SERVER, TASK = f"{ADMIN}/servers/fs", f"{ADMIN}/tasks/review"


@pytest.mark.requirement("admin:toml", "record:unknown-field:kept")
async def test_toml_has_the_fields_of_another_version_too(old: Desk):
    read = [await old.ask("GET", one, headers={"Accept": "application/toml"}) for one in PLACES]
    fs, review = (tomllib.loads(answer.body.decode()) for answer in read)
    assert (fs["colour"], fs["hygiene"]["depth"], fs["vault_token"]) == ("red", 3, "***")
    assert (review["mcp"]["mood"], "config" in review) == ("calm", False)


@pytest.mark.requirement("record:unknown-field:kept")
async def test_stored_fields_are_shown_and_may_come_back_unchanged(old: Desk):
    shown = (await old.ask("GET", SERVER)).json
    assert (shown["colour"], shown["hygiene"]["depth"]) == ("red", 3)
    assert shown["vault_token"] == "***"
    assert (await old.ask("PUT", SERVER, shown)).json["changed"] is False
    edited = await old.ask("PUT", SERVER, {**shown, "display_name": "Files"})
    assert edited.json["server"]["colour"] == "red"
    assert (await old.ask("GET", SERVER, role="node")).json["vault_token"] == "s3cr3t-value"
    task = (await old.ask("GET", TASK)).json
    assert task["mcp"]["mood"] == "calm"
    task["mcp"]["read_only"] = True
    answer = await old.ask("PUT", TASK, task)
    assert answer.status == 200, answer.json
    assert (
        answer.json["task"]["mcp"] | {"mood": "calm", "read_only": True}
        == (answer.json["task"]["mcp"])
    )


@pytest.mark.requirement("record:unknown-field:kept")
async def test_stored_fields_outlast_a_patch_and_may_be_taken_away(old: Desk):
    answer = await old.ask("PATCH", SERVER, {"display_name": "Files"})
    assert answer.json["server"]["hygiene"]["depth"] == 3
    answer = await old.ask("PATCH", SERVER, {"colour": None, "hygiene": {"depth": None}})
    assert "colour" not in answer.json["server"]
    assert "depth" not in answer.json["server"].get("hygiene", {})
    assert answer.json["server"]["vault_token"] == "***"


@pytest.mark.requirement("record:unknown-field:kept")
async def test_stored_fields_may_not_be_changed_or_joined_by_others(old: Desk):
    shown = (await old.ask("GET", SERVER)).json
    for change in ({"colour": "blue"}, {"hygiene": {"depth": 4}}, {"shape": "round"}):
        assert "unknown field" in said(await old.ask("PUT", SERVER, {**shown, **change}))
        assert "unknown field" in said(await old.ask("PATCH", SERVER, change))


@pytest.mark.requirement("record:patterns:model-name")
async def test_a_pattern_that_was_stored_before_locks_nothing_in(tmp_path: Path):
    path = tmp_path / "r.db"
    made = await SqliteStore(path, synchronous="OFF").open()
    await made.write([write("fs", allowed_tools=["read_*"])], BY)
    await made.close()
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE objects SET body = replace(body, 'read_*', 'mcp__fs__read_*')")
    raw.close()
    store, clock = await SqliteStore(path, synchronous="OFF").open(), FakeClock()
    async with open_registry(store, clock=clock) as service:
        desk = await Desk(service, clock, None).ready()
        answer = await desk.ask("PATCH", SERVER, {"enabled": False})
        assert (answer.status, answer.json["changed"]) == (200, True)
        assert "looks like a name that models use" in answer.json["warnings"][0]
        added = ["mcp__fs__read_*", "mcp__fs__write_*"]
        assert "allowed_tools[1]" in said(await desk.ask("PATCH", SERVER, {"allowed_tools": added}))


# --- what is doubtful


@pytest.mark.requirement("task:doubtful")
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (
            {"enabled": True, "default_server_ids": ["fs"], "allowed_server_ids": ["git"]},
            "default server 'fs' is outside the allowed servers",
        ),
        ({"enabled": True}, "MCP is enabled but no default server is selected"),
        ({"enabled": True, "default_server_ids": ["nope"]}, "there is no server 'nope'"),
        ({"enabled": True, "profile": "nope"}, "there is no profile 'nope' yet"),
    ],
)
async def test_a_doubtful_task_is_written_with_a_warning(desk: Desk, policy: Json, expected: str):
    for name in ("fs", "git"):
        await desk.ask("POST", f"{ADMIN}/servers", server(name))
    body = {"task_id": "t", "mcp": policy}
    for method, place in (("POST", "tasks"), ("PUT", "tasks/t"), ("PATCH", "tasks/t")):
        answer = await desk.ask(method, f"{ADMIN}/{place}", body)
        assert f"task 't': {expected}" in answer.json["warnings"]
    imported = await desk.ask("POST", f"{ADMIN}/import", {"tasks": [body]})
    assert f"task 't': {expected}" in imported.json["warnings"]


@pytest.mark.requirement("task:doubtful")
async def test_a_task_that_is_well_has_no_warning(desk: Desk):
    await desk.ask("POST", f"{ADMIN}/servers", server("fs"))
    policy = {"enabled": True, "default_server_ids": ["fs"]}
    answer = await desk.ask("POST", f"{ADMIN}/tasks", {"task_id": "t", "mcp": policy})
    assert answer.json["warnings"] == []
    switched_off = await desk.ask("POST", f"{ADMIN}/tasks", {"task_id": "u"})
    assert switched_off.json["warnings"] == []


# --- what is not there


@pytest.mark.requirement("registry:nothing-there")
async def test_what_no_file_owns_cannot_be_adopted(desk: Desk):
    await desk.ask("POST", f"{ADMIN}/servers", server("fs"))
    answer = await desk.ask("POST", f"{SERVER}/adopt")
    assert (answer.status, answer.json["error"]["code"]) == (409, "wrong_state")
    assert (await desk.ask("POST", f"{ADMIN}/servers/nope/adopt")).status == 404


@pytest.mark.requirement("registry:nothing-there")
async def test_a_rollback_of_what_never_was_is_not_found(desk: Desk):
    await desk.ask("POST", f"{ADMIN}/servers", server("fs"))
    body = {"revision": 0, "only": [{"kind": "server", "id": "nope"}]}
    answer = await desk.ask("POST", f"{ADMIN}/rollback", body)
    assert (answer.status, answer.json["error"]["details"]["id"]) == (404, "nope")
    body["only"] = [{"kind": "server", "id": "fs"}]
    assert (await desk.ask("POST", f"{ADMIN}/rollback", body)).status == 200
