"""Results and caps: what repeats counts once, a cut result is an answer, media stand apart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bascule.audit.metrics import Metrics
from bascule.model.session import SessionLimits
from bascule.wire.faults import tool_message
from tests.node.fakes import World, cut, succeeded, text
from tests.policy.build import server

KIB = 1024


def lines(size: int) -> str:
    return ("a line of an ordinary file\n" * (size // 27 + 1))[:size]


def figures(metrics: Metrics) -> str:
    return metrics.render().decode()


async def answer(result: dict[str, Any], **budgets: Any) -> Any:
    world = World(server("fs", budgets=budgets))
    world.caller.answers("read", result)
    return await world.session().call("mcp__fs__read")


@pytest.mark.requirement("outcomes:repeated-once")
@pytest.mark.parametrize("size", [33 * KIB, 60 * KIB, 64 * KIB])
@pytest.mark.parametrize("key", ["content", "result", "text"])
async def test_a_text_that_structured_content_repeats_is_counted_once(size: int, key: str):
    said = lines(size)
    outcome = succeeded(await answer(text(said, structuredContent={key: said})))
    assert outcome.truncated is None
    assert (outcome.text, outcome.structured) == (said, {key: said})


@pytest.mark.requirement("outcomes:repeated-once", "outcomes:cut:answer")
@pytest.mark.parametrize("more", [{}, {"path": "/etc/motd", "lines": 7}])
async def test_a_text_and_its_copy_are_cut_alike_and_say_how_much_is_shown(more: Any):
    said = lines(200 * KIB)
    outcome = cut(await answer(text(said, structuredContent={"content": said, **more})))
    shown, _, marker = outcome.text.rpartition("\n[truncated: ")
    assert said.startswith(shown)
    assert 60 * KIB < len(shown) <= 64 * KIB
    assert marker == f"{len(shown)} of {len(said)} bytes shown]"
    assert outcome.structured == {"content": outcome.text, **more}
    assert outcome.truncated is not None
    assert len(said) <= outcome.truncated.total < len(said) + 100


@pytest.mark.requirement("outcomes:cut:answer")
async def test_a_cut_result_is_an_answer_and_no_error():
    world = World(server("fs", budgets={"max_tool_output_bytes": 300}))
    world.caller.answers("read", text("x" * 1000))
    session = world.session()
    outcome = cut(await session.call("mcp__fs__read"))
    assert (outcome.ok, outcome.error) == (True, None)
    assert outcome.unwrap() == outcome.text
    assert outcome.truncated is not None
    error = outcome.truncated.error
    assert (error.code, error.retryable) == ("mcp_output_too_large", False)
    assert str(outcome.truncated.shown) in error.message
    message = json.loads(tool_message(outcome))
    assert set(message) == {"text", "truncated", "error"}
    [event] = world.ledger.calls()
    assert (event.status, event.code) == ("ok", None)
    shown = figures(world.core.metrics)
    assert 'mcp_tool_output_cut_total{server_id="fs",tool="read"} 1.0' in shown
    assert "mcp_tool_call_error_total{" not in shown


@pytest.mark.requirement("outcomes:cut:answer")
async def test_structured_content_alone_that_is_cut_gives_the_start_of_its_json_as_text():
    value = {"rows": [{"n": n} for n in range(9000)]}
    outcome = cut(await answer({"content": [], "structuredContent": value}))
    start, _, marker = outcome.text.rpartition("\n[truncated: ")
    assert json.dumps(value, separators=(",", ":")).startswith(start)
    assert marker.endswith("bytes shown]")
    assert outcome.unwrap() == outcome.text
    assert outcome.structured["json"] == start


def picture(size: int) -> dict[str, Any]:
    return {"type": "image", "data": "iVBORw0K" * (size // 6), "mimeType": "image/png"}


@pytest.mark.requirement("budgets:server:media", "outcomes:media:note")
async def test_a_screenshot_passes_and_a_text_model_reads_a_note():
    shot = picture(900_000)
    outcome = succeeded(await answer({"content": [{"type": "text", "text": "done"}, shot]}))
    assert outcome.truncated is None
    assert outcome.content[1] == shot
    assert shot["data"] not in tool_message(outcome)
    assert "[image: image/png, 900000 bytes]" in tool_message(outcome)


@pytest.mark.requirement("budgets:server:media")
async def test_media_over_their_cap_are_left_out_with_a_line_and_the_text_stays():
    shot = picture(900_000)
    result = {"content": [{"type": "text", "text": "done"}, shot]}
    outcome = cut(await answer(result, max_media_bytes=100_000))
    assert outcome.text.startswith("done\n[left out: image of image/png, 900000 bytes")
    assert outcome.truncated is not None
    assert outcome.truncated.total > 900_000 > outcome.truncated.shown


@pytest.mark.requirement("budgets:server:media")
async def test_the_platforms_ceiling_holds_for_media_too():
    world = World(platform={"ceilings": {"max_media_bytes": 1000}})
    world.caller.answers("read", {"content": [picture(6000)]})
    assert "left out: image" in cut(await world.session().call("mcp__fs__read")).text


async def test_media_are_not_charged_to_the_sessions_output():
    world = World()
    world.caller.answers("read", {"content": [picture(60_000)]})
    session = world.session(limits=SessionLimits(max_tool_output_bytes=1000))
    succeeded(await session.call("mcp__fs__read"))
    succeeded(await session.call("mcp__fs__read"))
    assert world.ledger.calls()[0].output_bytes > 60_000
