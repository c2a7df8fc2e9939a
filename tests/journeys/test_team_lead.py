"""Journey 4: the team lead gives three people one task, and somebody leaves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.flow.up_process import serving
from tests.journeys.shell import Terminal

PAGE = Path(__file__).parents[2] / "docs" / "people.md"
WHO = "users who notes/delete_note"
Holders = dict[tuple[str, str | None], dict[str, Any]]


def commands_of_the_page() -> list[str]:
    """Return the commands of the page for people, tasks and the question who."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^    bascule ((?:users|tasks) .*)$", text, re.M)


async def who(at: Terminal, tool: str) -> Holders:
    found = json.loads(await at.works(f"users who notes/{tool} --json"))["holders"]
    return {(one["task"], one["user"]): one for one in found}


async def allowed(at: Terminal) -> set[tuple[str, str | None, str]]:
    tools = ("read_note", "write_note", "delete_note")
    return {
        (*key, tool)
        for tool in tools
        for key, one in (await who(at, tool)).items()
        if one["allowed"]
    }


@pytest.mark.timeout(180)
@pytest.mark.requirement("people:cli", "people:explained")
async def test_three_people_in_one_task_and_one_of_them_leaves(tmp_path: Path):
    data = tmp_path / "data"
    at = Terminal(tmp_path, data)
    async with serving(data) as up:
        for words in commands_of_the_page():
            await at.works(words)
        await at.works("users set carol 'groups=[\"writers\"]'")
        answer = await who(at, "delete_note")
        assert {user: one["reason"] for (_, user), one in answer.items()} == {
            None: "group_not_allowed",
            "alice": "allowed",
            "bob": "user_denied",
            "carol": "user_read_only",
        }
        assert answer["demo", "alice"]["approval"].startswith("approval required")
        assert answer["demo", "bob"]["rule"] == "user bob tool_denylist 'delete_*'"
        printed = await at.works(WHO)
        assert "alice" in printed.splitlines()[1]
        assert "user bob tool_denylist" in " ".join(printed.split())

        outside = await at("tools list --task demo")
        assert (outside.code, "mcp.allowed_groups" in outside.err) == (10, True), outside

        before = await allowed(at)
        removed = json.loads(await at.works("users remove alice --json"))
        assert removed["deleted"] == "alice"
        left = await allowed(at)
        assert left < before
        assert not any(user == "alice" for _, user, _ in left)
        lost = await at.works(f"servers diff {removed['revision'] - 1}")
        assert "user alice, at most:" in lost
        assert "- server notes (the person has no record in the registry)" in lost
        assert await up.end() == 0
