"""A close look at one server, for doctors and trials."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from bascule.clock import SYSTEM_CLOCK
from bascule.model.json import JsonObject
from bascule.node.pool.client import McpClient
from bascule.node.pool.connection import Connection
from bascule.node.ports import Listing
from bascule.node.trial_steps import TrialSteps
from bascule.wire.api.trials import Step
from bascule.wire.era import Era


class ServerInspection(Struct, frozen=True, kw_only=True):
    """What a server is and lists when it is looked at closely; names are its own words."""

    server_id: str
    era: Era
    protocol_version: str
    server_info: JsonObject
    connect_ms: float
    list_ms: float
    listing: Listing


async def inspect(
    connection: Connection, *, afresh: bool = False, steps: TrialSteps | None = None
) -> ServerInspection:
    """Connect and list, with the time each takes now; raise what goes wrong.

    ``afresh`` is for a person who asks whether it works now: no pause after failures is waited
    out, and no earlier list will do. ``steps`` are told of each step.
    """
    steps = steps or TrialSteps(SYSTEM_CLOCK)
    time = asyncio.get_running_loop().time
    started = time()
    if afresh:
        connection.forgive()
    client = await _connected(connection, steps)
    connected = time()
    steps.begin("list")
    listing = await (connection.catalogue.renew() if afresh else connection.listing())
    steps.done(f"{len(listing.tools)} tools")
    return ServerInspection(
        server_id=connection.record.server_id,
        era=client.peer.era,
        protocol_version=client.peer.version,
        server_info=client.peer.server_info,
        connect_ms=(connected - started) * 1000,
        list_ms=(time() - connected) * 1000,
        listing=listing,
    )


async def _connected(connection: Connection, steps: TrialSteps) -> McpClient:
    if connection.watch is not None and connection.watch.client.channel.alive:
        way: Step = "start" if connection.record.transport == "stdio" else "connect"
        steps.skip("resolve", way, "handshake")
        return await connection.client()
    with connection.starter.followed_by(steps):
        client = await connection.client()
    steps.done(f"protocol {client.peer.version}")
    return client
