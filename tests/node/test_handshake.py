"""What a request over HTTP waits for: a legacy server asks on a stream that must be there first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.node.pool.transport.http import HttpChannel
from bascule.node.pool.transport.upstream import HttpLimits
from bascule.testing import ScriptedHttpServer, do
from tests.node.remote_channels import ask, greet, http_channel, script, within

#: Longer than a test may take, and no time at all.
LONG, SHORT = HttpLimits(listen_seconds=60), HttpLimits(listen_seconds=0.001)


def late(gate: Path) -> Any:
    """Answer the GET when the gate opens."""
    return do("gate", path=str(gate), then=do("http", status=405, body=""))


@asynccontextmanager
async def greeted(
    step: Any, limits: HttpLimits
) -> AsyncGenerator[tuple[ScriptedHttpServer, HttpChannel]]:
    """Open a session whose GET stream is answered with a step."""
    async with ScriptedHttpServer(server=script(), dialects=("legacy",)) as http:
        http.inject(step, verb="GET")
        async with http_channel(http, limits=limits) as channel:
            await greet(channel)
            yield http, channel


async def listed(channel: HttpChannel) -> Any:
    return await channel.request("tools/list", b"{}", deadline=within(10))


async def waits(
    http: ScriptedHttpServer, channel: HttpChannel, let_go: Callable[[], None], sent: int
) -> None:
    """See that a call is sent only once the gate is open; lists are sent before."""
    call = asyncio.create_task(ask(channel))
    await http.saw_verb("GET")
    for _ in range(3):
        assert (await listed(channel))["tools"]
    assert http.count("tools/call") == sent
    let_go()
    assert await call == "hi"
    assert http.count("tools/call") == sent + 1


async def test_no_call_overtakes_the_stream_on_which_its_server_may_ask(tmp_path: Path):
    gate = tmp_path / "gate"
    async with greeted(late(gate), LONG) as (http, channel):
        await waits(http, channel, gate.touch, sent=0)


async def test_no_call_overtakes_the_stream_of_a_renewed_session(tmp_path: Path):
    gate = tmp_path / "gate"
    async with greeted(do("http", status=405, body=""), LONG) as (http, channel):
        assert await ask(channel) == "hi"
        http.forget_sessions()
        http.requests.clear()
        http.inject(late(gate), verb="GET")
        await waits(http, channel, gate.touch, sent=1)  # which found that the session was gone


async def test_a_server_that_never_answers_there_is_called_all_the_same():
    async with greeted("never", SHORT) as (http, channel):
        for _ in range(3):
            assert await ask(channel) == "hi"
        await http.saw_verb("GET")


@pytest.mark.parametrize("fault", ["reset", "die"])
async def test_a_stream_that_fails_keeps_no_call_waiting(fault: str):
    async with greeted(fault, LONG) as (_, channel):
        assert await ask(channel) == "hi"
