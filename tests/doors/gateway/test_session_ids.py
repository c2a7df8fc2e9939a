"""Ids of sessions: what opens them, and what does not."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bascule.auth.identity import Principal
from bascule.doors.gateway.session_ids import (
    LIFE_SECONDS,
    MAX_DELETED,
    MAX_LENGTH,
    MAX_OPENED,
    Birth,
    SessionIds,
    TooMuchToSeal,
    UnknownSession,
)
from bascule.model.session import SessionRequest
from bascule.testing.clock import FakeClock

KEY = b"k" * 32
ROUTE = "/mcp"
ALICE = Principal(name="alice", role="client", token_id="tok-1", task_id="t", person="alice")


def birth_of(clock: FakeClock, *narrowing: SessionRequest) -> Birth:
    return Birth(
        version="2025-11-25",
        client="x" * 128,
        capabilities=("elicitation", "elicitation.form", "sampling"),
        task="t",
        narrowing=narrowing,
        born=int(clock.now()),
        token=ALICE.token_id,
        person=ALICE.person,
    )


def sealed() -> tuple[SessionIds, FakeClock, Birth, str]:
    clock = FakeClock()
    ids = SessionIds(KEY, clock)
    birth = birth_of(clock, SessionRequest(server_ids=("fs",), read_only=True))
    return ids, clock, birth, ids.seal(birth, ROUTE, ALICE)


def refused(ids: SessionIds, text: str, route: str = ROUTE, who: Principal = ALICE) -> str:
    with pytest.raises(UnknownSession) as error:
        ids.open(text, route, who)
    return str(error.value)


@pytest.mark.requirement("gateway:session-ids")
def test_an_id_opens_to_what_was_sealed_in_any_process_with_the_key():
    _, clock, birth, text = sealed()
    assert SessionIds(KEY, clock).open(text, ROUTE, ALICE) == birth
    assert text.isascii()
    assert text.isprintable()


def test_two_ids_of_the_same_session_differ():
    ids, _, birth, text = sealed()
    assert ids.seal(birth, ROUTE, ALICE) != text


@pytest.mark.parametrize(
    "who",
    [
        replace(ALICE, token_id="tok-2"),
        replace(ALICE, person="bob"),
        replace(ALICE, person=None),
        replace(ALICE, task_id="other"),
    ],
    ids=["another token", "another person", "nobody", "another task"],
)
@pytest.mark.requirement("gateway:session-ids")
def test_an_id_is_no_use_to_anybody_else(who: Principal):
    ids, _, _, text = sealed()
    assert refused(ids, text, who=who) == ""


def test_an_id_is_no_use_at_another_route():
    ids, _, _, text = sealed()
    assert refused(ids, text, "/mcp/servers/fs") == refused(ids, text, "/mcp/servers/other") == ""


def test_an_id_of_another_key_is_unknown():
    _, clock, _, text = sealed()
    assert refused(SessionIds(b"q" * 32, clock), text) == ""


@pytest.mark.requirement("gateway:session-ids")
async def test_an_id_ends_after_a_day_and_not_before():
    ids, clock, birth, text = sealed()
    await clock.advance(LIFE_SECONDS - 1)
    assert ids.open(text, ROUTE, ALICE) == birth
    await clock.advance(1)
    refused(ids, text)


async def test_an_id_of_tomorrow_is_unknown():
    _, clock, birth, _ = sealed()
    later = FakeClock()
    await later.advance(2 * LIFE_SECONDS)
    text = SessionIds(KEY, later).seal(birth, ROUTE, ALICE)
    refused(SessionIds(KEY, clock), text)


@given(data=st.data())
@pytest.mark.requirement("gateway:session-ids")
def test_no_other_text_opens(data: st.DataObject):
    ids, _, _, text = sealed()
    raw = bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    refused(ids, base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode())


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "=",
        lambda text: text + "A",
        lambda text: text[:-1],
        lambda text: " " + text,
        lambda text: text + "\n",
        lambda text: text.replace("A", "+", 1),
        lambda _: "",
        lambda _: "x",
        lambda _: "A" * MAX_LENGTH,
        lambda _: "A" * (MAX_LENGTH + 1),
        lambda _: "é" * 20,
    ],
)
def test_another_spelling_of_an_id_is_unknown(change):
    ids, _, _, text = sealed()
    assert refused(ids, change(text)) == ""


@pytest.mark.parametrize(
    "who",
    [replace(ALICE, token_id="tok-2"), replace(ALICE, person="bob"), replace(ALICE, task_id="b")],
    ids=["another token", "another person", "another task"],
)
def test_an_id_in_use_is_no_use_to_anybody_else(who: Principal):
    ids, _, birth, text = sealed()
    assert ids.open(text, ROUTE, ALICE) == birth
    refused(ids, text, who=who)
    refused(ids, text, "/mcp/servers/fs")
    assert ids.open(text, ROUTE, ALICE) == birth


def test_no_more_ids_are_remembered_than_may_be_in_use():
    ids, _, birth, _ = sealed()
    texts = [ids.seal(birth, ROUTE, ALICE) for _ in range(MAX_OPENED + 10)]
    assert [ids.open(text, ROUTE, ALICE) for text in texts] == [birth] * len(texts)
    assert len(ids._opened) == MAX_OPENED
    assert ids.open(texts[0], ROUTE, ALICE) == birth


def test_a_deleted_session_is_unknown_and_others_go_on():
    ids, _, birth, text = sealed()
    other = ids.seal(birth, ROUTE, ALICE)
    ids.delete(text, ALICE)
    refused(ids, text)
    assert ids.open(other, ROUTE, ALICE) == birth


def test_what_is_remembered_of_deleted_sessions_is_bounded():
    ids, _, birth, text = sealed()
    for _ in range(MAX_DELETED):
        ids.delete(ids.seal(birth, ROUTE, ALICE), ALICE)
    ids.delete(text, ALICE)
    refused(ids, text)
    assert len(ids) == MAX_DELETED


def test_what_does_not_fit_into_an_id_is_refused_with_what_to_do():
    ids, clock, _, _ = sealed()
    wide = SessionRequest(tool_allowlist=tuple(f"fs/tool_{n}" for n in range(300)))
    with pytest.raises(TooMuchToSeal, match="X-Bascule"):
        ids.seal(birth_of(clock, wide), ROUTE, ALICE)


@pytest.mark.requirement("workers:owned-ids")
def test_an_id_has_the_mark_of_its_worker_and_opens_at_any_with_that_mark_alone():
    clock = FakeClock()
    birth = birth_of(clock)
    marked = SessionIds(KEY, clock, "w2").seal(birth, ROUTE, ALICE)
    body, _, mark = marked.rpartition(".")
    assert mark == "w2"
    for ids in (SessionIds(KEY, clock), SessionIds(KEY, clock, "w1"), SessionIds(KEY, clock, "w2")):
        assert ids.open(marked, ROUTE, ALICE) == birth
        for other in (body, f"{body}.", f"{body}.w1", f"{marked}.w2", f"{marked} "):
            refused(ids, other)
    plain = SessionIds(KEY, clock).seal(birth, ROUTE, ALICE)
    assert SessionIds(KEY, clock, "w1").open(plain, ROUTE, ALICE) == birth
    refused(SessionIds(KEY, clock, "w1"), f"{plain}.w1")
