"""OpenAI's client for JavaScript while calls need approval: granted, denied, left, parked, resumed.

The model's side decides: told "approve" or "deny" it does so, and says when it is done.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.auth.tokens import Tokens
from bascule.loop.budgets import DEFAULT_SETTINGS, LoopSettings
from bascule.testing import calls, says
from bascule.testing.upstream import Reply, SeenChat
from checks.npm import install
from tests import npm
from tests.asgi.caller import make_tokens
from tests.doors.chat.lasting import kept_in
from tests.doors.chat.site import WRITE, Site, backed
from tests.doors.chat.test_npm_client import CACHE, CLIENT, HERE
from tests.loop.parked import AT_ONCE, Desk, asking_server
from tests.node.fakes import text
from tests.policy.build import server
from tests.waits import DEADLINE_SECONDS

pytestmark = pytest.mark.timeout(180)  # the first one installs the package


class Model:
    """Calls the tool that needs approval; decides, or says how the question stands, when told."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._withdrawn = 0

    async def __call__(self, seen: SeenChat) -> Reply:
        asked, last = seen.json["messages"][0]["content"], seen.json["messages"][-1]
        if last["role"] == "tool":
            return says(f"Done: {last['content'][:40]}")
        if asked in ("approve", "deny"):
            await self._desk.decide(asked)
        elif asked == "is it asked?":
            await self._desk.asked()
        elif asked == "has it been withdrawn?":
            self._withdrawn += 1
            await self._desk.ended("withdrawn", self._withdrawn)
        else:
            return calls((WRITE, {"text": "a"}))
        return says("It has.")


@asynccontextmanager
async def stage(
    data: Path, tokens: Tokens, settings: LoopSettings = DEFAULT_SETTINGS
) -> AsyncGenerator[tuple[Site, Desk], None]:
    """Serve a door over a data directory."""
    records = (asking_server(), server("git"))
    async with (
        kept_in(data) as (desk, turns),
        backed(
            records=records,
            approvals=desk.approvals,
            parked=turns,
            tokens=tokens,
            settings=settings,
        ) as (site, upstream),
    ):
        upstream.choose = Model(desk)
        site.world.caller.answers("write", text("written"))
        yield site, desk


async def play(site: Site, token: str, *act: str) -> Any:
    """Let the client play one act."""
    install(HERE, CACHE, CLIENT)
    script = HERE / "approvals.mjs"
    return await npm.play(DEADLINE_SECONDS, script, CACHE, site.url, token, *act)


@pytest.mark.requirement("chat:approval:waits")
async def test_a_call_is_granted_and_another_denied_while_the_client_streams(tmp_path: Path):
    async with stage(tmp_path, make_tokens()) as (site, _):
        played = await play(site, await site.token(), "wait")
        assert len(site.world.sent) == 1
    assert played["granted"] == {
        "text": "Done: written",
        "events": ["call_started", "approval_waiting", "call_finished", "end"],
    }
    assert played["denied"]["error"] == "mcp_approval_denied"
    assert played["denied"]["text"].startswith('Done: {"error":{"code":"mcp_approval_denied"')


@pytest.mark.requirement("chat:approval:withdrawn")
async def test_a_client_that_hangs_up_withdraws_whether_it_streams_or_not(tmp_path: Path):
    async with stage(tmp_path, make_tokens()) as (site, desk):
        assert await play(site, await site.token(), "leave") == ["It has.", "It has."]
        assert len(await desk.all("withdrawn")) == 2
        assert not site.world.sent


@pytest.mark.requirement("approval:paused-turn", "chat:approval:restart")
async def test_a_turn_is_parked_and_resumed_after_a_restart(tmp_path: Path):
    tokens = make_tokens()
    async with stage(tmp_path, tokens, AT_ONCE) as (site, desk):
        token = await site.token()
        parked = await play(site, token, "park")
        [question] = await desk.all("pending")
    assert parked["text"].startswith(f"Waiting for approval of fs/write ({question.id})")
    assert [one["approval_id"] for one in parked["paused"]["approvals"]] == [question.id]
    assert (parked["finish"], parked["same"]) == ("stop", parked["paused"]["approvals"])
    async with stage(tmp_path, tokens, AT_ONCE) as (site, desk):
        await desk.decide("approve")
        played = await play(site, token, "resume", parked["paused"]["resume"])
        assert len(site.world.sent) == 1
    assert played == {
        "content": "Done: written",
        "statuses": ["ok"],
        "again": [404, "not_found"],
    }
