"""A program decides on approvals; whatever goes wrong with it, somebody else decides."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from bascule.approval_hook import HookQuestion
from bascule.audit.approval_steps import Decision
from bascule.audit.approvals import Approvals, LedgerStore, MemoryStore
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.control.approval_hook import ANSWER_BYTES, AT_ONCE, KEY_FILE, open_hook
from bascule.model.approval import Approved, Decider, Denied
from bascule.outbound.egress import EgressRules
from bascule.outbound.http import HttpOptions, Url
from bascule.outbound.rules import NodeRules
from bascule.testing import FakeClock
from tests.audit.questions import kept
from tests.client.peers import nobody
from tests.control.hook_site import (
    KEY,
    SECRET,
    Conduct,
    decided,
    desk,
    hook_at,
    http,
    pending,
    receiving,
    request,
    running,
    saying,
    sending,
    silence,
    state,
)
from tests.outbound.authority import Authority
from tests.outbound.scripted_server import Line, answering_once, scripted
from tests.postgres.databases import database
from tests.waits import until

ADA = Decider(name="desk", token_id="tok-9", person="ada")
LOG = "bascule.approvals"


async def approve(approvals: Approvals, id: str) -> None:
    found = await approvals.get(id)
    assert found is not None
    await approvals.decide(id, Decision(verb="approve", by=ADA, digest=found.digest))


# --- what it is asked, and what it says


@pytest.mark.requirement("approval:programmatic", "approval:hook:signed")
async def test_a_hook_is_asked_with_the_exact_call_and_its_yes_lets_the_call_go_on():
    approvals = desk()
    async with receiving(saying("approve", "small")) as receiver:
        async with running(hook_at(approvals, receiver.url)):
            answer = await approvals.ask(request(), wait=30)
        assert isinstance(answer, Approved)
        [question] = receiver.heard
    found = await approvals.get(question.id)
    assert found is not None
    assert found.decided is not None
    assert (found.decided.by, found.decided.person, found.reason) == ("hook", None, "small")
    assert bytes(question.arguments_json) == request().payload
    assert question.arguments == {"note": 1, "why": SECRET}
    assert question.definition == {"name": "delete_note", "description": "Delete a note"}
    assert question.expires_at == found.asked_at + approvals.settings.decide_seconds
    plain = json.loads(msgspec.json.encode(question))
    del plain["arguments"], plain["definition"], plain["expires_at"]
    assert plain == {
        "id": found.id,
        "digest": found.digest,
        "asked_at": found.asked_at,
        "task": "demo",
        "server": "notes",
        "tool": "delete_note",
        "rule": "rules[0]",
        "person": None,
        "caller": "agent",
        "definition_digest": "d" * 64,
        "decide_at": f"/admin/api/approvals/{found.id}/decision",
        "node": None,
    }


@pytest.mark.requirement("approval:programmatic")
async def test_a_hooks_no_denies_the_call_with_its_reason():
    approvals = desk()
    async with (
        receiving(saying("deny", "not on a Friday")) as receiver,
        running(hook_at(approvals, receiver.url)),
    ):
        answer = await approvals.ask(request(), wait=30)
    assert isinstance(answer, Denied)
    assert "not on a Friday" in answer.reason


@pytest.mark.requirement("approval:hook:ask")
async def test_a_hook_that_says_ask_was_notified_and_a_person_decides():
    approvals = desk()
    async with receiving(saying("ask")) as receiver:
        id = await pending(approvals)
        await hook_at(approvals, receiver.url)._decide(id)
        assert [question.id for question in receiver.heard] == [id]
    assert await state(approvals, id) == "pending"
    await approve(approvals, id)
    assert await state(approvals, id) == "approved"


async def test_a_call_that_joins_a_question_is_not_told_to_the_hook_again():
    approvals = desk()
    async with receiving(saying("ask")) as receiver, running(hook_at(approvals, receiver.url)):
        first = await pending(approvals)
        await receiver.heard.reach(1)
        assert await pending(approvals) == first
        other = await pending(approvals, 2)
        await receiver.heard.reach(2)
        assert [question.id for question in receiver.heard] == [first, other]


async def test_a_long_reason_is_cut_and_the_decision_counts():
    approvals = desk()
    async with (
        receiving(saying("deny", "no " * 2_000)) as receiver,
        running(hook_at(approvals, receiver.url)),
    ):
        found = await decided(approvals, await pending(approvals))
    assert found.state == "denied"
    assert len(found.reason) <= 1_001


# --- what goes wrong


def other(**fields: str) -> Callable[[HookQuestion], bytes]:
    """Answer yes, with something that is not as it should be."""

    def answer(question: HookQuestion) -> bytes:
        plain = {"decision": "approve", "id": question.id, "digest": question.digest, **fields}
        return http(json.dumps(plain).encode())

    return answer


def yes(question: HookQuestion) -> bytes:
    return question.answer("approve")


async def breaking_off(question: HookQuestion, line: Line) -> None:
    await line.say(http(yes(question))[:-1])
    line.drop()


FAILURES: dict[str, tuple[Conduct, str]] = {
    "hangs": (silence, "no answer within 1 s (approvals.hook_seconds)"),
    "slow": (
        sending(lambda question: http(yes(question))[:-1]),
        "no answer within 1 s (approvals.hook_seconds)",
    ),
    "500": (sending(lambda asked: http(yes(asked), "500 Oops")), "it answers HTTP 500, not 200"),
    "201": (sending(lambda asked: http(yes(asked), "201 Created")), "it answers HTTP 201, not 200"),
    "redirect": (
        sending(lambda asked: http(yes(asked), "307 There", "Location: /elsewhere")),
        "it redirects (HTTP 307), which is not followed",
    ),
    "garbage": (sending(http(b"<html>yes</html>")), "its answer is not JSON"),
    "no HTTP": (sending(b"yes\r\n\r\n"), "it gave no whole answer"),
    "two values": (sending(lambda asked: http(yes(asked) * 2)), "not JSON, or more than one value"),
    "two answers": (sending(lambda asked: http(yes(asked)) * 2), "it gave no whole answer"),
    "decides twice": (
        sending(lambda asked: http(b'{"decision":"deny",' + yes(asked)[1:])),
        "its answer is not JSON",
    ),
    "wrong id": (sending(other(id="apr-1")), "its answer is to another approval"),
    "wrong digest": (sending(other(digest="0" * 64)), "has not the digest of what it was asked"),
    "unknown decision": (
        sending(other(decision="maybe")),
        "is not decision (approve, deny or ask)",
    ),
    "unknown field": (sending(other(scope="always")), "is not decision (approve, deny or ask)"),
    "no digest": (
        sending(lambda asked: http(b'{"decision":"approve","id":"%b"}' % asked.id.encode())),
        "is not decision (approve, deny or ask), id, digest",
    ),
    "huge": (
        sending(lambda asked: http(b" " * ANSWER_BYTES + yes(asked))),
        f"it sent a body over the limit of {ANSWER_BYTES} bytes",
    ),
    "huge in chunks": (
        sending(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"8000\r\n%b\r\n" % (b" " * 0x8000) * 3
        ),
        f"it sent a body over the limit of {ANSWER_BYTES} bytes",
    ),
    "breaks off": (breaking_off, "it gave no whole answer"),
}


@pytest.mark.requirement("approval:hook:failure-asks")
@pytest.mark.parametrize("case", FAILURES)
async def test_whatever_goes_wrong_the_question_waits_for_a_person(
    case: str, caplog: pytest.LogCaptureFixture
):
    conduct, words = FAILURES[case]
    approvals = desk(seconds=1 if case in {"hangs", "slow"} else 30)
    caplog.set_level(logging.WARNING, LOG)
    async with receiving(conduct) as receiver, running(hook_at(approvals, receiver.url)):
        id = await pending(approvals)
        [record] = await until(lambda: caplog.records)
        assert words in record.getMessage()
        assert f"the approval hook at {receiver.url.origin}: " in record.getMessage()
        assert await state(approvals, id) == "pending"
        await approve(approvals, id)
    assert await state(approvals, id) == "approved"
    assert len(receiver.heard) == 1
    assert len(receiver.peer.requests) == 1
    _holds_nothing(caplog)


def _holds_nothing(caplog: pytest.LogCaptureFixture) -> None:
    said = "\n".join([caplog.text, *(repr(vars(record)) for record in caplog.records)])
    assert not [word for word in (SECRET, KEY.hex(), repr(KEY), "in-the-query") if word in said]


@pytest.mark.requirement("approval:hook:failure-asks")
async def test_a_hook_that_is_not_there_leaves_the_question_to_a_person(
    caplog: pytest.LogCaptureFixture,
):
    approvals = desk()
    async with running(hook_at(approvals, Url.parse(nobody()))):
        id = await pending(approvals)
        [record] = await until(lambda: caplog.records)
    assert "it cannot be reached: Connection refused" in record.getMessage()
    assert await state(approvals, id) == "pending"


@pytest.mark.requirement("approval:hook:egress")
@pytest.mark.parametrize("address", ["10.1.2.3", "169.254.169.254", "127.0.0.1", "fd00::1"])
async def test_a_name_that_leads_to_a_private_address_is_not_asked(
    address: str, caplog: pytest.LogCaptureFixture
):
    async def resolve(host: str, port: int) -> list[str]:
        assert (host, port) == ("hook.example.com", 443)
        return [address]

    approvals = desk()
    options = HttpOptions(connect_seconds=20, egress=EgressRules(), resolve=resolve)
    url = Url.parse("https://hook.example.com/ask")
    async with running(hook_at(approvals, url, options)):
        id = await pending(approvals)
        [record] = await until(lambda: caplog.records)
    assert f"this node does not connect to {address}" in record.getMessage()
    assert await state(approvals, id) == "pending"


async def test_a_certificate_that_nobody_vouches_for_is_not_trusted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    approvals = desk()
    tls = Authority(tmp_path).serving()
    async with scripted(answering_once(http(b"{}")), tls=tls) as peer:
        async with running(hook_at(approvals, Url.parse(f"https://127.0.0.1:{peer.port}/"))):
            id = await pending(approvals)
            [record] = await until(lambda: caplog.records)
        assert not peer.requests
    assert "certificate verify failed" in record.getMessage()
    assert await state(approvals, id) == "pending"


async def test_a_failure_is_said_once_and_again_when_the_hook_has_worked_since(
    caplog: pytest.LogCaptureFixture,
):
    answers = [b"no", b"no", b"", b"no"]

    async def conduct(question: HookQuestion, line: Line) -> None:
        await line.say(http(answers.pop(0) or yes(question)))
        await line.left()

    approvals = desk()
    async with receiving(conduct) as receiver:
        hook = hook_at(approvals, receiver.url)
        async with running(hook):
            for number in range(1, 5):
                await pending(approvals, number)
                await receiver.heard.reach(number)
                await receiver.peer.closed()
            await until(lambda: len(caplog.records) == 2)
    assert ["not JSON" in record.getMessage() for record in caplog.records] == [True, True]


@pytest.mark.parametrize(("caller", "person"), [("hook", None), ("agent", "hook")])
async def test_whoever_goes_by_the_hooks_name_is_not_approved_by_it(
    caller: str, person: str | None, caplog: pytest.LogCaptureFixture
):
    approvals = desk()
    async with (
        receiving(saying("approve")) as receiver,
        running(hook_at(approvals, receiver.url)),
    ):
        id = await pending(approvals, caller=caller, person=person)
        [record] = await until(lambda: caplog.records)
    assert "its answer does not count" in record.getMessage()
    assert await state(approvals, id) == "pending"


# --- many at once, others who decide, and a restart


@pytest.mark.requirement("approval:hook:bounded")
async def test_so_many_are_asked_at_once_and_the_others_wait_for_a_place():
    go_on = asyncio.Event()
    first: list[str] = []

    async def conduct(question: HookQuestion, line: Line) -> None:
        first.append(question.id)
        await go_on.wait()
        await line.say(http(yes(question)))
        await line.left()

    approvals = desk()
    async with receiving(conduct) as receiver, running(hook_at(approvals, receiver.url)):
        ids = [await pending(approvals, number) for number in range(AT_ONCE + 3)]
        await receiver.heard.reach(AT_ONCE)
        assert sorted(first) == sorted(ids[:AT_ONCE])
        go_on.set()
        assert {(await decided(approvals, id)).state for id in ids} == {"approved"}
        assert sorted(first) == sorted(ids)


@pytest.mark.requirement("approval:hook:bounded")
async def test_a_hook_that_hangs_holds_others_up_no_longer_than_its_deadline():
    async def conduct(question: HookQuestion, line: Line) -> None:
        if question.arguments["note"] < AT_ONCE:
            await silence(question, line)
        else:
            await saying("approve")(question, line)

    approvals = desk(seconds=1)
    async with receiving(conduct) as receiver, running(hook_at(approvals, receiver.url)):
        ids = [await pending(approvals, number) for number in range(AT_ONCE + 1)]
        assert (await decided(approvals, ids[-1])).state == "approved"
    assert {await state(approvals, id) for id in ids[:-1]} == {"pending"}


async def test_an_answer_that_comes_after_a_persons_is_ignored_quietly(
    caplog: pytest.LogCaptureFixture,
):
    approvals = desk()
    go_on = asyncio.Event()

    async def conduct(question: HookQuestion, line: Line) -> None:
        await go_on.wait()
        await saying("deny")(question, line)

    async with receiving(conduct) as receiver:
        id = await pending(approvals)
        asking = asyncio.ensure_future(hook_at(approvals, receiver.url)._decide(id))
        await receiver.heard.reach(1)
        await approve(approvals, id)
        go_on.set()
        await asking
    found = await approvals.get(id)
    assert found is not None
    assert found.decided is not None
    assert (found.state, found.decided.by) == ("approved", "desk")
    assert not caplog.records


@pytest.mark.requirement("approval:hook:bounded")
async def test_what_was_decided_or_expired_while_it_waited_is_not_asked_nor_kept():
    clock = FakeClock()
    approvals = Approvals(MemoryStore(clock), clock=clock)
    async with receiving(silence, clock=clock) as receiver:
        hook = hook_at(approvals, receiver.url, clock=clock)
        async with running(hook):
            ids = [await pending(approvals, number) for number in range(AT_ONCE + 2)]
            await receiver.heard.reach(AT_ONCE)
            assert [*hook._waiting] == ids[AT_ONCE:]
            await approve(approvals, ids[-1])
            assert [*hook._waiting] == ids[AT_ONCE:-1]
            clock.jump(approvals.settings.decide_seconds)
            last = await pending(approvals, 99)
            assert ([*hook._waiting], [*hook._known]) == ([last], [last])
        await hook._decide(ids[0])
        assert {question.id for question in receiver.heard} == set(ids[:AT_ONCE])


class Plain:
    """Seals nothing."""

    def seal(self, name: str, plain: bytes) -> bytes:
        del name
        return plain

    def unseal(self, name: str, sealed: bytes) -> bytes | None:
        del name
        return sealed


class Locked(Plain):
    """Has lost its key."""

    def unseal(self, name: str, sealed: bytes) -> bytes | None:
        del name, sealed


@pytest.mark.requirement("approval:hook:restart")
async def test_after_a_restart_the_hook_is_asked_again_about_what_still_waits(tmp_path: Path):
    ids: list[str] = []
    for start in range(2):
        ledger = SqliteLedger(tmp_path, key=KEY, settings=LedgerSettings())
        await ledger.open()
        store = await LedgerStore(ledger, Plain()).open()
        approvals = desk(store)
        ids = ids or [await pending(approvals, number) for number in range(60)]
        conduct = saying("approve") if start else silence
        async with receiving(conduct) as receiver, running(hook_at(approvals, receiver.url)):
            if start:
                assert {(await decided(approvals, id)).state for id in ids} == {"approved"}
                assert {question.id for question in receiver.heard} == set(ids)
            else:
                await receiver.heard.reach(AT_ONCE)
                assert {question.id for question in receiver.heard} == set(ids[:AT_ONCE])
        store.close()
        await ledger.close()


async def is_told(approvals: Approvals, id: str) -> bool:
    found = await approvals.get(id)
    return found is not None and found.told


@pytest.mark.requirement("approval:hook:once")
async def test_after_a_restart_the_hook_is_not_asked_again_what_it_has_left_to_others(
    tmp_path: Path,
):
    async with receiving(saying("ask")) as receiver:
        asked: list[str] = []
        for _ in range(2):
            async with kept(tmp_path) as approvals, running(hook_at(approvals, receiver.url)):
                asked.append(await pending(approvals, len(asked)))
                await until(lambda: is_told(approvals, asked[-1]))
        assert [question.id for question in receiver.heard] == asked


@pytest.mark.requirement("approval:hook:once")
async def test_a_replica_that_starts_does_not_ask_what_another_has_asked(tmp_path: Path):
    """What it is asked itself comes behind what waited already, and is asked."""
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    async with (
        database() as dsn,
        receiving(saying("ask")) as receiver,
        kept(folders[0], dsn=dsn) as one,
        running(hook_at(one, receiver.url)),
    ):
        first = await pending(one, 1)
        await until(lambda: is_told(one, first))
        asked = [first]
        for start in range(2):
            async with kept(folders[1], dsn=dsn) as other, running(hook_at(other, receiver.url)):
                asked.append(await pending(other, 2 + start))
                await until(lambda: is_told(one, asked[-1]))
        assert [question.id for question in receiver.heard] == asked
        assert [approval.id for approval in await one.pending()] == asked


async def test_arguments_that_cannot_be_unsealed_are_not_asked_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    ledger = SqliteLedger(tmp_path, key=KEY, settings=LedgerSettings())
    await ledger.open()
    store = await LedgerStore(ledger, Locked()).open()
    approvals = desk(store)
    async with receiving(saying("approve")) as receiver, running(hook_at(approvals, receiver.url)):
        id = await pending(approvals)
        await until(lambda: caplog.records)
        assert not receiver.heard
    assert "sealed with another key" in caplog.text
    assert await state(approvals, id) == "pending"
    store.close()
    await ledger.close()


# --- what the settings make


def test_without_an_address_there_is_no_hook_and_no_key(tmp_path: Path):
    assert open_hook(None, NodeRules(), tmp_path) is None
    assert open_hook(desk(), NodeRules(), tmp_path) is None
    assert not (tmp_path / KEY_FILE).exists()


async def test_the_settings_hook_signs_with_a_key_of_its_own(tmp_path: Path):
    (tmp_path / KEY_FILE).write_bytes(KEY)
    (tmp_path / KEY_FILE).chmod(0o600)
    approvals = desk()
    async with receiving(saying("approve")) as receiver:
        approvals.settings = msgspec.structs.replace(approvals.settings, hook_url=receiver.url.text)
        hook = open_hook(approvals, NodeRules(), tmp_path)
        assert hook is not None
        assert "in-the-query" not in repr(hook)
        async with running(hook):
            assert (await decided(approvals, await pending(approvals))).state == "approved"
