"""A real process asks a program about a call, and the call is made as that says."""

from __future__ import annotations

from pathlib import Path

import pytest

from bascule.approval_hook import HookDecision
from bascule.control.approval_hook import hook_key
from tests.control.hook_site import receiving, saying
from tests.flow.up_process import Json, run, serving
from tests.waits import until


@pytest.mark.requirement("approval:programmatic", "approval:hook:signed")
@pytest.mark.parametrize(("decision", "code"), [("approve", None), ("deny", "mcp_approval_denied")])
async def test_a_hook_decides_on_a_call_through_the_tools_api(
    decision: HookDecision, code: str | None, tmp_path: Path
):
    data = tmp_path / "data"
    async with (
        receiving(saying(decision), hook_key(data)) as receiver,
        serving(data, BASCULE_APPROVALS_HOOK_URL=receiver.url.text) as up,
    ):
        token = await up.token("demo")

        async def outcome() -> Json | None:
            """Call until there is an answer: a door may wait for it, or say that there is none."""
            _, said = await up.call(token, "mcp__notes__delete_note", name="welcome")
            error = said.get("error") or {}
            return None if error.get("code") == "mcp_approval_required" else said

        said = await until(outcome)
        assert said is not None
        assert (said.get("error") or {}).get("code") == code
        [question] = receiver.heard
        assert (question.server, question.tool, question.task) == ("notes", "delete_note", "demo")
        assert question.arguments == {"name": "welcome"}
        assert question.definition["name"] == "delete_note"
        words = ("audit", "search", "--event", "approval", "--json", "--data-dir", str(data))
        ended, out, err = await run(*words)
        assert ended == 0, err
        assert '"by": "hook"' in out
        assert await up.end() == 0
