"""Requests to an application in this process, as an ASGI server would send them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.guard import OPEN, Access, GuardedApp, GuardedRoute, GuardRules, route
from bascule.asgi.json import json_response, read_json
from bascule.auth.memory_token_store import MemoryTokenStore
from bascule.auth.tokens import Tokens
from bascule.clock import Clock
from bascule.model.role import Role
from bascule.testing.clock import FakeClock
from tests.waits import SOON_SECONDS

KEY = b"k" * 32
Given = dict[str, str] | list[tuple[str, str]]
HOST = (b"host", b"127.0.0.1:7070")


@dataclass
class Answer:
    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Our code: in JSON-RPC it stands beside the error's own."""
        error = self.json["error"]
        return error["data"]["code"] if "jsonrpc" in self.json else error["code"]


def raw_headers(
    headers: Given,
) -> list[tuple[bytes, bytes]]:
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs]


def http_scope(method: str, path: str, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    if not any(name == b"host" for name, _ in headers):
        headers = [HOST, *headers]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "scheme": "http",
        "root_path": "",
        "headers": [pair for pair in headers if pair != (b"host", b"-")],
    }


async def ask(
    app: Any,
    method: str,
    path: str,
    headers: Given | None = None,
    *,
    chunks: Iterable[bytes] = (b"",),
) -> Answer:
    """Send one request; the body comes in these chunks. ``host: -`` sends no Host at all."""
    waiting = list(chunks)
    answer = Answer()

    async def receive() -> dict[str, Any]:
        if not waiting:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = [(k.decode(), v.decode("latin-1")) for k, v in message["headers"]]
        else:
            answer.body += message.get("body", b"")

    async with asyncio.timeout(SOON_SECONDS):
        await app(http_scope(method, path, raw_headers(headers or {})), receive, send)
    return answer


def make_tokens(clock: Clock | None = None) -> Tokens:
    return Tokens(MemoryTokenStore(), KEY, clock or FakeClock())


async def bearer(tokens: Tokens, role: Role = "admin") -> dict[str, str]:
    task_id = "t" if role == "client" else None
    minted = await tokens.mint(role, role, task_id=task_id)
    return {"Authorization": f"Bearer {minted.token}"}


async def said_ok(request: Request) -> Response:
    return json_response({"ok": True})


async def echo(request: Request) -> Response:
    return json_response({"got": await read_json(request)})


def ok_route(path: str = "/", access: Access = OPEN) -> GuardedRoute:
    return route(path, said_ok, ["GET", "POST"], permission=access)


def app_of(
    *routes: GuardedRoute, tokens: Tokens | None = None, rules: GuardRules | None = None
) -> GuardedApp:
    return GuardedApp(routes or (ok_route(),), tokens or make_tokens(), rules)
