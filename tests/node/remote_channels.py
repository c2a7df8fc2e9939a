"""Channels to a scripted server over HTTP, and the few steps that their tests take."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.model.secret_use import server_use
from bascule.node.pool.transport.channel import Channel, Events
from bascule.node.pool.transport.http import HttpChannel
from bascule.node.pool.transport.sse import SseChannel, open_sse
from bascule.node.pool.transport.taps import Tap
from bascule.node.pool.transport.upstream import HttpLimits, Upstream, open_upstream
from bascule.outbound.credentials import Challenge
from bascule.outbound.egress import EgressRules
from bascule.outbound.http import HttpClient, HttpOptions
from bascule.outbound.references import Reading
from bascule.outbound.rules import NodeRules
from bascule.outbound.url import Url
from bascule.server import Server
from bascule.testing import ScriptedHttpServer, ScriptedServer
from bascule.testing.http_dialects import SeenRequest
from bascule.wire.era import (
    MODERN,
    Peer,
    call_params,
    initialize_params,
    modern_meta,
    read_initialize,
    with_members,
)
from bascule.wire.strict_json import dumps

MODERN_PEER = Peer("modern", MODERN, {}, {}, None)
EVERY_STEP = {"echo": "echo", "any": "asked"}


class Keys:
    """A ``Credentials`` with one token after the other: each one refused gives way to the next."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)
        self._headers = [{"Authorization": f"Bearer {token}"} for token in tokens]
        self.refusals = 0

    def at_hand(self) -> Mapping[str, str]:
        return self._headers[-len(self._tokens)]

    async def headers(self) -> Mapping[str, str]:
        return Keys.at_hand(self)

    async def refused(
        self, used: Mapping[str, str] | None = None, challenge: Challenge | None = None
    ) -> bool:
        del challenge
        if used is not None and used["Authorization"] != f"Bearer {self._tokens[0]}":
            return True
        self.refusals += 1
        if len(self._tokens) == 1:
            return False
        self._tokens.pop(0)
        return True

    async def close(self) -> None:
        pass


def script(**more: Any) -> ScriptedServer:
    return ScriptedServer(behaviours=EVERY_STEP, **more)


async def upstream_to(
    url: str,
    keys: Keys | None = None,
    environ: Mapping[str, str] | None = None,
    **fields: Any,
) -> Upstream:
    if keys is not None:
        options = HttpOptions(connect_seconds=5.0, egress=EgressRules(()))
        headers = fields.get("headers", {})
        return Upstream(HttpClient(options), Url.parse(url), headers=headers, credentials=keys)
    record = Server.http("r", url, **fields)
    return await open_upstream(
        record, Reading(NodeRules(), environ or {}, None, server_use(record))
    )


@contextlib.asynccontextmanager
async def http_channel(
    http: ScriptedHttpServer,
    *,
    events: Events | None = None,
    limits: HttpLimits | None = None,
    clock: Clock = SYSTEM_CLOCK,
    keys: Keys | None = None,
    **fields: Any,
) -> AsyncGenerator[HttpChannel]:
    """Open a channel that has not said anything yet."""
    upstream = await upstream_to(http.url, keys, **fields)
    channel = HttpChannel(upstream, events or Events(), limits=limits, clock=clock)
    try:
        async with asyncio.timeout(20):
            yield channel
    finally:
        await channel.close()


@contextlib.asynccontextmanager
async def sse_channel(
    http: ScriptedHttpServer,
    *,
    events: Events | None = None,
    limits: HttpLimits | None = None,
    keys: Keys | None = None,
    **fields: Any,
) -> AsyncGenerator[SseChannel]:
    """Open a channel of HTTP+SSE whose stream is there, after the handshake."""
    upstream = await upstream_to(http.url, keys, **fields)
    try:
        async with asyncio.timeout(20):
            channel = await open_sse(upstream, events or Events(), limits=limits)
            try:
                await greet(channel)
                yield channel
            finally:
                await channel.close()
    finally:
        await upstream.close()


async def greet(channel: Channel, era: str = "legacy") -> None:
    """Agree on a generation, as the client does."""
    if era == "modern":
        channel.settle(MODERN_PEER)
        return
    result = await channel.request("initialize", initialize_params(), deadline=within(10))
    channel.settle(read_initialize(result))
    channel.notify("notifications/initialized", b"{}")


def within(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def ask(
    channel: Channel,
    step: Any = "echo",
    *,
    text: str = "hi",
    era: str = "legacy",
    seconds: float = 10,
    tap: Tap | None = None,
) -> str:
    """Call the tool that does as it is asked, and give back its text."""
    meta = modern_meta() if era == "modern" else b""
    if tap is not None:
        meta = with_members(meta, {"progressToken": tap.token})
    params = call_params("any", dumps({"do": step, "text": text}), b"", meta)
    result: Any = await channel.request(
        "tools/call", params, deadline=within(seconds), name="any", tap=tap
    )
    return result["content"][0]["text"]


def seen_by(http: ScriptedHttpServer, verb: str, method: str | None = None) -> list[SeenRequest]:
    """Return the requests of a kind that came in."""
    return [seen for seen in http.requests if (seen.verb, seen.method) == (verb, method)]
