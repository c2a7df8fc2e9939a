"""A turn that waits for approval outlives the process: parked, killed, decided on, resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.doors.chat.lasting import kept_in
from tests.flow.up_process import Up, serving
from tests.waits import SOON_SECONDS

AT_ONCE = {"BASCULE_CHAT_APPROVAL_WAIT_SECONDS": "0"}
SAID = 'call notes.delete_note with {"name": "shopping"} and call notes.list_notes'
MESSAGES: list[Any] = [{"role": "user", "content": SAID}]


async def ask(up: Up, token: str, resume: str | None = None) -> Any:
    async with AsyncOpenAI(
        base_url=f"{up.url}/v1", api_key=token, max_retries=0, timeout=SOON_SECONDS
    ) as client:
        more = {} if resume is None else {"mcp": {"resume": resume}}
        return await client.chat.completions.create(
            model="rehearsal", messages=MESSAGES, extra_body=more
        )


@pytest.mark.timeout(180)
@pytest.mark.requirement("approval:paused-turn", "chat:approval:restart")
@pytest.mark.parametrize("verb", ["approve", "deny"])
async def test_a_parked_turn_is_resumed_after_its_process_was_killed(tmp_path: Path, verb: Any):
    data = tmp_path / "data"
    async with serving(data, **AT_ONCE) as up:
        token = await up.token("demo")
        paused = (await ask(up, token)).model_extra["bascule"]["paused"]
        up.process.kill()
        await up.process.wait()
    [awaited] = paused["approvals"]
    async with kept_in(data) as (desk, _):
        [question] = await desk.all("pending")
        assert (question.id, awaited["tool"]) == (awaited["approval_id"], "delete_note")
        await desk.decide(verb)
    async with serving(data, **AT_ONCE) as up:
        answer = await ask(up, token, paused["resume"])
        calls = answer.model_extra["bascule"]["calls"]
        listed = (await up.call(token, "mcp__notes__list_notes"))[1]
        assert await up.end() == 0
    approved = verb == "approve"
    said = answer.choices[0].message.content
    assert ('"deleted":true' in said.replace(" ", "")) is approved
    assert ("mcp_approval_denied" in said) is not approved
    assert "list_notes said" in said  # which had run before the process was killed
    assert [one["tool"] for one in calls] == ["delete_note", "list_notes"]
    assert ("shopping" in json.dumps(listed)) is not approved
    async with kept_in(data) as (desk, _):
        [question] = await desk.all()
        assert question.state == ("claimed" if approved else "denied")
