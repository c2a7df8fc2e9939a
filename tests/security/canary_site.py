"""A ``bascule up`` whose servers and backend are given canaries and tell them, and all it puts out.

Everything that anybody could read is gathered as bytes, by the name of the place it was read at.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from aiohttp import ClientTimeout

from bascule.app.stored_records import stored_snapshot
from bascule.control.secrets import open_secrets
from bascule.testing import ScriptedHttpServer, ScriptedServer, do
from bascule.testing.http_dialects import Dialect
from bascule.testing.upstream import ScriptedUpstream
from tests.cli.served import Done, command
from tests.flow.up_process import Up, serving
from tests.security.canaries import (
    CONTROL,
    Canary,
    canaries,
    said,
    telling_http,
    telling_process,
)
from tests.waits import SOON_SECONDS, until

ADMIN = "/admin/api/mcp"
SECRETS = "/admin/api/secrets"
AUDIT = "/admin/api/audit"
BUDGETS = {"connect_timeout_ms": 5000, "list_timeout_ms": 5000, "tool_timeout_ms": 2000}
#: As many variables as a process, and as many headers as a request, are given here.
_IN_ENV = 150
_IN_HEADERS = 20
#: What is kept in a data directory of what happens there, with its logs and backups.
KEPT = ("ledger", "ledger.anchors", "journal", "registry", "secrets", "tokens")
Outputs = dict[str, list[bytes]]


class Given:
    """A record, and the canaries that it refers to."""

    def __init__(self, kind: str, name: str, record: dict[str, Any], held: list[Canary]) -> None:
        self.kind = kind
        self.name = name
        self.record = record
        self.held = held


class CanarySite:
    """The process, what it is given, and what it puts out."""

    def __init__(self, up: Up, folder: Path) -> None:
        self.up = up
        self.folder = folder
        self.outputs: Outputs = defaultdict(list)
        self.given: list[Given] = []
        self.tools: dict[str, list[str]] = {}
        self.old: list[Canary] = []
        self.upstream = ScriptedUpstream()
        self.client = ""

    @property
    def values(self) -> list[str]:
        return [one.value for given in self.given for one in given.held] + [
            one.value for one in self.old
        ]

    # --- asking

    async def ask(self, place: str, method: str, path: str, body: Any = None, **more: Any) -> bytes:
        """Send a request, and keep the whole answer under the name of a place."""
        token = more.pop("token", self.up.admin)
        headers = {"Authorization": f"Bearer {token}", **more}
        limit = ClientTimeout(total=SOON_SECONDS)
        async with self.up.http.request(
            method, self.up.url + path, headers=headers, json=body, timeout=limit
        ) as answer:
            text = await answer.read()
            head = "".join(f"{name}: {value}\n" for name, value in answer.headers.items())
        self.outputs[place] += [head.encode("utf-8", "surrogateescape"), text]
        return text

    async def command(self, *words: str, given: str = "") -> Done:
        """Run a command on the data directory; keep what it says."""
        done = await asyncio.to_thread(
            command, *words, "--data-dir", str(self.up.data), given=given
        )
        self.outputs["commands"].append(f"{done.out}\n{done.err}".encode())
        return done

    async def call(self, server: str, tool: str, **more: Any) -> bytes:
        body = {"name": f"mcp__{server}__{tool}", "arguments": {"text": CONTROL}}
        return await self.ask(
            "results", "POST", "/api/v1/tools/call", body, token=self.client, **more
        )

    async def chat(self, upstream: ScriptedUpstream, *replies: Any, **more: Any) -> bytes:
        upstream.add(*replies)
        body = {
            "model": "main/m",
            "messages": [{"role": "user", "content": CONTROL}],
            **more,
        }
        return await self.ask("chat", "POST", "/v1/chat/completions", body, token=self.client)

    # --- giving

    async def give(self) -> None:
        """Write the records, then set every canary in one of three ways, bound to its record."""
        for given in self.given:
            path = f"{ADMIN}/{given.kind}s/{given.name}"
            answer = json.loads(await self.ask("records", "PUT", path, given.record))
            assert "error" not in answer, answer
        held = [(given, one) for given in self.given for one in given.held]
        await asyncio.gather(*(self._by_api(*pair) for pair in held[::3]))
        for given, one in held[1::3]:
            words = ("set", one.name, "--bind" if given.kind == "server" else "--bind-backend")
            done = await self.command("secrets", *words, given.name, given=one.value + "\n")
            assert done.code == 0, done.err
        records = await stored_snapshot(self.up.data)
        async with open_secrets(self.up.data, records=lambda: records) as secrets:
            for given, one in held[2::3]:
                use = secrets.use("server" if given.kind == "server" else "backend", given.name)
                assert use is not None
                await secrets.set(one.name, one.value, by="a program", bind=[use])
            self.outputs["python"].append(repr(await secrets.listing()).encode())

    async def _by_api(self, given: Given, one: Canary) -> None:
        body = {"value": one.value, "bind": [{given.kind: given.name}]}
        answer = json.loads(await self.ask("secrets", "PUT", f"{SECRETS}/{one.name}", body))
        assert "error" not in answer, answer

    async def enter(self) -> None:
        """Make a task for all servers, and a client for it."""
        servers = [given.name for given in self.given if given.kind == "server"]
        task = {"mcp": {"enabled": True, "default_server_ids": servers}}
        await self.ask("records", "PUT", f"{ADMIN}/tasks/{CONTROL}", task)
        body = {"name": CONTROL, "role": "client", "task_id": CONTROL}
        made = json.loads(await self.ask("tokens", "POST", "/admin/api/tokens", body))
        self.client = made["token"]

    # --- everything that can be read

    async def read_all(self) -> None:
        """Ask for all that the API and the commands show."""
        client = {"token": self.client}
        for given in self.given:
            if given.kind == "server":
                await self.ask("trials", "POST", f"{ADMIN}/servers/{given.name}/test")
                await self.ask("trials", "GET", f"{ADMIN}/servers/{given.name}/tools")
        for query in ("", "?explain=true", "?definitions=full"):
            await self.ask("tool lists", "GET", f"/api/v1/tools{query}", **client)
        for kind in ("servers", "tasks", "profiles", "backends", "users", "platform", "proposals"):
            await self.ask("records", "GET", f"{ADMIN}/{kind}")
        for path in ("servers", "snapshot"):
            await self.ask("records", "GET", f"/api/v1/mcp/{path}")
        history = json.loads(await self.ask("history", "GET", f"{ADMIN}/history?limit=200"))
        newest = history["changes"][0]["revision"]
        await self.ask("history", "GET", f"{ADMIN}/diff?from=1&to={newest}")
        await self.ask("secrets", "GET", SECRETS)
        await self.ask("tokens", "GET", "/admin/api/tokens")
        await self.read_audit()
        for path in ("/metrics", "/healthz", "/readyz", "/openapi.json"):
            await self.ask(path, "GET", path)
        for words in (
            ("servers", "list"),
            ("servers", "status"),
            ("servers", "status", "--json"),
            ("servers", "show", CONTROL),
            ("secrets", "list"),
            ("secrets", "list", "--json"),
            ("audit", "search"),
            ("audit", "search", "--json"),
            ("tools", "list", "--task", CONTROL),
            ("doctor",),
        ):
            await self.command(*words)

    async def read_audit(self) -> None:
        before = ""
        while before is not None:
            found = json.loads(await self.ask("audit", "GET", f"{AUDIT}?limit=200{before}"))
            ids = {entry["event"].get("request_id") for entry in found["entries"][:20]}
            for request_id in filter(None, ids):
                await self.ask("audit", "GET", f"{AUDIT}/{request_id}")
            rest = found["next_before"]
            before = None if rest is None else f"&before={rest}"
        await self.ask("audit export", "GET", f"{AUDIT}/export")
        await self.ask("audit", "POST", f"{AUDIT}/verify")
        await self.ask("audit", "POST", f"{AUDIT}/checkpoint")

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Watch the records and the ledger meanwhile, up to something that is done last."""
        paths = {
            "watch": "/api/v1/mcp/watch?since=0&include_objects=true",
            "audit watch": f"{AUDIT}/watch?after=0",
        }
        tasks = [asyncio.create_task(self._watch(*one)) for one in paths.items()]
        try:
            yield
            last = json.loads(await self.call(CONTROL, CONTROL))["request_id"]
            await self.ask("records", "PUT", f"{ADMIN}/profiles/the_last", {})
            await until(lambda: self._heard("watch", "the_last"))
            await until(lambda: self._heard("audit watch", last))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, place: str, path: str) -> None:
        headers = {"Authorization": f"Bearer {self.up.admin}"}
        limit = ClientTimeout(total=None)
        async with self.up.http.get(self.up.url + path, headers=headers, timeout=limit) as answer:
            heard = self.outputs[place]
            heard.append(b"")
            async for piece in answer.content.iter_any():
                heard[-1] += piece

    def _heard(self, place: str, words: str) -> bool:
        return any(words.encode() in text for text in self.outputs[place])

    def read_files(self) -> None:
        """Read the data directory as it is now, every file that anybody could copy."""
        for path in self.up.data.rglob("*"):
            if path.is_file() and "homes" not in path.parts:
                place = path.relative_to(self.up.data).parts[0].partition(".db")[0]
                named = place if place in KEPT else "others"
                self.outputs[f"file {named}"] += [path.read_bytes()]

    def read_processes(self) -> None:
        """Read the command line of the node, its warden and every server."""
        node = psutil.Process(self.up.process.pid)
        for process in (node, *node.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
                self.outputs["command lines"].append(line)

    async def read_log(self) -> None:
        """End the process; keep what it said from its start to its end."""
        out, err = self.up.process.stdout, self.up.process.stderr
        assert out is not None
        assert err is not None
        self.up.process.terminate()
        async with asyncio.timeout(SOON_SECONDS):
            rest = await out.read()
            await self.up.process.wait()
        said_first = "\n".join(self.up.said).encode()
        self.outputs["standard output"] += [said_first, rest]


async def drain(up: Up, into: list[bytes]) -> None:
    """Read the log while the process writes it: a full pipe loses lines."""
    assert up.process.stderr is not None
    while piece := await up.process.stderr.read(65_536):
        into.append(piece)


@asynccontextmanager
async def canary_site(folder: Path, count: int, form: str) -> AsyncGenerator[CanarySite]:
    """Serve records with so many canaries, whose servers tell all of them."""
    home = folder / CONTROL
    home.mkdir()
    env = {"BASCULE_LOG_LEVEL": "debug", "BASCULE_LOG_SLOW_CALL_MS": "1"}
    async with AsyncExitStack() as stack:
        up = await stack.enter_async_context(
            serving(home / "data", "--empty", "--log-format", form, **env)
        )
        site = CanarySite(up, home)
        log = asyncio.create_task(drain(up, site.outputs["log"]))
        stack.callback(log.cancel)
        await _fill(site, stack, canaries(count))
        yield site
        await site.read_log()
        await log


async def _fill(site: CanarySite, stack: AsyncExitStack, held: list[Canary]) -> None:
    """Share the canaries out among records of every kind."""
    held[-1] = Canary(CONTROL, held[-1].value)
    cut = min(6 * _IN_HEADERS, len(held) // 2)
    share, rest = held[:cut], held[cut:]
    lots = [share[number::6] for number in range(6)]
    site.given.append(_dying(site.folder, lots[0]))
    dialects: tuple[Dialect, ...] = ("modern", "legacy", "sse")
    for number, dialect in enumerate(dialects):
        lot = lots[1 + number]
        values = [one.value for one in lot]
        http = ScriptedHttpServer(telling_http(values), dialects=(dialect,))
        await stack.enter_async_context(http)
        site.given.append(_remote(f"far{number}", http, lot, dialect))
    site.given.append(await _login(stack, lots[4]))
    site.given.append(await _backend(site, stack, lots[5]))
    for number, begin in enumerate(range(0, len(rest), _IN_ENV)):
        lot = rest[begin : begin + _IN_ENV]
        name = f"near{number}" if number else CONTROL
        script = telling_process([one.value for one in lot], site.folder / f"{name}.json")
        site.given.append(_local(name, script, lot))


def _fields(lot: Sequence[Canary], prefix: str) -> dict[str, str]:
    return {f"{prefix}{number}": f"secret://{one.name}" for number, one in enumerate(lot)}


def _record(**fields: Any) -> dict[str, Any]:
    return {"display_name": CONTROL, "allowed_tools": ["*"], "budgets": BUDGETS, **fields}


def _local(name: str, script: ScriptedServer, lot: list[Canary]) -> Given:
    stdio = {**script.stdio, "env": _fields(lot, "CANARY_")}
    return Given("server", name, _record(transport="stdio", stdio=stdio), lot)


def _dying(folder: Path, lot: list[Canary]) -> Given:
    """Return a server that never comes up, and says with its last words what it was given."""
    words = said([one.value for one in lot])
    script = ScriptedServer(at_start=[do("stderr", text=words), do("die", code=7)])
    return _local("dying", script.saved_to(folder / "dying.json"), lot)


def _remote(name: str, http: ScriptedHttpServer, lot: list[Canary], dialect: str) -> Given:
    first, second, *others = lot
    place: dict[str, Any] = {"url": http.url, "headers": _fields(others, "X-Canary-")}
    if dialect == "modern":
        place["auth_ref"] = f"secret://{first.name}"
    else:
        place["auth"] = {"type": "header", "header": "X-Key", "ref": f"secret://{first.name}"}
    place["headers"]["X-Second"] = f"secret://{second.name}"
    transport = "http_sse_legacy" if dialect == "sse" else "streamable_http"
    return Given("server", name, _record(transport=transport, http=place), lot)


async def _login(stack: AsyncExitStack, lot: list[Canary]) -> Given:
    """Return a server whose token endpoint refuses, and repeats the client's secret."""
    values = [one.value for one in lot]
    http = await stack.enter_async_context(ScriptedHttpServer(telling_http(values)))
    refusing = do("http", status=400, body=json.dumps({"error": "no", "error_description": values}))
    http.choose = lambda seen: refusing
    auth = {
        "type": "oauth_client_credentials",
        "ref": f"secret://{lot[0].name}",
        "client_id": CONTROL,
        "token_url": http.url,
    }
    place = {"url": http.url, "auth": auth, "headers": _fields(lot[1:], "X-Canary-")}
    return Given("server", "login", _record(transport="streamable_http", http=place), lot)


async def _backend(site: CanarySite, stack: AsyncExitStack, lot: list[Canary]) -> Given:
    upstream = await stack.enter_async_context(
        ScriptedUpstream(models=[CONTROL, *(one.value for one in lot)])
    )
    record = {
        "base_url": upstream.url,
        "key_ref": f"secret://{lot[0].name}",
        "headers": _fields(lot[1:], "X-Canary-"),
    }
    site.upstream = upstream
    return Given("backend", "main", record, lot)
