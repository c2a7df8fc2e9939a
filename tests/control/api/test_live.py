"""The live stream: everything that moves, each event to those who may read it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bascule.asgi import sse
from bascule.asgi.errors import Refused
from bascule.control.api import live
from bascule.control.api.live import MOST_CALLS, Reader, Rights
from bascule.control.registry.plan import Edit
from bascule.testing.clock import FakeClock
from bascule.wire.api.addresses import LIVE
from tests.audit.calls import Ended
from tests.control.api.observatory import Observatory, open_observatory, told
from tests.control.registry.build import BY, server
from tests.waits import SOON_SECONDS

pytestmark = pytest.mark.requirement("admin:live")


@pytest.fixture
async def room(tmp_path: Path) -> AsyncGenerator[Observatory]:
    async with open_observatory(tmp_path) as opened:
        yield opened


async def test_it_begins_with_where_the_registry_is(room: Observatory):
    await room.service.put("server", "fs", server("fs"), BY)
    async with room.stream(LIVE) as stream:
        assert await told(stream) == ("hello", {"revision": 1, "now": "2027-01-15T08:00:00.000Z"})


async def test_a_revision_comes_with_what_it_changed(room: Observatory):
    async with room.reading() as stream:
        await room.service.put("server", "fs", server("fs"), BY)
        await room.gather()
        changes = [{"kind": "server", "id": "fs", "action": "upsert"}]
        assert await told(stream) == ("revision", {"revision": 1, "changes": changes, "more": 0})
        await room.service.delete("server", "fs", BY)
        await room.gather()
        changes = [{"kind": "server", "id": "fs", "action": "delete"}]
        assert await told(stream) == ("revision", {"revision": 2, "changes": changes, "more": 0})


async def test_of_a_very_large_revision_the_beginning_is_listed(
    room: Observatory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(live, "MOST_CHANGES", 2)
    async with room.reading() as stream:
        await room.service.apply(
            [Edit(kind="server", key=f"s{n}", data=server(f"s{n}")) for n in range(5)], BY
        )
        await room.gather()
        name, data = await told(stream)
        assert (name, len(data["changes"]), data["more"]) == ("revision", 2, 3)


async def test_nothing_is_missed_between_the_first_event_and_the_next(room: Observatory):
    async with room.stream(LIVE) as stream:
        assert (await told(stream))[0] == "hello"
        await room.service.put("server", "fs", server("fs"), BY)
        await room.clock.settle()
        await room.gather()
        assert {(await told(stream))[0], (await told(stream))[0]} == {"revision", "status"}


async def test_a_status_is_told_when_it_has_changed(room: Observatory):
    await room.service.put("server", "fs", server("fs"), BY)
    async with room.reading() as stream:
        await room.gather()
        name, data = await told(stream)
        assert (name, data["server_id"], data["status"]["state"]) == ("status", "fs", "unknown")
        await room.reported("connected")
        await room.gather()
        assert (await told(stream))[1]["status"]["state"] == "connected"
        await room.reported("connected")
        await room.reported("down", "it exited")
        await room.gather()
        _, data = await told(stream)
        assert (data["status"]["state"], data["status"]["last_error"]) == ("down", "it exited")


async def test_figures_and_the_calls_of_a_second_come_together(room: Observatory):
    async with room.reading() as stream:
        room.metrics.tool("fs", "read").observe(None, 3.0, 10)
        room.ledger.outcome(Ended(7))
        room.figures.look()
        name, call = await told(stream)
        assert (name, call) == (
            "call",
            {
                "request_id": "r7",
                "at": "1970-01-01T00:00:01.500Z",
                "server_id": "fs",
                "tool_name": "read",
                "task_id": "t",
                "person": None,
                "status": "ok",
                "code": None,
                "duration_ms": 1.0,
            },
        )
        name, figures = await told(stream)
        assert (name, figures["calls"]) == ("figures", 1)


async def test_of_very_many_calls_the_last_are_told(room: Observatory):
    async with room.reading() as stream:
        calls = [Ended(number) for number in range(MOST_CALLS + 5)]
        for call in calls:
            room.ledger.outcome(call)
        room.figures.look()
        ids = [(await told(stream))[1]["request_id"] for _ in range(MOST_CALLS)]
        assert ids == [f"r{number}" for number in range(5, MOST_CALLS + 5)]
        assert (await told(stream))[0] == "figures"
        assert sum(call.made for call in calls) == MOST_CALLS


async def test_a_call_does_nothing_for_the_stream_while_nobody_reads(room: Observatory):
    ended = Ended(1)
    room.ledger.outcome(ended)
    assert room.ledger.on_ended is None
    async with room.reading():
        assert room.ledger.on_ended is not None
    await room.clock.settle()
    assert room.ledger.on_ended is None
    assert ended.made == 0


async def test_approvals_come_step_by_step(room: Observatory):
    async with room.reading() as stream:
        await room.question()
        await room.clock.settle()
        await room.gather()
        name, data = await told(stream)
        assert (name, data["state"], data["task_id"]) == ("approval", "pending", "home")
        assert "arguments" not in data
        await room.approvals.withdraw(data["id"], "they hung up")
        await room.clock.settle()
        await room.gather()
        assert (await told(stream))[1]["state"] == "withdrawn"


@pytest.mark.parametrize(("who", "waiting"), [("viewer", ["fs", "git"]), ("home-viewer", ["fs"])])
async def test_a_later_reader_is_first_told_how_things_stand(
    room: Observatory, who: str, waiting: list[str]
):
    await room.service.put("server", "fs", server("fs"), BY)
    async with room.reading() as first:
        await room.question(task_id="home", server="fs")
        await room.question(task_id="home", server="gone", request_id="s1-2")
        await room.question(task_id="work", server="git")
        await room.clock.settle()
        await room.gather()
        seen = [await told(first) for _ in range(4)]
        [gone] = [data["id"] for _, data in seen if data["server_id"] == "gone"]
        await room.approvals.withdraw(gone, "they hung up")
        await room.clock.settle()
        await room.gather()
        async with room.reading(who) as later:
            assert (await told(later))[0] == "status"
            assert [(await told(later))[1]["server_id"] for _ in waiting] == waiting
            room.figures.look()
            assert (await told(later))[0] == "figures"


#: What somebody is told where everything happens.
_TOLD = {
    "admin": {"revision", "status", "figures", "approval", "call"},
    "operator": {"revision", "status", "figures", "approval", "call"},
    "viewer": {"revision", "status", "figures", "approval", "call"},
    "approver": {"revision", "status", "approval", "call"},
    "node": {"revision", "status"},
    "home-viewer": {"revision", "status", "figures", "approval"},
}


@pytest.mark.parametrize("who", list(_TOLD))
async def test_each_event_is_told_to_those_who_may_read_it(room: Observatory, who: str):
    async with room.reading(who) as stream:
        await room.service.put("server", "fs", server("fs"), BY)
        await room.reported("down")
        await room.question(task_id="home")
        await room.question(task_id="work", server="git")
        room.ledger.outcome(Ended(1))  # of the task t
        await room.clock.settle()
        room.figures.look()
        await room.service.delete("server", "fs", BY)
        await room.gather()
        seen: list[tuple[str, object]] = []
        while seen[-1:] != [("revision", 2)]:
            name, data = await told(stream)
            seen.append((name, data.get("task_id", data.get("revision"))))
        assert {name for name, _ in seen} == _TOLD[who]
        if who == "home-viewer":
            assert [task for name, task in seen if name == "approval"] == ["home"]


@pytest.mark.parametrize("who", ["viewer", "node"])
async def test_it_ends_when_the_token_does(room: Observatory, who: str):
    async with room.reading(who) as stream:
        del room.known.principals[who]
        room.figures.look()
        name, data = await told(stream)
        assert (name, data["error"]["code"]) == ("error", "unauthenticated")


async def test_a_client_is_refused(room: Observatory):
    answer = await room.get(LIVE, "client")
    assert (answer.status, answer.code) == (403, "forbidden")


async def test_readers_of_the_same_rights_share_the_bytes(
    room: Observatory, monkeypatch: pytest.MonkeyPatch
):
    made: list[str | None] = []
    encode = sse.encode

    def counted(event: sse.Event) -> bytes:
        made.append(event.event)
        return encode(event)

    monkeypatch.setattr(sse, "encode", counted)
    async with room.reading() as one, room.reading("viewer") as other, room.reading() as third:
        made.clear()
        room.figures.look()
        assert {(await told(stream))[0] for stream in (one, other, third)} == {"figures"}
        assert made == ["figures"]


async def test_what_is_followed_is_let_go_with_the_last_reader(room: Observatory):
    async with room.reading(), room.reading():
        pass
    await room.clock.settle()
    idle = room.clock.sleepers
    async with room.reading() as stream:
        room.figures.look()
        assert (await told(stream))[0] == "figures"
        assert room.clock.sleepers > idle
    await room.clock.settle()
    assert room.clock.sleepers == idle


# --- one reader


async def test_a_reader_that_does_not_keep_up_is_let_go(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live, "MOST_WAITING", 3)
    reader = Reader(Rights(frozenset(), None))
    for number in range(4):
        reader.put(b"%d" % number)
    with pytest.raises(Refused, match="open the stream again"):
        await reader.next()


async def test_a_reader_gets_what_waits_in_its_order():
    reader = Reader(Rights(frozenset(), None))
    waiting = asyncio.ensure_future(reader.next())
    await FakeClock().settle()
    reader.put(b"")
    reader.put(b"a")
    reader.put(b"")
    reader.put(b"b")
    async with asyncio.timeout(SOON_SECONDS):
        assert [await waiting, await reader.next(), await reader.next()] == [b"", b"a", b"b"]
