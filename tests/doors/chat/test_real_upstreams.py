"""The chat door with upstreams over real sockets, and with the built-in rehearsal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from bascule.testing import (
    Gate,
    ScriptedUpstream,
    calls,
    chunk,
    fails,
    hangs,
    says,
    sends,
    streams,
)
from tests.doors.chat.site import READ, Site, backed
from tests.node.fakes import text
from tests.waits import SOON_SECONDS

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


class Here:
    """A served door and the upstream behind it."""

    def __init__(self, site: Site, upstream: ScriptedUpstream) -> None:
        self.site = site
        self.upstream = upstream


@asynccontextmanager
async def door(key: str | None = None) -> AsyncGenerator[Here, None]:
    async with backed(key) as (site, upstream):
        yield Here(site, upstream)


@pytest.fixture
async def here() -> AsyncGenerator[Here, None]:
    async with door() as opened:
        yield opened


async def said(here: Here, *, stream: bool, model: str = "m", **fields: Any) -> str:
    """Ask, and return what was answered."""
    async with here.site.client() as client, asyncio.timeout(10):
        messages = fields.pop("messages", HELLO)
        if not stream:
            whole = await client.chat.completions.create(model=model, messages=messages, **fields)
            return whole.choices[0].message.content or ""
        async with client.chat.completions.stream(
            model=model, messages=messages, **fields
        ) as chunks:
            final = await chunks.get_final_completion()
        return final.choices[0].message.content or ""


@pytest.mark.requirement("chat:stream")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["m", "a/m"])
async def test_a_conversation_over_real_sockets(here: Here, stream: bool, model: str):
    here.site.world.caller.answers("read", text("the file"))
    here.upstream.add(calls((READ, {"text": "a"})), says("It says so."))
    assert await said(here, stream=stream, model=model) == "It says so."
    first, second = here.upstream.chats
    assert (first.json["model"], first.json.get("stream", False)) == ("m", stream)
    assert second.json["messages"][-1]["content"] == "the file"
    assert "bascule" not in second.body.decode()


@pytest.mark.requirement("chat:disabled-unchanged")
async def test_with_mcp_off_bytes_pass_unchanged_in_both_directions(here: Here):
    body = b'{ "model":"m", "messages": [ ], "x" : 1.0 }'
    here.upstream.add(sends(b'{ "odd" :  1.50 }\n', 203, x_ratelimit_limit="9"))
    status, headers, answer = await here.site.post(body, "off")
    assert (status, answer) == (203, b'{ "odd" :  1.50 }\n')
    assert here.upstream.chats[0].body == body
    assert headers["x-ratelimit-limit"] == "9"
    events = [b'data: {"a":1}\n\n', b"data: [DONE]\n\n"]
    here.upstream.add(streams(*events, done=False))
    _, headers, answer = await here.site.post(b'{"model":"m","stream":true}', "off")
    assert answer == b"".join(events)
    assert headers["content-type"].startswith("text/event-stream")


async def test_text_reaches_the_client_while_the_upstream_still_speaks(here: Here):
    gate = Gate()
    here.upstream.add(says("one two", gate=gate))
    async with here.site.client() as client, asyncio.timeout(10):
        gate.let(3)
        stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
        heard = ""
        async for part in stream:
            heard += part.choices[0].delta.content or ""
            if heard:
                break
        assert not here.upstream.chats[0].answered.is_set()
        gate.open()
        heard += "".join([part.choices[0].delta.content or "" async for part in stream])
    assert heard == "one two"


GARBLED = [
    b"data: {nonsense\n\n",
    chunk(tool_calls=[{"index": 0, "function": {"name": READ, "arguments": '{"te'}}]),
    {"choices": [{"index": 0, "delta": "x"}]},
]


@pytest.mark.parametrize(
    "reply",
    [
        fails(500, "broken"),
        fails(429, "slow down", Retry_After="1"),
        sends("<html>", 200, Content_Type="text/html"),
        sends(b"", 200, Content_Type="application/json"),
        streams(*GARBLED, done=False),
        streams(chunk("Half"), done=False),
        says("cut", cut_after=1),
        streams(b'data: {"error": {"message": "overloaded"}}\n\n'),
    ],
)
async def test_a_broken_upstream_is_an_error_and_no_half_call_is_made(here: Here, reply: Any):
    here.upstream.add(reply)
    with pytest.raises(openai.APIError):
        await said(here, stream=True)
    assert here.site.world.sent == []


async def test_a_key_that_is_refused_is_our_fault_and_not_the_callers():
    async with door(key="right") as here:
        with pytest.raises(openai.InternalServerError) as caught:
            await said(here, stream=False)
    assert caught.value.status_code == 502


@pytest.mark.requirement("chat:disconnect")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_the_upstreams_request(here: Here, stream: bool):
    here.upstream.add(hangs(says("one two three"), after=2 if stream else 0))
    asking = asyncio.create_task(said(here, stream=stream))
    async with asyncio.timeout(SOON_SECONDS):
        seen = await here.upstream.saw(1)
        asking.cancel()
        await asyncio.wait([asking])
        await seen.hung_up.wait()


@pytest.mark.parametrize("stream", [False, True])
async def test_the_rehearsal_calls_tools_as_it_is_told(here: Here, stream: bool):
    here.site.world.caller.answers("read", text("the file"))
    messages = [{"role": "user", "content": 'call fs.read with {"text": "a"}'}]
    answer = await said(here, stream=stream, model="rehearsal", messages=messages)
    assert "the file" in answer
    assert [sent.payload for sent in here.site.world.sent] == [b'{"text":"a"}']
