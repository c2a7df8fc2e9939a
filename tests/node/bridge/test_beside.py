"""What a caller hears beside its call: harmless words, no secrets, not too much, not too late."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from bascule.model.call import Beside, LogMessage, Progress
from tests.node.fakes import Sent, World, succeeded, text

SECRET = "s3cret-value"
CAP = 16 * 1024


async def heard(*messages: LogMessage) -> list[LogMessage]:
    """Call a tool that logs these, and return what its caller hears."""
    world = World()
    world.caller.hide(SECRET)

    async def work(sent: Sent) -> dict[str, Any]:
        assert sent.beside.on_log is not None
        for message in messages:
            sent.beside.on_log(message)
        return text("done")

    world.caller.answers("read", work)
    told: list[LogMessage] = []
    beside = Beside(on_log=told.append, log_level="debug")
    succeeded(await world.session().call_beside("mcp__fs__read", None, beside))
    return told


@pytest.mark.requirement("call:logs:harmless")
async def test_an_ordinary_log_message_comes_as_it_was_sent():
    messages = [
        LogMessage("info", "hello", "db"),
        LogMessage("emergency", {"a": [1, 2.5, None, {"b": "ü"}]}),
        LogMessage("debug", None),
        LogMessage("debug", "x" * (CAP - 2)),
    ]
    assert await heard(*messages) == messages


@pytest.mark.requirement("call:logs:harmless")
@pytest.mark.parametrize(
    "data",
    [
        f"\x1b[2Jdone with {SECRET}",
        {"deep": [{f"key {SECRET}": f"\x1b[2Jdone with {SECRET}"}]},
        {"encoded": base64.b64encode(f"user:{SECRET}".encode()).decode() + " done"},
        [f"{SECRET} done", "\u202e"],
    ],
)
async def test_log_messages_are_told_in_harmless_words(data: Any):
    [message] = await heard(LogMessage("info", data, f"\x1b{SECRET}"))
    shown = json.dumps([message.data, message.logger], ensure_ascii=False)
    assert "\\u001b" not in shown
    assert "\u202e" not in shown
    assert SECRET not in shown
    assert base64.b64encode(SECRET.encode()).decode()[:8] not in shown
    assert "done" in shown


@pytest.mark.requirement("call:logs:bounded", "call:logs:harmless")
@pytest.mark.parametrize("before", [0, CAP - 6, CAP - 1, CAP])
@pytest.mark.parametrize("form", ["text", "member", "items"])
async def test_a_long_log_message_is_cut_to_a_text_without_half_a_secret(form: str, before: int):
    words = "ü" * 50 + "." * (before - 100) + SECRET + "." * 100_000
    data: Any = {"text": words, "member": {"words": words}, "items": list(words)}[form]
    [message] = await heard(LogMessage("info", data))
    shown: Any = message.data
    assert isinstance(shown, str)
    assert len(shown.encode()) <= CAP
    assert "s3cr" not in shown
    assert "bytes shown]" in shown[-60:]


async def test_of_a_message_that_is_full_of_secrets_the_beginning_is_shown():
    [message] = await heard(LogMessage("info", {"all": [SECRET] * 10_000}))
    shown: Any = message.data
    assert SECRET not in shown
    assert len(shown) > CAP / 2


@pytest.mark.requirement("call:progress:own-token", "call:logs:own-connection")
async def test_what_comes_after_the_end_of_a_call_is_told_to_nobody():
    world = World()
    late: list[Sent] = []

    async def work(sent: Sent) -> dict[str, Any]:
        late.append(sent)
        return text("done")

    world.caller.answers("read", work)
    told: list[object] = []
    beside = Beside(on_progress=told.append, on_log=told.append, log_level="debug")
    succeeded(await world.session().call_beside("mcp__fs__read", None, beside))
    [sent] = late
    assert sent.beside.on_log is not None
    assert sent.beside.on_progress is not None
    sent.beside.on_log(LogMessage("info", "too late"))
    sent.beside.on_progress(Progress(1))
    assert told == []


async def test_a_call_with_nothing_beside_it_leaves_with_nothing():
    world = World()
    succeeded(await world.session().call_beside("mcp__fs__read", None, Beside()))
    [sent] = world.sent
    assert (sent.beside.on_progress, sent.beside.on_log, sent.beside.log_level) == (None,) * 3
