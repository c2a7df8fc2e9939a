"""Watching approvals: what is pending now, then every step, for as long as the token is valid."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bascule.audit.approval_rows import ApprovalFilter
from bascule.audit.approvals import Approvals, MemoryStore
from bascule.control.api import approval_feed
from bascule.control.api.approval_feed import ApprovalFeed
from bascule.model.approval import Approval, Approved
from bascule.testing.clock import FakeClock
from bascule.wire.api.addresses import APPROVALS
from tests.audit.calls import Leaving
from tests.control.api.approval_office import STORES, Office, StoreName, asked, by, open_office
from tests.control.api.desk import Stream
from tests.waits import SOON_SECONDS


@pytest.fixture(params=STORES)
async def office(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Office]:
    kind: StoreName = request.param
    async with open_office(kind, tmp_path) as found:
        yield found


@asynccontextmanager
async def watching(office: Office, query: str = "", who: str = "wall") -> AsyncGenerator[Stream]:
    office.headers = {"viewer": by(who)}
    async with office.stream(f"{APPROVALS}/watch{query}") as stream:
        yield stream


async def told(stream: Stream) -> tuple[str, str]:
    event = json.loads((await stream.next()).data)
    return event["id"], event["state"]


@pytest.mark.requirement("approval:watch")
async def test_what_is_pending_comes_first_and_then_every_step(office: Office):
    ended = await office.ask_for(server="old")
    await office.decide(ended, "deny")
    first = await office.ask_for()
    await office.clock.advance(1)
    second = await office.ask_for(server="git")
    async with watching(office) as stream:
        assert await told(stream) == (first, "pending")
        assert await told(stream) == (second, "pending")
        await office.decide(first)
        assert await told(stream) == (first, "approved")
        third = await office.ask_for(server="third")
        assert await told(stream) == (third, "pending")
        await office.decide(second, "deny")
        assert await told(stream) == (second, "denied")
        request = asked()
        approved = Approved(request.call, first)
        assert await office.approvals.claim(approved, request.call, Leaving(1))
        assert await told(stream) == (first, "claimed")
        await office.approvals.withdraw(third, "they hung up")
        assert await told(stream) == (third, "withdrawn")


async def test_a_call_that_joins_a_question_is_no_step(office: Office):
    first = await office.ask_for()
    async with watching(office) as stream:
        assert await told(stream) == (first, "pending")
        assert await office.ask_for(request_id="s1-2") == first
        second = await office.ask_for(server="git")
        assert await told(stream) == (second, "pending")


async def test_what_ends_in_time_is_told(office: Office):
    id = await office.ask_for()
    async with watching(office) as stream:
        assert await told(stream) == (id, "pending")
        await office.clock.advance(office.approvals.settings.decide_seconds)
        await office.approvals.sweep()
        assert await told(stream) == (id, "expired")


async def test_the_arguments_are_not_in_the_stream(office: Office):
    await office.ask_for(b'{"note":"welcome"}')
    async with watching(office) as stream:
        event = await stream.next()
        assert b"welcome" not in event.data
        assert "arguments" not in json.loads(event.data)


async def test_filters_and_the_tasks_of_a_token_hold(office: Office):
    await office.ask_for(task_id="work")
    wanted = await office.ask_for(server="git")
    await office.ask_for()
    async with watching(office, "?server=git", who="home") as stream:
        assert await told(stream) == (wanted, "pending")
        await office.ask_for(server="other")
        hidden = await office.ask_for(server="git", task_id="work")
        await office.decide(hidden)
        await office.decide(wanted)
        assert await told(stream) == (wanted, "approved")


@pytest.mark.requirement("approval:watch")
async def test_it_ends_when_the_token_is_revoked(office: Office):
    id = await office.ask_for()
    async with watching(office) as stream:
        assert await told(stream) == (id, "pending")
        del office.known.principals["wall"]
        await office.decide(id)
        last = await stream.next()
        assert (last.event, json.loads(last.data)["error"]["code"]) == ("error", "unauthenticated")


@pytest.mark.parametrize("query", ["?state=pending", "?limit=1", "?task=", "?serve=git"])
async def test_a_watch_that_cannot_be_understood_is_refused(office: Office, query: str):
    answer = await office.get(f"/watch{query}")
    assert (answer.status, answer.code) == (400, "invalid_request")


# --- the feed itself


async def told_by(feed: AsyncGenerator[Approval | None]) -> tuple[str, str]:
    async with asyncio.timeout(SOON_SECONDS):
        while (approval := await anext(feed)) is None:
            pass
    return approval.id, approval.state


async def test_steps_of_another_process_are_found_by_looking(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(approval_feed, "LOOK_SECONDS", 0.01)
    clock = FakeClock()
    store = MemoryStore(clock)
    here, elsewhere = Approvals(store, clock=clock), Approvals(store, clock=clock)
    feed = ApprovalFeed(here, ApprovalFilter()).steps()

    assert await anext(feed) is None
    waiting = await elsewhere.ask(asked(), 0)
    id = getattr(waiting, "approval_id", None)
    assert await told_by(feed) == (id, "pending")
    await elsewhere.withdraw(str(id), "they hung up")
    assert await told_by(feed) == (id, "withdrawn")
    await feed.aclose()


async def test_what_ends_beside_another_step_is_found_by_looking(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(approval_feed, "LOOK_SECONDS", 0.01)
    clock = FakeClock()
    approvals = Approvals(MemoryStore(clock), clock=clock)
    await approvals.ask(asked(), 0)
    feed = ApprovalFeed(approvals, ApprovalFilter()).steps()
    assert (await told_by(feed))[1] == "pending"
    await clock.advance(approvals.settings.decide_seconds)
    await approvals.ask(asked(server="git"), 0)
    assert {(await told_by(feed))[1], (await told_by(feed))[1]} == {"expired", "pending"}
    await feed.aclose()


async def test_who_reads_too_slowly_is_told_to_begin_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(approval_feed, "MAX_WAITING", 3)
    clock = FakeClock()
    approvals = Approvals(MemoryStore(clock), clock=clock)
    feed = ApprovalFeed(approvals, ApprovalFilter()).steps()
    assert await anext(feed) is None
    for number in range(4):
        await approvals.ask(asked(server=f"s{number}"), 0)
    with pytest.raises(Exception, match="watch again"):
        await anext(feed)
    await approvals.ask(asked(server="later"), 0)  # nobody listens any more


async def test_it_ends_with_the_process_instead_of_never_waiting_again():
    approvals = Approvals(MemoryStore(FakeClock()), clock=FakeClock())
    feed = ApprovalFeed(approvals, ApprovalFilter()).steps()
    assert await anext(feed) is None
    approvals.stop()
    with pytest.raises(StopAsyncIteration):
        await anext(feed)
