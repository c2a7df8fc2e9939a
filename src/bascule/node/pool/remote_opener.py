"""Opening a channel to a remote server; imported only then, as the HTTP client is slow to load."""

from __future__ import annotations

from collections.abc import Mapping

from bascule.clock import Clock
from bascule.model.server import ServerRecord
from bascule.node.pool.transport.channel import Channel, Events
from bascule.node.pool.transport.http import HttpChannel
from bascule.node.pool.transport.sse import open_sse
from bascule.node.pool.transport.upstream import Learned, open_upstream
from bascule.outbound.credentials import SignIn
from bascule.outbound.references import SecretResolver
from bascule.outbound.rules import NodeRules


async def open_remote(  # noqa: PLR0913 - what a node knows, all by keyword
    record: ServerRecord,
    events: Events,
    *,
    rules: NodeRules,
    environ: Mapping[str, str],
    secrets: SecretResolver | None,
    clock: Clock,
    learned: Learned,
    sign_in: SignIn | None = None,
) -> Channel:
    """Open the channel that a record's transport asks for."""
    upstream = await open_upstream(
        record,
        rules,
        environ=environ,
        secrets=secrets,
        clock=clock,
        learned=learned,
        sign_in=sign_in,
    )
    if record.transport == "streamable_http":
        return HttpChannel(upstream, events, clock=clock)
    try:
        return await open_sse(upstream, events)
    except BaseException:
        await upstream.close()
        raise
