"""``cchat_*``: what a guest says, sets and reads."""

from __future__ import annotations

import json

import pytest

from bascule.doors.hostcalls.abi import Errno
from bascule.doors.hostcalls.host import GuestLimits
from bascule.loop.backend import UpstreamFailed
from tests.doors.hostcalls.talks import (
    ARENA,
    AUTO,
    METRICS,
    OUT,
    PAGES,
    SAYS_42,
    SET_PARAM,
    OneModel,
    Talk,
    table,
)
from tests.loop.fakes import FakeUpstream, asks, call, says
from tests.loop.talking import USAGE


@pytest.mark.requirement("hostcalls:cchat")
async def test_a_guest_talks_to_a_model():
    talk = Talk()
    session = talk.create(temperature=0.5)
    talk.say(session, "be short", role="system")
    talk.say(session, b"hello \xff")
    response = talk.send(session)
    talk.receive(response)
    talk.receive(response)
    talk.call("cchat_close", response)
    talk.call("cchat_close", response)
    upstream = FakeUpstream(says("hi", usage=USAGE), name="near")
    talked = await talk.run(upstream)
    [asked] = upstream.asked
    assert asked["messages"] == [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "hello \ufffd"},
    ]
    assert asked["temperature"] == 0.5
    body = talked.body
    assert body["choices"][0]["message"]["content"] == "hi"
    assert body["_spear"] == {"backend": "near", "model": "m"}
    assert body["bascule"]["budgets"]["iterations"]["used"] == 1
    assert json.loads(talked.read[1]) == body
    assert talked.answers[-2:] == [0, 0]
    assert "error" not in body


async def test_a_short_buffer_is_told_the_length_and_loses_nothing():
    talk = Talk()
    session = talk.create()
    talk.say(session, "hello")
    response = talk.send(session)
    short = talk.receive(response, room=10)
    whole = talk.receive(response)
    talked = await talk.run(FakeUpstream(says("hi")))
    length = int.from_bytes(talked.ran.stdout[:4], "little")
    assert talked.answer(short) == -Errno.ENOSPC
    assert talked.answer(whole) == length == len(talked.read[1])
    assert json.loads(talked.read[1])["choices"][0]["message"]["content"] == "hi"


@pytest.mark.requirement("hostcalls:cchat:metrics")
async def test_metrics_are_what_was_used():
    talk = Talk()
    session = talk.create()
    talk.say(session, "hello")
    talk.metrics(talk.send(session, METRICS))
    talk.metrics(talk.send(session))
    wrong = talk.metrics(session)
    talked = await talk.run(FakeUpstream(says("hi", usage=USAGE)))
    assert [json.loads(one) for one in talked.read[:2]] == [USAGE, {}]
    assert talked.answer(wrong) == -Errno.EBADF


async def test_an_upstream_that_fails_is_a_body_and_no_errno():
    talk = Talk()
    session = talk.create()
    talk.say(session, "hello")
    response = talk.send(session, AUTO)
    talk.receive(response)
    failed = UpstreamFailed("it is on fire", status=500, error={"message": "fire", "code": "hot"})
    talked = await talk.run(FakeUpstream(failed))
    assert talked.answer(response) == 1001
    assert talked.body == {"error": {"code": "hot", "message": "backend fake: fire"}}


async def test_a_key_that_an_upstream_repeats_is_not_told_to_a_guest():
    talk = Talk()
    session = talk.create()
    talk.say(session, "hello")
    talk.receive(talk.send(session))
    refusal = UpstreamFailed("no", status=401, error={"message": "bad key sk-secret"})
    talked = await talk.run(FakeUpstream(refusal))
    assert "refused our key" in talked.body["error"]["message"]
    assert b"sk-secret" not in talked.read[0]


async def test_nothing_to_say_and_no_model_are_bodies_too():
    talk = Talk()
    talk.receive(talk.send(talk.create()))
    nameless = talk.create(model="")
    talk.say(nameless, "hello")
    talk.receive(talk.send(nameless))
    talked = await talk.run(FakeUpstream(says("hi")))
    errors = [json.loads(one)["error"] for one in talked.read]
    assert [one["code"] for one in errors] == ["invalid_request", "invalid_request"]
    assert "messages" in errors[0]["message"]
    assert "model" in errors[1]["message"]


async def test_a_conversation_with_tools_becomes_part_of_its_session():
    talk = Talk()
    session = talk.create(tool_arena_ptr=ARENA, tool_arena_len=4096)
    talk.tool(session)
    talk.say(session, "add")
    talk.send(session, AUTO)
    talk.say(session, "again")
    talk.send(session, AUTO)
    upstream = FakeUpstream(asks(call("sum"), text="Let me see."), says("42"), says("still 42"))
    await talk.run(upstream, more=SAYS_42 + table("$sum"))
    roles = [one["role"] for one in upstream.asked[2]["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert upstream.asked[2]["messages"][3] == {"role": "assistant", "content": "42"}


@pytest.mark.requirement("hostcalls:single-turn")
async def test_a_raw_turn_hands_calls_back_and_leaves_the_session_alone():
    talk = Talk()
    session = talk.create()
    talk.tool(session)
    talk.say(session, "add")
    talk.receive(talk.send(session))
    talk.send(session)
    upstream = FakeUpstream(asks(call("sum", {"a": 1})), says("42"))
    talked = await talk.run(upstream, more=SAYS_42 + table("$sum"))
    [made] = talked.body["choices"][0]["message"]["tool_calls"]
    assert made["function"] == {"name": "sum", "arguments": '{"a": 1}'}
    assert talked.body["choices"][0]["finish_reason"] == "tool_calls"
    assert upstream.asked[0]["messages"] == upstream.asked[1]["messages"]


@pytest.mark.requirement("hostcalls:cchat:budget")
async def test_a_used_up_budget_gives_the_answer_and_an_error_beside_it():
    talk = Talk()
    session = talk.create(tool_arena_ptr=ARENA, tool_arena_len=4096, max_iterations=1)
    talk.tool(session)
    talk.say(session, "add")
    talk.receive(talk.send(session, AUTO))
    upstream = FakeUpstream(asks(call("sum")), says("so far"))
    talked = await talk.run(upstream, more=SAYS_42 + table("$sum"))
    assert talked.body["choices"][0]["message"]["content"] == "so far"
    error = {"code": "tool_call_limit", "message": "exceeded max_iterations"}
    assert talked.body["error"] == error


async def test_the_host_s_model_stands_in_place_of_the_guest_s():
    talk = Talk()
    session = talk.create(model="dear", backend="far")
    talk.say(session, "hello")
    talk.send(session)
    for model, expected in (("rehearsal", "rehearsal"), (None, "far/dear")):
        models = OneModel(FakeUpstream(says("hi")), [])
        await talk.run(models.upstream, models=models, model=model)
        assert models.asked == [expected]


async def test_without_models_there_is_no_chat():
    talk = Talk()
    session = talk.call("cchat_create")
    talked = await talk.run(FakeUpstream(says("hi")), models=None)
    assert talked.answer(session) == -Errno.ENOSYS


async def test_handles_that_are_none_of_ours_are_refused():
    talk = Talk()
    session = talk.create()
    epoll = talk.call("spear_epoll_create")
    talk.say(session, "hello")
    response = talk.send(session)
    wrong = [
        talk.say(response, "hello"),
        talk.tool(response),
        talk.send(response),
        talk.receive(session),
        talk.send(epoll),
        talk.set(epoll, "model", "m"),
        talk.call("cchat_close", epoll),
        talk.call("cchat_close", 999),
        talk.call("cchat_close", 5000),
    ]
    talk.call("cchat_close", session)
    closed = [talk.say(session, "hello"), talk.set(session, "model", "m"), talk.send(session)]
    talked = await talk.run(FakeUpstream(says("hi")))
    assert {talked.answer(one) for one in wrong + closed} == {-Errno.EBADF}


@pytest.mark.parametrize(
    ("pointer", "length", "errno"),
    [(-8, 16, Errno.EFAULT), (0x7FFF_FFFF, 8, Errno.EFAULT), (64, -1, Errno.EINVAL)],
)
async def test_bad_pointers_do_nothing(pointer: int, length: int, errno: Errno):
    talk = Talk()
    session = talk.create()
    said = talk.say(session, "hello")
    wrong = [
        talk.call("cchat_write_msg", session, pointer, length, 64, 4),
        talk.call("cchat_write_msg", session, 64, 4, pointer, length),
        talk.call("cchat_write_fn", session, 1, pointer, length),
        talk.call("cchat_ctl", session, SET_PARAM, pointer, talk.number(length & 0xFFFF_FFFF)),
    ]
    response = talk.send(session)
    wrong.append(talk.call("cchat_recv", response, pointer, talk.number(length & 0xFFFF_FFFF)))
    upstream = FakeUpstream(says("hi"))
    talked = await talk.run(upstream)
    assert talked.answer(said) == 0
    assert {talked.answer(one) for one in wrong} == {-errno}
    assert len(upstream.asked[0]["messages"]) == 1


async def test_a_very_long_conversation_is_not_sent():
    talk = Talk()
    session = talk.create()
    for _ in range(15):
        talk.call("cchat_write_msg", session, 64, 4, OUT, 700_000)
    talk.receive(talk.send(session))
    upstream = FakeUpstream(says("hi"))
    talked = await talk.run(upstream)
    assert talked.body["error"]["code"] == "invalid_request"
    assert "at most 10,485,760 are taken" in talked.body["error"]["message"]
    assert upstream.asked == []


async def test_what_is_kept_for_a_guest_counts_against_its_memory():
    talk = Talk()
    session = talk.create()
    said = [talk.call("cchat_write_msg", session, 64, 4, OUT, 300_000) for _ in range(4)]
    talk.call("cchat_close", session)
    again = talk.create()
    room = talk.call("cchat_write_msg", again, 64, 4, OUT, 300_000)
    limits = GuestLimits(memory_bytes=PAGES * 65_536)
    talked = await talk.run(FakeUpstream(says("hi")), limits=limits)
    assert [talked.answer(one) for one in said] == [0, 0, -Errno.ENOMEM, -Errno.ENOMEM]
    assert talked.answer(room) == 0
