"""``bascule chat`` with the real chat door: one answer, a conversation, and what can go wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator

import pytest
from openai import AsyncOpenAI

from bascule.cli.main import run
from bascule.testing import Gate, ScriptedUpstream, calls, chunk, fails, says, streams
from tests.cli.chat_site import Site, chat_site
from tests.cli.served import Done


@pytest.fixture
async def site() -> AsyncGenerator[Site]:
    async with chat_site() as made:
        yield made


async def said(site: Site, capsys: pytest.CaptureFixture[str], *words: str) -> Done:
    """Run the command in this process."""
    code = await asyncio.to_thread(run, ["chat", *site.options, *words])
    printed = capsys.readouterr()
    return Done(code, printed.out, printed.err)


# --- one answer


@pytest.mark.requirement("chat:command")
async def test_an_answer_goes_to_standard_output_and_what_tools_do_to_standard_error(
    site: Site, capsys: pytest.CaptureFixture[str]
):
    done = await said(site, capsys, 'call fs.read with {"path": "a"}')
    assert done.code == 0
    assert done.out.startswith("I am a rehearsal, not a model. mcp__fs__read said: ")
    assert done.out.endswith("\n")
    notes = done.err.splitlines()
    assert notes[0].startswith("model: rehearsal, a script")
    assert notes[1] == "  calling mcp__fs__read"
    assert notes[2].startswith("  mcp__fs__read answered in ")


async def test_json_prints_the_completion_as_one_object(
    site: Site, capsys: pytest.CaptureFixture[str]
):
    done = await said(site, capsys, "--json", "call fs.read")
    whole = done.json
    assert (done.code, whole["object"], whole["model"]) == (0, "chat.completion", "rehearsal")
    [choice] = whole["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"].startswith("I am a rehearsal")
    assert [call["name"] for call in whole["bascule"]["calls"]] == ["mcp__fs__read"]
    assert whole["usage"]["total_tokens"] > 0
    assert "calling mcp__fs__read" in done.err


async def test_the_prompt_may_come_from_standard_input(site: Site):
    done = await site.command("-", given="what can\nyou do\n")
    assert "I only do what is written" in done.out
    done = await site.command("-", given="what can you do\n")
    assert "- mcp__fs__read" in done.out


async def test_a_real_model_comes_before_the_rehearsal_and_one_may_be_named(
    site: Site, capsys: pytest.CaptureFixture[str]
):
    async with ScriptedUpstream() as upstream:
        site.add(upstream)
        upstream.add(says("from the model"))
        done = await said(site, capsys, "hello")
        assert (done.out, done.err) == ("from the model\n", "model: scripted/m\n")
        done = await said(site, capsys, "--model", "rehearsal", "hello")
        assert "rehearsal" in done.out
        assert done.err == ""
        site.add(upstream, "another")
        done = await said(site, capsys, "hello")
        assert done.err == "model: another/m (of 2; --model takes another one)\n"


async def test_what_a_model_or_a_tool_says_cannot_take_over_the_terminal(
    site: Site, capsys: pytest.CaptureFixture[str]
):
    async with ScriptedUpstream() as upstream:
        site.add(upstream)
        upstream.add(calls(("evil\x1b[2J", {})), says("red \x1b[31m alert\u202e"))
        done = await said(site, capsys, "hello")
    assert done.out == "red \\x1b[31m alert\\u202e\n"
    assert "\x1b" not in done.err
    assert "failed" in done.err


async def test_a_refusal_is_shown_like_an_answer(site: Site, capsys: pytest.CaptureFixture[str]):
    async with ScriptedUpstream() as upstream:
        site.add(upstream)
        upstream.add(streams(chunk(refusal="I would rather not."), chunk(finish="stop")))
        done = await said(site, capsys, "hello")
    assert done.out == "I would rather not.\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--model", "nobody", "hello"), "no backend answers for the model 'nobody'"),
        (("--token", "wrong", "hello"), "token"),
        (("--url", "http://127.0.0.1:9", "hello"), "http://127.0.0.1:9"),
    ],
)
async def test_what_went_wrong_is_said_and_is_the_exit_code(
    site: Site, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str
):
    done = await said(site, capsys, *words)
    assert (done.code, done.out) == (1, "")
    assert problem in done.err


async def test_an_upstream_that_fails_or_breaks_off_is_said_in_its_own_words(
    site: Site, capsys: pytest.CaptureFixture[str]
):
    async with ScriptedUpstream() as upstream:
        site.add(upstream)
        upstream.add(fails(400, "context too long"), streams(chunk("half"), done=False))
        done = await said(site, capsys, "hello")
        assert done.code == 1
        assert "context too long" in done.err
        done = await said(site, capsys, "hello")
        assert (done.code, done.out) == (1, "half")
        assert "cut" in done.err


@pytest.mark.parametrize("words", [("--json",), ("",), ("  ",)])
async def test_wrong_usage_is_told_as_such(site: Site, words: tuple[str, ...]):
    assert (await site.command(*words)).code == 2


@pytest.mark.requirement("chat:backends", "chat:models")
async def test_the_door_lists_every_backends_models_and_sends_to_the_one_that_is_named(site: Site):
    async with ScriptedUpstream() as first, ScriptedUpstream() as second:
        site.add(first, "first")
        site.add(second, "second")
        url, token = site.found["BASCULE_URL"], site.found["BASCULE_TOKEN"]
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0) as client:
            listed = [model.id async for model in client.models.list()]
            await client.chat.completions.create(
                model="second/m", messages=[{"role": "user", "content": "hello"}]
            )
    assert listed == ["rehearsal/rehearsal", "first/m", "second/m", "rehearsal"]
    assert [len(first.chats), len(second.chats)] == [0, 1]
    assert second.chats[0].json["model"] == "m"


# --- a conversation


async def test_a_conversation_remembers_what_was_said_until_it_is_told_to_forget(site: Site):
    async with ScriptedUpstream() as upstream:
        site.add(upstream)
        upstream.add(says("one"), says("two"), says("three"))
        done = await site.command(given="first\n\nsecond\n/clear\nthird\n")
        assert (done.code, done.out) == (0, "one\ntwo\nthree\n")
        histories = [[m["content"] for m in seen.json["messages"]] for seen in upstream.chats]
    assert histories == [["first"], ["first", "one", "second"], ["third"]]


async def test_the_commands_of_a_conversation(site: Site):
    done = await site.command(given="/help\n/tools\n/model\n/model other\n/nonsense\n")
    lines = done.out.splitlines()
    assert lines[0].startswith("/tools")
    assert any(line.startswith("mcp__fs__read") for line in lines)
    assert lines[-2:] == ["rehearsal", "other"]
    assert "there is no /nonsense" in done.err


async def test_a_turn_that_fails_is_not_remembered_and_the_chat_goes_on(site: Site):
    async with ScriptedUpstream() as upstream:
        site.add(upstream)
        upstream.add(fails(500, "broken"), says("fine"))
        done = await site.command(given="first\nsecond\n")
        assert (done.code, done.out) == (0, "fine\n")
        assert "broken" in done.err
        assert [m["content"] for m in upstream.chats[-1].json["messages"]] == ["second"]


async def test_ctrl_c_ends_the_turn_with_its_upstream_request_and_not_the_chat(site: Site):
    async with ScriptedUpstream() as upstream, asyncio.timeout(25):
        site.add(upstream)
        gate = Gate()
        upstream.add(streams(chunk("half "), chunk("never"), gate=gate), says("after"))
        gate.let(2)
        chat = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bascule", "chat"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **site.found},
        )
        assert chat.stdin is not None
        assert chat.stdout is not None
        chat.stdin.write(b"first\n")
        assert await chat.stdout.readexactly(5) == b"half "
        chat.send_signal(signal.SIGINT)
        await upstream.chats[0].hung_up.wait()
        out, err = await chat.communicate(b"second\n")
        assert (chat.returncode, out) == (0, b"after\n")
        assert b"cancelled; it is not kept" in err
        assert [m["content"] for m in upstream.chats[-1].json["messages"]] == ["second"]
