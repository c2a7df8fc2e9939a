"""The same call has the same code, whichever door it comes through."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bascule import Bridge, MemoryLedger, Server, SessionRefused
from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Serving
from bascule.audit.events import SessionRefusal
from bascule.doors.chat.api import chat_routes
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.gateway import Gateway
from bascule.doors.sessions import Sessions
from bascule.doors.tools.api import tools_routes
from bascule.executor import McpExecutor, ToolCall
from bascule.loop.backend import ChatUpstream
from bascule.loop.backends import Chosen
from bascule.manager import McpManager
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.node.bridge.opening import Opening
from bascule.node.changes import OnChange, Unsubscribe
from bascule.section import McpConnectionError, McpServerConfig, StdioTransport
from bascule.testing import ScriptedServer
from tests.asgi.caller import ask, make_tokens
from tests.doors.gateway.mcp_caller import (
    NO_SERVER,
    UNKNOWN_TOOL,
    WAYS,
    code_of,
    in_process,
    opened,
)
from tests.loop.fakes import FakeUpstream, asks, call, says
from tests.section.section_servers import section_of

NOWHERE = "/nowhere/at-all"
DENIED = "mcp_policy_denied"
#: A server that cannot start, one with tools that the task or its record denies, and none at all.
CALLS = {
    ("gone", "read"): "mcp_unavailable",
    ("gone", "delete"): DENIED,
    ("gone", "secret"): DENIED,
    ("fs", "delete"): DENIED,
    ("fs", "secret"): DENIED,
    ("fs", "drop_what_is_not_there"): DENIED,
    ("fs", "reed"): "mcp_invalid_arguments",
    ("nobody", "read"): "mcp_invalid_arguments",
}
#: The gateway's routes, in both generations. What a caller has no name for is one thing to it: in
#: the ledger a denial is a denial there too.
GATEWAY = tuple(WAYS)
DOORS = (
    *("session", "listed", "tools", "chat", "connected", "executor", "undiscovered", "manager"),
    *GATEWAY,
)


class OneModel:
    """A chooser of one upstream, which says what it was given."""

    def __init__(self, upstream: ChatUpstream) -> None:
        self.upstream = upstream

    async def choose(self, model: str) -> Chosen:
        return Chosen(upstream=self.upstream, model=model)

    async def models(self) -> list[dict[str, Any]]:
        return []


class House:
    """One bridge with all its doors."""

    def __init__(self, journal: Path) -> None:
        command, args = ScriptedServer(
            behaviours={"read": "echo", "delete": "echo", "secret": "echo"}, journal=journal
        ).command
        allowed = ("read", "delete", "drop_*")
        records = [
            replace(Server.stdio("fs", command, *args), allowed_tools=allowed),
            replace(Server.stdio("gone", NOWHERE), allowed_tools=allowed),
        ]
        policy = TaskPolicy(
            enabled=True,
            default_server_ids=("fs", "gone"),
            tool_denylist=("delete", "drop_*", "secret"),
        )
        self.task = TaskRecord(task_id="job", mcp=policy)
        self.ledger = MemoryLedger()
        self.bridge = Bridge.open(
            Snapshot(
                store_id="memory",
                revision=1,
                servers={record.server_id: record for record in records},
                tasks={"job": self.task},
            ),
            ledger=self.ledger,
        )
        self.tokens = make_tokens()
        self.sessions = Sessions(self.bridge, self.tokens)

    async def headers(self) -> dict[str, str]:
        token = (await self.tokens.mint("alice", "client", task_id="job")).token
        return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    async def session(self, server: str, tool: str) -> str:
        async with self.bridge.session(task="job") as session:
            outcome = await session.call(f"mcp__{server}__{tool}", {})
        return outcome.error.code if outcome.error else "ok"

    async def listed(self, server: str, tool: str) -> str:
        """A session that knows all its tools decides like one that was just opened."""
        async with self.bridge.session(task="job") as session:
            await session.tools()
            outcome = await session.call(f"mcp__{server}__{tool}", {})
        return outcome.error.code if outcome.error else "ok"

    async def tools(self, server: str, tool: str) -> str:
        app = GuardedApp(tools_routes(self.sessions), self.tokens)
        body = json.dumps({"name": f"mcp__{server}__{tool}"}).encode()
        sent = {**await self.headers(), "Content-Length": str(len(body))}
        answer = await ask(app, "POST", "/api/v1/tools/call", sent, chunks=[body])
        return answer.json["error"]["code"]

    async def asked_at(self, door: str, server: str, tool: str) -> str:
        """Ask for a tool at a door; return the code of what came of it."""
        if door not in GATEWAY:
            return await getattr(self, door)(server, tool)
        app = GuardedApp(gateway_routes(Gateway(self.sessions, self.tokens.key_for)), self.tokens)
        token = (await self.tokens.mint("alice", "client", task_id="job")).token
        caller, named = await opened(in_process(app), token, server, door)
        if not caller.modern and not caller.session:
            return code_of(await caller.open()) or "ok"
        return code_of(await caller.call(named(tool))) or "ok"

    async def chat(self, server: str, tool: str) -> str:
        upstream = FakeUpstream(asks(call(f"mcp__{server}__{tool}")), says("Sorry."))
        app = GuardedApp(chat_routes(self.sessions, OneModel(upstream)), self.tokens)
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "?"}]}).encode()
        sent = {**await self.headers(), "Content-Length": str(len(body))}
        answer = await ask(app, "POST", "/v1/chat/completions", sent, chunks=[body])
        assert answer.status == 200, answer.body
        [message] = [m for m in upstream.asked[-1]["messages"] if m["role"] == "tool"]
        return json.loads(message["content"])["error"]["code"]

    async def connected(self, server: str, tool: str) -> str:
        app = GuardedApp(tools_routes(self.sessions), self.tokens)
        token = (await self.tokens.mint("alice", "client", task_id="job")).token
        async with Serving(app) as serving, Bridge.connect(serving.url, token=token) as bridge:
            outcome = await bridge.session().call(f"mcp__{server}__{tool}", {})
        return outcome.error.code if outcome.error else "ok"

    async def executor(self, server: str, tool: str) -> str:
        async with McpExecutor(["fs", "gone"], bridge=_OfTask(self.bridge)) as executor:
            await executor.discover(["fs", "gone"])
            result = await executor.execute(ToolCall("1", f"{server}_{tool}", {}))
        return str(result.metadata["code"])

    async def undiscovered(self, server: str, tool: str) -> str:
        """An executor of a connected bridge, asked for a tool before it was asked for any list."""
        app = GuardedApp(tools_routes(self.sessions), self.tokens)
        token = (await self.tokens.mint("alice", "client", task_id="job")).token
        async with (
            Serving(app) as serving,
            Bridge.connect(serving.url, token=token) as bridge,
            McpExecutor(["fs", "gone"], bridge=bridge) as executor,
        ):
            result = await executor.execute(ToolCall("1", f"mcp__{server}__{tool}", {}))
        return str(result.metadata["code"])

    async def manager(self, server: str, tool: str) -> str:
        """A manager hands out tools that were listed, so ask its link for one of another."""
        async with McpManager(["fs", "gone"], bridge=self.bridge, task="job") as manager:
            shown = {one.name: one for one in await manager.get_tools()}
            assert f"{server}_{tool}" not in shown
            link = manager._links[server]  # pyright: ignore[reportPrivateUsage]
            described = replace(shown["fs_read"]._tool, name=tool, server_id=server,
                                model_name=f"mcp__{server}__{tool}")  # fmt: skip # pyright: ignore[reportPrivateUsage]
            outcome = await link.call(described, {}, print)
        return outcome.error.code if outcome.error else "ok"


class _OfTask:
    """The bridge, each of whose sessions is of the task."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def session(self, **options: Any) -> Any:
        options["task"] = "job"
        return self._bridge.session(**options)

    def open_session(self, opening: Opening) -> Any:
        return self._bridge.open_session(replace(opening, task="job"))

    def statuses(self) -> Any:
        return self._bridge.statuses()

    def subscribe(self, on_change: OnChange) -> Unsubscribe:
        return self._bridge.subscribe(on_change)

    async def reconnect(self, server_id: str) -> None:
        await self._bridge.reconnect(server_id)

    async def start(self) -> None:
        await self._bridge.start()

    async def close(self) -> None:
        """It belongs to the house."""


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path / "journal")
    async with made.bridge, made.sessions:
        yield made


def shown_at(door: str, server: str, code: str) -> str:
    """Return what a door shows of a code; at the gateway whatever is hidden is not there."""
    if door not in GATEWAY or code == "mcp_unavailable":
        return code
    return NO_SERVER if server == "nobody" and door.startswith("one") else UNKNOWN_TOOL


@pytest.mark.requirement("outcomes:same-at-every-door", "gateway:same-policy")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("asked", list(CALLS))
async def test_the_same_call_has_the_same_code(
    house: House, tmp_path: Path, door: str, asked: tuple[str, str]
):
    expected = CALLS[asked]
    if door == "manager" and asked[0] == "nobody":
        return  # a manager hands out the tools of its servers only
    if door == "undiscovered" and asked == ("fs", "reed"):
        expected = "mcp_unavailable"  # nobody has asked the server yet what it has
    assert await house.asked_at(door, *asked) == shown_at(door, asked[0], expected)
    journal = tmp_path / "journal"
    sent = journal.read_text(encoding="utf-8") if journal.exists() else ""
    assert "tools/call" not in sent
    written = [event.code for event in house.ledger.calls()]
    assert written in ([expected], []) if expected != DENIED else written == [expected]


@pytest.mark.requirement("outcomes:same-at-every-door")
@pytest.mark.parametrize("door", [door for door in DOORS if door not in {"chat", "manager"}])
@pytest.mark.parametrize("tool", ["read", "reed"])
async def test_a_task_that_was_disabled_denies_at_every_door(house: House, door: str, tool: str):
    off = replace(house.task, mcp=replace(house.task.mcp, enabled=False))
    await house.bridge.apply(replace(house.bridge.snapshot, revision=2, tasks={"job": off}))
    assert await house.asked_at(door, "fs", tool) == DENIED


@pytest.mark.requirement("outcomes:same-at-every-door")
async def test_a_server_outside_the_task_is_a_denial_for_a_manager_and_an_executor(house: House):
    async with McpManager(["fs", "git"], bridge=house.bridge, task="job") as manager:
        [read] = await manager.get_tools()
        link = manager._links["git"]  # pyright: ignore[reportPrivateUsage]
        outcome = await link.call(read._tool, {}, print)  # pyright: ignore[reportPrivateUsage]
    async with McpExecutor(["git"], bridge=_OfTask(house.bridge)) as executor:
        result = await executor.execute(ToolCall("1", "git_read", {}))
    assert outcome.error is not None
    assert (outcome.error.code, result.metadata["code"]) == (DENIED, DENIED)


@pytest.mark.requirement("outcomes:same-at-every-door")
async def test_a_token_that_was_revoked_is_a_denial_for_sessions_and_executors(house: House):
    app = GuardedApp(tools_routes(house.sessions), house.tokens)
    minted = await house.tokens.mint("alice", "client", task_id="job")
    async with Serving(app) as serving, Bridge.connect(serving.url, token=minted.token) as bridge:
        session = bridge.session()
        assert (await session.call("mcp__fs__read", {})).ok
        await house.tokens.revoke(minted.record.id)
        outcome = await session.call("mcp__fs__read", {})
        async with McpExecutor(["fs"], bridge=bridge) as executor:
            result = await executor.execute(ToolCall("1", "fs_read", {}))
    assert outcome.error is not None
    assert (outcome.error.code, result.metadata["code"]) == (DENIED, DENIED)


#: Everything that stands in the way of a tool, of whichever layer.
BLOCKED = {
    "gone": ["node unavailable"],
    "gone/read": ["node unavailable"],
    "gone/delete": ["task task_denied", "session session_denied", "node unavailable"],
    "fs/secret": [
        "platform not_in_allowed_tools", "task task_denied", "session session_denied",
    ],
    "fs/reed": ["platform unknown_tool"],
}  # fmt: skip


@pytest.mark.requirement("policy:explain:layers")
@pytest.mark.parametrize("name", list(BLOCKED))
async def test_an_explanation_has_every_objection_at_every_face(house: House, name: str):
    app = GuardedApp(tools_routes(house.sessions), house.tokens)
    token = (await house.tokens.mint("alice", "client", task_id="job")).token
    denied = ["delete", "secret"]
    session = house.bridge.session(task="job", tool_denylist=denied)
    await session.tools()
    async with Serving(app) as serving, Bridge.connect(serving.url, token=token) as bridge:
        connected = bridge.session(tool_denylist=denied)
        await connected.tools()
        there, here = await connected.explanation(name), connected.explain(name)

    for face in (session.explain(name), there):
        assert [f"{one.layer} {one.reason}" for one in face.blocked_by] == BLOCKED[name]
        assert face.blocked_by[0] == face.decision
        assert face.filters is not None
        assert set(face.filters.merged.deny) == {"delete", "drop_*", "secret"}
    assert here.blocked_by[0] == here.decision  # as far as this side was told
    assert here.allowed == there.allowed


@pytest.mark.requirement("outcomes:same-at-every-door")
def test_a_section_says_so_when_it_connects():
    config = McpServerConfig(name="gone", transport=StdioTransport(command=NOWHERE))
    section = section_of(config)
    with pytest.raises(McpConnectionError) as error:
        section.connect()
    assert error.value.code == "mcp_unavailable"


@pytest.mark.requirement("observability:session-refused")
@pytest.mark.parametrize("door", ["/api/v1/tools", "/v1/chat/completions", "connected", *GATEWAY])
async def test_a_session_that_is_refused_at_a_door_is_written_down(house: House, door: str):
    tools, chat = (
        tools_routes(house.sessions),
        chat_routes(house.sessions, OneModel(FakeUpstream())),
    )
    gateway = gateway_routes(Gateway(house.sessions, house.tokens.key_for))
    app = GuardedApp([*tools, *chat, *gateway], house.tokens)
    headers = {**await house.headers(), "X-Bascule-Servers": "git"}
    if door == "connected":
        token = headers["Authorization"].removeprefix("Bearer ")
        async with Serving(app) as serving:
            bridge = Bridge.connect(serving.url, token=token)
            with pytest.raises(SessionRefused):
                await bridge.session(server_ids=["git"]).tools()
            await bridge.close()
    elif door in GATEWAY:
        token = headers["Authorization"].removeprefix("Bearer ")
        caller = await opened(in_process(app), token, "fs", door, **{"X-Bascule-Servers": "git"})
        assert await caller[0].tools() == []
        assert code_of(await caller[0].call(caller[1]("read"))) == DENIED
    elif door == "/api/v1/tools":
        assert (await ask(app, "GET", door, headers)).status == 403
    else:
        body = b'{"model": "m", "messages": [{"role": "user", "content": "?"}]}'
        sent = {**headers, "Content-Length": str(len(body))}
        assert (await ask(app, "POST", door, sent, chunks=[body])).status == 403
    event, *more = [event for event in house.ledger.events if isinstance(event, SessionRefusal)]
    assert bool(more) == (door in GATEWAY)  # where each request asks for itself
    assert (event.reason, event.task_id, event.caller) == ("not_allowed", "job", "alice")
    counted = f'mcp_session_refused_total{{reason="not_allowed"}} {1 + len(more)}.0'
    assert counted.encode() in house.bridge.metrics.render()


async def test_what_a_connected_bridge_refuses_itself_is_in_its_own_ledger(house: House):
    ledger = MemoryLedger()
    app = GuardedApp(tools_routes(house.sessions), house.tokens)
    token = (await house.tokens.mint("alice", "client", task_id="job")).token
    async with (
        Serving(app) as serving,
        Bridge.connect(serving.url, token=token, ledger=ledger) as bridge,
    ):
        with pytest.raises(SessionRefused):
            bridge.session(task="another", caller="bob")
    [event] = ledger.events
    assert isinstance(event, SessionRefusal)
    assert (event.reason, event.caller, event.task_id) == ("task", "bob", "job")
