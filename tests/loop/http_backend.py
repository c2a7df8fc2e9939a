"""A backend that leads to a scripted server, and the ways to ask it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from bascule.loop.backend import ChatUpstream, UpstreamFailed
from bascule.loop.http_answers import UpstreamLimits
from bascule.loop.http_backend import HttpUpstream
from bascule.model.backend import BackendRecord
from bascule.outbound.rules import NodeRules
from bascule.testing import FakeClock, ScriptedUpstream

KEY = "sk-a-key-that-nobody-may-see"
ASKED: Mapping[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


@asynccontextmanager
async def reached(
    upstream: ScriptedUpstream,
    *,
    rules: NodeRules | None = None,
    limits: UpstreamLimits | None = None,
    **fields: Any,
) -> AsyncGenerator[HttpUpstream]:
    """Yield a backend that leads to a scripted server."""
    plain: dict[str, Any] = {"name": "b", "base_url": upstream.url, "key_ref": "${ENV:B_KEY}"}
    backend = HttpUpstream(
        BackendRecord(**plain | fields),
        rules=rules or NodeRules(),
        environ={"B_KEY": KEY},
        clock=FakeClock(),
        limits=limits,
    )
    try:
        yield backend
    finally:
        await backend.close()


async def streamed(backend: ChatUpstream, seconds: float = 5) -> list[dict[str, Any]]:
    async with aclosing(backend.stream(ASKED, seconds=seconds)) as chunks:
        return [one async for one in chunks]


def text_of(chunks: list[dict[str, Any]]) -> str:
    deltas = [choice["delta"] for one in chunks for choice in one["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


async def failed(backend: ChatUpstream, *, stream: bool = False, seconds: float = 5) -> Any:
    """Return the failure of a request; the key stands in nothing it says."""
    asking = streamed(backend, seconds) if stream else backend.complete(ASKED, seconds=seconds)
    with pytest.raises(UpstreamFailed) as raised:
        await asking
    error = raised.value
    shown = f"{error!r} {error} {error.error} {error.__cause__!r} {error.__context__!r} {backend!r}"
    assert KEY not in shown
    return error
