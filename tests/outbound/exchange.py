"""One request to a server of a test, and what came of it."""

from __future__ import annotations

import asyncio
import ssl
import stat
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from bascule.errors import BasculeError
from bascule.outbound.egress import EgressRules
from bascule.outbound.failures import Unconnected
from bascule.outbound.http import (
    HttpAnswer,
    HttpClient,
    HttpOptions,
    HttpRequest,
    Proxy,
    Resolve,
)
from bascule.outbound.url import Url

LIMIT = 2**20

ASYNCIO = ("asyncio", {"use_uvloop": False})
UVLOOP = ("asyncio", {"use_uvloop": True})
#: ``pytestmark`` of a module whose tests run on both event loops.
BOTH_LOOPS = pytest.mark.parametrize("anyio_backend", [ASYNCIO, UVLOOP], ids=["asyncio", "uvloop"])


def url(text: str) -> Url:
    """Return a URL as the client takes it."""
    return Url.parse(text)


class Outcome(Struct, frozen=True):
    """An answer, or the name of the failure (and, without a connection, why)."""

    status: int = 0
    body: bytes = b""
    failure: str = ""


def failed(name: str) -> Outcome:
    return Outcome(failure=name)


@asynccontextmanager
async def client(
    *,
    tls: ssl.SSLContext | None = None,
    connect_seconds: float = 20,
    egress: EgressRules | None = None,
    connections: int = 256,
    resolve: Resolve | None = None,
    proxy: Proxy | None = None,
) -> AsyncGenerator[HttpClient]:
    """Be a client while the block runs."""
    options = HttpOptions(
        connect_seconds=connect_seconds,
        egress=egress,
        tls=tls,
        connections=connections,
        resolve=resolve,
        proxy=proxy,
    )
    made = HttpClient(options)
    try:
        yield made
    finally:
        await made.close()


def request(
    address: str,
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = b"{}",
    seconds: float = 20,
    idle_seconds: float | None = None,
) -> HttpRequest:
    """Return a request with a deadline; GET and HEAD carry no body."""
    deadline = asyncio.get_running_loop().time() + seconds
    data = None if method in ("GET", "HEAD") else body
    return HttpRequest(method, url(address), headers or {}, data, deadline, idle_seconds)


async def outcome(http: HttpClient, asked: HttpRequest, *, limit: int = LIMIT) -> Outcome:
    """Send a request, read the answer to its end and say what came of it."""
    try:
        answer = await http.send(asked)
        status = answer.status
        body = await answer.read(limit)
    except Unconnected as error:
        return failed(f"Unconnected: {error.why}")
    except BasculeError as error:
        return failed(type(error).__name__)
    answer.close()
    return Outcome(status, body)


async def gathered(answer: HttpAnswer) -> bytes:
    """Return the pieces of an answer, joined."""
    return b"".join([piece async for piece in answer])


def descriptors() -> int:
    """Count the sockets that this process holds."""
    return sum(_is_socket(path) for path in Path("/proc/self/fd").iterdir())


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:  # the descriptor of this very listing
        return False
