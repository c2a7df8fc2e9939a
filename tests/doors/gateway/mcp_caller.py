"""An MCP client at its plainest: a POST for each message, in either generation, at either route."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import aiohttp

from bascule.wire.era import LEGACY, META, MODERN
from tests.asgi.caller import Answer, ask
from tests.doors.gateway.schemas import check

Json = dict[str, Any]
#: Sends a body to a path with these headers; any way to a gateway will do.
Post: TypeAlias = Callable[[str, dict[str, str], bytes], Awaitable[Answer]]
#: Which names mean nothing to a caller, and which servers: -32602, and 404.
UNKNOWN_TOOL, NO_SERVER = "-32602", "404"
#: Both routes in both generations: whether for one server, and whether modern.
WAYS = {
    "all, modern": (False, True),
    "all, legacy": (False, False),
    "one, modern": (True, True),
    "one, legacy": (True, False),
}


def envelope(
    method: str, params: Json | None, meta: Json | None, *, modern: bool, id: int | str
) -> tuple[Json, dict[str, str]]:
    """Return a request as a client of a generation sends it: the message, and its headers."""
    sent, about, headers = dict(params or {}), dict(meta or {}), dict[str, str]()
    if modern:
        about = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}, **about}
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        headers |= {"Mcp-Name": sent["name"]} if "name" in sent else {}
    sent |= {"_meta": about} if about else {}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": sent}, headers


def in_process(app: Any) -> Post:
    """Return the way to an application in this process."""

    async def post(path: str, headers: dict[str, str], body: bytes) -> Answer:
        sent = {**headers, "Content-Length": str(len(body))}
        return await ask(app, "POST", path, sent, chunks=[body])

    return post


def over_http(http: aiohttp.ClientSession, url: str) -> Post:
    """Return the way to a process that serves."""

    async def post(path: str, headers: dict[str, str], body: bytes) -> Answer:
        async with http.post(url + path, data=body, headers=headers) as answer:
            found = [(name.lower(), value) for name, value in answer.headers.items()]
            return Answer(answer.status, found, await answer.read())

    return post


def messages_of(answer: Answer) -> list[Json]:
    """Return all that an answer says, the last of it the result: of JSON that is all."""
    if answer.header("content-type") != "text/event-stream":
        return [answer.json]
    lines = answer.body.split(b"\n")
    return [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]


@dataclass
class McpCaller:
    """One client with a token; a legacy one opens a session first."""

    post: Post
    token: str
    route: str = "/mcp"
    modern: bool = True
    headers: dict[str, str] = field(default_factory=dict[str, str])
    session: str = ""
    #: The id of every request: equal ones must not be mixed up.
    id: int = 1

    async def open(self) -> Json:
        """Begin as a client begins: return what it is told."""
        if self.modern:
            answer = await self.ask("server/discover")
        else:
            client = {"name": "t", "version": "1"}
            said = {"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": client}
            answer = await self.ask("initialize", said)
            self.session = answer.header("mcp-session-id") or ""
        return {**answer.json, "status": answer.status}

    async def ask(
        self, method: str, params: Json | None = None, meta: Json | None = None
    ) -> Answer:
        """Send one request; what is taken and every answer have to be valid in their version."""
        body, own = envelope(method, params, meta, modern=self.modern, id=self.id)
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            **self.headers,
            **own,
        }
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        answer = await self.post(self.route, headers, json.dumps(body).encode())
        version, messages = MODERN if self.modern else LEGACY[0], messages_of(answer)
        if "result" in messages[-1]:
            check(body, version, sender="client")
        for message in messages:
            check(message, version, sender="server", answers=method)
        return answer

    async def tools(self) -> list[Json]:
        """List the tools."""
        return (await self.ask("tools/list")).json["result"]["tools"]

    async def call(self, name: str, arguments: Json | None = None, **meta: Any) -> Json:
        """Call a tool; return the whole answer."""
        params = {"name": name, "arguments": arguments or {}}
        answer = await self.ask("tools/call", params, {f"bascule/{k}": v for k, v in meta.items()})
        return {**answer.json, "status": answer.status}


async def opened(
    post: Post, token: str, server: str, way: str, **headers: str
) -> tuple[McpCaller, Callable[[str], str]]:
    """Open a client at one of the ``WAYS``; return it, and how it names tools of a server."""
    one, modern = WAYS[way]
    route = f"/mcp/servers/{server}" if one else "/mcp"
    caller = McpCaller(post, token, route, modern, headers)
    await caller.open()
    return caller, (lambda tool: tool) if one else (lambda tool: f"mcp__{server}__{tool}")


def code_of(answer: Json) -> str | None:
    """Return what went wrong with a call, if anything: our code, or else the error's own."""
    if "error" in answer:
        error = answer["error"]
        if answer.get("status") == 404 and error["code"] == -32601:
            return NO_SERVER
        return str(error["code"])
    result = answer["result"]
    meta = result.get("_meta", {})
    failed = meta.get("bascule/error")
    assert (failed is not None) == bool(result.get("isError"))
    if failed is not None:
        return failed["code"]
    return "mcp_output_too_large" if "bascule/truncated" in meta else None
