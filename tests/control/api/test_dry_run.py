"""Writes on trial: what they say, and what they are refused for."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.control.registry.plan import Draft
from bascule.control.registry.store import Author
from bascule.model.kinds import Kind
from tests.control.api.desk import ADMIN, SERVERS, Desk
from tests.control.registry.build import PLAIN, server, write

pytestmark = pytest.mark.requirement("admin:dry-run")

TASK = {"task_id": "t", "mcp": {"enabled": True, "default_server_ids": ["fs"]}}
SECRET = {
    "server_id": "fs",
    "transport": "streamable_http",
    "http": {"url": "https://example.org/mcp", "auth_ref": "secret://token"},
}


async def served(desk: Desk) -> Desk:
    await desk.ask("POST", SERVERS, server("fs"))
    await desk.ask("POST", f"{ADMIN}/tasks", TASK)
    return desk


async def test_the_dry_run_of_a_delete_says_which_tasks_lose_what(desk: Desk):
    await served(desk)
    answer = await desk.ask("DELETE", f"{SERVERS}/fs?dry_run=true")

    assert (answer.status, answer.json["revision"]) == (200, 2)
    [lost] = answer.json["diff"]["access"]["tasks"]
    [decision] = lost["default"]["servers_lost"]
    assert (lost["task"], decision["server"]) == ("t", "fs")
    assert "- server fs" in answer.json["diff"]["text"]
    assert (await desk.ask("GET", f"{SERVERS}/fs")).status == 200


async def test_the_dry_run_of_a_new_record_creates_none(desk: Desk):
    answer = await desk.ask("POST", f"{SERVERS}?dry_run=true", server("fs"))

    assert answer.status == 200
    assert answer.json["diff"]["changes"] == [
        {"kind": "server", "added": ["fs"], "changed": [], "removed": []}
    ]
    assert (await desk.ask("GET", f"{SERVERS}/fs")).status == 404
    assert (await desk.ask("GET", f"{ADMIN}/history")).json["changes"] == []


async def test_the_dry_run_of_no_change_says_so(desk: Desk):
    await served(desk)
    answer = await desk.ask("PUT", f"{SERVERS}/fs?dry_run=true", server("fs"))
    diff = answer.json["diff"]
    assert (diff["from"], diff["to"], diff["changes"], diff["text"]) == (2, 2, [], "no change")


async def test_the_dry_run_of_a_rollback_says_what_comes_back(desk: Desk):
    await served(desk)
    await desk.ask("DELETE", f"{SERVERS}/fs")
    answer = await desk.ask("POST", f"{ADMIN}/rollback?dry_run=true", {"revision": 2})

    [gained] = answer.json["diff"]["access"]["tasks"]
    assert (gained["task"], gained["default"]["servers_gained"]) == ("t", ["fs"])
    assert desk.service.view.revision == 3


async def test_a_dry_run_says_all_that_is_wrong(desk: Desk):
    wrong = server("fs", enabled="perhaps", budgets={"tool_timeout_ms": -1})
    answer = await desk.ask("PUT", f"{SERVERS}/fs?dry_run=true", wrong)
    assert (answer.status, answer.json["error"]["code"]) == (422, "invalid_record")
    assert len(answer.json["error"]["details"]["problems"]) == 2


async def test_a_dry_run_keeps_no_proposal(desk: Desk):
    answer = await desk.ask("PUT", f"{SERVERS}/fs?dry_run=true", SECRET, role="operator")

    assert (answer.status, answer.json["error"]["code"]) == (403, "pair_not_accepted")
    assert (await desk.ask("GET", f"{ADMIN}/proposals")).json == {"proposals": []}


async def test_a_dry_run_of_what_a_file_owns_is_refused_as_the_write_is(desk: Desk):
    owned = write("fs", owner="/etc/mcp.d/fs.toml")
    await desk.service.transact(lambda _: Draft((owned,)), Author("file"), as_owner=True)
    tried = await desk.ask("PATCH", f"{SERVERS}/fs?dry_run=true", {"enabled": False})
    assert (tried.status, tried.json["error"]["code"]) == (409, "owned_by_file")


async def test_a_dry_run_at_another_revision_is_a_conflict(desk: Desk):
    await served(desk)
    late = {"If-Match": '"7"'}
    tried = await desk.ask("DELETE", f"{SERVERS}/fs?dry_run=true", headers=late)
    assert (tried.status, tried.json["error"]["details"]["current_revision"]) == (412, 1)


ONE: list[tuple[Kind, str]] = [
    (kind, f"{kind}s/{key}") for kind, (key, _) in PLAIN.items() if kind != "platform"
]
PLATFORM: tuple[Kind, str] = ("platform", "platform")
ROUTES: list[tuple[str, str, Any]] = [
    *(("POST", f"{kind}s", PLAIN[kind][1]) for kind, _ in ONE),
    *(("PUT", path, PLAIN[kind][1]) for kind, path in [*ONE, PLATFORM]),
    *(("PATCH", path, {}) for _, path in [*ONE, PLATFORM]),
    *(("DELETE", path, None) for _, path in [*ONE, PLATFORM]),
    ("POST", "rollback", {"revision": 0}),
]


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
@pytest.mark.parametrize("query", ["dry_run=yes", "dry_run=", "dryrun=true", "dry_run=1&dry_run=0"])
async def test_a_misspelt_dry_run_is_refused_by_name(
    desk: Desk, method: str, path: str, body: Any, query: str
):
    given = () if body is None else (body,)
    answer = await desk.ask(method, f"{ADMIN}/{path}?{query}", *given)

    named = query.partition("=")[0]
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request")
    assert answer.json["error"]["details"] == {"parameter": named}
    assert desk.service.view.revision == 0


async def test_a_viewer_may_not_try_a_write(desk: Desk):
    answer = await desk.ask("PUT", f"{SERVERS}/fs?dry_run=true", server("fs"), role="viewer")
    assert answer.status == 403


@pytest.mark.parametrize("dry_run", ["true", "false"])
async def test_a_malformed_condition_is_refused_where_there_is_no_record_yet(
    desk: Desk, dry_run: str
):
    path, empty = f"{SERVERS}/fs?dry_run={dry_run}", {"If-None-Match": ""}
    answer = await desk.ask("PUT", path, server("fs"), headers=empty)
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request")
    assert desk.service.view.revision == 0
