"""OpenAI's own client at the chat door: it knows nothing of tools, and they just work."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from openai import AsyncOpenAI

from bascule.errors import ServerUnavailable
from tests.doors.chat.site import READ, WRITE, Site
from tests.loop.fakes import Hang, asks, call, pieces, says
from tests.node.fakes import text
from tests.waits import SOON_SECONDS

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
OWN: Any = {"type": "function", "function": {"name": "own", "parameters": {"type": "object"}}}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def extra(answer: Any) -> dict[str, Any]:
    """Return the ``bascule`` object, which the client does not know of."""
    return answer.model_extra["bascule"]


@pytest.mark.requirement("chat:agent-unaware", "chat:stream", "chat:task-defaults")
async def test_a_client_gets_its_tasks_tools_executed(site: Site):
    site.world.caller.answers("read", text("the file"))
    upstream = site.script(asks(call(READ, {"text": "a"}), usage=USAGE), says("Done.", usage=USAGE))
    async with site.client() as client:
        answer = await client.chat.completions.create(model="m", messages=HELLO)
    assert answer.choices[0].message.content == "Done."
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 10
    assert upstream.asked[1]["messages"][-1]["content"] == "the file"
    told = extra(answer)
    [made] = told["calls"]
    assert (made["name"], made["server"], made["tool"]) == (READ, "fs", "read")
    assert (made["status"], made["error"], made["call_id"]) == ("ok", None, "c1")
    assert made["duration_ms"] >= 0
    assert told["budgets"]["iterations"] == {"used": 2, "limit": 8}
    assert told["budgets"]["tool_calls"] == {"used": 1, "limit": 32}
    assert (told["budget_hit"], told["revision"], told["warnings"]) == (None, 1, [])


@pytest.mark.requirement("chat:stream")
async def test_a_stream_is_one_response_whatever_happens_inside(site: Site):
    site.world.caller.answers("read", text("the file"))
    site.script(asks(call(READ), text="Let me see.", usage=USAGE), says("It is done.", usage=USAGE))
    async with site.client() as client:
        stream = await client.chat.completions.create(
            model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == "Let me see.\n\nIt is done."
    assert len({chunk.id for chunk in chunks}) == len({chunk.created for chunk in chunks}) == 1
    assert [c.choices[0].delta.role for c in chunks if c.choices].count("assistant") == 1
    assert not any(c.choices[0].delta.tool_calls for c in chunks if c.choices)
    assert [c.choices[0].finish_reason for c in chunks[-2:-1]] == ["stop"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 10
    told = [extra(c) for c in chunks if "bascule" in (c.model_extra or {})]
    assert [note.get("event") for note in told] == ["call_started", "call_finished", None]
    assert told[-1]["calls"][0]["status"] == "ok"


@pytest.mark.requirement("chat:show-calls")
async def test_a_stream_says_what_calls_are_given_and_answer_to_whoever_asks_for_it(site: Site):
    site.script(asks(call(READ, {"path": "a"})), says("Done."))
    async with site.client() as client:
        stream = await client.chat.completions.create(
            model="m", messages=HELLO, stream=True, extra_body={"mcp": {"show_calls": True}}
        )
        notes = [extra(c) async for c in stream if "bascule" in (c.model_extra or {})]
    started, finished, last = notes
    assert (started["turn"], started["arguments"]) == (1, '{"path": "a"}')
    assert finished["result"]
    assert "result" not in last["calls"][0]


async def test_the_clients_stream_helper_accumulates_the_same_answer(site: Site):
    site.script(asks(call(READ), usage=USAGE), says("It is done.", usage=USAGE))
    async with (
        site.client() as client,
        client.chat.completions.stream(
            model="m", messages=HELLO, stream_options={"include_usage": True}
        ) as stream,
    ):
        events = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert "content.delta" in events
    assert final.choices[0].message.content == "It is done."
    assert final.choices[0].message.role == "assistant"
    assert final.choices[0].finish_reason == "stop"
    assert final.usage is not None
    assert final.usage.total_tokens == 10


async def test_every_chunk_but_the_usage_has_a_choice(site: Site):
    site.script(asks(call(READ)), says("Done."))
    async with site.client() as client:
        stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
        async for chunk in stream:
            assert chunk.choices[0].delta is not None  # as careless clients read it


async def test_text_flows_while_the_model_still_speaks(site: Site):
    hang = Hang(*pieces(says("So far"))[:-1])
    site.script(hang)
    async with site.client() as client, asyncio.timeout(SOON_SECONDS):
        stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
        said = ""
        async for chunk in stream:
            said += chunk.choices[0].delta.content or ""
            if said == "So far":
                break
        await stream.close()
        await hang.ended.wait()


async def complete(
    client: AsyncOpenAI, messages: list[Any], *, stream: bool
) -> tuple[Any, str | None]:
    """Ask with a tool of one's own; return the message and the finish reason."""
    if not stream:
        answer = await client.chat.completions.create(model="m", messages=messages, tools=[OWN])
        return answer.choices[0].message, answer.choices[0].finish_reason
    async with client.chat.completions.stream(model="m", messages=messages, tools=[OWN]) as chunks:
        final = await chunks.get_final_completion()
    return final.choices[0].message, final.choices[0].finish_reason


@pytest.mark.requirement("chat:loop:caller-tools")
@pytest.mark.parametrize("stream", [False, True])
async def test_an_unmodified_client_completes_a_conversation_with_tools_of_both_sides(
    site: Site, stream: bool
):
    site.world.caller.answers("read", text("the file"))
    site.world.caller.answers("write", text("written"))
    upstream = site.script(
        asks(call(WRITE, None, "w1"), text="First."),
        asks(call("own", {"x": 1}, "c1"), call(READ, None, "c2"), text="Both."),
        says("All done."),
    )
    async with site.client() as client:
        message, reason = await complete(client, HELLO, stream=stream)
        assert reason == "tool_calls"
        [own] = message.tool_calls
        assert (own.function.name, json.loads(own.function.arguments)) == ("own", {"x": 1})
        history = [
            *HELLO,
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": own.id, "content": "mine"},
        ]
        message, reason = await complete(client, history, stream=stream)
    assert (message.content, reason) == ("All done.", "stop")
    sent = upstream.asked[2]["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "assistant", "tool", "tool"]
    assert [m["content"] for m in sent] == [
        "hello",
        "First.",
        "written",
        "Both.",
        "mine",
        "the file",
    ]
    assert [c["function"]["name"] for c in sent[3]["tool_calls"]] == ["own", READ]
    assert [c["id"] for c in sent[3]["tool_calls"]] == [m["tool_call_id"] for m in sent[4:]]
    assert len(site.world.sent) == 2


async def test_another_token_gets_nothing_of_what_is_kept(site: Site):
    site.script(asks(call("own", None, "c1"), call(READ, None, "c2")), says("never"))
    async with site.client() as client:
        message, _ = await complete(client, HELLO, stream=False)
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "mine"}
    history = [*HELLO, message.model_dump(exclude_none=True), result]
    async with site.client() as other:
        with pytest.raises(Exception, match="no longer kept"):
            await complete(other, history, stream=False)
    assert len(site.upstream.asked) == 1


async def test_models_are_listed_and_described(site: Site):
    async with site.client() as client:
        assert [model.id async for model in await client.models.list()] == ["fake/m", "m"]
        assert (await client.models.retrieve("fake/m")).owned_by == "fake"


@pytest.mark.requirement("chat:session-params")
async def test_a_narrowed_request_has_fewer_tools(site: Site):
    upstream = site.script(says("Hi."))
    async with site.client() as client:
        await client.chat.completions.create(
            model="m", messages=HELLO, extra_body={"mcp": {"tool_allowlist": ["fs/read"]}}
        )
        await client.chat.completions.create(
            model="m", messages=HELLO, extra_headers={"X-Bascule-Tools-Deny": "write,delete"}
        )
    for body in upstream.asked:
        assert [tool["function"]["name"] for tool in body["tools"]] == [READ]
        assert "mcp" not in body


async def test_a_server_that_is_down_is_told_beside_the_answer(site: Site):
    site.world.caller.fails("fs", ServerUnavailable("it is down"))
    site.script(says("Hi."))
    async with site.client() as client:
        told = extra(await client.chat.completions.create(model="m", messages=HELLO))
    [decision] = told["decisions"]
    assert (decision["server"], decision["layer"], decision["reason"]) == (
        "fs",
        "node",
        "unavailable",
    )
    assert "it is down" in told["warnings"][0]


async def test_activity_is_shown_inline_when_asked_for(site: Site):
    site.script(asks(call(READ)), says("Done."))
    async with site.client() as client:
        answer = await client.chat.completions.create(
            model="m", messages=HELLO, extra_body={"mcp": {"show_activity": True}}
        )
    assert "[fs/read: ok," in (answer.choices[0].message.content or "")


async def test_a_caller_may_lower_budgets_and_not_raise_them(site: Site):
    for asked, limit in ((2, 2), (100, 8)):
        site.script(says("Hi."))
        async with site.client() as client:
            answer = await client.chat.completions.create(
                model="m", messages=HELLO, extra_body={"mcp": {"max_iterations": asked}}
            )
        assert extra(answer)["budgets"]["iterations"]["limit"] == limit
