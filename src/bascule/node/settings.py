"""The node's own limits and rhythms, as one frozen value."""

from __future__ import annotations

from msgspec import Struct


class NodeSettings(Struct, frozen=True, kw_only=True):
    """How much a node does at once, and how often it looks after its connections."""

    #: Calls in flight over all servers, and server processes alive at once.
    max_concurrency: int = 256
    max_processes: int = 64
    #: Of those, how many servers of one task may have.
    max_processes_per_task: int = 32
    #: How long a call waits for a person when its caller gives no time of its own.
    approval_seconds: float = 600.0
    #: A connection unused for this long is closed; it opens again on demand.
    idle_seconds: float = 600.0
    #: No start takes longer, handshake included, whatever a record says.
    start_seconds: float = 600.0
    keepalive_seconds: float = 60.0
    keepalive_timeout: float = 5.0
    #: How long a tool list is good for when its server does not say, and a failure to list, which
    #: is remembered for twice as long each time, up to ``backoff_limit_seconds``.
    list_ttl_seconds: float = 300.0
    list_failure_seconds: float = 2.0
    list_debounce_seconds: float = 0.1
    #: A list waits this long for a server that starts and does not work, while others have listed;
    #: for a launcher, which may be fetching, the second.
    grace_seconds: float = 6.0
    fetch_grace_seconds: float = 20.0
    #: Reconnecting: jitter over a doubling delay, from this share of it up, and when a server is
    #: parked.
    backoff_seconds: float = 0.25
    backoff_limit_seconds: float = 30.0
    backoff_floor: float = 0.0
    #: Whether a server that was wanted once is tried again until it is connected, parked or not;
    #: otherwise it is connected when it is wanted again.
    keep: bool = False
    reconnects: int = 3
    park_after: int = 6
    park_seconds: float = 120.0
    losses_per_minute: int = 20
    #: A caller waits this long for a delayed reconnect before it is told that the server is down.
    patience_seconds: float = 2.0
