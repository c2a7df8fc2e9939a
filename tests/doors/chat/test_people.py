"""Chats of a token that acts for users: by the header, by ``user`` where the task lets it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from bascule.model.task import TaskPolicy, TaskRecord
from tests.asgi.caller import Answer, ask
from tests.doors.chat.site import READ, TASKS, Site
from tests.loop.fakes import asks, call, says

PATH = "/v1/chat/completions"
HELLO: list[Any] = [{"role": "user", "content": "hello"}]
OWN = {"type": "function", "function": {"name": "own", "parameters": {"type": "object"}}}


class Saying(TaskPolicy, frozen=True, kw_only=True):
    """The policy of a task whose chat requests may name the person."""

    user_from_request: bool = True


@pytest.fixture
def site() -> Site:
    """A door that is not served, with one more task: ``said``."""
    site = Site()
    core = site.world.core
    task = TaskRecord(task_id="said", mcp=convert(TASKS["open"], Saying))
    core.snapshot = replace(core.snapshot, tasks={**core.snapshot.tasks, "said": task})
    return site


async def acting(site: Site, task: str = "open") -> dict[str, str]:
    minted = await site.tokens.mint("gateway", "client", task_id=task, acts_for_users=True)
    return {"Authorization": f"Bearer {minted.token}"}


async def chat(site: Site, headers: dict[str, str], **fields: Any) -> Answer:
    body = json.dumps({"model": "m", "messages": HELLO, **fields}).encode()
    sized = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    return await ask(site.app, "POST", PATH, {**sized, **headers}, chunks=[body])


def people(site: Site) -> list[str | None]:
    """Return for whom calls were made."""
    return [event.person for event in site.world.ledger.calls()]


@pytest.mark.requirement("security:people:acting")
async def test_a_chat_is_for_whom_the_header_names_and_user_stays_openais(site: Site):
    token = await acting(site)
    site.script(asks(call(READ)), says("done"))
    answer = await chat(site, {**token, "X-Bascule-User": "alice"}, user="someone else")
    assert answer.status == 200, answer.body
    assert people(site) == ["alice"]
    assert {asked["user"] for asked in site.upstream.asked} == {"someone else"}


async def test_from_a_token_of_its_own_user_is_openais_in_any_task(site: Site):
    for task in ("open", "said"):
        own = {"Authorization": f"Bearer {await site.token(task)}"}
        site.script(asks(call(READ)), says("done"))
        assert (await chat(site, own, user="not a person!")).status == 200
    assert people(site) == [None, None]
    assert {asked["user"] for asked in site.upstream.asked} == {"not a person!"}


@pytest.mark.requirement("security:people:acting")
async def test_where_the_task_says_so_the_request_names_the_person(site: Site):
    token = await acting(site, "said")
    for headers in (token, {**token, "X-Bascule-User": "alice"}):
        site.script(asks(call(READ)), says("done"))
        answer = await chat(site, headers, user="alice")
        assert answer.status == 200, answer.body
    assert people(site) == ["alice", "alice"]
    assert len(site.sessions) == 1


@pytest.mark.requirement("security:people:acting")
@pytest.mark.parametrize(
    ("task", "named", "fields"),
    [
        ("open", None, {}),
        ("open", None, {"user": "alice"}),
        ("said", None, {}),
        ("said", None, {"user": None}),
        ("said", None, {"user": ""}),
        ("said", None, {"user": "a b"}),
        ("said", None, {"user": "a" * 129}),
        ("said", None, {"user": ["alice"]}),
        ("said", "bob", {"user": "alice"}),
    ],
)
async def test_a_chat_for_nobody_or_for_two_is_refused_before_anything_is_done(
    site: Site, task: str, named: str | None, fields: dict[str, Any]
):
    header = {} if named is None else {"X-Bascule-User": named}
    answer = await chat(site, {**await acting(site, task), **header}, **fields)
    error = answer.json["error"]
    assert (answer.status, error["code"]) == (400, "invalid_request")
    assert error["message"].startswith(("X-Bascule-User: ", "user: "))
    assert (len(site.sessions), site.upstream.asked, site.world.sent) == (0, [], [])


@pytest.mark.requirement("security:people:apart")
async def test_what_is_held_for_one_person_is_not_given_to_another(site: Site):
    token = await acting(site)
    site.script(asks(call(READ, None, "c1"), call("own", None, "c2")))
    first = await chat(site, {**token, "X-Bascule-User": "alice"}, tools=[OWN])
    message = first.json["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": one["id"], "content": "mine"}
        for one in message["tool_calls"]
    ]
    history = [*HELLO, message, *results]
    site.script(says("done"))
    refused = await chat(site, {**token, "X-Bascule-User": "bob"}, messages=history, tools=[OWN])
    assert (refused.status, refused.code) == (400, "tool_results_expired")
    hers = await chat(site, {**token, "X-Bascule-User": "alice"}, messages=history, tools=[OWN])
    assert hers.status == 200, hers.body
