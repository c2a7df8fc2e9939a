"""Journey 7: an app changes a base URL and a key; then its backend fails in every usual way."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from openai import APIError, APIStatusError, AsyncOpenAI

from bascule.testing import Reply, ScriptedUpstream, calls, fails, hangs, says, sends
from tests.flow.up_process import Up, serving
from tests.journeys.shell import Terminal

MODEL = "main/any"
CALL = ("mcp__notes__read_note", {"name": "welcome"})
#: What the backend does, and what the app is told: status, code, and words that help.
FAILURES: list[tuple[Reply, int, str, str]] = [
    (fails(429, "slow down", Retry_After="3"), 429, "rate_limit_exceeded", "slow down"),
    (fails(429, "no money left", code="insufficient_quota"), 429, "insufficient_quota", "money"),
    (fails(500, "out of order"), 502, "upstream_failed", "out of order"),
    (fails(401, "unknown key"), 502, "upstream_failed", "refused our key (HTTP 401)"),
    (sends("<html>", 503, Content_Type="text/html"), 503, "upstream_failed", "HTTP 503"),
    (sends("<html>", Content_Type="text/html"), 502, "upstream_failed", "not application/json"),
    (sends("{}"), 502, "upstream_failed", "garbled: it has no choices"),
    (sends("", 302, Location="/login"), 502, "upstream_failed", "redirect (HTTP 302)"),
    (says("hello", cut_after=0), 502, "upstream_failed", "broke off"),
    (hangs(), 504, "upstream_failed", "request_timeout_ms"),
]


async def asked(app: AsyncOpenAI, **fields: Any) -> Any:
    message = {"role": "user", "content": "What does the note say?"}
    body: dict[str, Any] = {"model": MODEL, "messages": [message], **fields}
    return await app.chat.completions.create(**body)


async def told(app: AsyncOpenAI, **fields: Any) -> tuple[int, str | None, str]:
    """Return the error that the app gets, as its client shows it."""
    with pytest.raises(APIStatusError) as raised:
        await asked(app, **fields)
    return raised.value.status_code, raised.value.code, raised.value.message


async def logged(up: Up) -> str:
    assert up.process.stderr is not None
    assert await up.end() == 0
    async with asyncio.timeout(10):
        return (await up.process.stderr.read()).decode()


@pytest.mark.timeout(120)
@pytest.mark.requirement("chat:agent-unaware", "chat:openai-errors", "chat:unknown-paths")
async def test_an_app_changes_a_base_url_and_a_key_and_its_backend_fails(tmp_path: Path):
    at = Terminal(tmp_path, tmp_path / "data")
    async with ScriptedUpstream() as backend, serving(tmp_path / "data") as up:
        await at.works(f"backends add main --base-url {backend.url}")
        key = json.loads(await at.works("tokens create --role client --task demo --json"))["token"]
        address = f"{up.url}/v1"
        async with AsyncOpenAI(base_url=address, api_key=key, max_retries=0, timeout=30) as app:
            backend.add(calls(CALL), says("It welcomes you."))
            assert (await asked(app)).choices[0].message.content == "It welcomes you."
            assert "gone when it ends" in backend.requests[-1].json["messages"][-1]["content"]
            backend.add(calls(CALL), says("It welcomes you."))
            pieces = [piece async for piece in await asked(app, stream=True)]
            text = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
            assert text == "It welcomes you."

            backend.add(says("No tools."))
            await asked(app, extra_body={"mcp": {"enabled": False}})
            assert "tools" not in backend.requests[-1].json

            await at.works("backends set main request_timeout_ms=1000")
            for reply, status, code, words in FAILURES:
                backend.add(reply)
                found = await told(app)
                assert found[:2] == (status, code), found
                assert "backend main: " in found[2]
                assert words in found[2], found
                assert "unknown key" not in found[2]  # a key may stand in such words
            backend.add(says("hello world", cut_after=1))
            with pytest.raises(APIError, match="backend main: it broke off"):
                _ = [piece async for piece in await asked(app, stream=True)]

            status, code, message = await told(app, model="mian/any")
            assert (status, code) == (404, "model_not_found")
            assert "did you mean main/any?" in message
            assert "there are" in (await told(app, model="gpt-x"))[2]
            with pytest.raises(APIStatusError, match="Served are POST /v1/chat/completions"):
                await app.responses.create(model=MODEL, input="hello")
            with pytest.raises(APIStatusError, match="the token is not valid"):
                await asked(app.with_options(api_key="sk-of-somebody-else"))
        text = await logged(up)
    assert "WARNING bascule.backend: chat request failed: backend main: out of order" in text
    assert key not in text
