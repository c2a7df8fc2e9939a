"""``secret://`` in env and headers means the same at every Python door."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from bascule import Bridge, Server
from bascule.executor import McpExecutor, ToolCall
from bascule.executor import McpServerConfig as ExecutorServer
from bascule.manager import McpManager
from bascule.manager import McpServerConfig as ManagerServer
from bascule.section import McpConfigError, StdioTransport, StreamableHttpTransport
from bascule.section import McpServerConfig as SectionServer
from bascule.testing import ScriptedHttpServer, ScriptedServer
from tests.section.section_servers import beside, run, section_of

VALUE = "v1"  # too short to be masked, so that the server can tell it
SCRIPT = ScriptedServer(behaviours={"env": "env"})
Secrets = Mapping[str, str]
#: Calls the tool ``env`` of a server, started here or reached at a URL; returns what it says.
Door = Callable[[str | None, Secrets | None], Awaitable[str]]


def place(url: str | None) -> dict[str, Any]:
    """Return how a server is configured where fields are flat."""
    if url is not None:
        return {"url": url, "headers": {"X-Api-Key": "secret://token"}}
    command, args = SCRIPT.command
    return {"command": command, "args": tuple(args), "env": {"TOKEN": "secret://token"}}


async def bridge(url: str | None, secrets: Secrets | None) -> str:
    fields = place(url)
    if url is None:
        record = Server.stdio("s", fields["command"], *fields["args"], env=fields["env"])
    else:
        record = Server.http("s", url, headers=fields["headers"])
    async with (
        Bridge.open([record], secrets=secrets) as opened,
        opened.session(server_ids=["s"]) as session,
    ):
        outcome = await session.call("mcp__s__env", {})
        return outcome.text if outcome.ok else str(outcome.error)


async def section(url: str | None, secrets: Secrets | None) -> str:
    fields = place(url)
    if url is None:
        transport = StdioTransport(fields["command"], fields["args"])
        server = SectionServer(name="s", transport=transport, env=fields["env"])
    else:
        transport = StreamableHttpTransport(url, fields["headers"])
        server = SectionServer(name="s", transport=transport)
    async with section_of(server, secrets=secrets) as opened:
        return str((await beside(run, opened, "s_env")).content[0]["text"])


async def executor(url: str | None, secrets: Secrets | None) -> str:
    async with McpExecutor([ExecutorServer(name="s", **place(url))], secrets=secrets) as opened:
        await opened.discover(["s"])
        return str((await opened.execute(ToolCall(id="1", name="s_env", arguments="{}"))).output)


async def manager(url: str | None, secrets: Secrets | None) -> str:
    transport = "stdio" if url is None else "http"
    configs = [ManagerServer(name="s", transport=transport, **place(url))]
    async with McpManager(configs, secrets=secrets) as opened:
        [adapter] = await opened.get_tools()
        return await adapter.call({})


@pytest.mark.requirement("references:secret:resolve")
@pytest.mark.parametrize("door", [bridge, section, executor, manager])
async def test_a_secret_in_env_reaches_the_process(door: Door):
    said = await door(None, {"token": VALUE})
    assert json.loads(said)["env"]["TOKEN"] == VALUE, said


@pytest.mark.requirement("references:secret:resolve")
@pytest.mark.parametrize("door", [bridge, section, executor, manager])
async def test_a_secret_in_a_header_reaches_the_server(door: Door):
    async with ScriptedHttpServer(SCRIPT) as http:
        await door(http.url, {"token": VALUE})
        assert {seen.headers["X-Api-Key"] for seen in http.requests} == {VALUE}


async def test_a_bridge_that_is_given_has_secrets_of_its_own():
    async with Bridge.open([]) as opened:
        with pytest.raises(ValueError, match="secrets"):
            McpExecutor(["s"], bridge=opened, secrets={})
        with pytest.raises(ValueError, match="secrets"):
            McpManager(["s"], bridge=opened, secrets={})
        server = SectionServer(name="s", transport=StdioTransport("x"))
        with pytest.raises(McpConfigError, match="secrets"):
            section_of(server, bridge=opened, secrets={})


async def test_without_secrets_a_section_takes_every_value_as_it_is_written():
    async with ScriptedHttpServer(SCRIPT) as http:
        await section(http.url, None)
        assert {seen.headers["X-Api-Key"] for seen in http.requests} == {"secret://token"}
