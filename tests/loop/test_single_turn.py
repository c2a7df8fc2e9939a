"""One turn, with nothing executed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bascule.audit.metrics import Metrics
from bascule.loop.answer import bascule_object, completion_object
from bascule.loop.backend import UpstreamFailed
from bascule.loop.budgets import LoopSettings
from bascule.loop.events import Conclusion
from bascule.loop.offer import NameTaken
from bascule.loop.turns import single_turn
from tests.loop.fakes import FakeUpstream, Hang, asks, call, chat, says
from tests.loop.talking import OWN, READ, USAGE, Heard
from tests.node.fakes import World


async def once(world: World, upstream: FakeUpstream, **fields: Any) -> Conclusion:
    options = {key: fields.pop(key) for key in ("settings", "tell", "metrics") if key in fields}
    async with asyncio.timeout(20):
        return await single_turn(chat(**fields), world.session(), upstream, **options)


@pytest.mark.requirement("hostcalls:single-turn")
async def test_the_calls_of_a_turn_come_back_and_none_is_made(world: World, stream: bool):
    calls = (call(READ, {"text": "a"}, "c1"), call("own", {"b": 1}, "c2"))
    upstream, heard, metrics = (
        FakeUpstream(asks(*calls, text="Look.", usage=USAGE)),
        Heard(),
        Metrics(),
    )
    ended = await once(world, upstream, tools=[OWN], stream=stream, tell=heard, metrics=metrics)
    assert world.sent == []
    [body] = upstream.asked
    names = {tool["function"]["name"] for tool in body["tools"]}
    assert {"own", READ} <= names
    whole: Any = completion_object(ended, bascule_object(ended))
    [choice] = whole["choices"]
    assert choice["message"]["tool_calls"] == list(calls)
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Look.", "tool_calls")
    assert (whole["usage"], whole["id"], heard.text) == (USAGE, "up-1", "Look.")
    assert (ended.iterations, ended.calls, ended.appended) == (1, (), ())
    assert b"mcp_chat_iterations_sum 1.0" in metrics.render()


async def test_an_answer_without_calls_is_the_answer(world: World, stream: bool):
    ended = await once(world, FakeUpstream(says("Hi.")), stream=stream)
    assert (ended.content, ended.finish_reason, ended.tool_calls) == ("Hi.", "stop", ())


async def test_calls_stand_as_the_model_made_them(world: World):
    cut = says(
        None, message={"tool_calls": [call("no such tool", '{"a": ')]}, finish_reason="length"
    )
    ended = await once(world, FakeUpstream(cut))
    assert [one["function"] for one in ended.tool_calls] == [
        {"name": "no such tool", "arguments": '{"a": '}
    ]
    assert ended.finish_reason == "length"


async def test_what_a_conversation_refuses_a_single_turn_refuses(world: World):
    taken = {"type": "function", "function": {"name": READ}}
    with pytest.raises(NameTaken):
        await once(world, FakeUpstream(says("Never.")), tools=[taken])


async def test_a_model_that_fails_is_named(world: World):
    with pytest.raises(UpstreamFailed, match="backend fake"):
        await once(world, FakeUpstream(UpstreamFailed("gone", status=503)))


async def test_a_turn_that_takes_too_long_ends(world: World):
    settings = LoopSettings(max_seconds=0.01)
    ended = await once(world, FakeUpstream(Hang()), settings=settings)
    assert (ended.budget_hit, ended.finish_reason) == ("max_seconds", "length")
    assert ended.content
