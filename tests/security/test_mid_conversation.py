"""What is taken away while a conversation goes on is gone at its next call."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from tests.doors.chat.site import TASKS, WRITE, FakeBackends, Site, serving
from tests.loop.fakes import FakeUpstream, Json, asks, call, says
from tests.policy.build import server

SENT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "go"}]}).encode()
Act = Callable[[Site], Awaitable[None]]


class Acting(FakeUpstream):
    """A model during whose second turn something happens elsewhere."""

    def __init__(self) -> None:
        super().__init__(asks(call(WRITE, None, "c1")), asks(call(WRITE, None, "c2")), says("Done"))
        self.site: Site | None = None
        self.act: Act | None = None

    async def complete(self, body: Mapping[str, Any], *, seconds: float) -> Json:
        if len(self.asked) == 1 and self.act is not None and self.site is not None:
            await self.act(self.site)
        return await super().complete(body, seconds=seconds)


async def narrowed(site: Site) -> None:
    site.world.apply(tasks={**TASKS, "writer": {**TASKS["writer"], "tool_allowlist": ["fs/read"]}})


async def switched_off(site: Site) -> None:
    site.world.apply(tasks={**TASKS, "writer": {"enabled": False}})


async def task_removed(site: Site) -> None:
    site.world.apply(tasks={"off": TASKS["off"]})


async def denied_for_all(site: Site) -> None:
    site.world.apply(tasks=TASKS, platform={"tool_denylist": ["fs/write"]})


async def approval_needed(site: Site) -> None:
    site.world.apply(server("fs", approval_policy={"default": "always"}), tasks=TASKS)


async def token_revoked(site: Site) -> None:
    [record] = await site.tokens.records()
    await site.tokens.revoke(record.id)
    await site.sessions.sweep()


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (narrowed, "mcp_policy_denied"),
        (switched_off, "mcp_policy_denied"),
        (task_removed, "mcp_policy_denied"),
        (denied_for_all, "mcp_policy_denied"),
        (approval_needed, "mcp_approval_required"),
        (token_revoked, "mcp_unavailable"),
    ],
)
async def test_the_next_call_is_refused(act: Act, code: str):
    upstream = Acting()
    site = Site(backends=FakeBackends(upstream))
    upstream.site, upstream.act = site, act
    async with serving(site):
        status, _, answer = await site.post(SENT)
    calls = json.loads(answer)["bascule"]["calls"]
    assert (status, [one["error"] for one in calls]) == (200, [None, code])
    assert len(site.world.sent) == 1


async def test_without_any_of_that_both_calls_are_made():
    upstream = Acting()
    async with serving(Site(backends=FakeBackends(upstream))) as site:
        await site.post(SENT)
        assert len(site.world.sent) == 2
