"""Opening a channel to a remote server; imported only then, as the HTTP client is slow to load."""

from __future__ import annotations

from functools import partial

from bascule.clock import Clock
from bascule.model.server import ServerRecord
from bascule.node.pool.transport.channel import Channel, Events
from bascule.node.pool.transport.http import HttpChannel
from bascule.node.pool.transport.sse import open_sse
from bascule.node.pool.transport.upstream import Learned, open_upstream
from bascule.outbound.references import Reading


async def open_remote(
    record: ServerRecord, events: Events, reading: Reading, clock: Clock, learned: Learned
) -> Channel:
    """Open the channel that a record's transport asks for."""
    upstream = await open_upstream(
        record,
        reading,
        clock,
        learned,
        on_outdated=events.on_outdated,
        on_connected=partial(events.on_step, "handshake"),
    )
    events.on_step("connect")
    if record.transport == "streamable_http":
        return HttpChannel(upstream, events, clock=clock)
    try:
        return await open_sse(upstream, events)
    except BaseException:
        await upstream.close()
        raise
