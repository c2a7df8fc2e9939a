"""Ways to have one turn with one tool, each in a process of its own.

``python -m bench.chat_clients CLIENT LOOP PLACE CORE``; see ``serving``. ``floor`` makes the two
requests and the call itself, by bare sockets and a session: what no loop can do without. Every one
has a model's server and a tool's of its own, on its core; ``PLACE`` is only for ``door``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from bench.caller import callers, connected
from bench.http_clients import running
from bench.serving import AT_ONCE, Call, main
from bench.site import FLOOR, door

UPSTREAM = "bench.chat_upstream"
PROMPT = [{"role": "user", "content": "Say it."}]
MODEL = "instant"
Turns = AbstractAsyncContextManager[Call]


@asynccontextmanager
async def floor(upstream: str) -> AsyncGenerator[Call]:
    """Two requests to the model's server, and a governed call between them."""
    from bascule import Bridge, Server

    record = Server.stdio("floor", sys.executable, str(FLOOR), budgets={"max_concurrency": AT_ONCE})
    bridge = Bridge.open([record])
    path = f"{urlsplit(upstream).path}/chat/completions"
    async with (
        bridge,
        bridge.session(server_ids=["floor"]) as session,
        connected(callers(AT_ONCE, upstream)) as free,
    ):
        tools = (await session.tools()).openai()

        async def turn() -> str:
            caller = free.pop()
            request: dict[str, Any] = {"model": MODEL, "messages": PROMPT, "tools": tools}
            asked = (await caller.post(path, request))["choices"][0]["message"]
            function = asked["tool_calls"][0]["function"]
            outcome = await session.call(function["name"], json.loads(function["arguments"]))
            result = {"role": "tool", "tool_call_id": "call_1", "content": outcome.text}
            request["messages"] = [*PROMPT, asked, result]
            answer = await caller.post(path, request)
            free.append(caller)
            return answer["choices"][0]["message"]["content"]

        yield turn


@asynccontextmanager
async def bascule(upstream: str) -> AsyncGenerator[Call]:
    """The chat door of ``bascule up``: one request from outside."""
    async with (
        door("", "--backend", f"bench={upstream}") as (url, token),
        at_door(f"{url} {token}") as turn,
    ):
        yield turn


@asynccontextmanager
async def at_door(place: str) -> AsyncGenerator[Call]:
    """A chat door that runs already; ``place`` is its URL and a token."""
    request = {"model": f"bench/{MODEL}", "messages": PROMPT}
    url, token = place.split()
    async with connected(callers(AT_ONCE, url, token)) as free:

        async def turn() -> str:
            caller = free.pop()
            answer = await caller.post("/v1/chat/completions", request)
            free.append(caller)
            return answer["choices"][0]["message"]["content"]

        yield turn


@asynccontextmanager
async def openai_agents(upstream: str) -> AsyncGenerator[Call]:
    """OpenAI's own agents library with its MCP client."""
    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled  # pyright: ignore[reportMissingImports]
    from agents.mcp import MCPServerStdio  # pyright: ignore[reportMissingImports]
    from openai import AsyncOpenAI

    set_tracing_disabled(disabled=True)
    model = OpenAIChatCompletionsModel(
        model=MODEL, openai_client=AsyncOpenAI(base_url=upstream, api_key="none")
    )
    async with MCPServerStdio(
        params={"command": sys.executable, "args": [str(FLOOR)]}, cache_tools_list=True
    ) as server:
        agent = Agent(name="bench", model=model, mcp_servers=[server])

        async def turn() -> str:
            return (await Runner.run(agent, "Say it.")).final_output

        yield turn


@asynccontextmanager
async def pydantic_ai(upstream: str) -> AsyncGenerator[Call]:
    """Pydantic's agents with the official SDK's MCP client behind a toolset."""
    from mcp import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp_types import TextContent
    from pydantic_ai import Agent  # pyright: ignore[reportMissingImports]
    from pydantic_ai.models.openai import OpenAIChatModel  # pyright: ignore[reportMissingImports]
    from pydantic_ai.providers.openai import OpenAIProvider  # pyright: ignore[reportMissingImports]

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=upstream, api_key="none"))
    parameters = StdioServerParameters(command=sys.executable, args=[str(FLOOR)])
    async with (
        stdio_client(parameters) as (reader, writer),
        ClientSession(reader, writer) as session,
    ):
        await session.initialize()
        agent = Agent(model)

        async def echo(text: str) -> str:
            """Give back the text."""
            block = (await session.call_tool("echo", {"text": text})).content[0]
            return block.text if isinstance(block, TextContent) else ""

        agent.tool_plain(echo)

        async def turn() -> str:
            return (await agent.run("Say it.")).output

        yield turn


@asynccontextmanager
async def beside_model(place: str, client: Callable[[str], Turns]) -> AsyncGenerator[Call]:
    """Start a model's server for this client alone."""
    del place
    with running("-m", UPSTREAM) as (upstream, _):
        async with client(upstream) as turn:
            yield turn


CLIENTS = {
    "floor": partial(beside_model, client=floor),
    "bascule": partial(beside_model, client=bascule),
    "openai-agents": partial(beside_model, client=openai_agents),
    "pydantic-ai": partial(beside_model, client=pydantic_ai),
    "door": at_door,
}

if __name__ == "__main__":
    main(CLIENTS)
