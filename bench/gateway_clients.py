"""A call of the floor server, direct, at the gateway and behind its peers, each in a process.

``python -m bench.gateway_clients CLIENT LOOP PLACE CORE``; see ``serving``. Before every gateway
stands the same bare client. ``PLACE`` is a URL and a token, or empty: a gateway of its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from tempfile import NamedTemporaryFile

from bench import stdio_clients
from bench.api_clients import bascule
from bench.caller import Bare
from bench.http_clients import HEADERS, PARAMS, frame, posting, serving
from bench.peer_servers import PEERS, in_front
from bench.serving import ARGUMENTS, AT_ONCE, TEXT, Call, main, watch
from bench.site import RECORD, TOOL, door

ROUTE = "/mcp"
LEGACY = "2025-11-25"
HELLO = {
    "protocolVersion": LEGACY,
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}
GREETING = {name: HEADERS[name] for name in ("Content-Type", "Accept")}
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
SESSION = "Mcp-Session-Id"
REMOTE = f"""\
server_id = "floor"
transport = "http"
allowed_tools = ["echo"]
[http]
url = "%s"
[budgets]
max_concurrency = {AT_ONCE}
"""
#: The table of ``bascule.toml`` with which the ledger stays in memory.
IN_MEMORY = b"[ledger]\nenabled = false\n"

Headers = Mapping[str, str]
#: Speaks one generation to a URL, with these headers, about a tool of this name.
Speak = Callable[..., AbstractAsyncContextManager[Call]]


class Greeting(Bare):
    """A connection that also hears what an answer's head says."""

    def __init__(self, url: str, headers: Headers) -> None:
        super().__init__(url, headers)
        self.heard: dict[str, str] = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self.heard[name.decode().lower()] = value.decode()


async def greet(url: str, token: Headers) -> Headers:
    """Make the legacy handshake; return the headers of what follows."""
    greeting = {**GREETING, **token}
    async with Greeting(url, greeting) as caller:
        await caller.post(frame(0, HELLO, "initialize"))
        session = caller.heard.get(SESSION.lower())
    headers = {
        **greeting,
        "MCP-Protocol-Version": LEGACY,
        **({SESSION: session} if session else {}),
    }
    async with Bare(url, headers) as caller:
        await caller.post(INITIALIZED)
    return headers


@asynccontextmanager
async def legacy(url: str, token: Headers, tool: str = "echo") -> AsyncGenerator[Call]:
    """Call in a session of the legacy generation."""
    headers = await greet(url, token)
    async with posting(url, headers, {"name": tool, "arguments": ARGUMENTS}) as call:
        yield call


@asynccontextmanager
async def modern(url: str, token: Headers, tool: str = "echo") -> AsyncGenerator[Call]:
    """Call without a session, with all that every modern request has to say."""
    headers = {**HEADERS, **token, "Mcp-Name": tool}
    async with posting(url, headers, {**PARAMS, "name": tool}) as call:
        yield call


@asynccontextmanager
async def opening(url: str, token: Headers, tool: str = "") -> AsyncGenerator[Call]:
    """Open a session with every request, and never use it."""
    del tool

    def read(body: bytes) -> str:
        assert b'"serverInfo"' in body, body
        return TEXT

    async with posting(url, {**GREETING, **token}, HELLO, "initialize", read) as call:
        yield call


GENERATIONS = {"modern": modern, "legacy": legacy}


@asynccontextmanager
async def pipe(place: str) -> AsyncGenerator[Call]:
    """The floor server on stdio, by plain reads and writes: what is behind every gateway."""
    del place
    async with stdio_clients.bare("floor") as call:
        yield call


@asynccontextmanager
async def wire(place: str, speak: Speak) -> AsyncGenerator[Call]:
    """The floor server over HTTP."""
    del place
    with serving("floor") as url:
        async with speak(url, {}) as call:
            yield call


@asynccontextmanager
async def peer(place: str, name: str) -> AsyncGenerator[Call]:
    """Another gateway in front of the floor server on stdio."""
    del place
    with in_front(name, stdio_clients.command("floor")) as (url, pid):
        watch(pid)
        async with legacy(url, {}) as call:
            yield call


@asynccontextmanager
async def gateway(
    place: str, speak: Speak, *, remote: bool = False, durable: bool = False
) -> AsyncGenerator[Call]:
    """Call at ``/mcp`` of ``bascule up``, with the floor server on stdio or over HTTP behind it."""
    with ExitStack() as stack:
        record = REMOTE % stack.enter_context(serving("floor")) if remote else RECORD
        config = stack.enter_context(configured(durable=durable))
        async with (
            door(place, "--config", config, servers=(record,)) as (url, token),
            speak(url + ROUTE, {"Authorization": f"Bearer {token}"}, TOOL) as call,
        ):
            yield call


@asynccontextmanager
async def api(place: str, *, durable: bool = False) -> AsyncGenerator[Call]:
    """The same call at another door, with either ledger: what the ledger itself adds."""
    with configured(durable=durable) as config:
        async with bascule(place, "--config", config) as call:
            yield call


@contextmanager
def configured(*, durable: bool) -> Generator[str]:
    """Write a configuration: with the usual ledger, or with one in memory."""
    with NamedTemporaryFile(suffix=".toml") as file:
        file.write(b"" if durable else IN_MEMORY)
        file.flush()
        yield file.name


CLIENTS = {
    "pipe": pipe,
    "api": api,
    "api, on disk": partial(api, durable=True),
    "initialize": partial(gateway, speak=opening),
    **{f"wire {name}": partial(wire, speak=speak) for name, speak in GENERATIONS.items()},
    **{f"stdio {name}": partial(gateway, speak=speak) for name, speak in GENERATIONS.items()},
    **{
        f"http {name}": partial(gateway, speak=speak, remote=True)
        for name, speak in GENERATIONS.items()
    },
    **{
        f"stdio {name}, on disk": partial(gateway, speak=speak, durable=True)
        for name, speak in GENERATIONS.items()
    },
    **{name: partial(peer, name=name) for name in PEERS},
}

if __name__ == "__main__":
    main(CLIENTS)
