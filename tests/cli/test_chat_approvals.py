"""``bascule chat`` while a call needs approval: it shows the question, waits, and goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bascule.cli.command_line import typed
from bascule.loop.budgets import DEFAULT_SETTINGS, LoopSettings
from bascule.testing import ScriptedUpstream, calls, says
from tests.cli.chat_site import Site, chat_site
from tests.loop.parked import AT_ONCE, Desk, asking_server
from tests.waits import SOON_SECONDS

ASKS = 'call fs.write with {"text": "a\\u202e"}'


@asynccontextmanager
async def asking_site(settings: LoopSettings) -> AsyncGenerator[tuple[Site, Desk]]:
    desk = Desk()
    async with chat_site(Site(asking_server(), desk.approvals, settings)) as site:
        yield site, desk


@pytest.mark.requirement("chat:approval:command")
async def test_the_question_is_shown_whole_and_harmless_and_the_answer_goes_on_when_it_is_decided():
    async with asking_site(DEFAULT_SETTINGS) as (site, desk):
        place = ("--api-url", site.found["BASCULE_URL"])
        chatting = asyncio.create_task(site.command(ASKS, *place))
        [question] = await desk.asked()
        await desk.decide("approve")
        done = await chatting
    assert done.code == 0
    assert "mcp__fs__write said: done" in done.out
    assert "Waiting for approval" not in done.out
    notes = done.err.splitlines()[2:]
    approve = " ".join([typed(f"approvals approve {question.id}"), *place])
    assert notes[:3] == [
        "  fs/write needs approval:",
        '  | {"text":"a\\u202e"}',
        f"  in another terminal: {approve}",
    ]
    assert notes[3].startswith("  mcp__fs__write answered in ")


async def test_a_turn_that_is_parked_is_resumed_until_somebody_has_decided():
    async with asking_site(AT_ONCE) as (site, desk), ScriptedUpstream() as upstream:
        site.add(upstream)
        asked = calls(("mcp__fs__write", {"text": "a"}), text="Let me.")
        upstream.add(asked, says("Done."), says("Bye."))
        chatting = asyncio.create_task(site.command(given="write it\nand now?\n"))
        [question] = await desk.asked()
        await desk.decide("approve")
        done = await chatting
        history = upstream.chats[-1].json["messages"]
    assert done.out == "Let me.\nDone.\nBye.\n"
    assert done.err.count(f"approvals approve {question.id}") == 1
    assert "  waiting on; Ctrl-C takes the question back" in done.err
    assert [m["content"] for m in history] == ["write it", "Let me.\n\nDone.", "and now?"]
    assert len(site.world.sent) == 1


@pytest.mark.parametrize("as_json", [False, True])
async def test_who_does_not_want_to_wait_is_told_and_has_an_exit_code(as_json: bool):
    async with asking_site(AT_ONCE) as (site, desk):
        done = await site.command("--no-wait", *(["--json"] if as_json else []), ASKS)
        [question] = await desk.all("pending")
    assert done.code == 11
    assert "mcp__fs__write is not decided on yet" in done.err
    assert f"approvals approve {question.id}" in done.err
    if as_json:
        assert done.json["bascule"]["paused"]["approvals"][0]["approval_id"] == question.id
        assert "Waiting for approval" in done.json["choices"][0]["message"]["content"]


@pytest.mark.requirement("chat:approval:command")
async def test_ctrl_c_takes_the_question_back_and_not_the_chat():
    async with asking_site(DEFAULT_SETTINGS) as (site, desk), asyncio.timeout(SOON_SECONDS):
        chat = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bascule", "chat"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **site.found},
        )
        try:
            assert chat.stdin is not None
            chat.stdin.write(f"{ASKS}\n".encode())
            await desk.asked()
            chat.send_signal(signal.SIGINT)
            await desk.ended("withdrawn")
            out, err = await chat.communicate(b"what can you do\n")
        finally:
            if chat.returncode is None:
                chat.kill()
                await chat.wait()
    assert chat.returncode == 0
    assert b"I can call these tools" in out
    assert b"cancelled; it is not kept" in err
