"""Fifty principals at the gateway, all alike but for who they are: nothing of one reaches another.

Twenty have a token of their own, thirty are people of three tokens that act for them. They speak
both generations at both routes, with equal ids and equal progress tokens, to one server on stdio
and two over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Serving
from bascule.audit.ledger import MemoryLedger
from bascule.auth.tokens import Tokens
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.gateway import Gateway
from bascule.doors.sessions import Sessions
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.model.user import UserRecord
from bascule.node.assembly import Bridge
from bascule.testing.server import ScriptedServer, do, tool
from bascule.wire.era import META
from tests.asgi.caller import make_tokens
from tests.doors.gateway.mcp_caller import McpCaller, messages_of, over_http
from tests.doors.gateway.stream_site import CHANGED, LIMITS, Peer, Stream
from tests.flow.matrix import PLACES
from tests.flow.servers import PATIENT, lines_of
from tests.scale import SOAK, scaled

Json = dict[str, Any]

ALONE, TOKENS, PEOPLE = 20, 3, 10
PRINCIPALS = ALONE + TOKENS * PEOPLE
CALLS = scaled(20_000)
#: Calls that one principal has under way at once; so many ids and progress tokens are in use.
AT_ONCE = 4
SERVERS = ("wire", "new", "old")
ROUTES = ("/mcp", *(f"/mcp/servers/{server}" for server in SERVERS))
#: Servers that log where it is certain whose logs they are: not on a pipe that all share.
LOGS = {"new", "old"}
LOGGING = {"tools": {"listChanged": True}, "logging": {}}
STREAMS = {"Accept": "application/json, text/event-stream"}
USER = "X-Bascule-User"
TIMEOUT = 3000 if SOAK else 100
UNKNOWN = -32602
#: Those whose list the server changes; and those whose tool it never takes away.
LOSERS = range(0, PRINCIPALS, 5)


def own(number: int) -> str:
    """Return the tool that one principal has and no other."""
    return f"own_{number}"


def script(executed: Path) -> ScriptedServer:
    """Return a server with a tool for all, one for each, and one that takes some of them away."""
    said = do("progress", count=2, worded=True, then=do("log", count=2))
    each = {own(number): do("ledger", then=said) for number in range(PRINCIPALS)}
    left = [tool("say"), *(tool(own(n)) for n in range(PRINCIPALS) if n not in LOSERS)]
    change = do("change_tools", tools=[*left, tool("change")])
    behaviours = {"say": said, **each, "change": change}
    return ScriptedServer(behaviours=behaviours, capabilities=LOGGING, ledger=executed)


def records(servers: dict[str, ServerRecord], **more: tuple[str, ...]) -> Snapshot:
    """Return what everybody may use: a tool that all may use, their own, and ``more``."""
    extra = more.get("all", ())

    def lists(number: int) -> Json:
        return {"tool_allowlist": ("say", own(number), *extra)}

    def task(id: str, **fields: Any) -> TaskRecord:
        policy = TaskPolicy(enabled=True, default_server_ids=SERVERS, **fields)
        return TaskRecord(task_id=id, mcp=policy)

    alone = [task(f"task-{number}", **lists(number)) for number in range(ALONE)]
    people = [
        UserRecord(user_id=f"person-{number}", **lists(number))
        for number in range(ALONE, PRINCIPALS)
    ]
    operator = task("operator", tool_allowlist=("wire/change",))
    return Snapshot(
        revision=1 + len(extra),
        servers=servers,
        tasks={one.task_id: one for one in (*alone, operator, task("people"))},
        users={one.user_id: one for one in people},
    )


@dataclass
class Somebody:
    """A principal, its clients at every route in both generations, and what it got amiss."""

    number: int
    clients: list[McpCaller]
    peer: Peer
    changes: int = 0
    crossed: list[str] = field(default_factory=list[str])
    stream: Stream = field(init=False)

    @property
    def wants_logs(self) -> bool:
        return self.number % 2 == 0

    def names(self, client: McpCaller, *tools: str) -> list[str]:
        """Return how a client names tools of all servers of its route."""
        if client.route != "/mcp":
            return list(tools)
        return [f"mcp__{server}__{tool}" for server in SERVERS for tool in tools]

    async def opened(self) -> None:
        for client in self.clients:
            told = await client.open()
            assert told["status"] == 200, told
            if self.wants_logs and not client.modern:
                assert (await client.ask("logging/setLevel", {"level": "info"})).status == 200
        await self.look()
        if not self.peer.modern:
            await self.peer.initialized()
        self.stream = await self.peer.listening()

    async def look(self) -> None:
        """List everywhere: there must be one's own tools, and no others."""
        for client in self.clients:
            listed = [tool["name"] for tool in await client.tools()]
            if sorted(listed) != sorted(self.names(client, "say", own(self.number))):
                self.crossed.append(f"{self.number} is shown {listed} at {client.route}")

    async def call(self, turn: int, dice: random.Random) -> None:
        """Call something that is one's own; all that comes back must be about that call."""
        client = replace(dice.choice(self.clients), id=turn % AT_ONCE)
        name = dice.choice(self.names(client, "say", own(self.number)))
        text = f"principal {self.number} turn {turn}"
        meta: Json = {"progressToken": turn % AT_ONCE}
        if self.wants_logs and client.modern:
            meta[META + "logLevel"] = "info"
        params = {"name": name, "arguments": {"text": text}}
        *notes, last = messages_of(await client.ask("tools/call", params, meta))
        server = name.split("__")[1] if client.route == "/mcp" else client.route.split("/")[-1]
        logs = self.wants_logs and server in LOGS
        right = [*steps(text, turn % AT_ONCE), *(said(text) if logs else [])]
        answered = [last["id"], last.get("result", {}).get("content")]
        if notes != right or answered != [turn % AT_ONCE, [{"type": "text", "text": text}]]:
            self.crossed.append(f"{text} of {name} got {[*notes, last]}")

    async def intrude(self, turn: int, other: Somebody, dice: random.Random) -> None:
        """Try what another may do, with the names and ids that the other uses."""
        client, theirs = dice.choice(list(zip(self.clients, other.clients, strict=True)))
        name = dice.choice(strangers(self, client, other, dice))
        asking = replace(client, id=AT_ONCE + turn)
        got = await asking.call(name, {"text": f"principal {self.number} intrudes"})
        words = f"Unknown tool: {name}"
        if got.get("error", {}).get("code") != UNKNOWN or got["error"]["message"] != words:
            self.crossed.append(f"{self.number} called {name} and got {got}")
        if not client.modern:
            stolen = await replace(client, session=theirs.session).ask("tools/list")
            if stolen.status != 404:
                self.crossed.append(f"{self.number} has a session of {other.number}")
            await cancelled(client, turn % AT_ONCE)

    async def work(self, everybody: list[Somebody], turns: int) -> None:
        dice = random.Random(self.number)
        for first in range(0, turns, AT_ONCE):
            if first % (AT_ONCE * 4) == 0:
                other = dice.choice([one for one in everybody if one is not self])
                await self.intrude(first, other, dice)
            here = range(first, min(first + AT_ONCE, turns))
            await asyncio.gather(*(self.call(turn, dice) for turn in here))

    async def hear(self, count: int) -> None:
        """Wait until a changed list was told so many times."""
        while self.changes < count:
            message = await self.stream.next()
            assert message is not None
            assert message["method"] == CHANGED, message
            self.changes += 1

    async def hear_out(self) -> None:
        """Read a stream to its end: nothing more is told."""
        last = await self.stream.next()
        if last is not None and "result" not in last:
            self.crossed.append(f"{self.number} was told {last}")


def steps(text: str, token: int) -> list[Json]:
    params = [
        {"progressToken": token, "progress": step, "total": 2, "message": text} for step in (1, 2)
    ]
    return [{"jsonrpc": "2.0", "method": "notifications/progress", "params": one} for one in params]


def said(text: str) -> list[Json]:
    params = [{"level": "info", "logger": "scripted", "data": f"{text} {n}"} for n in (1, 2)]
    return [{"jsonrpc": "2.0", "method": "notifications/message", "params": one} for one in params]


def strangers(me: Somebody, client: McpCaller, other: Somebody, dice: random.Random) -> list[str]:
    """Return names of which none is on one's list: of others, of other routes, of nobody."""
    random_name = "".join(dice.choices("abcdefg_/.-", k=dice.randrange(1, 40)))
    elsewhere = own(me.number) if client.route == "/mcp" else f"mcp__wire__{own(me.number)}"
    return [
        *me.names(client, own(other.number), "change"),
        *(elsewhere, random_name, "bascule__read_output", f"wire/{own(other.number)}"),
    ]


async def cancelled(client: McpCaller, id: int) -> None:
    """Cancel a request of one's own session that is not under way; others have one of that id."""
    body = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": id},
    }
    headers = {
        "Authorization": f"Bearer {client.token}",
        "Content-Type": "application/json",
        "Mcp-Session-Id": client.session,
        **client.headers,
    }
    answer = await client.post(client.route, headers, json.dumps(body).encode())
    assert answer.status == 202, answer.body


class Site:
    """A gateway over real servers, and all that speak to it."""

    def __init__(self, tokens: Tokens, http: aiohttp.ClientSession) -> None:
        self.tokens = tokens
        self.http = http
        self.url = ""
        self.port = 0
        self.streams: list[Stream] = []
        self.token_ids: dict[str, int | None] = {}

    def hang_up(self) -> None:
        for stream in self.streams:
            stream.close()

    async def token(self, task: str, number: int | None, **options: Any) -> str:
        made = await self.tokens.mint("same name", "client", task_id=task, **options)
        self.token_ids[made.record.id] = number
        return made.token

    async def somebody(self, number: int, token: str, **headers: str) -> Somebody:
        post = over_http(self.http, self.url)
        clients = [
            McpCaller(post, token, route, modern, {**STREAMS, **headers})
            for route in ROUTES
            for modern in (True, False)
        ]
        peer = Peer(self, token, modern=number % 2 == 0, headers=headers)
        somebody = Somebody(number, clients, peer)
        await somebody.opened()
        return somebody

    async def everybody(self) -> list[Somebody]:
        found = [
            await self.somebody(number, await self.token(f"task-{number}", number))
            for number in range(ALONE)
        ]
        for first in range(ALONE, PRINCIPALS, PEOPLE):
            token = await self.token("people", None, acts_for_users=True)
            found += [
                await self.somebody(number, token, **{USER: f"person-{number}"})
                for number in range(first, first + PEOPLE)
            ]
        return found

    async def operate(self) -> None:
        """Have a server change its list."""
        post = over_http(self.http, self.url)
        operator = McpCaller(post, await self.token("operator", None))
        answer = await operator.call("mcp__wire__change")
        assert "error" not in answer, answer


@asynccontextmanager
async def servers(executed: Path) -> AsyncGenerator[dict[str, ServerRecord]]:
    """Run the three servers; one over HTTP has a connection for each session."""
    ways = {"wire": "stdio modern", "new": "http modern sse", "old": "http legacy sse"}
    budgets = {"max_concurrency": 64, "tool_timeout_ms": 60_000, "list_timeout_ms": 20_000}
    places = {place.name: place for place in PLACES}
    async with AsyncExitStack() as stack:
        yield {
            server: await stack.enter_async_context(
                places[way].serving(
                    script(executed),
                    server,
                    budgets=budgets,
                    sharing="session" if server == "old" else "shared",
                )
            )
            for server, way in ways.items()
        }


def assert_own(ledger: MemoryLedger, site: Site) -> None:
    """Check that what was written of each call names one principal throughout."""
    for event in ledger.calls():
        assert event.token_id is not None
        number = site.token_ids[event.token_id]
        if event.task_id == "people":
            assert event.person is not None
            number = int(event.person.removeprefix("person-"))
        elif event.task_id != "operator":
            assert (event.task_id, event.person) == (f"task-{number}", None)
        if event.tool_name.startswith("own_") and event.code is None:
            assert event.tool_name == own(number or 0)


@pytest.mark.requirement("gateway:apart", "gateway:unlisted", "security:tenants:crossed")
@pytest.mark.timeout(3600 if SOAK else 120)
async def test_nothing_of_one_principal_reaches_another_at_the_gateway(tmp_path: Path):
    executed, ledger, tokens = tmp_path / "executed", MemoryLedger(limit=8 * CALLS), make_tokens()
    async with (
        asyncio.timeout(TIMEOUT),
        servers(executed) as behind,
        Bridge.open(records(behind), settings=PATIENT, ledger=ledger) as bridge,
        Sessions(bridge, tokens) as sessions,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=PRINCIPALS)) as http,
        AsyncExitStack() as stack,
    ):
        site = Site(tokens, http)
        stack.callback(site.hang_up)
        app = GuardedApp(gateway_routes(Gateway(sessions, tokens.key_for)), tokens)
        async with Serving(app, limits=LIMITS) as server:
            site.url, site.port = server.url, server.port
            everybody = await site.everybody()
            share = CALLS // PRINCIPALS
            await asyncio.gather(*(one.work(everybody, share) for one in everybody))
            await site.operate()
            await asyncio.gather(*(everybody[number].hear(1) for number in LOSERS))
            await bridge.apply(records(behind, all=("wire/change",)))
            await asyncio.gather(*(one.hear(2 if one.number in LOSERS else 1) for one in everybody))
        for one in everybody:
            await one.hear_out()
    assert [crossed for one in everybody for crossed in one.crossed] == []
    assert sum(event.code is None for event in ledger.calls()) == share * PRINCIPALS + 1
    assert_own(ledger, site)
    for line in lines_of(executed):
        assert "intrudes" not in line
