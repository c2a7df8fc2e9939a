"""``/api/v1/me``: people see their own record, and narrow and restore it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bascule.asgi.guard import GuardedApp
from bascule.auth.identity import Principal
from bascule.control.registry.plan import Draft
from bascule.control.registry.store import Author, Write
from bascule.model.role import Role
from bascule.policy.compose import compose
from tests.asgi.caller import Answer
from tests.control.api.desk import ADMIN, Desk
from tests.control.registry.build import server

ME = "/api/v1/me"
ALICE = {"user_id": "alice", "groups": ["writers"], "enabled_server_ids": ["fs", "web"]}


class PersonsTokens:
    """Says of every valid token that it is a person's."""

    def __init__(self, desk: Desk, **fields: Any) -> None:
        self._tokens = desk.tokens
        self._fields = fields

    async def verify(self, token: str) -> Principal | None:
        found = await self._tokens.verify(token)
        return None if found is None else replace(found, **self._fields)


async def asked_by(
    desk: Desk, person: str | None, method: str, *body: Any, role: Role = "client", **fields: Any
) -> Answer:
    app = desk.app
    desk.app = GuardedApp(app.routes, PersonsTokens(desk, person=person, **fields))
    try:
        return await desk.ask(method, ME, *body, role=role)
    finally:
        desk.app = app


@pytest.fixture
async def team(desk: Desk) -> Desk:
    for server_id in ("fs", "web", "mail"):
        await desk.ask("POST", f"{ADMIN}/servers", server(server_id))
    await desk.ask("POST", f"{ADMIN}/users", ALICE)
    return desk


def servers_of(desk: Desk) -> list[str]:
    registry = desk.service.snapshot()
    found = compose(registry, None, person="alice")
    return [name for name in registry.servers if not _barred(found.objections(name))]


def _barred(objections: Any) -> bool:
    return any(one.layer == "user" for one in objections)


@pytest.mark.requirement("people:me")
async def test_a_person_sees_their_record_and_their_groups(team: Desk):
    shown = (await asked_by(team, "alice", "GET")).json
    assert (shown["person"], shown["groups"]) == ("alice", ["writers"])
    assert shown["record"]["enabled_server_ids"] == ["fs", "web"]
    assert shown["refused"] is None


@pytest.mark.requirement("people:me", "people:own-choice")
async def test_a_person_narrows_and_restores_what_an_administrator_gave(team: Desk):
    chosen = {"enabled_server_ids": ["fs"], "read_only": True, "tool_denylist": ["delete_*"]}
    narrowed = await asked_by(team, "alice", "PATCH", chosen)
    assert narrowed.json["record"]["own"] == chosen
    assert servers_of(team) == ["fs"]
    empty = await asked_by(team, "alice", "PATCH", {"enabled_server_ids": []})
    assert (empty.status, servers_of(team)) == (200, [])
    back: dict[str, Any] = dict.fromkeys(chosen)
    restored = await asked_by(team, "alice", "PATCH", back)
    assert "own" not in restored.json["record"]
    assert servers_of(team) == ["fs", "web"]
    assert team.service.snapshot().users["alice"].enabled_server_ids == ("fs", "web")


@pytest.mark.requirement("people:own-choice")
async def test_what_an_administrator_takes_away_stays_away_whatever_was_chosen(team: Desk):
    await asked_by(team, "alice", "PATCH", {"enabled_server_ids": ["fs", "web"]})
    await team.ask("PATCH", f"{ADMIN}/users/alice", {"enabled_server_ids": ["web"]})
    assert servers_of(team) == ["web"]
    again = await asked_by(team, "alice", "PATCH", {"enabled_server_ids": ["fs"]})
    assert again.status == 422
    assert again.json["error"]["details"]["problems"] == [
        "enabled_server_ids[0]: 'fs' is not among the servers that an administrator enabled (web)"
    ]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another field of the record": (
        {"groups": ["admins"]},
        "groups: only an administrator may change it",
    ),
    "their own name": ({"user_id": "bob"}, "user_id: only an administrator may change it"),
    "switching themselves on": ({"enabled": True}, "enabled: only an administrator may change it"),
    "the choice as a whole": ({"own": None}, "own: only an administrator may change it"),
    "no field": ({"tool_denylst": []}, "tool_denylst: unknown field; did you mean"),
    "no list": ({"tool_denylist": "x"}, "tool_denylist: must be a list, not a string"),
    "no pattern": ({"tool_allowlist": ["mcp__fs__x"]}, "tool_allowlist[0]: 'mcp__fs__x' looks"),
}  # fmt: skip


@pytest.mark.requirement("people:me")
@pytest.mark.parametrize(("body", "problem"), WRONG.values(), ids=WRONG.keys())
async def test_what_is_not_theirs_to_change_is_refused_with_its_path(
    team: Desk, body: dict[str, Any], problem: str
):
    before = team.service.view.revision
    answer = await asked_by(team, "alice", "PATCH", body)
    assert answer.status == 422
    assert answer.json["error"]["details"]["problems"][0].startswith(problem)
    assert team.service.view.revision == before


@pytest.mark.requirement("people:me")
async def test_a_token_of_nobody_has_nothing_to_change(team: Desk):
    shown = (await asked_by(team, None, "GET")).json
    assert (shown["person"], shown["record"]) == (None, None)
    assert (await asked_by(team, None, "PATCH", {"read_only": True})).status == 403


@pytest.mark.requirement("people:unknown", "people:disabled")
async def test_who_has_no_record_or_is_off_is_told_so_and_changes_nothing(team: Desk):
    stranger = (await asked_by(team, "mallory", "GET")).json
    assert stranger["refused"]["reason"] == "unknown_user"
    assert (await asked_by(team, "mallory", "PATCH", {"read_only": True})).status == 404
    await team.ask("PATCH", f"{ADMIN}/users/alice", {"enabled": False})
    assert (await asked_by(team, "alice", "GET")).json["refused"]["reason"] == "user_disabled"
    assert (await asked_by(team, "alice", "PATCH", {"read_only": True})).status == 403


@pytest.mark.requirement("people:me")
async def test_one_person_changes_nothing_of_another(team: Desk):
    await team.ask("POST", f"{ADMIN}/users", {"user_id": "bob"})
    await asked_by(team, "bob", "PATCH", {"read_only": True})
    users = team.service.snapshot().users
    assert (users["alice"].own, users["bob"].own is not None) == (None, True)


@pytest.mark.requirement("people:me")
async def test_a_record_of_a_file_is_changed_there(team: Desk):
    stored = team.service.view.objects["user", "alice"]
    assert stored.owner is None
    owned = Write(kind="user", id="alice", record=stored.record, owner="/etc/users.toml")
    await team.service.transact(lambda _: Draft((owned,)), Author("loader"), as_owner=True)
    answer = await asked_by(team, "alice", "PATCH", {"read_only": True})
    assert (answer.status, answer.json["error"]["code"]) == (409, "owned_by_file")
