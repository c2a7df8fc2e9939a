"""What one chat request may spend: the process sets it, its task and the request lower it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bascule.loop.budgets import LoopSettings
from tests.doors.chat.site import READ, Site, serving
from tests.loop.fakes import asks, call, says
from tests.node.fakes import text

USED = {"enabled": True, "default_server_ids": ["fs"]}


def body(**more: Any) -> bytes:
    return json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "?"}], **more}
    ).encode()


async def held(
    task: dict[str, Any],
    *,
    settings: LoopSettings | None = None,
    headers: dict[str, str] | None = None,
    answer: str = "plain",
    **more: Any,
) -> tuple[dict[str, Any], list[str]]:
    """Hold a conversation of a task that asks for one tool again and again.

    Returns the answer's budgets, and what the model read of each call.
    """
    site = Site(settings=settings or LoopSettings(max_repeats=100))
    site.world.apply(tasks={"job": {**USED, **task}})
    site.world.caller.answers("read", text(answer))
    upstream = site.script(*(asks(call(READ, {"text": str(n)})) for n in range(12)), says("Done."))
    async with serving(site):
        status, _, answered = await site.post(body(**more), "job", headers)
    assert status == 200, answered
    told = [m["content"] for m in upstream.asked[-1]["messages"] if m["role"] == "tool"]
    return json.loads(answered)["bascule"]["budgets"], told


@pytest.mark.requirement("budgets:task")
@pytest.mark.parametrize(
    ("task", "asked", "limits"),
    [
        ({}, {}, (8, 32)),
        ({"max_iterations": 3, "max_total_tool_calls": 2}, {}, (3, 2)),
        ({"max_iterations": 100, "max_total_tool_calls": 999}, {}, (8, 32)),
        ({"max_iterations": 3}, {"max_iterations": 5, "max_total_tool_calls": 1}, (3, 1)),
        ({"max_iterations": 5}, {"max_iterations": 2}, (2, 32)),
    ],
)
async def test_a_task_lowers_budgets_and_raises_none(
    task: dict[str, int], asked: dict[str, int], limits: tuple[int, int]
):
    budgets, _ = await held(task, mcp=asked)
    assert (budgets["iterations"]["limit"], budgets["tool_calls"]["limit"]) == limits
    assert budgets["tool_calls"]["used"] <= limits[1]


@pytest.mark.requirement("outcomes:message:always-json", "budgets:task")
@pytest.mark.parametrize(
    ("setting", "task", "in_json"),
    [
        (False, {}, False),
        (True, {}, True),
        (False, {"tool_output": "always_json"}, True),
        (True, {"tool_output": "auto"}, False),
    ],
)
async def test_the_form_of_results_is_a_setting_and_a_tasks_own_choice(
    setting: bool, task: dict[str, str], in_json: bool
):
    _, told = await held(task, settings=LoopSettings(always_json=setting))
    form = json.dumps({"content": [{"type": "text", "text": "plain"}]}, separators=(",", ":"))
    assert told[0] == (form if in_json else "plain")


@pytest.mark.requirement("budgets:request-output")
@pytest.mark.parametrize(
    ("task", "asked", "headers"),
    [
        ({}, {"max_tool_output_bytes": 40}, {}),
        ({}, {}, {"X-Bascule-Max-Tool-Output-Bytes": "40"}),
        ({}, {"max_tool_output_bytes": 4000}, {"X-Bascule-Max-Tool-Output-Bytes": "40"}),
        ({"max_tool_output_bytes": 40}, {}, {}),
        ({"max_tool_output_bytes": 40}, {"max_tool_output_bytes": 4000}, {}),
    ],
)
async def test_a_request_and_a_task_lower_what_a_tool_may_say(
    task: dict[str, int], asked: dict[str, int], headers: dict[str, str]
):
    _, told = await held(task, headers=headers, answer="x" * 1000, mcp=asked)
    found = json.loads(told[0])
    assert found["error"]["code"] == "mcp_output_too_large"
    assert found["truncated"]["total"] == 1000
    assert found["truncated"]["shown"] <= 40
