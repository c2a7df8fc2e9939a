"""Answers that are read as they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from bascule.clock import SYSTEM_CLOCK
from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.conversation import Ending
from bascule.doors.hostcalls.crossing import Crossing
from bascule.doors.hostcalls.handles import EPOLLIN
from bascule.doors.hostcalls.host import GuestLimits
from bascule.doors.hostcalls.responses import MOST_WAITING, StreamedResponse
from bascule.loop.events import Tell
from bascule.loop.request import BadChat
from tests.doors.hostcalls.talks import (
    ARENA,
    AUTO,
    METRICS,
    SAYS_42,
    STREAM,
    Talk,
    table,
)
from tests.loop.fakes import FakeUpstream, Hang, asks, call, pieces, says
from tests.loop.talking import USAGE, results
from tests.waits import until

SET_FLAGS = 1


def stream(talk: Talk, flags: int = 0, **parameters: Any) -> str:
    """Begin a stream; return what stands for its response."""
    session = talk.create(**parameters)
    talk.tool(session)
    talk.say(session, "hello")
    return talk.send(session, STREAM | flags)


def nonblocking(talk: Talk, response: str) -> None:
    at, length = talk.put('{"set":["O_NONBLOCK"]}')
    talk.call("spear_fd_ctl", response, SET_FLAGS, at, talk.number(length))


def text_of(chunks: list[dict[str, Any]]) -> str:
    deltas = (one["choices"][0]["delta"] for one in chunks if one.get("choices"))
    return "".join(delta.get("content") or "" for delta in deltas)


@pytest.mark.requirement("hostcalls:cchat:stream")
async def test_each_read_takes_the_next_chunk_and_nothing_is_the_end():
    talk = Talk()
    response = stream(talk)
    reads = [talk.receive(response) for _ in range(6)]
    talked = await talk.run(FakeUpstream(says("hello"), name="near"))
    assert text_of(talked.chunks) == "hello"
    lengths = [talked.answer(one) for one in reads]
    assert lengths[:4] == [len(one) for one in talked.read[:4]]
    assert lengths[4:] == [0, 0]
    last = talked.chunks[-1]
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["_spear"] == {"backend": "near", "model": "m"}
    assert {one["object"] for one in talked.chunks} == {"chat.completion.chunk"}


async def test_a_chunk_that_finds_no_room_stays():
    talk = Talk()
    response = stream(talk)
    short = talk.receive(response, room=10)
    for _ in range(4):
        talk.receive(response)
    talked = await talk.run(FakeUpstream(says("hello")))
    assert talked.answer(short) == -Errno.ENOSPC
    chunks = [json.loads(one) for one in talked.read[1:]]
    assert text_of(chunks) == "hello"


async def test_closing_a_stream_ends_its_conversation():
    talk = Talk()
    response = stream(talk)
    talk.receive(response)
    talk.call("cchat_close", response)
    hang = Hang(*pieces(says("hello"))[:2])
    talk.call("sleep_ms", 60_000)
    running = asyncio.create_task(talk.run(FakeUpstream(hang)))
    async with asyncio.timeout(30):
        await hang.ended.wait()
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])


async def test_what_open_streams_ask_and_may_hold_counts_for_each_of_them():
    talk = Talk()
    session = talk.create()
    talk.say(session, "x" * 30_000)
    sent = [talk.send(session, STREAM) for _ in range(5)]
    closed = talk.call("cchat_close", sent[0])
    again = talk.send(session, STREAM)
    limits = GuestLimits(memory_bytes=40_000 + 4 * (40_000 + MOST_WAITING))
    talked = await talk.run(FakeUpstream(*[Hang()] * 5), limits=limits)
    assert [talked.answer(one) for one in sent] == [1001, 1002, 1003, 1004, -Errno.ENOMEM]
    assert talked.answer(closed) == 0
    assert talked.answer(again) > 0


async def test_a_guest_that_ends_ends_its_streams():
    talk = Talk()
    talk.receive(stream(talk))
    hang = Hang(*pieces(says("hello"))[:2])
    talked = await talk.run(FakeUpstream(hang))
    assert talked.ran.exit.reason == "exited"
    assert hang.ended.is_set()


async def test_without_blocking_there_is_nothing_to_read_yet():
    talk = Talk()
    response = stream(talk)
    nonblocking(talk, response)
    early = [talk.receive(response) for _ in range(3)]
    talked = await talk.run(FakeUpstream(Hang()))
    assert {talked.answer(one) for one in early} == {-Errno.EAGAIN}


async def test_epoll_tells_when_there_is_something():
    talk = Talk()
    response = stream(talk)
    nonblocking(talk, response)
    epoll = talk.call("spear_epoll_create")
    talk.call("spear_epoll_ctl", epoll, 1, response, EPOLLIN)
    ready = talk.call("spear_epoll_wait", epoll, 1024, talk.number(64), -1)
    read = talk.receive(response)
    talked = await talk.run(FakeUpstream(Hang(*pieces(says("hello"))[:2])))
    assert talked.answer(ready) == 1
    assert talked.answer(read) > 0


async def test_a_stream_runs_tools_of_the_guest_while_it_is_read():
    talk = Talk()
    response = stream(talk, AUTO, tool_arena_ptr=ARENA, tool_arena_len=4096)
    for _ in range(8):
        talk.receive(response)
    upstream = FakeUpstream(asks(call("sum")), says("42"))
    talked = await talk.run(upstream, more=SAYS_42 + table("$sum"))
    assert json.loads(results(upstream)[0]["content"]) == {"sum": 42}
    assert text_of(talked.chunks) == "42"
    events = [one["bascule"]["event"] for one in talked.chunks if "event" in one.get("bascule", {})]
    assert events == ["call_started", "call_finished"]
    assert talked.read[-1] == b""


async def test_what_fails_on_the_way_is_the_last_chunk():
    talk = Talk()
    response = stream(talk)
    for _ in range(4):
        talk.receive(response)
    talked = await talk.run(FakeUpstream([*pieces(says("hello"))[:2], {"fail": "cut off"}]))
    assert "cut off" in talked.chunks[-1]["error"]["message"]
    assert talked.read[3] == b""


async def test_a_refusal_is_a_chunk_too():
    talk = Talk()
    session = talk.create()
    response = talk.send(session, STREAM)
    talk.receive(response)
    talk.receive(response)
    talked = await talk.run(FakeUpstream(says("hello")))
    assert talked.chunks[0]["error"]["code"] == "invalid_request"
    assert talked.read[1] == b""


async def test_metrics_of_a_stream_are_there_at_its_end():
    talk = Talk()
    response = stream(talk, METRICS)
    for _ in range(6):
        talk.receive(response)
    talk.metrics(response)
    upstream = FakeUpstream(says("hello", usage=USAGE))
    talked = await talk.run(upstream)
    assert upstream.asked[0]["stream_options"] == {"include_usage": True}
    assert json.loads(talked.read[-1]) == USAGE


class Flood(FakeUpstream):
    """Says more and more, for as long as it is read."""

    def __init__(self) -> None:
        super().__init__(says(""))
        self.bytes = 0

    async def stream(
        self, body: Mapping[str, Any], *, seconds: float
    ) -> AsyncGenerator[dict[str, Any], None]:
        del body, seconds
        text = "x" * 65_536
        while True:
            self.bytes += len(text)
            yield {"id": "up-1", "choices": [{"index": 0, "delta": {"content": text}}]}
            await SYSTEM_CLOCK.sleep(0)


@pytest.mark.requirement("hostcalls:cchat:stream")
async def test_an_upstream_whose_reader_lags_is_not_read_on():
    talk = Talk()
    stream(talk)
    talk.call("sleep_ms", 60_000)
    flood = Flood()
    running = asyncio.create_task(talk.run(flood))
    await until(lambda: flood.bytes >= MOST_WAITING)
    for _ in range(100):
        await SYSTEM_CLOCK.sleep(0)
    assert flood.bytes < 2 * MOST_WAITING
    running.cancel()
    await asyncio.wait([running])


async def test_a_guest_that_only_looks_has_its_tools_run_too():
    crossing = Crossing(asyncio.get_running_loop())
    response = StreamedResponse(crossing, metrics=False)
    response.nonblocking = True
    asking: Any = Asking(crossing)

    def poll() -> bytes:
        crossing.begin(partial(response.hold, asking, unlearned))
        for _ in range(100_000):
            with suppress(Fault):
                return response.read()
        raise AssertionError("there was never anything to read")

    async with asyncio.timeout(30):
        read = await asyncio.to_thread(poll)
    assert json.loads(read)["error"]["message"] == "said by the guest's thread"


class Asking:
    """A conversation that needs the guest's thread before it ends."""

    def __init__(self, crossing: Crossing) -> None:
        self._crossing = crossing

    async def hold(self, tell: Tell) -> Ending:
        del tell
        raise BadChat(await self._crossing.enter(lambda: "said by the guest's thread"))


def unlearned(ending: Ending) -> None:
    raise AssertionError(ending)
