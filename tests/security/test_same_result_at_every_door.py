"""What a tool gave looks the same at every door: a broken promise, and an output that was cut."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Protocol

import pytest
from msgspec import Struct
from msgspec.structs import replace

from bascule import Bridge, Server
from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Serving
from bascule.doors.chat.api import chat_routes
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.gateway import Gateway
from bascule.doors.sessions import Sessions
from bascule.doors.tools.api import tools_routes
from bascule.executor import McpExecutor, ToolCall
from bascule.manager import McpManager
from bascule.model.outcome import Outcome, shown_error
from bascule.model.server import Budgets, Hygiene, OutputSchemaMode
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.section import McpServerConfig, StdioTransport
from bascule.testing import ScriptedServer, do, tool
from tests.asgi.caller import ask, make_tokens
from tests.doors.gateway.mcp_caller import WAYS, code_of, in_process, opened
from tests.loop.fakes import FakeUpstream, asks, call, says
from tests.section.section_servers import run, section_of
from tests.security.test_same_code_at_every_door import OneModel

MISFIT = "the result does not fit the tool's output schema"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
MODES: tuple[OutputSchemaMode, ...] = ("warn", "refuse", "off")
DOORS = ("session", "connected", "tools", "chat", "executor", "manager", *WAYS)


class Seen(Struct, frozen=True):
    """What a door shows of one result."""

    ok: bool
    code: str | None
    said: str
    warned: bool
    truncated: bool


class Door(Protocol):
    """One way to call a tool."""

    async def __call__(self, server: str, name: str) -> Seen: ...


class House:
    """Three servers that promise the same and are believed differently, behind every door."""

    def __init__(self) -> None:
        scripted = ScriptedServer(
            behaviours={
                "count": do("structured", value={"n": "no"}),
                "long": do("big", bytes=999),
                "fails": do("error", text="x" * 999),
            },
            tools=[tool("count", outputSchema=SCHEMA), tool("long"), tool("fails")],
        )
        command, args = scripted.command
        self.records = {
            mode: replace(
                Server.stdio(mode, command, *args),
                allowed_tools=("*",),
                hygiene=Hygiene(output_schema=mode),
                budgets=Budgets(max_tool_output_bytes=400),
            )
            for mode in MODES
        }
        task = TaskRecord(task_id="job", mcp=TaskPolicy(enabled=True, default_server_ids=MODES))
        self.bridge = Bridge.open(
            Snapshot(store_id="memory", revision=1, servers=self.records, tasks={"job": task})
        )
        self.tokens = make_tokens()
        self.sessions = Sessions(self.bridge, self.tokens)

    async def token(self) -> str:
        return (await self.tokens.mint("alice", "client", task_id="job")).token

    async def session(self, server: str, name: str) -> Seen:
        async with self.bridge.session(task="job") as session:
            return _of(await session.call(f"mcp__{server}__{name}", {}))

    async def connected(self, server: str, name: str) -> Seen:
        app = GuardedApp(tools_routes(self.sessions), self.tokens)
        token = await self.token()
        async with Serving(app) as serving, Bridge.connect(serving.url, token=token) as bridge:
            return _of(await bridge.session().call(f"mcp__{server}__{name}", {}))

    async def tools(self, server: str, name: str) -> Seen:
        app = GuardedApp(tools_routes(self.sessions), self.tokens)
        answer = await self._post(app, "/api/v1/tools/call", {"name": f"{server}/{name}"})
        error, cut = answer["error"], answer["truncated"]
        if cut is not None:
            assert set(cut) == {"shown", "total", "handle"}
            assert {"code", "message", "retryable"} <= set(error)
        code, warned = None if error is None else error["code"], answer.get("warnings", [])
        return Seen(answer["ok"], code, answer["text"], _warned(warned), cut is not None)

    def door(self, name: str) -> Door:
        """Return one way to call a tool, by its name."""
        return partial(self.gateway, name) if name in WAYS else getattr(self, name)

    async def gateway(self, way: str, server: str, name: str) -> Seen:
        app = GuardedApp(gateway_routes(Gateway(self.sessions, self.tokens.key_for)), self.tokens)
        caller, named = await opened(in_process(app), await self.token(), server, way)
        answer = await caller.call(named(name))
        result = answer["result"]
        meta = result.get("_meta", {})
        cut, warned = meta.get("bascule/truncated"), meta.get("bascule/warnings", [])
        if cut is not None:
            assert set(cut) == {"shown", "total", "handle"}
            assert cut["handle"] in result["content"][-1]["text"]
        said = result["content"][0]["text"]
        ok = not result.get("isError", False)
        return Seen(ok, code_of(answer), said, _warned(warned), cut is not None)

    async def chat(self, server: str, name: str) -> Seen:
        upstream = FakeUpstream(asks(call(f"mcp__{server}__{name}")), says("Done."))
        app = GuardedApp(chat_routes(self.sessions, OneModel(upstream)), self.tokens)
        body = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
        answer = (await self._post(app, "/v1/chat/completions", body))["bascule"]
        [message] = [m for m in upstream.asked[-1]["messages"] if m["role"] == "tool"]
        [report] = answer["calls"]
        read = json.loads(message["content"])
        said = read.get("text", json.dumps(read))
        cut = "truncated" in read
        assert report["error"] == (read["error"]["code"] if "error" in read else None)
        return Seen(
            report["status"] == "ok", report["error"], said, _warned(answer["warnings"]), cut
        )

    async def executor(self, server: str, name: str) -> Seen:
        async with McpExecutor(MODES, bridge=self.bridge) as executor:
            await executor.discover(MODES)
            result = await executor.execute(ToolCall("1", f"{server}_{name}", {}))
        read, known = json.loads(result.output), result.metadata
        said = read.get("text", result.output)
        return Seen(
            not result.is_error, known.get("code"), said, _warned([known.get("warnings", "")]),
            "truncated" in read,
        )  # fmt: skip

    async def manager(self, server: str, name: str) -> Seen:
        async with McpManager(MODES, bridge=self.bridge, task="job") as manager:
            found = {one.name: one for one in await manager.get_tools()}
            text = await found[f"{server}_{name}"].call({})
        code = text.code or (None if text.truncated is None else text.truncated.error.code)
        return Seen(
            not text.is_error, code, str(text), _warned(text.warnings), text.truncated is not None
        )

    async def _post(self, app: GuardedApp, path: str, body: dict[str, Any]) -> Any:
        sent = json.dumps(body).encode()
        headers = {
            "Authorization": f"Bearer {await self.token()}",
            "Content-Type": "application/json",
            "Content-Length": str(len(sent)),
        }
        return (await ask(app, "POST", path, headers, chunks=[sent])).json


def _of(outcome: Outcome) -> Seen:
    error = shown_error(outcome)
    code, cut = None if error is None else error.code, outcome.truncated is not None
    return Seen(outcome.ok, code, outcome.text, _warned(outcome.warnings), cut)


def _warned(warnings: Any) -> bool:
    return any(MISFIT in one for one in warnings)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    made = House()
    async with made.bridge, made.sessions:
        yield made


@pytest.mark.requirement("hygiene:output-schema")
@pytest.mark.parametrize("door", DOORS)
async def test_a_result_that_breaks_its_promise_is_judged_alike(house: House, door: str):
    asked = house.door(door)
    warn, refuse, off = [await asked(mode, "count") for mode in MODES]
    assert (warn.ok, warn.code, warn.warned) == (True, None, True)
    assert (refuse.ok, refuse.code) == (False, "mcp_tool_error")
    assert (off.ok, off.code, off.warned) == (True, None, False)


@pytest.mark.requirement("outcomes:cut:answer")
@pytest.mark.parametrize("door", DOORS)
async def test_a_result_that_was_cut_is_an_answer_that_says_so(house: House, door: str):
    seen = await house.door(door)("warn", "long")
    assert (seen.ok, seen.code, seen.truncated) == (True, "mcp_output_too_large", True)
    assert seen.said.startswith("xxx")
    assert seen.said.rstrip().endswith("of 999 bytes shown]")


@pytest.mark.requirement("outcomes:cut:marker")
@pytest.mark.parametrize("door", DOORS)
async def test_a_failure_whose_words_were_cut_is_a_failure_that_says_so(house: House, door: str):
    seen = await house.door(door)("warn", "fails")
    assert (seen.ok, seen.code, seen.truncated) == (False, "mcp_tool_error", True)


@pytest.mark.requirement("outcomes:cut:marker", "outcomes:cut:answer")
def test_a_section_says_that_a_result_was_cut():
    house = House()
    unused = StdioTransport(command="/no/such/program")
    config = McpServerConfig(name="warn", transport=unused)
    with (
        Bridge.blocking(list(house.records.values())) as bridge,
        section_of(config, bridge=bridge) as section,
    ):
        cut, failed = run(section, "warn_long", {}), run(section, "warn_fails", {})
        misfit = run(section, "warn_count", {})
    assert (cut.success, cut.error) == (True, None)
    assert cut.truncated is not None
    assert failed.truncated is not None
    assert not failed.success
    assert misfit.success
    assert MISFIT in misfit.message
