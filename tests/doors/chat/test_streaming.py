"""Streams of the chat door: alive while tools run, and gone with their reader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from bascule.loop.budgets import LoopSettings
from bascule.testing.clock import FakeClock
from tests.doors.chat.site import READ, Site, serving
from tests.loop.fakes import Hang, asks, call, pieces, says
from tests.node.fakes import Doorman, Json, Sent
from tests.waits import SOON_SECONDS

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


@asynccontextmanager
async def posted(site: Site, **fields: Any) -> AsyncGenerator[aiohttp.ClientResponse, None]:
    """Send a request, and give its answer while it comes."""
    headers = {"Authorization": f"Bearer {await site.token()}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        asyncio.timeout(10),
        http.post(f"{site.url}/v1/chat/completions", json={**BODY, **fields}) as answer,
    ):
        yield answer


async def test_the_bytes_of_a_stream_are_events_with_a_done_at_the_end(site: Site):
    site.script(asks(call(READ)), says("Done."))
    async with posted(site, stream=True) as answer:
        assert answer.content_type == "text/event-stream"
        lines = (await answer.text()).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    assert all(line.startswith("data: {") for line in lines[:-2])
    first = json.loads(lines[0].removeprefix("data: "))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first["object"] == "chat.completion.chunk"


async def test_a_long_tool_keeps_the_stream_alive():
    clock = FakeClock()
    doorman = Doorman()
    async with serving(Site(clock=clock)) as site:
        site.world.caller.answers("read", doorman)
        site.script(asks(call(READ), text="Wait."), says("Done."))
        async with posted(site, stream=True) as answer:
            let_go = await doorman.next()
            seen = b""
            while b'"call_started"' not in seen:
                seen += await answer.content.readany()
            await clock.advance(31)
            while b": keep-alive" not in seen:
                seen += await answer.content.readany()
            let_go.set()
            rest = await answer.read()
        assert b'"\\n\\nDon"' in rest
        assert rest.endswith(b"data: [DONE]\n\n")


async def test_a_model_that_is_slow_to_begin_does_not_leave_its_reader_without_a_sign():
    clock = FakeClock()
    async with serving(Site(clock=clock)) as site:
        hang = Hang()
        site.script(hang)
        asking = asyncio.create_task(_first_bytes(site))
        await hang.reached.wait()
        await clock.advance(15)
        await clock.advance(15)
        assert await asking == (200, b": keep-alive\n\n")


async def _first_bytes(site: Site) -> tuple[int, bytes]:
    async with posted(site, stream=True) as answer:
        return answer.status, await answer.content.readany()


@pytest.mark.requirement("chat:disconnect")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_ends_the_tools(site: Site, stream: bool):
    doorman = WatchedDoorman()
    site.world.caller.answers("read", doorman)
    site.script(asks(call(READ), text="Wait."), says("never"))
    asking = asyncio.create_task(_ask_and_wait(site, stream=stream))
    await doorman.next()
    asking.cancel()
    await asyncio.wait([asking])
    await doorman.empty()
    assert site.world.ledger.last.status == "cancelled"
    assert len(site.upstream.asked) == 1


class WatchedDoorman(Doorman):
    """A doorman who tells when everybody has left."""

    def __init__(self) -> None:
        super().__init__()
        self._left = asyncio.Event()

    async def __call__(self, sent: Sent) -> Json:
        try:
            return await super().__call__(sent)
        finally:
            self._left.set()

    async def empty(self) -> None:
        async with asyncio.timeout(SOON_SECONDS):
            await self._left.wait()
        assert self.inside == 0


async def _ask_and_wait(site: Site, *, stream: bool) -> None:
    async with posted(site, stream=stream) as answer:
        await answer.read()


@pytest.mark.requirement("chat:disconnect")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_ends_the_upstreams_work(site: Site, stream: bool):
    hang = Hang(*pieces(says("So far"))[:-1])
    site.script(hang)
    asking = asyncio.create_task(_ask_and_wait(site, stream=stream))
    async with asyncio.timeout(SOON_SECONDS):
        await hang.reached.wait()
        asking.cancel()
        await asyncio.wait([asking])
        await hang.ended.wait()


@pytest.mark.parametrize("stream", [False, True])
async def test_when_the_time_is_up_a_client_still_gets_an_answer(stream: bool):
    async with serving(Site(settings=LoopSettings(max_seconds=0.05))) as site:
        site.script(Hang())
        async with posted(site, stream=stream) as answer:
            text = await answer.text()
    assert answer.status == 200
    assert "(No answer: the time for this request is up.)" in text
    assert '"finish_reason":"length"' in text
    assert '"budget_hit":"max_seconds"' in text


async def test_a_reader_that_is_slow_slows_its_own_conversation_and_loses_nothing(site: Site):
    words = "".join(chr(97 + n % 26) for n in range(3000))
    site.script(pieces(says(words), 1))
    async with site.client() as client:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], stream=True
        )
        said = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(said) == words


async def test_chat_requests_are_counted(site: Site):
    site.script(asks(call(READ)), says("Done."))
    async with posted(site) as answer:
        assert answer.status == 200
    shown = site.metrics.render().decode()
    assert "mcp_chat_iterations_sum 2.0" in shown
    assert "mcp_chat_tool_calls_count 1.0" in shown
