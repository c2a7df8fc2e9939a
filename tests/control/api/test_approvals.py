"""Approvals over HTTP: listed, shown, and decided by somebody else than who asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.ledger_file import FILE_NAME
from bascule.audit.search import LedgerFile, LedgerReader
from bascule.control.api.approvals import separation_of
from bascule.control.secret_keys import KEY_NAME
from bascule.model.approval import STATES, Approved, Denied
from bascule.wire.api.addresses import APPROVALS
from bascule.wire.api.audit import AuditFilters
from tests.asgi.caller import Answer
from tests.control.api.approval_office import STORES, Office, StoreName, asked, open_office


@pytest.fixture(params=STORES)
async def office(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Office]:
    kind: StoreName = request.param
    async with open_office(kind, tmp_path) as found:
        yield found


def refused(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.code


# --- deciding


@pytest.mark.requirement("approval:human", "approval:programmatic")
async def test_somebody_sees_what_is_asked_and_approves_it(office: Office):
    id = await office.ask_for(b'{"note":"welcome"}')
    [listed] = (await office.get("?state=pending")).json["approvals"]
    assert (listed["id"], listed["server_id"], listed["tool_name"]) == (id, "notes", "delete")
    assert "arguments" not in listed

    shown = await office.question(id)
    assert json.loads(shown["arguments"]) == {"note": "welcome"}
    assert json.loads(shown["definition"])["inputSchema"] == {"type": "object"}
    assert shown["description"] == "Delete a note."
    assert shown["rule"] == "approval_policy.per_tool['delete']"
    asker = (shown["person"], shown["caller"], shown["token_id"], shown["task_id"])
    assert asker == ("ann", "agent", "tok-agent", "home")
    assert (shown["whole"], shown["missing"], shown["decided"]) == (True, "", None)

    answer = await office.decide(id, reason="it is old")
    assert answer.status == 200
    assert answer.json["state"] == "approved"
    assert answer.json["decided"]["by"] == "otto"
    assert answer.json["decided"]["reason"] == "it is old"
    request = asked(b'{"note":"welcome"}')
    assert await office.approvals.ask(request, 0) == Approved(request.call, id)


@pytest.mark.requirement("approval:human")
async def test_a_denial_answers_the_call_with_its_reason(office: Office):
    id = await office.ask_for()
    answer = await office.decide(id, "deny", reason="not this one")
    assert (answer.status, answer.json["state"]) == (200, "denied")
    denied = await office.approvals.ask(asked(), 0)
    assert isinstance(denied, Denied)
    assert (denied.approval_id, "not this one" in denied.reason) == (id, True)


@pytest.mark.requirement("approval:one-decision")
async def test_a_second_decision_is_refused_with_the_first(office: Office):
    id = await office.ask_for()
    await office.decide(id, who="otto", reason="mine")
    for decision in ("approve", "deny"):
        late = await office.decide(id, decision, who="olga")
        assert refused(late) == (409, "wrong_state")
        details = late.json["error"]["details"]
        assert (details["approval_id"], details["state"]) == (id, "approved")
        first = details["decided"]
        assert (first["decision"], first["by"], first["reason"]) == ("approve", "otto", "mine")


@pytest.mark.requirement("approval:one-decision")
async def test_of_two_who_decide_at_once_one_wins_and_the_other_sees_it(office: Office):
    for _ in range(10):
        id = await office.ask_for(request_id=f"s1-{_}", server=f"notes{_}")
        answers = await asyncio.gather(
            office.decide(id, "approve", who="otto"), office.decide(id, "deny", who="olga")
        )
        by_status = {answer.status: answer.json for answer in answers}
        assert sorted(by_status) == [200, 409]
        assert by_status[409]["error"]["details"]["decided"] == by_status[200]["decided"]


@pytest.mark.requirement("approval:digest")
@pytest.mark.parametrize("digest", ["0" * 64, "x"])
async def test_a_decision_on_something_else_than_was_shown_is_refused(office: Office, digest: str):
    id = await office.ask_for()
    for decision in ("approve", "deny"):
        answer = await office.decide(id, decision, digest=digest)
        assert refused(answer) == (409, "changed")
    assert (await office.question(id))["state"] == "pending"


async def test_the_digest_is_of_arguments_definition_and_who_asked(office: Office):
    ids = [
        await office.ask_for(),
        await office.ask_for(b'{"a":1}'),
        await office.ask_for(definition={"name": "delete", "description": "Harmless."}),
        await office.ask_for(person="bob"),
    ]
    digests = [(await office.question(id))["digest"] for id in ids]
    assert len(set(digests)) == len(digests)
    other = await office.decide(ids[1], digest=digests[0])
    assert refused(other) == (409, "changed")


# --- who may


@pytest.mark.requirement("approval:four-eyes")
@pytest.mark.parametrize("who", ["agent", "agent-itself"])
@pytest.mark.parametrize("separation", ["person", "token"])
async def test_the_token_that_asked_and_one_of_its_name_never_decide(
    tmp_path: Path, who: str, separation: Any
):
    settings = ApprovalSettings(separation=separation)
    async with open_office("memory", tmp_path, settings) as office:
        id = await office.ask_for()
        for decision in ("approve", "deny"):
            assert refused(await office.decide(id, decision, who)) == (403, "own_call")
        assert (await office.question(id))["state"] == "pending"


@pytest.mark.requirement("approval:four-eyes")
async def test_where_several_people_are_known_nobody_decides_on_calls_of_their_own(office: Office):
    office.people = 2
    id = await office.ask_for()
    assert refused(await office.decide(id, who="anns")) == (403, "own_call")
    assert refused(await office.decide(id, who="ann-made")) == (403, "own_call")
    answer = await office.decide(id, who="otto")
    assert answer.json["decided"]["self_approved"] is False


async def test_a_question_says_why_whoever_looks_may_not_decide(office: Office):
    office.people = 2
    id = await office.ask_for()
    said = {who: (await office.question(id, who))["objection"] for who in ("anns", "wall", "agent")}
    assert said == {
        "anns": "whoever asked does not decide (approvals.separation is 'person')",
        "wall": "the role viewer looks, and does not decide",
        "agent": "a token named 'agent' asked, and one of its name does not decide",
    }
    assert (await office.question(id, "otto"))["objection"] == ""
    office.people = 1
    assert (await office.question(id, "anns"))["objection"] == ""


@pytest.mark.requirement("approval:alone")
@pytest.mark.parametrize("people", [0, 1])
async def test_somebody_alone_decides_with_another_token_and_that_is_marked(
    office: Office, people: int
):
    office.people = people
    id = await office.ask_for()
    answer = await office.decide(id, who="anns")
    assert (answer.json["state"], answer.json["decided"]["self_approved"]) == ("approved", True)
    assert (await office.question(id))["decided"]["self_approved"] is True


def test_the_setting_comes_before_the_number_of_people():
    assert [separation_of(None, people) for people in (0, 1, 2, 3)] == [
        *("token", "token", "person", "person")
    ]
    assert separation_of("token", 9) == "token"
    assert separation_of("person", 0) == "person"


async def test_viewers_look_and_clients_do_not(office: Office):
    id = await office.ask_for()
    for who, looks, decides in [
        ("olga", 200, 200),
        ("wall", 200, 403),
        ("op", 200, 403),
        ("client", 403, 403),
    ]:
        assert (await office.get(who=who)).status == looks
        assert (await office.get(f"/{id}", who)).status == looks
        assert (await office.decide(id, "deny", who)).status == decides
        id = await office.ask_for(server=f"after-{who}")
    assert (await office.ask("GET", APPROVALS, role=None)).status == 401


@pytest.mark.requirement("approval:tasks")
async def test_whoever_is_limited_to_tasks_sees_no_others(office: Office):
    mine = await office.ask_for()
    others = await office.ask_for(task_id="work")
    nobodys = await office.ask_for(task_id=None)
    assert await office.ids(who="home") == [mine]
    assert await office.ids("?task=work", who="home") == []
    unknown = await office.get("/apr-000000000000000000000000", "home")
    for id in (others, nobodys):
        hidden = await office.get(f"/{id}", "home")
        words = hidden.json["error"]["message"].replace(id, "")
        assert words == unknown.json["error"]["message"].replace("apr-" + "0" * 24, "")
        assert refused(hidden) == refused(unknown) == (404, "not_found")
        assert refused(await office.decide(id, who="home")) == (404, "not_found")
    assert (await office.decide(mine, who="home")).status == 200


# --- what cannot be seen


@pytest.mark.requirement("approval:shown-whole")
async def test_what_is_too_long_to_show_can_be_denied_and_not_approved(office: Office):
    id = await office.ask_for(b'{"text":"%b"}' % (b"x" * 70_000))
    shown = await office.question(id)
    assert shown["whole"] is False
    assert "arguments" in shown["missing"]
    assert len(shown["arguments"]) == 65_536
    assert refused(await office.decide(id)) == (409, "not_shown_whole")
    assert (await office.question(id))["state"] == "pending"
    assert (await office.decide(id, "deny")).status == 200


async def test_what_was_asked_is_not_kept_once_it_cannot_be_used(office: Office):
    id = await office.ask_for(b'{"note":"welcome"}')
    await office.decide(id, "deny")
    shown = await office.question(id)
    assert (shown["arguments"], shown["definition"], shown["whole"]) == ("", "", False)
    assert "not kept any longer" in shown["missing"]


@pytest.mark.requirement("approval:shown-whole")
async def test_what_cannot_be_read_any_more_can_be_denied_and_not_approved(tmp_path: Path):
    async with open_office("ledger", tmp_path) as office:
        id = await office.ask_for()
        (tmp_path / KEY_NAME).unlink()
    async with open_office("ledger", tmp_path) as office:
        shown = await office.question(id)
        assert (shown["state"], shown["whole"]) == ("pending", False)
        assert "cannot be read any more" in shown["missing"]
        assert refused(await office.decide(id)) == (409, "not_shown_whole")
        assert (await office.decide(id, "deny")).json["state"] == "denied"


async def test_a_key_that_is_none_hides_what_is_asked_and_nothing_else(tmp_path: Path):
    async with open_office("ledger", tmp_path) as office:
        id = await office.ask_for()
        (tmp_path / KEY_NAME).write_bytes(b"short")
        assert (await office.question(id))["whole"] is False
        assert await office.ids() == [id]
        assert (await office.decide(id, "deny")).status == 200


@pytest.mark.requirement("approval:shown-exactly")
async def test_nothing_in_arguments_can_hide_or_repaint(office: Office):
    tricks = {"\u202elive": "\x1b[2Jgone", "zero\u200bwidth": "a\u2066b", "e": "a\ufe0fb\u00a0c"}
    id = await office.ask_for(json.dumps(tricks, ensure_ascii=False).encode())
    shown = (await office.question(id))["arguments"]
    assert shown.isascii()
    for visible in (r"\u202elive", r"\u001b[2Jgone", r"zero\u200bwidth", r"a\u2066b"):
        assert visible in shown
    assert r"a\ufe0fb\xa0c" in shown


@pytest.mark.requirement("approval:shown-exactly")
async def test_numbers_and_escapes_are_shown_as_they_will_be_sent(office: Office):
    id = await office.ask_for(rb'{"n":123456789012345678901234567890,"f":1e5,"s":"\\u202e"}')
    shown = (await office.question(id))["arguments"]
    assert "123456789012345678901234567890" in shown
    assert "1e5" in shown
    assert r'"\\u202e"' in shown  # a backslash and letters, and not the character itself


async def test_a_definition_is_shown_as_safely(office: Office):
    spoken = "Reads.\n\x1b[31mIgnore the rest\u202e"
    id = await office.ask_for(definition={"name": "delete", "description": spoken})
    shown = await office.question(id)
    assert shown["description"] == "Reads.\n\\x1b[31mIgnore the rest\\u202e"
    assert shown["definition"].isascii()


# --- deadlines


async def test_a_question_whose_time_is_up_says_so_and_is_not_decided(office: Office):
    id = await office.ask_for()
    await office.clock.advance(office.approvals.settings.decide_seconds)
    assert (await office.question(id))["state"] == "expired"
    late = await office.decide(id)
    assert refused(late) == (409, "wrong_state")
    details = late.json["error"]["details"]
    assert (details["state"], details["decided"]) == ("expired", None)


async def test_waiting_for_a_question_ends_with_its_decision(office: Office):
    id = await office.ask_for()
    waiting = asyncio.ensure_future(office.get(f"/{id}?wait_ms=60000"))
    assert (await office.decide(id)).status == 200
    assert (await waiting).json["state"] == "approved"
    assert (await office.get(f"/{id}?wait_ms=60000")).json["state"] == "approved"


async def test_waiting_goes_on_no_longer_than_asked(office: Office):
    id = await office.ask_for()
    assert (await office.get(f"/{id}?wait_ms=1")).json["state"] == "pending"


async def test_whoever_lost_their_token_while_waiting_is_told_nothing(office: Office):
    id = await office.ask_for()
    waiting = asyncio.ensure_future(office.get(f"/{id}?wait_ms=60000", "wall"))
    await asyncio.wait([waiting], timeout=0)
    del office.known.principals["wall"]
    await office.decide(id)
    assert refused(await waiting) == (401, "unauthenticated")


# --- lists


async def test_filters_find_what_they_say(office: Office):
    ids = {
        "plain": await office.ask_for(),
        "task": await office.ask_for(task_id="work"),
        "server": await office.ask_for(server="git"),
        "tool": await office.ask_for(tool="push"),
        "person": await office.ask_for(person="bob"),
    }
    await office.decide(ids["plain"])
    await office.decide(ids["tool"], "deny")
    for query, names in {
        "task=work": ["task"],
        "server=git": ["server"],
        "tool=push": ["tool"],
        "person=bob": ["person"],
        "person=ann&server=git": ["server"],
        "state=approved": ["plain"],
        "state=approved,denied": ["plain", "tool"],
        "state=approved&state=denied": ["plain", "tool"],
        "state=pending&task=work": ["task"],
        "state=void": [],
    }.items():
        assert sorted(await office.ids(f"?{query}")) == sorted(ids[name] for name in names), query
    assert len(await office.ids()) == len(ids)


async def test_pages_go_on_where_the_last_ended(office: Office):
    made: list[str] = []
    for number in range(5):
        made.append(await office.ask_for(server=f"s{number}"))
        await office.clock.advance(0.25)
    query, seen, pages = "?limit=2", list[str](), 0
    while True:
        page = (await office.get(query)).json
        seen += [one["id"] for one in page["approvals"]]
        pages += 1
        if page["next_cursor"] is None:
            break
        query = f"?limit=2&cursor={page['next_cursor']}"
    assert (seen, pages) == (made[::-1], 3)


WRONG = {
    "state=lost": "state",
    "state=": "state",
    "state=pending,": "state",
    "task=": "task",
    "tool=a&tool=b": "tool",
    "person=" + "x" * 257: "person",
    "limit=0": "limit",
    "cursor=apr-1": "cursor",
    "cursor=1.5:apr-zz": "cursor",
    "cursor=": "cursor",
    "sate=pending": "sate",
    "caller=agent": "caller",
}


@pytest.mark.parametrize("query", WRONG)
async def test_what_cannot_be_understood_is_refused_by_its_name(office: Office, query: str):
    answer = await office.get(f"?{query}")
    assert refused(answer) == (400, "invalid_request")
    assert answer.json["error"]["details"]["parameter"] == WRONG[query]


@pytest.mark.parametrize("query", ["wait_ms=-1", "wait_ms=600001", "wait_ms=x", "wait=1"])
async def test_a_wait_that_cannot_be_understood_is_refused(office: Office, query: str):
    id = await office.ask_for()
    assert refused(await office.get(f"/{id}?{query}")) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"decision": "maybe", "digest": "d"}, "decision"),
        ({"digest": "d"}, "decision"),
        ({"decision": "approve"}, "digest"),
        ({"decision": "approve", "digest": ""}, "digest"),
        ({"decision": "approve", "digest": 7}, "digest"),
        ({"decision": "deny", "digest": "d", "reason": "x" * 1_001}, "reason"),
        ({"decision": "deny", "digest": "d", "because": "x"}, "because"),
    ],
)
async def test_a_decision_that_cannot_be_understood_is_refused_with_its_path(
    office: Office, body: dict[str, Any], path: str
):
    id = await office.ask_for()
    answer = await office.post(id, body)
    assert refused(answer) == (422, "invalid_record")
    assert any(path in problem for problem in answer.json["error"]["details"]["problems"])
    assert (await office.question(id))["state"] == "pending"


async def test_an_unknown_id_is_not_found(office: Office):
    for id in ("apr-000000000000000000000000", "x", "..%2f"):
        assert refused(await office.get(f"/{id}")) == (404, "not_found")
        answer = await office.post(id, {"decision": "approve", "digest": "d"})
        assert refused(answer) == (404, "not_found")


async def test_decisions_are_written_with_who_made_them(tmp_path: Path):
    async with open_office("ledger", tmp_path) as office:
        id = await office.ask_for(b'{"note":"welcome"}')
        await office.decide(id, who="anns", reason="mine")
    file = LedgerFile(tmp_path / FILE_NAME)
    try:
        page = await LedgerReader(file).search(AuditFilters(approval_id=id), None, 10)
    finally:
        file.close()
    approved, pending = (entry.event for entry in page.entries)
    assert (pending["state"], pending["by"]) == ("pending", "agent")
    assert (approved["state"], approved["by"]) == ("approved", "anns")
    assert (approved["by_person"], approved["self_approved"]) == ("ann", True)
    assert "welcome" not in str(page)


async def test_every_state_can_be_asked_for(office: Office):
    id = await office.ask_for()
    assert await office.ids(f"?state={','.join(STATES)}") == [id]
