"""``bascule up`` killed under the load of MCP clients: nothing runs twice, no session is lost."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bascule.audit.verification import verify
from bascule.auth.keys import derived
from bascule.auth.server_key import KEY_NAME, server_key
from bascule.testing.server import ScriptedServer, do
from tests.asgi.caller import Answer
from tests.doors.gateway.mcp_caller import WAYS, McpCaller, messages_of, opened, over_http
from tests.doors.gateway.stream_site import CHANGED, Peer, Stream
from tests.flow.processes import vanished
from tests.flow.servers import lines_of
from tests.flow.up_process import Up, serving
from tests.process.test_ledger_kill import chain, digest
from tests.scale import SOAK, scaled
from tests.waits import SOON_SECONDS, until

KILLS = scaled(30)
#: Answers after which a node is killed: none at all, so that its server starts, or some.
LATE = 60
CLIENTS_PER_WAY = 2
RECORDS = "/admin/api/mcp"
BOTH = {"Accept": "application/json, text/event-stream"}


class Load:
    """Clients that call on and on, each time with a key of its own, and what became of each."""

    def __init__(self) -> None:
        self.keys = iter(range(1_000_000))
        self.served = asyncio.Event()
        self.answered: Counter[str] = Counter()
        self.answers: Counter[int] = Counter()
        self.lost = 0
        self.wrong: list[Any] = []

    async def work(self, number: int, client: McpCaller, name: str) -> None:
        """Call for ever; a call whose outcome is not known is not made again."""
        while True:
            await self.served.wait()
            key = f"key-{next(self.keys)}"
            params = {"name": name, "arguments": {"text": key}}
            try:
                answer = await client.ask("tools/call", params, {"progressToken": 1})
            except (aiohttp.ClientError, OSError):
                self.lost += 1
            else:
                self.take(number, key, answer)

    def take(self, number: int, key: str, answer: Answer) -> None:
        messages = messages_of(answer)
        if messages and messages[-1].get("result", {}).get("content") == [
            {"type": "text", "text": key}
        ]:
            self.answered[key] += 1
            self.answers[number] += 1
        else:
            self.wrong.append((key, answer))


class Node:
    """A data directory, and the process that serves it at the moment, always at one port."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = 0
        self.streams: list[Stream] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def up(self) -> AsyncGenerator[Up]:
        """Serve; what the process says is read, and its end awaited."""
        async with serving(self.data, "--empty", "--port", str(self.port)) as up:
            assert up.process.stderr is not None
            reading = asyncio.create_task(up.process.stderr.read())
            self.port = int(up.url.rpartition(":")[2])
            try:
                yield up
            finally:
                if up.process.returncode is None:
                    up.process.kill()
                async with asyncio.timeout(SOON_SECONDS):
                    await up.process.wait()
                    await reading


async def write(up: Up, kind: str, body: Any) -> None:
    status, answer = await up.ask("POST", f"{RECORDS}/{kind}", token=up.admin, body=body)
    assert status in (200, 201), answer


async def prepared(up: Up, counted: Path) -> str:
    """Make a server that notes what it executes, and a task for it; return a token."""
    script = ScriptedServer(
        behaviours={"count": do("ledger", path=counted, then=do("progress", count=1))}
    )
    budgets = {"max_concurrency": 16}
    server = {"server_id": "counter", "transport": "stdio", "stdio": script.stdio}
    await write(up, "servers", {**server, "allowed_tools": ["*"], "budgets": budgets})
    task = {"task_id": "t", "mcp": {"enabled": True, "default_server_ids": ["counter"]}}
    await write(up, "tasks", task)
    return await up.token("t")


@pytest.mark.timeout(900 if SOAK else 180)
@pytest.mark.requirement("gateway:kill", "call:once", "call:intent-before-dispatch")
async def test_nothing_runs_twice_and_clients_go_on_with_their_sessions_after_any_kill(
    tmp_path: Path,
):
    rng, load = random.Random(17), Load()
    node, counted = Node(tmp_path / "data"), tmp_path / "counted"
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SOON_SECONDS)) as http,
        asyncio.TaskGroup() as group,
    ):
        async with node.up() as up:
            token = await prepared(up, counted)
            post = over_http(http, node.url)
            clients = [
                await opened(post, token, "counter", way, **BOTH)
                for way in WAYS
                for _ in range(CLIENTS_PER_WAY)
            ]
            sessions = [client.session for client, _ in clients]
            workers = [
                group.create_task(load.work(number, client, named("count")))
                for number, (client, named) in enumerate(clients)
            ]
            await killed(up, load, rng)
        for _ in range(KILLS - 1):
            async with node.up() as up:
                await killed(up, load, rng)
        async with node.up() as up:
            load.answers.clear()
            load.served.set()
            await until(lambda: len(load.answers) == len(clients) or load.wrong)
            assert load.wrong == []
            for worker in workers:
                worker.cancel()
            for client, _ in clients:
                if not client.modern:
                    await told_anew(node, client)
            assert await up.end(signal.SIGTERM) == 0
    assert load.lost > 0
    assert [client.session for client, _ in clients] == sessions
    assert_once(node.data, counted, load)
    await vanished(str(counted), seconds=SOON_SECONDS)


async def killed(up: Up, load: Load, rng: random.Random) -> None:
    """Let clients call for a while, then kill the node in the midst of it."""
    after = sum(load.answered.values()) + (rng.randrange(LATE) if rng.random() < 0.8 else 0)
    load.served.set()
    await until(lambda: sum(load.answered.values()) >= after or load.wrong)
    load.served = asyncio.Event()  # that of the next node
    up.process.send_signal(signal.SIGKILL)
    await up.process.wait()


async def told_anew(node: Node, client: McpCaller) -> None:
    """Follow an old session: nobody remembers which list it was given, so it is told to look."""
    peer = Peer(node, client.token, client.route, session=client.session)

    stream = await peer.listening()
    told = await stream.next()
    stream.close()
    assert told is not None
    assert told["method"] == CHANGED


def assert_once(data: Path, counted: Path, load: Load) -> None:
    """Check what ran against what clients were told and what was written down before."""
    lines = lines_of(counted)
    ran = Counter(json.loads(line)["text"] for line in lines)
    assert set(ran.values()) == {1}, "a call was executed twice"
    assert set(load.answered.values()) == {1}
    assert set(load.answered) <= set(ran), "an answer came to what never ran"
    assert verify(data / "ledger.db").problems == ()
    events = chain(data)
    intents = Counter(e["arguments_digest"] for e in events if e["event"] == "call_intent")
    key = derived(server_key(data / KEY_NAME), "journal")
    assert {digest(line.encode(), key) for line in lines} <= set(intents), "it ran unwritten"
    assert set(intents.values()) == {1}
