"""A stream of the chat door as its reader meets it, event by event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.asgi.errors import ClientGone
from bascule.asgi.sse import ABORT
from bascule.doors.chat.stream import ChatStream, Ending, Talk
from bascule.loop.answer import ChunkForm, chunk
from bascule.loop.backend import UpstreamFailed
from bascule.loop.events import Began, CallStarted, Conclusion, Delta, Tell
from bascule.testing.clock import FakeClock
from tests.asgi.caller import http_scope

HEAD = {"id": "a", "created": 1, "model": "m"}
ENDING = Ending(Conclusion(head=HEAD, content="x", finish_reason="stop"), {})
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text() | st.sampled_from(["{}", '"{}"']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.dictionaries(st.text() | st.just("delta"), PLAIN, max_size=4)


@given(FIELDS, FIELDS, st.none() | FIELDS)
def test_a_chunk_put_together_of_parts_is_the_chunk_as_a_whole(
    head: dict[str, Any], fields: dict[str, Any], logprobs: dict[str, Any] | None
):
    whole = msgspec.json.encode(chunk(head, fields, logprobs=logprobs))
    assert ChunkForm(head).filled(fields, logprobs) == whole


class Reader:
    """The other end of a stream, which may hang up or stop reading."""

    def __init__(self, talk: Talk, **options: Any) -> None:
        self.clock = FakeClock()
        self.messages: list[dict[str, Any]] = []
        self.aborted = False
        self.gone = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        scope = {**http_scope("POST", "/", []), ABORT: self.abort}
        stream = ChatStream(talk, self.clock, wants_usage=False, **options)
        self.task = asyncio.ensure_future(stream(scope, self.receive, self.send))

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        self.messages.append(message)

    def abort(self) -> None:
        self.aborted = True

    @property
    def text(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    async def finished(self) -> None:
        async with asyncio.timeout(20):
            await self.task


def saying(*events: Any, then: Callable[[], Any] = lambda: ENDING) -> Talk:
    """Return a conversation that tells this, and ends as told."""

    async def talk(tell: Tell) -> Ending:
        for event in events:
            await tell(event)
        return then()

    return talk


def failing() -> Ending:
    raise UpstreamFailed("it broke", status=503)


async def test_the_last_words_and_the_end_are_one_message():
    reader = Reader(saying(Began(HEAD), Delta({"content": "x"})))
    await reader.finished()
    assert [message["type"] for message in reader.messages[:1]] == ["http.response.start"]
    last = reader.messages[-1]
    assert last["body"].endswith(b"data: [DONE]\n\n")
    assert last["more_body"] is False
    assert [m["more_body"] for m in reader.messages[1:-1]] == [True, True]


async def test_what_fails_before_the_first_word_is_raised_and_nothing_is_sent():
    reader = Reader(saying(then=failing))
    with pytest.raises(UpstreamFailed):
        await reader.finished()
    assert reader.messages == []


async def test_what_fails_after_it_is_the_last_event():
    reader = Reader(saying(Began(HEAD), then=failing))
    await reader.finished()
    assert b'"error"' in reader.messages[-1]["body"]
    assert b"[DONE]" not in reader.text


async def test_a_caller_who_hangs_up_before_the_first_word_gets_nothing():
    reader = Reader(_silent)
    await reader.clock.settle()
    reader.gone.set()
    with pytest.raises(ClientGone):
        await reader.finished()
    assert reader.messages == []


async def _silent(tell: Tell) -> Ending:
    await asyncio.Event().wait()
    return ENDING


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "calls side by side"])
async def test_a_reader_that_takes_nothing_is_let_go_and_ends_its_conversation(beside: bool):
    ended = asyncio.Event()

    async def talk(tell: Tell) -> Ending:
        await tell(Began(HEAD))
        reader.reads.clear()
        try:
            async with asyncio.TaskGroup() as group:
                for name in ("one", "two") if beside else ("one",):
                    group.create_task(_call(tell, name))
        finally:
            ended.set()
        return ENDING

    reader = Reader(talk, stalled_seconds=0.02)
    with pytest.raises(ClientGone):
        await reader.finished()
    assert reader.aborted
    assert ended.is_set()


async def _call(tell: Tell, name: str) -> None:
    await tell(CallStarted(call_id=name, name=name))


async def test_events_of_calls_side_by_side_come_one_after_the_other():
    async def talk(tell: Tell) -> Ending:
        await tell(Began(HEAD))
        reader.reads.clear()
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(_call(tell, f"call{number}"))
            group.create_task(_read_again(reader))
        return ENDING

    reader = Reader(talk)
    await reader.finished()
    assert all(reader.text.count(b'"call%d"' % number) == 2 for number in range(5))


async def _read_again(reader: Reader) -> None:
    await reader.clock.settle()
    reader.reads.set()
