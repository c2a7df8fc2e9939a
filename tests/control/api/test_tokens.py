"""Tokens over HTTP: made once, shown once, ended at once; never read back."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.audit.events import Act
from bascule.audit.ledger import LedgerUnavailable, MemoryLedger
from bascule.control.api.tokens import TOKENS
from bascule.model.role import ROLES
from tests.control.api.desk import ADMIN, Desk

SHOWN = {
    *("id", "name", "role", "task_id", "created_at", "expires_at", "state"),
    *("person", "acts_for_users", "tasks", "made_by", "grants", "page"),
}


async def test_a_token_is_made_works_is_listed_and_ended(desk: Desk):
    made = await desk.ask("POST", TOKENS, {"role": "viewer", "name": "wall", "ttl_seconds": 60})
    assert made.status == 201
    assert set(made.json) == SHOWN | {"token", "warnings"}
    assert made.json["expires_at"] > made.json["created_at"]
    place = f"{TOKENS}/{made.json['id']}"
    assert made.header("location") == place
    bearer = {"Authorization": f"Bearer {made.json['token']}"}
    assert (await desk.ask("GET", f"{ADMIN}/servers", role=None, headers=bearer)).status == 200
    listed = (await desk.ask("GET", TOKENS)).json["tokens"]
    assert [token["name"] for token in listed][-1] == "wall"
    ended = await desk.ask("DELETE", place)
    assert (ended.status, ended.json) == (200, {"deleted": made.json["id"]})
    assert (await desk.ask("GET", f"{ADMIN}/servers", role=None, headers=bearer)).status == 401
    assert (await desk.ask("DELETE", place)).code == "not_found"


@pytest.mark.requirement("security:tokens:digest")
async def test_no_answer_but_the_first_has_a_token_and_none_has_a_digest(desk: Desk):
    made = await desk.ask("POST", TOKENS, {"role": "admin"})
    listed = await desk.ask("GET", TOKENS)
    assert {frozenset(token) for token in listed.json["tokens"]} == {frozenset(SHOWN)}
    assert made.json["token"].encode() not in listed.body
    for record in await desk.tokens.records():
        for answer in (made, listed):
            assert record.digest.hex().encode() not in answer.body


async def test_a_client_needs_a_task_and_is_warned_of_one_that_is_not_there(desk: Desk):
    unknown = await desk.ask("POST", TOKENS, {"role": "client", "task_id": "later"})
    assert unknown.status == 201
    assert unknown.json["warnings"] == [
        "task_id: there is no task 'later' yet; until there is, calls are refused"
    ]
    await desk.ask("PUT", f"{ADMIN}/tasks/later", {})
    known = await desk.ask("POST", TOKENS, {"role": "client", "task_id": "later"})
    assert (known.json["warnings"], known.json["name"]) == ([], "client")


async def test_whose_a_token_is_and_who_made_it_is_told(desk: Desk):
    await desk.ask("PUT", f"{ADMIN}/tasks/t", {})
    wanted = [
        {"role": "client", "task_id": "t", "person": "alice"},
        {"role": "client", "task_id": "t", "acts_for_users": True},
        {"role": "approver", "person": "bob", "tasks": ["t"]},
    ]
    for body in wanted:
        answer = await desk.ask("POST", TOKENS, body)
        assert answer.status == 201, answer.body
        assert {name: answer.json[name] for name in body} == body
        assert answer.json["made_by"] == "admin"
    listed = (await desk.ask("GET", TOKENS)).json["tokens"][-3:]
    for body, one in zip(wanted, listed, strict=True):
        assert {name: one[name] for name in body} == body


@pytest.mark.requirement("security:tokens:maker")
async def test_a_token_that_a_person_makes_is_made_by_that_person(desk: Desk):
    own = await desk.tokens.mint("desk-3", "admin", person="carol")
    bearer = {"Authorization": f"Bearer {own.token}"}
    made = await desk.ask("POST", TOKENS, {"role": "viewer"}, role=None, headers=bearer)
    assert made.json["made_by"] == "carol"


@pytest.mark.requirement("security:tokens:maker")
async def test_a_person_answers_for_tokens_that_are_made_with_tokens_they_made(desk: Desk):
    await desk.ask("PUT", f"{ADMIN}/users/carol", {})
    token = (await desk.tokens.mint("c", "admin", person="carol")).token
    for name in ("second", "third", "fourth"):
        bearer = {"Authorization": f"Bearer {token}"}
        body = {"role": "admin", "name": name}
        made = await desk.ask("POST", TOKENS, body, role=None, headers=bearer)
        assert made.json["made_by"] == "carol"
        token = made.json["token"]


#: The body; status, code, and the path that the answer must name.
MALFORMED: dict[str, tuple[Any, int, str, str]] = {
    "nothing": ({}, 422, "invalid_record", "role: "),
    "a list": ([], 400, "invalid_json", "object"),
    "no such role": ({"role": "root"}, 422, "invalid_record", "role: "),
    "a role that is a number": ({"role": 1}, 422, "invalid_record", "role: "),
    "a client without a task": ({"role": "client"}, 422, "invalid_record", "task_id: "),
    "a task for an administrator": (
        {"role": "admin", "task_id": "t"},
        422,
        "invalid_record",
        "task_id: ",
    ),
    "a person with a space": (
        {"role": "admin", "person": "a b"},
        422,
        "invalid_record",
        "person: ",
    ),
    "a node of a person": ({"role": "node", "person": "a"}, 422, "invalid_record", "person: "),
    "a viewer for anybody": (
        {"role": "viewer", "acts_for_users": True},
        422,
        "invalid_record",
        "acts_for_users: ",
    ),
    "a viewer of no task": ({"role": "viewer", "tasks": []}, 422, "invalid_record", "tasks: "),
    "an operator of a task": (
        {"role": "operator", "tasks": ["t"]},
        422,
        "invalid_record",
        "tasks: ",
    ),
    "an empty name": ({"role": "admin", "name": ""}, 422, "invalid_record", "name: "),
    "a name of two lines": ({"role": "admin", "name": "a\nb"}, 422, "invalid_record", "name: "),
    "a long name": ({"role": "admin", "name": "a" * 129}, 422, "invalid_record", "name: "),
    "no time": ({"role": "admin", "ttl_seconds": 0}, 422, "invalid_record", "ttl_seconds: "),
    "too much time": (
        {"role": "admin", "ttl_seconds": 1e300},
        422,
        "invalid_record",
        "ttl_seconds: ",
    ),
    "a time in words": (
        {"role": "admin", "ttl_seconds": "1h"},
        422,
        "invalid_record",
        "ttl_seconds: ",
    ),
    "a digest of one's own": (
        {"role": "admin", "digest": "x"},
        422,
        "invalid_record",
        "digest: ",
    ),
    "an id of one's own": ({"role": "admin", "id": "x"}, 422, "invalid_record", "id: "),
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_a_malformed_token_is_refused_by_name_and_none_is_made(desk: Desk, case: str):
    body, status, code, path = MALFORMED[case]
    before = await desk.tokens.records()
    answer = await desk.ask("POST", TOKENS, body)
    assert (answer.status, answer.code) == (status, code), answer.body
    assert path.encode() in answer.body
    assert await desk.tokens.records() == before


async def test_all_problems_of_a_token_are_said_at_once(desk: Desk):
    answer = await desk.ask("POST", TOKENS, {"role": "admin", "name": "a\n", "task_id": "t"})
    assert [problem.split(":")[0] for problem in answer.json["error"]["details"]["problems"]] == [
        "name",
        "task_id",
    ]


async def test_only_an_administrator_sees_makes_or_ends_tokens(desk: Desk):
    for role in set(ROLES) - {"admin"}:
        answers = [
            await desk.ask("GET", TOKENS, role=role),
            await desk.ask("POST", TOKENS, {"role": "admin"}, role=role),
            await desk.ask("DELETE", f"{TOKENS}/x", role=role),
        ]
        assert [answer.code for answer in answers] == ["forbidden"] * 3


async def test_who_makes_and_ends_a_token_is_written_down_with_their_role(desk: Desk):
    ledger = MemoryLedger()
    desk.tokens.note = ledger.note
    made = await desk.ask("POST", TOKENS, {"role": "viewer"})
    await desk.ask("DELETE", f"{TOKENS}/{made.json['id']}")
    await desk.ask("DELETE", f"{TOKENS}/{made.json['id']}")
    assert [(type(event).__name__, getattr(event, "by", None)) for event in ledger.events] == [
        ("TokenMade", "admin:admin"),
        ("TokenEnded", "admin:admin"),
    ]


async def test_without_a_ledger_no_token_is_made_or_ended_and_the_answer_says_why(desk: Desk):
    async def refuse(act: Act) -> None:
        raise LedgerUnavailable("the journal cannot be written")

    before = await desk.tokens.records()
    desk.tokens.note = refuse
    for answer in (
        await desk.ask("POST", TOKENS, {"role": "viewer"}),
        await desk.ask("DELETE", f"{TOKENS}/{before[0].id}"),
    ):
        assert answer.status == 503
        assert answer.json["error"]["details"] == {"reason": "ledger_unavailable"}
    assert await desk.tokens.records() == before
