"""One policy, one answer: the chat door, the tools API, the command line and the gateway."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from bascule.cli.main import run
from bascule.errors import RemoteError
from tests.doors.chat.site import Site, serving
from tests.doors.gateway.mcp_caller import (
    NO_SERVER,
    WAYS,
    code_of,
    in_process,
    opened,
)
from tests.loop.fakes import asks, call, says
from tests.node.fakes import text
from tests.policy.build import server

HIDDEN, UNNAMED = "mcp_policy_denied", "mcp_invalid_arguments"
ASKS = {"default": "never", "per_tool": {"delete": "always"}}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("mcp__fs__read", {"text": "a"}),
    ("mcp__fs__read", {"count": "many"}),
    ("mcp__fs__write", {}),
    ("mcp__fs__delete", {}),
    ("mcp__fs__missing", {}),
    ("mcp__git__read", {}),
]


async def at_the_chat_door(site: Site, token: str, name: str, arguments: Any) -> str | None:
    upstream = site.script(asks(call(name, arguments)), says("Done."))
    upstream.asked.clear()
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
    status, _, answer = await site.post(body, None, {"Authorization": f"Bearer {token}"})
    assert status == 200
    [made] = json.loads(answer)["bascule"]["calls"]
    return made["error"]


async def at_the_tools_api(site: Site, token: str, name: str, arguments: Any) -> str | None:
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http,
        http.post(
            f"{site.url}/api/v1/tools/call", json={"name": name, "arguments": arguments}
        ) as answer,
    ):
        error = (await answer.json())["error"]
    return None if error is None else error["code"]


async def at_the_command_line(
    site: Site, token: str, capsys: pytest.CaptureFixture[str], name: str, arguments: Any
) -> str | None:
    words = ("tools", "call", name, json.dumps(arguments), "--url", site.url, "--token", token)
    await asyncio.to_thread(run, (*words, "--json"))
    error = json.loads(capsys.readouterr().out)["error"]
    return None if error is None else error["code"]


async def at_the_gateway(site: Site, token: str, name: str, arguments: Any, way: str) -> str | None:
    """Ask at the gateway; an error of the protocol shows no code of ours, and the ledger has it."""
    _, server, tool = name.split("__")
    caller, named = await opened(in_process(site.app), token, server, way)
    if not caller.modern and not caller.session:
        return HIDDEN if code_of(await caller.open()) == NO_SERVER else None
    before = len(site.world.ledger.calls())
    answer = await caller.call(named(tool), arguments)
    if "error" not in answer:
        return code_of(answer)
    written = [event.code for event in site.world.ledger.calls()[before:]]
    return written[0] if written else HIDDEN if code_of(answer) == NO_SERVER else UNNAMED


@pytest.mark.requirement("call:same-answer:network", "gateway:same-policy")
@pytest.mark.parametrize("task", ["writer", "reader"])
async def test_the_same_call_has_the_same_outcome_at_every_door(
    task: str, capsys: pytest.CaptureFixture[str]
):
    records = (server("fs", approval_policy=ASKS), server("git"))
    async with serving(Site(records=records)) as site, asyncio.timeout(25):
        site.world.caller.answers("write", RemoteError(-32000, "the disk is full"))
        site.world.caller.answers("read", text("the file"))
        token = await site.token(task)
        seen = [
            (
                await at_the_chat_door(site, token, name, arguments),
                await at_the_tools_api(site, token, name, arguments),
                await at_the_command_line(site, token, capsys, name, arguments),
                *[await at_the_gateway(site, token, name, arguments, way) for way in WAYS],
            )
            for name, arguments in CASES
        ]
    assert all(len(set(codes)) == 1 for codes in seen), seen
    assert [codes[0] for codes in seen] == [
        None,
        "mcp_invalid_arguments",
        "mcp_tool_error" if task == "writer" else "mcp_policy_denied",
        "mcp_approval_required" if task == "writer" else "mcp_policy_denied",
        "mcp_invalid_arguments",
        "mcp_policy_denied",
    ]
