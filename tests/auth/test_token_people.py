"""Tokens and who they speak for: a person, whom they name, or nobody; and who made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bascule.audit.events import TokenMade
from bascule.audit.ledger import MemoryLedger
from bascule.auth.token_request import doubts
from bascule.auth.token_store import open_tokens
from bascule.auth.tokens import PROCESS, Tokens
from bascule.errors import InvalidRecord
from bascule.model.role import ROLES, Role
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskRecord
from bascule.model.user import UserRecord
from tests.asgi.caller import make_tokens

CLIENT: dict[str, Any] = {"role": "client", "task_id": "t"}


async def made(tokens: Tokens, **options: Any) -> Any:
    role: Role = options.pop("role")
    minted = await tokens.mint("n", role, **options)
    return await tokens.verify(minted.token)


@pytest.mark.requirement("security:people:own", "security:tokens:maker")
async def test_what_a_token_is_made_with_is_what_its_holder_is(tmp_path: Path):
    async with open_tokens(tmp_path) as tokens:
        alice = await tokens.mint("n", "client", task_id="t", person="alice", by="cli:root")
        gateway = await tokens.mint("g", "client", task_id="t", acts_for_users=True)
        approver = await tokens.mint("a", "approver", person="bob", tasks=["t", "u", "t"])
    async with open_tokens(tmp_path) as tokens:
        said = [await tokens.verify(one.token) for one in (alice, gateway, approver)]
    found = [
        (one.person, one.acts_for_users, one.made_by, one.tasks) for one in said if one is not None
    ]
    assert found == [
        ("alice", False, "cli:root", None),
        (None, True, PROCESS, None),
        ("bob", False, PROCESS, ("t", "u")),
    ]


@pytest.mark.parametrize("role", sorted(set(ROLES) - {"node"}))
async def test_a_token_of_every_role_but_a_nodes_may_be_a_persons(role: Role):
    task = {"task_id": "t"} if role == "client" else {}
    principal = await made(make_tokens(), role=role, person="alice@example.org", **task)
    assert principal.person == "alice@example.org"


UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "a node of a person": ({"role": "node", "person": "alice"}, "person"),
    "a person without a name": ({**CLIENT, "person": ""}, "person"),
    "a person with a space": ({**CLIENT, "person": "a b"}, "person"),
    "a person of two lines": ({**CLIENT, "person": "alice\n"}, "person"),
    "a person with a long name": ({**CLIENT, "person": "a" * 129}, "person"),
    "a person who is also anybody": (
        {**CLIENT, "person": "alice", "acts_for_users": True},
        "person",
    ),
    "an administrator for anybody": ({"role": "admin", "acts_for_users": True}, "acts_for_users"),
    "a client of several tasks": ({**CLIENT, "tasks": ["t"]}, "tasks"),
    "an administrator of some tasks": ({"role": "admin", "tasks": ["t"]}, "tasks"),
    "an approver of no task": ({"role": "approver", "tasks": []}, "tasks"),
    "an approver of too many tasks": ({"role": "approver", "tasks": ["t"] * 65}, "tasks"),
    "a task without a name": ({"role": "viewer", "tasks": ["t", ""]}, "tasks[1]"),
}


@pytest.mark.parametrize("case", UNFIT)
async def test_what_does_not_go_together_is_refused_by_field(case: str):
    tokens, (options, field) = make_tokens(), UNFIT[case]
    with pytest.raises(InvalidRecord) as refused:
        await made(tokens, **options)
    assert [problem.split(":")[0] for problem in refused.value.problems] == [field]
    assert await tokens.records() == ()


async def test_who_a_token_speaks_for_is_in_its_event():
    ledger, tokens = MemoryLedger(), make_tokens()
    tokens.note = ledger.note
    await tokens.mint("g", "client", task_id="t", acts_for_users=True, by="admin:a", maker="carol")
    await tokens.mint("a", "approver", person="bob", tasks=["t"])
    events = [event for event in ledger.events if isinstance(event, TokenMade)]
    assert [(one.by, one.person, one.acts_for_users, one.tasks) for one in events] == [
        ("admin:a", None, True, None),
        (PROCESS, "bob", False, ("t",)),
    ]
    assert [record.made_by for record in await tokens.records()] == ["carol", PROCESS]


async def test_a_task_and_a_person_that_are_not_there_yet_are_told_of():
    tokens = make_tokens()
    client = (await tokens.mint("n", "client", task_id="t", person="alice")).record
    approver = (await tokens.mint("n", "approver", tasks=["t", "u"])).record
    tasks = {"t": TaskRecord(task_id="t")}
    assert doubts(client, Snapshot(users={"alice": UserRecord(user_id="alice")}, tasks=tasks)) == ()
    assert [one.split(":")[0] for one in doubts(client, Snapshot())] == ["task_id", "person"]
    assert doubts(approver, Snapshot(tasks=tasks)) == ("tasks: there is no task 'u' yet",)


@pytest.mark.requirement("approval:four-eyes")
@pytest.mark.parametrize(
    "name", ["ann ", " ann", "ann\u3164", "ann\ufe0f", "ann\u034f", "\uff41nn", "e\u0301"]
)
async def test_a_name_that_looks_like_another_is_refused(name: str):
    with pytest.raises(InvalidRecord, match="name: must not look like another"):
        await make_tokens().mint(name, "approver")
