"""Whatever is malformed gets a 4xx that says what, and changes nothing; so does whoever may not."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.asgi.guard import open_routes
from bascule.model.role import ROLES
from tests.control.api.desk import ADMIN, PUBLIC, SERVERS, Desk
from tests.control.registry.build import server

FS = f"{SERVERS}/fs"
TASK = f"{ADMIN}/tasks/t"

#: Method, path, body; status, code, and a word that the answer must have.
MALFORMED: dict[str, tuple[str, str, Any, int, str, str]] = {
    "no body": ("PUT", FS, b"", 400, "invalid_json", "body"),
    "half a body": ("PUT", FS, b'{"server_id": "fs"', 400, "invalid_json", "JSON"),
    "a key twice": ("PUT", FS, b'{"tags": [], "tags": []}', 400, "invalid_json", "tags"),
    "not a number": ("PUT", FS, b'{"version": NaN}', 400, "invalid_json", "JSON"),
    "not UTF-8": ("PUT", FS, b'{"a": "\xff"}', 400, "invalid_json", "JSON"),
    "a list for a record": ("PUT", FS, [], 400, "invalid_json", "object"),
    "a word for a record": ("POST", SERVERS, "fs", 400, "invalid_json", "object"),
    "null for a patch": ("PATCH", FS, None, 400, "invalid_json", "object"),
    "no id": ("POST", SERVERS, {"transport": "stdio"}, 422, "invalid_record", "server_id"),
    "an id with capitals": ("POST", SERVERS, server("FS"), 422, "invalid_record", "server_id"),
    "an id that is a number": (
        "POST",
        SERVERS,
        server("fs") | {"server_id": 7},
        422,
        "invalid_record",
        "server_id",
    ),
    "an address that is no id": ("PUT", f"{SERVERS}/F S", {}, 422, "invalid_record", "server_id"),
    "another id than addressed": ("PUT", FS, server("other"), 422, "invalid_record", "server_id"),
    "an id changed by a patch": (
        "PATCH",
        FS,
        {"server_id": "other"},
        422,
        "invalid_record",
        "server_id",
    ),
    "an unknown transport": (
        "PUT",
        FS,
        server("fs", transport="pigeon"),
        422,
        "invalid_record",
        "transport",
    ),
    "no command": ("PUT", FS, server("fs", stdio={}), 422, "invalid_record", "stdio.command"),
    "a wrong inner type": (
        "PUT",
        FS,
        server("fs", stdio={"command": "x", "args": [1]}),
        422,
        "invalid_record",
        "stdio.args[0]",
    ),
    "a patch that breaks the record": (
        "PATCH",
        FS,
        {"stdio": None},
        422,
        "invalid_record",
        "stdio",
    ),
    "a budget below its bound": (
        "PATCH",
        FS,
        {"budgets": {"tool_timeout_ms": 0}},
        422,
        "invalid_record",
        "budgets.tool_timeout_ms",
    ),
    "an empty pattern": (
        "PATCH",
        FS,
        {"allowed_tools": [""]},
        422,
        "invalid_record",
        "allowed_tools[0]",
    ),
    "a pattern that is no text": (
        "PATCH",
        FS,
        {"allowed_tools": [{}]},
        422,
        "invalid_record",
        "allowed_tools[0]",
    ),
    "a condition that cannot be read": (
        "PATCH",
        FS,
        {"approval_policy": {"rules": [{"when": "((("}]}},
        422,
        "invalid_record",
        "approval_policy.rules[0].when",
    ),
    "a mask with nothing behind it": (
        "PATCH",
        FS,
        {"stdio": {"env": {"NEW": "***"}}},
        422,
        "invalid_record",
        "stdio.env.NEW",
    ),
    "an unknown field, strictly": (
        "PATCH",
        f"{FS}?strict=true",
        {"colour": "blue"},
        422,
        "invalid_record",
        "colour",
    ),
    "another's namespace": (
        "PUT",
        f"{SERVERS}/other",
        server("other", tool_namespace="mcp.fs"),
        422,
        "invalid_record",
        "tool_namespace",
    ),
    "our own name": ("POST", SERVERS, server("bascule"), 422, "invalid_record", "server_id"),
    "our own namespace": (
        "PUT",
        f"{SERVERS}/other",
        server("other", tool_namespace="Bascule.x"),
        422,
        "invalid_record",
        "tool_namespace",
    ),
    "our own namespace by a patch": (
        "PATCH",
        FS,
        {"tool_namespace": "bascule"},
        422,
        "invalid_record",
        "tool_namespace",
    ),
    "a strictness that is none": ("PATCH", f"{FS}?strict=maybe", {}, 400, "invalid_request", "st"),
    "a task's key": ("PUT", TASK, {"config": {"mcp.enabled": "?"}}, 422, "invalid_record", "mcp."),
    "a profile's name": ("PUT", f"{ADMIN}/profiles/a b", {}, 422, "invalid_record", "name"),
    "a backend without address": (
        "PUT",
        f"{ADMIN}/backends/b",
        {},
        422,
        "invalid_record",
        "base_url",
    ),
    "a platform's ceiling": (
        "PUT",
        f"{ADMIN}/platform",
        {"ceilings": {"max_concurrency": 0}},
        422,
        "invalid_record",
        "ceilings.max_concurrency",
    ),
    "a patch of nothing": ("PATCH", f"{SERVERS}/nope", {}, 404, "not_found", "nope"),
    "a rollback to nowhere": ("POST", f"{ADMIN}/rollback", {}, 422, "invalid_record", "revision"),
    "a rollback to a word": (
        "POST",
        f"{ADMIN}/rollback",
        {"revision": "1"},
        422,
        "invalid_record",
        "revision",
    ),
    "a rollback to the future": (
        "POST",
        f"{ADMIN}/rollback",
        {"revision": 99},
        400,
        "future_revision",
        "99",
    ),
    "a rollback below the first": (
        "POST",
        f"{ADMIN}/rollback",
        {"revision": -1},
        422,
        "invalid_record",
        "revision",
    ),
    "a rollback of an unknown kind": (
        "POST",
        f"{ADMIN}/rollback",
        {"revision": 0, "only": [{"kind": "x", "id": "y"}]},
        422,
        "invalid_record",
        "only[0].kind",
    ),
    "an import of a word": ("POST", f"{ADMIN}/import", "x", 422, "invalid_record", "records"),
    "an import of words": ("POST", f"{ADMIN}/import", ["x"], 422, "invalid_record", "server[0]"),
    "an import in no mode": (
        "POST",
        f"{ADMIN}/import",
        {"mode": "merge", "records": []},
        400,
        "invalid_request",
        "mode",
    ),
    "an import of an unknown kind": (
        "POST",
        f"{ADMIN}/import",
        {"servers": [], "robots": []},
        422,
        "invalid_record",
        "robots",
    ),
    "an import with a server twice": (
        "POST",
        f"{ADMIN}/import",
        [server("x"), server("x")],
        422,
        "invalid_record",
        "twice",
    ),
    "a client's broken file": (
        "POST",
        f"{ADMIN}/import",
        {"mcpServers": {"a": 1}},
        422,
        "invalid_record",
        "a:",
    ),
    "a limit of nothing": ("GET", f"{SERVERS}?limit=0", b"", 400, "invalid_request", "limit"),
    "a limit without end": ("GET", f"{SERVERS}?limit=99999", b"", 400, "invalid_request", "limit"),
    "a limit twice": ("GET", f"{SERVERS}?limit=1&limit=2", b"", 400, "invalid_request", "limit"),
    "a cursor that is none": ("GET", f"{SERVERS}?cursor=/", b"", 400, "invalid_request", "cursor"),
    "a history before a word": (
        "GET",
        f"{ADMIN}/history?before=x",
        b"",
        400,
        "invalid_request",
        "before",
    ),
    "a difference from nowhere": ("GET", f"{ADMIN}/diff", b"", 400, "invalid_request", "from"),
    "a difference to a word": (
        "GET",
        f"{ADMIN}/diff?from=0&to=now",
        b"",
        400,
        "invalid_request",
        "to",
    ),
    "a difference from the future": (
        "GET",
        f"{ADMIN}/diff?from=99",
        b"",
        400,
        "future_revision",
        "99",
    ),
    "a watch since a word": (
        "GET",
        f"{PUBLIC}/watch?since=x",
        b"",
        400,
        "invalid_request",
        "since",
    ),
    "a watch since below zero": (
        "GET",
        f"{PUBLIC}/watch?since=-1",
        b"",
        400,
        "invalid_request",
        "since",
    ),
    "a watch of an unknown kind": (
        "GET",
        f"{PUBLIC}/watch?kind=robot",
        b"",
        400,
        "invalid_request",
        "kind",
    ),
    "a watch that includes what is not there": (
        "GET",
        f"{PUBLIC}/watch?include=all",
        b"",
        400,
        "invalid_request",
        "include",
    ),
    "a method that is none": ("POST", FS, {}, 405, "method_not_allowed", "PATCH"),
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_what_is_malformed_is_refused_by_name_and_changes_nothing(desk: Desk, case: str):
    method, path, body, status, code, word = MALFORMED[case]
    await desk.ask("PUT", FS, server("fs"))
    before = desk.service.view

    if isinstance(body, bytes):
        answer = await desk.ask(method, path, raw=body)
    else:
        answer = await desk.ask(method, path, body)

    assert (answer.status, answer.code) == (status, code), answer.body
    assert set(answer.json["error"]) == {"code", "message", "details"}
    assert word.encode() in answer.body
    assert desk.service.view == before


async def test_nobody_gets_anywhere_without_a_token(desk: Desk):
    assert open_routes(desk.app) == ()
    for one in desk.app.routes:
        for method in one.verbs:
            path = one.path.replace("{id}", "fs")
            answer = await desk.ask(method, path, role=None)
            assert (answer.status, answer.code) == (401, "unauthenticated"), path


async def test_each_role_may_read_write_or_nothing(desk: Desk):
    await desk.ask("PUT", FS, server("fs"))
    may: dict[str, tuple[int, ...]] = {}
    for role in ROLES:
        reads = await desk.ask("GET", FS, role=role)
        writes = await desk.ask("PUT", FS, server("fs"), role=role)
        tries = await desk.ask("POST", f"{FS}/test", role=role)
        may[role] = (reads.status, writes.status, tries.status)

    assert may == {
        "admin": (200, 200, 503),
        "operator": (200, 200, 503),
        "approver": (200, 403, 403),
        "viewer": (200, 403, 403),
        "node": (200, 403, 403),
        "client": (403, 403, 403),
    }
