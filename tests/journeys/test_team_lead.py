"""Journey 4: the team lead gives three people one task, and somebody leaves."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.doors.gateway.mcp_caller import McpCaller, over_http
from tests.flow.up_process import Up, serving
from tests.journeys.shell import Terminal

PAGE = Path(__file__).parents[2] / "docs" / "people.md"
WHO = "users who notes/delete_note"
Holders = dict[tuple[str, str | None], dict[str, Any]]


def commands_of_the_page() -> list[str]:
    """Return the commands of the page for people, tasks and the question who."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^    bascule ((?:users|tasks) .*)$", text, re.M)


async def add_a_second_integration(at: Terminal) -> None:
    server = f"{shlex.quote(sys.executable)} -m bascule.demo.server"
    added = await at(f"servers add papers --allow '*' -- {server}")
    assert added.code == 0, added.err
    for line in added.commands:
        assert (await at.type_in(line)).code == 0, line


class Person:
    """Somebody with a token of their own."""

    def __init__(self, up: Up, token: str) -> None:
        self._up = up
        self._token = token

    @classmethod
    async def called(cls, name: str, at: Terminal, up: Up) -> Person:
        made = await at.works(f"tokens create --role client --task demo --user {name} --json")
        return cls(up, json.loads(made)["token"])

    async def tools(self) -> set[str]:
        """List the tools, with an MCP client too: it sees the same."""
        status, answer = await self._up.ask("GET", "/api/v1/tools", token=self._token)
        assert status == 200, answer
        client = McpCaller(over_http(self._up.http, self._up.url), self._token)
        seen = {one["name"] for one in await client.tools()}
        assert seen == {one["name"] for one in answer["tools"]}
        return {f"{one['server']}/{one['tool']}" for one in answer["tools"]}

    async def choose(self, **choice: Any) -> tuple[int, Any]:
        return await self._up.ask("PATCH", "/api/v1/me", token=self._token, body=choice)

    async def refusal(self) -> str:
        status, answer = await self._up.ask("GET", "/api/v1/me", token=self._token)
        assert status == 200, answer
        return answer["refused"]["reason"]


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
@pytest.mark.requirement("people:me", "people:cli")
async def test_each_switches_some_off_and_nobody_gets_more(tmp_path: Path):
    data = tmp_path / "data"
    at = Terminal(tmp_path, data)
    async with serving(data) as up:
        await add_a_second_integration(at)
        for words in commands_of_the_page():
            await at.works(words)
        await at.works("users set carol 'groups=[\"writers\"]'")
        alice, bob, carol = [await Person.called(one, at, up) for one in ("alice", "bob", "carol")]
        of = {one: await one.tools() for one in (alice, bob, carol)}
        assert {name.partition("/")[0] for name in of[alice]} == {"notes", "papers"}
        assert "notes/write_note" in of[bob]
        assert not any(name.startswith("papers/") or "delete" in name for name in of[bob])
        assert not any("write" in name or "delete" in name for name in of[carol])

        assert (await alice.choose(enabled_server_ids=["papers"]))[0] == 200
        assert (await bob.choose(tool_denylist=["write_*"]))[0] == 200
        assert (await carol.choose(tool_allowlist=["read_*"]))[0] == 200
        assert await alice.tools() == {one for one in of[alice] if one.startswith("papers/")}
        assert await bob.tools() == of[bob] - {"notes/write_note"}
        assert await carol.tools() == {one for one in of[carol] if "/read_" in one}
        for choice in ({"groups": ["admins"]}, {"enabled_server_ids": ["papers"]}):
            status, answer = await bob.choose(**choice)
            assert (status, answer["error"]["code"]) == (422, "invalid_record"), choice
        assert "yes" in next(
            line for line in (await at.works("users list")).splitlines() if line.startswith("bob")
        )

        await at.works("users remove alice")
        assert await alice.refusal() == "unknown_user"
        assert (await alice.choose(enabled_server_ids=None))[0] == 404
        assert await bob.tools() == of[bob] - {"notes/write_note"}
        assert (await bob.choose(tool_denylist=None))[0] == 200
        assert await bob.tools() == of[bob]
        assert (await who(at, "delete_note")).keys() == {
            ("demo", None),
            ("demo", "bob"),
            ("demo", "carol"),
        }
        assert await up.end() == 0


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
        assert (await at.works("users who no_such_tool")).startswith("nobody")

        outside = await at("tools list --task demo")
        assert (outside.code, "mcp.allowed_groups" in outside.err) == (10, True), outside
        [making] = outside.commands
        hers = (await at.type_in(making)).out.strip()
        assert "mcp__notes__delete_note" in await at.works(f"tools list --token {hers}")
        new = (await at.works("tokens create --role client --task demo --user dave")).strip()
        unknown = await at(f"tools list --token {new}")
        assert (unknown.code, "unknown_user" in unknown.err) == (10, True), unknown
        [adding] = unknown.commands
        assert (await at.type_in(adding)).code == 0
        assert "group_not_allowed" in (await at(f"tools list --token {new}")).err
        await at.works("users remove dave")

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
