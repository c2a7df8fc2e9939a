"""What an operator may not write, by any way of writing: the platform, people, approvals."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.control.registry.plan import Draft
from bascule.control.registry.store import Author, Write
from bascule.model.user import UserRecord
from tests.asgi.caller import Answer
from tests.control.api.desk import ADMIN, SERVERS, Desk
from tests.control.registry.build import server

pytestmark = pytest.mark.requirement("people:policy-write")

ASKS = server("fs", approval_policy={"per_tool": {"delete_*": "always"}})
ALICE = {"user_id": "alice", "tool_denylist": ["delete_*"]}
OWNER = Author("the owner")


async def prepared(desk: Desk) -> Desk:
    """Have an administrator write a server that asks, a person and the platform."""
    await desk.ask("PUT", f"{ADMIN}/platform", {"default_approval": "policy"})
    await desk.ask("POST", SERVERS, ASKS)
    await desk.ask("POST", f"{ADMIN}/users", ALICE)
    return desk


def is_refused(desk: Desk, answer: Answer, field: str) -> bool:
    """Say whether an answer refuses, names the field, and nothing was written."""
    assert (answer.status, answer.json["error"]["code"]) == (403, "forbidden"), answer.body
    assert f"{field}: needs the permission policy:write" in answer.json["error"]["message"]
    assert [row["field"] for row in answer.json["error"]["details"]["fields"]] == [field]
    return desk.service.view.revision == 3


WRITES: dict[str, tuple[str, str, Any, str]] = {
    "the platform anew": ("PUT", "/platform", {}, "default_approval"),
    "a field of it": ("PATCH", "/platform", {"tool_denylist": ["x"]}, "tool_denylist"),
    "the platform away": ("DELETE", "/platform", None, "default_approval"),
    "a person": ("POST", "/users", {"user_id": "bob"}, "the record"),
    "a person by name": ("PUT", "/users/bob", {"user_id": "bob"}, "the record"),
    "a wider person": ("PATCH", "/users/alice", {"tool_denylist": None}, "the record"),
    "a choice of another's": ("PATCH", "/users/alice", {"own": {"read_only": True}}, "the record"),
    "a person away": ("DELETE", "/users/alice", None, "the record"),
    "a server anew": ("PUT", "/servers/fs", server("fs"), "approval_policy"),
    "a server's approvals": ("PATCH", "/servers/fs", {"approval_policy": None}, "approval_policy"),
    "one rule more": (
        "PATCH",
        "/servers/fs",
        {"approval_policy": {"per_tool": {"delete_note": "never"}}},
        "approval_policy",
    ),
    "weaker leaks": ("PATCH", "/servers/fs", {"hygiene": {"leaks": "off"}}, "hygiene.leaks"),
    "a new server that leaks": (
        "POST",
        "/servers",
        server("new", hygiene={"leaks": "off"}),
        "hygiene.leaks",
    ),
    "a server that asks away": ("DELETE", "/servers/fs", None, "approval_policy"),
    "an import of people": ("POST", "/import", {"users": [{"user_id": "bob"}]}, "the record"),
    "an import of the platform": ("POST", "/import", {"platform": {}}, "default_approval"),
    "an import of a server": (
        "POST",
        "/import?whole=true",
        {"servers": [server("fs")]},
        "approval_policy",
    ),
    "an import that replaces": (
        "POST",
        "/import?mode=replace",
        {"servers": [server("other")]},
        "approval_policy",
    ),
    "a preview": ("POST", "/import?mode=preview", {"users": [{"user_id": "bob"}]}, "the record"),
    "a way back": (
        "POST",
        "/rollback",
        {"revision": 2, "only": [{"kind": "user", "id": "alice"}]},
        "the record",
    ),
    "a way back of a server": (
        "POST",
        "/rollback",
        {"revision": 1, "only": [{"kind": "server", "id": "fs"}]},
        "approval_policy",
    ),
}


@pytest.mark.parametrize(("method", "path", "body", "field"), WRITES.values(), ids=WRITES.keys())
async def test_an_operator_is_refused_with_the_field_and_nothing_is_written(
    desk: Desk, method: str, path: str, body: Any, field: str
):
    await prepared(desk)
    given = () if body is None else (body,)
    answer = await desk.ask(method, ADMIN + path, *given, role="operator")
    assert is_refused(desk, answer, field)
    allowed = await desk.ask(method, ADMIN + path, *given, role="admin")
    assert allowed.status in (200, 201), allowed.body


async def test_deleting_and_creating_a_server_does_not_switch_its_approvals_off(desk: Desk):
    await prepared(desk)
    deleted = await desk.ask("DELETE", f"{SERVERS}/fs", role="operator")
    created = await desk.ask("POST", SERVERS, server("fs"), role="operator")
    assert (deleted.status, created.status) == (403, 409)
    kept = desk.service.snapshot().servers["fs"].approval_policy
    assert kept.per_tool == {"delete_*": "always"}


async def test_an_operator_cannot_adopt_what_governs_from_a_file(desk: Desk):
    person = UserRecord(user_id="alice")
    file = "/etc/people.toml"
    owned = Write(kind="user", id="alice", record=person, owner=file)
    await desk.service.transact(lambda _: Draft((owned,)), OWNER)
    await desk.ask("POST", SERVERS, ASKS)
    asks = desk.service.snapshot().servers["fs"]
    moved = Write(kind="server", id="fs", record=asks, owner=file)
    await desk.service.transact(lambda _: Draft((moved,)), OWNER, as_owner=True)
    people = await desk.ask("POST", f"{ADMIN}/users/alice/adopt", role="operator")
    servers = await desk.ask("POST", f"{SERVERS}/fs/adopt", role="operator")
    assert is_refused(desk, people, "the record")
    assert is_refused(desk, servers, "approval_policy")
    assert (await desk.ask("POST", f"{ADMIN}/users/alice/adopt")).status == 200


async def test_an_operator_accepts_nothing(desk: Desk):
    await prepared(desk)
    assert (await desk.ask("POST", f"{SERVERS}/fs/accept", role="operator")).status == 403


async def test_a_refused_write_leaves_no_proposal_behind(desk: Desk):
    await prepared(desk)
    body = {"stdio": {"command": "x", "env": {"K": "${ENV:TOKEN}"}}, "approval_policy": None}
    answer = await desk.ask("PATCH", f"{SERVERS}/fs", body, role="operator")
    assert is_refused(desk, answer, "approval_policy")
    assert await desk.service.proposals() == ()


async def test_an_operator_still_tends_servers_and_tasks(desk: Desk):
    await prepared(desk)
    changes: list[tuple[str, str, Any]] = [
        ("PATCH", "/servers/fs", {"allowed_tools": ["read_*"], "hygiene": {"leaks": "block"}}),
        ("POST", "/servers", server("new", approval_policy="always")),
        ("PUT", "/tasks/t", {"mcp": {"enabled": True, "default_server_ids": ["fs"]}}),
        ("PUT", "/servers/plain", server("plain")),
        ("PUT", "/platform", {"default_approval": "policy"}),
        ("POST", "/import", {"users": [ALICE], "servers": [ASKS]}),
    ]
    for method, path, body in changes:
        answer = await desk.ask(method, ADMIN + path, body, role="operator")
        assert answer.status in (200, 201), (path, answer.body)
    assert (await desk.ask("DELETE", f"{SERVERS}/plain", role="operator")).status == 200
