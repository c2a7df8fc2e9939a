"""Streams of events: their bytes, their silences, and everything that ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from bascule.asgi.errors import ClientGone, Refused
from bascule.asgi.presence import while_connected
from bascule.asgi.sse import ABORT, DRAINING, Event, EventStream, encode
from bascule.testing.clock import FakeClock
from bascule.wire.sse import SseReader
from tests.asgi.caller import http_scope
from tests.waits import SOON_SECONDS


class Reader:
    """The other end of a stream, which may read slowly, hang up, or stop reading."""

    def __init__(self, stream: EventStream, method: str = "GET") -> None:
        self.chunks: list[bytes] = []
        self.ended = False
        self.aborted = False
        self.gone = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self.draining = asyncio.Event()
        scope = http_scope(method, "/", [])
        scope |= {DRAINING: self.draining, ABORT: self.abort}
        self.task = asyncio.ensure_future(stream(scope, self.receive, self.send))

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.body":
            self.chunks += [message["body"]] if message["body"] else []
            self.ended = not message["more_body"]

    def abort(self) -> None:
        self.aborted = True

    @property
    def events(self) -> list[tuple[str, bytes, str | None]]:
        return [
            (event.event, event.data, event.id) for event in SseReader().feed(b"".join(self.chunks))
        ]

    async def finished(self) -> None:
        async with asyncio.timeout(SOON_SECONDS):
            await self.task


class Source:
    """A source that counts what was asked of it, and notices its end."""

    def __init__(
        self, *events: Event, then: Exception | None = None, endless: bool = False
    ) -> None:
        self.waiting = list(events)
        self.then = then
        self.endless = endless
        self.taken = 0
        self.closed = False

    async def events(self) -> AsyncGenerator[Event, None]:
        try:
            for event in self.waiting:
                self.taken += 1
                yield event
            if self.then is not None:
                raise self.then
            if self.endless:
                await asyncio.Event().wait()
        finally:
            self.closed = True


def numbered(*numbers: int) -> list[Event]:
    return [Event(data={"n": number}, id=str(number)) for number in numbers]


def test_an_event_reads_back_as_it_was():
    text = encode(Event(data={"a": "x\ny"}, event="change", id="7"))
    [event] = SseReader().feed(text)
    assert (event.event, event.data, event.id) == ("change", b'{"a":"x\\ny"}', "7")


@pytest.mark.parametrize("data", [b"a\nb", b"a\r\nb", b"a\rb"])
def test_bytes_of_several_lines_stay_one_event(data: bytes):
    [event] = SseReader().feed(encode(Event(data=data)))
    assert event.data == b"a\nb"


@pytest.mark.parametrize("text", ["7\n\ndata: forged", "7\rid: 8", "7\0"])
def test_an_id_or_name_cannot_forge_an_event(text: str):
    with pytest.raises(ValueError, match="one line"):
        encode(Event(data=1, id=text))
    with pytest.raises(ValueError, match="one line"):
        encode(Event(data=1, event=text))


async def test_events_arrive_in_order_and_the_stream_ends_with_its_source():
    source = Source(*numbered(1, 2, 3))
    reader = Reader(EventStream(source.events(), FakeClock()))
    await reader.finished()
    assert [key for _, _, key in reader.events] == ["1", "2", "3"]
    assert reader.ended
    assert source.closed


async def test_a_reader_that_hangs_up_ends_the_source():
    source = Source(*numbered(1), endless=True)
    clock = FakeClock()
    reader = Reader(EventStream(source.events(), clock))
    await clock.settle()
    assert not source.closed
    reader.gone.set()
    await reader.finished()
    assert source.closed
    assert clock.sleepers == 0


async def test_a_server_that_drains_ends_the_stream_properly():
    source = Source(*numbered(1), endless=True)
    clock = FakeClock()
    reader = Reader(EventStream(source.events(), clock))
    await clock.settle()
    reader.draining.set()
    await reader.finished()
    assert reader.ended
    assert source.closed


async def test_a_source_is_asked_only_as_fast_as_its_reader_reads():
    source = Source(*numbered(*range(100)), endless=True)
    clock = FakeClock()
    reader = Reader(EventStream(source.events(), clock))
    reader.reads.clear()
    await clock.settle()
    assert source.taken <= 1
    reader.reads.set()
    await clock.settle(2000)
    assert source.taken == 100
    assert [key for _, _, key in reader.events] == [str(n) for n in range(100)]
    reader.gone.set()
    await reader.finished()


async def test_a_reader_that_takes_nothing_is_let_go():
    source = Source(*numbered(1, 2), endless=True)
    clock = FakeClock()
    reader = Reader(EventStream(source.events(), clock, stalled_seconds=0.02))
    reader.reads.clear()
    with pytest.raises(ClientGone):
        await reader.finished()
    assert reader.aborted
    assert source.taken == 0


async def test_a_reader_that_stops_in_the_middle_is_let_go_too():
    clock = FakeClock()
    source = Source(endless=True)
    reader = Reader(
        EventStream(source.events(), clock, keep_alive_seconds=10, stalled_seconds=0.02)
    )
    await clock.settle()
    reader.reads.clear()
    await clock.advance(10)
    with pytest.raises(ClientGone):
        await reader.finished()
    assert reader.aborted
    assert source.closed


async def test_a_silent_stream_is_kept_alive_by_comments():
    clock = FakeClock()
    reader = Reader(EventStream(Source(endless=True).events(), clock, keep_alive_seconds=10))
    await clock.advance(35)
    assert reader.chunks == [b": keep-alive\n\n"] * 3
    assert reader.events == []
    reader.gone.set()
    await reader.finished()


async def test_a_stream_that_is_not_silent_needs_no_comments():
    clock = FakeClock()

    async def each_second() -> AsyncGenerator[Event, None]:
        while True:
            await clock.sleep(1)
            yield Event(data=0)

    reader = Reader(EventStream(each_second(), clock, keep_alive_seconds=2.5))
    await clock.advance(10)
    assert len(reader.chunks) == len(reader.events) == 10
    reader.gone.set()
    await reader.finished()


@pytest.mark.parametrize(
    ("error", "code"),
    [(Refused("compacted", "too old"), b'"compacted"'), (KeyError("secret"), b'"internal"')],
)
async def test_an_error_of_the_source_is_the_last_event(error: Exception, code: bytes):
    source = Source(*numbered(1), then=error)
    reader = Reader(EventStream(source.events(), FakeClock()))
    await reader.finished()
    name, data, _ = reader.events[-1]
    assert name == "error"
    assert code in data
    assert b"secret" not in data
    assert reader.ended


async def test_asking_for_the_head_alone_starts_no_source():
    source = Source(*numbered(1), endless=True)
    reader = Reader(EventStream(source.events(), FakeClock()), "HEAD")
    await reader.finished()
    assert (source.taken, reader.chunks, reader.ended) == (0, [], True)


async def test_work_is_cancelled_when_its_caller_hangs_up():
    ended: list[str] = []
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def work() -> None:
        try:
            gone.set()
            await asyncio.Event().wait()
        finally:
            ended.append("work")

    async with asyncio.timeout(SOON_SECONDS):
        with pytest.raises(ClientGone):
            await while_connected({}, receive, work())
    assert ended == ["work"]


async def test_work_that_is_done_gives_its_value_or_its_error():
    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def value() -> int:
        return 7

    async def broken() -> int:
        raise KeyError("x")

    assert await while_connected({}, receive, value()) == 7
    with pytest.raises(KeyError):
        await while_connected({}, receive, broken())


async def test_a_reader_that_reads_may_do_so_for_longer_than_one_write_may_take():
    loop = asyncio.get_running_loop()
    long_after = loop.time() + 0.1

    async def for_long() -> AsyncGenerator[Event, None]:
        while loop.time() < long_after:
            yield Event(data=0)
            await asyncio.wait([loop.create_task(reader.reads.wait())])

    reader = Reader(EventStream(for_long(), FakeClock(), stalled_seconds=0.02))
    await reader.finished()
    assert reader.ended
    assert not reader.aborted
