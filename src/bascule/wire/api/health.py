"""Health, readiness, and the proof of a data directory's owner."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

#: The reason for which servers themselves have to be looked at.
UNWELL_SERVERS = "servers_unwell"
NOT_FOLLOWING = "not_following"
#: A node has not heard from its control plane for so long that it decides nothing.
STALE = "stale"
#: The control plane of a node refuses it, and it decides nothing.
NODE_REFUSED = "node_refused"


class Health(Struct, frozen=True):
    """How the process is: ``servers`` counts them by state.

    ``reasons`` say why it is degraded, in words, by codes that stay the same. Without a token that
    may read the metrics the words name no host and no replica.
    """

    status: Literal["ok", "degraded"]
    revision: int
    servers: dict[str, int]
    reasons: dict[str, str] = {}


class Ready(Struct, frozen=True):
    """The process serves and can write."""

    status: Literal["ready"] = "ready"


class InstanceProof(Struct, frozen=True):
    """What only the process that holds the lock can answer to a challenge."""

    proof: str
