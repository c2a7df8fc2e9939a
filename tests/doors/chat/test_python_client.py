"""OpenAI's client for Python at the chat door: every way it has to ask, sync and async."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

import openai
import pytest
from openai import AsyncOpenAI, OpenAI, pydantic_function_tool
from pydantic import BaseModel

from tests.doors.chat.site import READ, Site
from tests.loop.fakes import Hang, asks, call, pieces, says
from tests.node.fakes import text

T = TypeVar("T")
HELLO: list[Any] = [{"role": "user", "content": "hello"}]
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


class City(BaseModel):
    """What an answer is to look like."""

    name: str
    people: int


class Own(BaseModel):
    """A tool of the caller's."""

    x: int


PARIS = '{"name": "Paris", "people": 2100000}'


async def sync(site: Site, work: Callable[[OpenAI], T], task: str = "writer") -> T:
    """Let the client that blocks do something, beside the loop that serves it."""
    token = await site.token(task)

    def run() -> T:
        with OpenAI(base_url=f"{site.url}/v1", api_key=token, max_retries=0, timeout=10) as client:
            return work(client)

    return await asyncio.to_thread(run)


# --- the client that blocks


@pytest.mark.requirement("chat:agent-unaware", "chat:stream")
async def test_a_blocking_client_gets_its_tools_executed(site: Site):
    site.script(asks(call(READ), usage=USAGE), says("Done.", usage=USAGE))
    answer = await sync(site, lambda c: c.chat.completions.create(model="m", messages=HELLO))
    assert answer.choices[0].message.content == "Done."
    assert answer.usage is not None
    assert answer.usage.total_tokens == 10
    assert len(site.world.sent) == 1


def listen(client: OpenAI) -> str:
    stream = client.chat.completions.create(model="m", messages=HELLO, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def gather(client: OpenAI) -> str | None:
    with client.chat.completions.stream(model="m", messages=HELLO) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion().choices[0].message.content


def parse(client: OpenAI) -> str | None:
    answer = client.chat.completions.parse(model="m", messages=HELLO)
    return answer.choices[0].message.content


def raw(client: OpenAI) -> str | None:
    answer = client.chat.completions.with_raw_response.create(model="m", messages=HELLO)
    assert answer.status_code == 200
    assert answer.request_id
    return answer.parse().choices[0].message.content


def raw_stream(client: OpenAI) -> str:
    with client.chat.completions.with_streaming_response.create(
        model="m", messages=HELLO, stream=True
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        return "".join(chunk.choices[0].delta.content or "" for chunk in answer.parse())


@pytest.mark.requirement("chat:stream")
@pytest.mark.parametrize("way", [listen, gather, parse, raw, raw_stream])
async def test_every_way_to_ask_gives_the_same_answer(
    site: Site, way: Callable[[OpenAI], str | None]
):
    site.script(asks(call(READ)), says("It is done."))
    assert await sync(site, way) == "It is done."
    assert len(site.world.sent) == 1


@pytest.mark.requirement("chat:models")
async def test_a_blocking_client_lists_models(site: Site):
    found = await sync(site, lambda c: [model.id for model in c.models.list()])
    assert found == ["fake/m", "m"]


async def test_a_stream_that_is_left_early_ends_the_upstream(site: Site):
    hang = Hang(*pieces(says("So far"))[:-1])
    site.script(hang)

    def leave(client: OpenAI) -> str:
        with client.chat.completions.create(model="m", messages=HELLO, stream=True) as stream:
            said = ""
            for chunk in stream:
                said += chunk.choices[0].delta.content or ""
                if said == "So far":
                    break
            return said

    async with asyncio.timeout(10):
        assert await sync(site, leave) == "So far"
        await hang.ended.wait()


@pytest.mark.requirement("chat:disconnect")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_whose_time_is_up_ends_the_upstream(site: Site, stream: bool):
    hang = Hang()
    site.script(hang)
    async with site.client() as client, asyncio.timeout(10):
        impatient = client.with_options(timeout=0.2)
        with pytest.raises(openai.APITimeoutError):
            await impatient.chat.completions.create(model="m", messages=HELLO, stream=stream)
        await hang.ended.wait()


# --- structured answers


@pytest.mark.parametrize("stream", [False, True])
async def test_a_structured_answer_is_parsed_whatever_was_said_before_it(site: Site, stream: bool):
    upstream = site.script(asks(call(READ), text="Let me see."), says(PARIS))
    async with site.client() as client:
        city = await structured(client, stream=stream)
    assert city == City(name="Paris", people=2_100_000)
    assert [body["response_format"]["type"] for body in upstream.asked] == ["json_schema"] * 2


async def structured(client: AsyncOpenAI, *, stream: bool) -> City | None:
    asked: Any = {"model": "m", "messages": HELLO, "response_format": City}
    if not stream:
        answer = await client.chat.completions.parse(**asked)
        return answer.choices[0].message.parsed
    async with client.chat.completions.stream(**asked) as chunks:
        final = await chunks.get_final_completion()
    return final.choices[0].message.parsed


@pytest.mark.requirement("chat:loop:caller-tools")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_callers_call_beside_ours_is_parsed_and_completed(site: Site, stream: bool):
    site.world.caller.answers("read", text("the file"))
    upstream = site.script(asks(call("Own", {"x": 1}, "c1"), call(READ, None, "c2")), says("Done."))
    tools: Any = [pydantic_function_tool(Own)]
    async with site.client() as client:
        chats = client.chat.completions
        if stream:
            async with chats.stream(model="m", messages=HELLO, tools=tools) as chunks:
                message = (await chunks.get_final_completion()).choices[0].message
        else:
            asked = await chats.parse(model="m", messages=HELLO, tools=tools)
            message = asked.choices[0].message
        [own] = message.tool_calls or []
        assert own.function.parsed_arguments == Own(x=1)
        mine: Any = {"role": "tool", "tool_call_id": own.id, "content": "mine"}
        history: list[Any] = [*HELLO, message, mine]
        answer = await chats.parse(model="m", messages=history, tools=tools)
    assert answer.choices[0].message.content == "Done."
    assert [m["content"] for m in upstream.asked[1]["messages"][2:]] == ["mine", "the file"]


# --- what goes upstream as it came

PARAMETERS: dict[str, Any] = {
    "audio": {"voice": "alloy", "format": "wav"},
    "frequency_penalty": 0.5,
    "logit_bias": {"50256": -100},
    "logprobs": True,
    "max_completion_tokens": 100,
    "max_tokens": 90,
    "metadata": {"who": "me"},
    "modalities": ["text", "audio"],
    "n": 1,
    "prediction": {"type": "content", "content": "so"},
    "presence_penalty": -0.5,
    "prompt_cache_key": "k",
    "reasoning_effort": "low",
    "response_format": {"type": "text"},
    "safety_identifier": "s",
    "seed": 12345678901234567890,
    "service_tier": "flex",
    "stop": ["a", "b"],
    "store": False,
    "temperature": 1.0,
    "top_logprobs": 2,
    "top_p": 0.1,
    "user": "u",
    "verbosity": "low",
    "web_search_options": {},
}
UNKNOWN: dict[str, Any] = {"min_p": 0.05, "chat_template_kwargs": {"thinking": [None, {"a": 1}]}}


@pytest.mark.parametrize("stream", [False, True])
async def test_every_parameter_goes_upstream_in_every_turn(site: Site, stream: bool):
    upstream = site.script(asks(call(READ)), says("Done."))
    async with site.client() as client:
        answer: Any = await client.chat.completions.create(
            model="m", messages=HELLO, stream=stream, extra_body=UNKNOWN, **PARAMETERS
        )
        if stream:
            _ = [chunk async for chunk in answer]
    for body in upstream.asked:
        sent = {name: body[name] for name in body if name not in {"model", "messages", "tools"}}
        assert sent == {**PARAMETERS, **UNKNOWN, "stream": stream}
        assert isinstance(body["temperature"], float)


MESSAGES: list[Any] = [
    {"role": "developer", "content": "Be brief.", "name": "dev"},
    {"role": "system", "content": [{"type": "text", "text": "Really."}]},
    {
        "role": "user",
        "name": "alice",
        "content": [
            {"type": "text", "text": "What is this?"},
            {
                "type": "image_url",
                "image_url": {"url": "data:image/png;base64,AA", "detail": "low"},
            },
            {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
            {"type": "file", "file": {"file_id": "f"}},
        ],
    },
    {"role": "assistant", "content": None, "refusal": "No."},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    {"role": "assistant", "audio": {"id": "a1"}},
    {"role": "assistant", "content": None, "tool_calls": [call("own", {"a": 1}, "c1")]},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "so"}]},
    {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
    {"role": "function", "name": "f", "content": "so"},
    {"role": "user", "content": ""},
]


async def test_messages_of_every_kind_go_upstream_as_they_came(site: Site):
    upstream = site.script(says("Hi."))
    async with site.client() as client:
        await client.chat.completions.create(model="m", messages=MESSAGES)
    assert upstream.asked[0]["messages"] == MESSAGES


# --- what comes back as the model said it

LOGPROBS = {"content": [{"token": "Hi", "logprob": -0.5, "bytes": None, "top_logprobs": []}]}


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_come_back(site: Site, stream: bool):
    whole = says("Hi", system_fingerprint="fp")
    whole["choices"][0]["logprobs"] = LOGPROBS
    head = {"id": "x", "created": 1, "model": "m", "system_fingerprint": "fp"}
    spoken = {"index": 0, "delta": {"content": "Hi"}, "logprobs": LOGPROBS}
    ended = {"index": 0, "delta": {}, "finish_reason": "stop"}
    site.script([{**head, "choices": [c]} for c in (spoken, ended)] if stream else whole)
    async with site.client() as client:
        if stream:
            async with client.chat.completions.stream(
                model="m", messages=HELLO, logprobs=True
            ) as chunks:
                answer: Any = await chunks.get_final_completion()
        else:
            answer = await client.chat.completions.create(model="m", messages=HELLO, logprobs=True)
    assert answer.choices[0].logprobs.content[0].logprob == -0.5
    assert answer.system_fingerprint == "fp"


async def test_what_a_message_has_besides_text_comes_back(site: Site):
    cited = {"type": "url_citation", "url_citation": {"url": "u"}}
    audio = {"id": "a", "data": "AA", "expires_at": 1, "transcript": "Hi"}
    more = {"annotations": [cited], "audio": audio, "reasoning_content": "Hm."}
    site.script(says("Hi", message=more))
    async with site.client() as client:
        answer = await client.chat.completions.create(model="m", messages=HELLO)
    message = answer.choices[0].message.model_dump(exclude_none=True)
    assert message == {"role": "assistant", "content": "Hi", **more}


async def test_usage_ends_a_stream_only_where_it_was_asked_for(site: Site):
    site.script(says("Hi.", usage=USAGE))
    async with site.client() as client:
        stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
        assert [chunk.usage async for chunk in stream if chunk.usage or not chunk.choices] == []


@pytest.mark.parametrize("stream", [False, True])
async def test_several_choices_pass_where_no_tools_are_executed(site: Site, stream: bool):
    message = {"role": "assistant", "content": "Hi"}
    choices = [
        {"index": index, "delta" if stream else "message": message, "finish_reason": "stop"}
        for index in range(2)
    ]
    answered = {"id": "x", "created": 1, "model": "m", "choices": choices}
    kind = "chat.completion.chunk" if stream else "chat.completion"
    data = json.dumps({**answered, "object": kind}).encode()
    site.upstream.raw.chunks = [b"data: %b\n\ndata: [DONE]\n\n" % data] if stream else [data]
    if stream:
        site.upstream.raw.headers = {"content-type": "text/event-stream"}
    async with site.client("off") as client:
        given: Any = await client.chat.completions.create(
            model="m", messages=HELLO, n=2, stream=stream
        )
        [answer] = [chunk async for chunk in given] if stream else [given]
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert "bascule" not in (answer.model_extra or {})


# --- what is refused

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"functions": [{"name": "own"}]}, "functions"),
    ({"function_call": "auto"}, "function_call"),
    ({"n": 2}, "n"),
    ({"extra_body": {"mcp": {"server_ids": "fs"}}}, "mcp"),
    ({"extra_body": {"mcp": {"enabled": "yes"}}}, "mcp"),
    ({"extra_body": {"mcp": ["fs"]}}, "mcp"),
]


@pytest.mark.requirement("chat:openai-errors")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "param"), REFUSED)
async def test_a_refusal_names_the_parameter(
    site: Site, fields: dict[str, Any], param: str, stream: bool
):
    async with site.client() as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="m", messages=HELLO, stream=stream, **fields)
    assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")
    assert caught.value.request_id
    assert param in caught.value.message
    assert site.upstream.asked == []


@pytest.mark.requirement("chat:session-params:too-much")
async def test_more_than_the_task_allows_is_the_clients_own_error(site: Site):
    async with site.client() as client:
        with pytest.raises(openai.PermissionDeniedError, match="git"):
            await client.chat.completions.create(
                model="m", messages=HELLO, extra_headers={"X-Bascule-Servers": "git"}
            )
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="other", messages=HELLO)
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("other")
        with pytest.raises(openai.NotFoundError):
            await client.embeddings.create(model="m", input="x")
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="wrong").models.list()
