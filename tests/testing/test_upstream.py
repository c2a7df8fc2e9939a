"""The scripted model's server, as the official client and plain HTTP see it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import openai
import pytest

from bascule.testing.upstream import (
    Gate,
    Reply,
    ScriptedUpstream,
    SeenChat,
    calls,
    chunk,
    fails,
    hangs,
    says,
    sends,
    streams,
)
from tests.waits import SOON_SECONDS

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


def client_of(upstream: ScriptedUpstream, key: str = "any") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=upstream.url, api_key=key, max_retries=0, timeout=5)


async def test_it_answers_the_official_client_whole_and_in_a_stream():
    async with ScriptedUpstream() as upstream, client_of(upstream) as client:
        upstream.add(says("good day"), says("good evening"))
        whole = await client.chat.completions.create(model="m", messages=HELLO)
        assert whole.choices[0].message.content == "good day"
        assert (whole.model, whole.choices[0].finish_reason) == ("m", "stop")
        stream = await client.chat.completions.create(
            model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        chunks = [one async for one in stream]
    words = [one.choices[0].delta.content for one in chunks if one.choices]
    assert "".join(filter(None, words)) == "good evening"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 15


async def test_tool_calls_come_whole_and_in_pieces_that_add_up():
    async with ScriptedUpstream() as upstream, client_of(upstream) as client:
        upstream.add(*[calls(("add", {"a": 1}), ("sub", "not json"), text="so")] * 2)
        whole = await client.chat.completions.create(model="m", messages=HELLO)
        async with client.chat.completions.stream(model="m", messages=HELLO) as stream:
            streamed = await stream.get_final_completion()
    for answer in (whole, streamed):
        made = answer.choices[0].message.tool_calls or []
        said = [call.function for call in made if call.type == "function"]
        assert [(f.name, f.arguments) for f in said] == [("add", '{"a": 1}'), ("sub", "not json")]
        assert answer.choices[0].finish_reason == "tool_calls"
        assert answer.choices[0].message.content == "so"
        assert len({call.id for call in made}) == 2


async def test_a_call_given_as_a_dictionary_is_sent_as_it_is():
    broken = {"type": "function", "function": {"name": "add", "arguments": "{}"}}
    assert Reply(tool_calls=[broken]).message(1)["tool_calls"] == [broken]


async def test_what_came_in_is_kept_as_bytes_and_parsed():
    async with ScriptedUpstream() as upstream, aiohttp.ClientSession() as http:
        async with http.post(f"{upstream.url}/chat/completions", data=b'{"a": 1}') as answer:
            assert answer.status == 200
        async with http.post(f"{upstream.url}/chat/completions", data=b"{") as answer:
            assert answer.status == 200
        async with http.get(f"{upstream.url}/nowhere") as answer:
            assert answer.status == 404
        first, second = upstream.chats
        assert (first.body, first.json, first.answered.is_set()) == (b'{"a": 1}', {"a": 1}, True)
        assert second.json is None
        assert upstream.connections_made == 1


async def test_the_key_the_models_and_errors_are_as_set():
    async with ScriptedUpstream(models=("a", "b"), key="right") as upstream:
        async with client_of(upstream, "right") as client:
            assert [model.id async for model in client.models.list()] == ["a", "b"]
            upstream.add(fails(429, "slow down", code="rate_limit", Retry_After="3"))
            with pytest.raises(openai.RateLimitError, match="slow down") as raised:
                await client.chat.completions.create(model="m", messages=HELLO)
            assert raised.value.response.headers["Retry-After"] == "3"
        async with client_of(upstream, "wrong") as client:
            with pytest.raises(openai.AuthenticationError):
                await client.chat.completions.create(model="m", messages=HELLO)


async def test_without_a_script_the_test_may_choose_by_request():
    scripted = ScriptedUpstream(choose=lambda seen: says(seen.json["model"]))
    async with scripted as upstream, client_of(upstream) as client:
        answer = await client.chat.completions.create(model="echo", messages=HELLO)
        assert answer.choices[0].message.content == "echo"

        async def slowly(seen: SeenChat) -> Reply | None:
            await seen.hung_up.wait() if seen.json["model"] == "never" else None
            return None

        upstream.choose = slowly
        answer = await client.chat.completions.create(model="m", messages=HELLO)
        assert answer.choices[0].message.content == "ok"


async def posted(http: aiohttp.ClientSession, upstream: ScriptedUpstream) -> aiohttp.ClientResponse:
    body = json.dumps({"stream": True}).encode()
    return await http.post(f"{upstream.url}/chat/completions", data=body)


async def test_chunks_and_bytes_are_sent_as_given_and_done_may_be_left_out():
    async with ScriptedUpstream() as upstream, aiohttp.ClientSession() as http:
        upstream.add(streams(b": note\n\n", chunk("x", finish="stop"), done=False))
        upstream.add(sends("<html>", 502, Content_Type="text/html"))
        text = await (await posted(http, upstream)).read()
        assert text.startswith(b": note\n\ndata: {")
        assert b"[DONE]" not in text
        answer = await posted(http, upstream)
        assert (answer.status, answer.content_type) == (502, "text/html")
        assert await answer.read() == b"<html>"


async def test_a_gate_lets_pieces_through_one_by_one():
    async with ScriptedUpstream() as upstream, aiohttp.ClientSession() as http:
        gate = Gate()
        upstream.add(streams(b"one", b"two", done=False, gate=gate))
        answering = asyncio.create_task(posted(http, upstream))
        seen = await upstream.saw(1)
        assert not answering.done()
        gate.let()
        async with asyncio.timeout(SOON_SECONDS):
            answer = await answering
            gate.let()
            assert await answer.content.readany() == b"one"
            assert not seen.answered.is_set()
            gate.open()
            assert await answer.content.read() == b"two"
            await seen.answered.wait()


async def test_it_can_break_off_and_go_silent_and_tells_who_left():
    async with ScriptedUpstream() as upstream, aiohttp.ClientSession() as http:
        upstream.add(streams(b"one", cut_after=1), hangs())
        async with await posted(http, upstream) as cut:
            with pytest.raises(aiohttp.ClientError):
                await cut.content.read()
        silent = await posted(http, upstream)
        seen = await upstream.saw(2)
        assert not seen.hung_up.is_set()
        silent.close()
        async with asyncio.timeout(SOON_SECONDS):
            await seen.hung_up.wait()
        assert not seen.answered.is_set()


async def test_it_starts_again_at_the_same_port():
    async with ScriptedUpstream() as upstream:
        url = upstream.url
        await upstream.stop()
        await upstream.start()
        assert upstream.url == url
        async with client_of(upstream) as client:
            assert (await client.chat.completions.create(model="m", messages=HELLO)).choices
