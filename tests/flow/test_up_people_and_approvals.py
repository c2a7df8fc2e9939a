"""A real process from outside: who may look and decide, and what an approval survives."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.flow.up_process import Json, Up, serving

APPROVALS = "/admin/api/approvals"
RECORDS = "/admin/api/mcp"
DELETE = "mcp__notes__delete_note"


@pytest.fixture
async def up(tmp_path: Path) -> AsyncGenerator[Up]:
    async with serving(tmp_path / "data") as process:
        yield process


async def made(up: Up, name: str, role: str, **options: Any) -> str:
    body = {"name": name, "role": role, **options}
    status, answer = await up.ask("POST", "/admin/api/tokens", token=up.admin, body=body)
    assert status == 201, answer
    return answer["token"]


async def write(up: Up, method: str, path: str, body: Any) -> None:
    status, answer = await up.ask(method, f"{RECORDS}/{path}", token=up.admin, body=body)
    assert status in (200, 201), answer


async def asked(up: Up, client: str, **arguments: Any) -> str:
    """Call a tool that needs approval; return the question's id."""
    status, answer = await up.call(client, DELETE, **arguments)
    assert (status, answer["error"]["code"]) == (409, "mcp_approval_required"), answer
    return answer["error"]["details"]["approval_id"]


async def decided(up: Up, id: str, by: str, verb: str = "approve") -> tuple[int, Json]:
    shown = await up.get(f"{APPROVALS}/{id}")
    body = {"decision": verb, "digest": shown["digest"]}
    return await up.ask("POST", f"{APPROVALS}/{id}/decision", token=by, body=body)


async def state(up: Up, id: str) -> str:
    return (await up.get(f"{APPROVALS}/{id}"))["state"]


@pytest.mark.requirement("people:unknown", "people:disabled")
async def test_the_token_of_somebody_without_a_record_or_switched_off_does_nothing_at_all(up: Up):
    await write(up, "POST", "users", {"user_id": "bob"})
    client = await made(up, "agent", "client", task_id="demo")
    bob = await made(up, "bob", "approver", person="bob")
    nobody = await made(up, "nobody", "approver", person="nobody")
    id = await asked(up, client, name="welcome")
    await write(up, "PATCH", "users/bob", {"enabled": False})
    for token, reason in ((bob, "user_disabled"), (nobody, "unknown_user")):
        for path in (APPROVALS, f"{APPROVALS}/watch", f"{RECORDS}/servers", "/admin/api/audit"):
            status, answer = await up.ask("GET", path, token=token)
            assert (status, answer["error"]["details"]["reason"]) == (403, reason), path
        status, answer = await decided(up, id, token)
        assert (status, answer["error"]["code"]) == (403, "session_refused")
    await write(up, "PATCH", "users/bob", {"enabled": True})
    assert (await decided(up, id, bob))[0] == 200
    assert await state(up, id) == "approved"


@pytest.mark.requirement("approval:tasks")
async def test_an_approver_of_one_task_learns_nothing_of_another_by_any_way(up: Up):
    await write(up, "POST", "tasks", {"task_id": "other", "mcp": {"enabled": True}})
    client = await made(up, "agent", "client", task_id="demo")
    limited = await made(up, "otto", "approver", tasks=["other"])
    id = await asked(up, client, name="welcome")
    for path in (f"{APPROVALS}/{id}", f"{APPROVALS}?state=pending", "/admin/api/audit?limit=1000"):
        _, answer = await up.ask("GET", path, token=limited)
        assert id not in str(answer.get("approvals", answer.get("entries", ""))), path
    assert (await decided(up, id, limited))[0] == 404
    assert await state(up, id) == "pending"


@pytest.mark.requirement("approval:grant:bound-revision")
async def test_an_approval_does_not_outlive_a_change_that_a_call_was_made_under(up: Up):
    client = await made(up, "agent", "client", task_id="demo")
    approver = await made(up, "otto", "approver")
    id = await asked(up, client, name="welcome")
    assert (await decided(up, id, approver))[0] == 200
    platform = {"rules": [{"tools": ["notes/delete_note"], "effect": "require_approval"}]}
    await write(up, "PUT", "platform", platform)
    again = await asked(up, client, name="welcome")
    assert (again != id, await state(up, id)) == (True, "void")
    await write(up, "PUT", "platform", {})
    assert await asked(up, client, name="welcome") not in (id, again)
    assert await state(up, again) == "void"
    status, _ = await up.call(client, "mcp__notes__read_note", name="welcome")
    assert status == 200, "nothing was deleted"
