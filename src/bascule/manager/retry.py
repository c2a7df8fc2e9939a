"""The rule by which an agent's servers are tried again, as settings of a bridge."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from bascule.node.settings import NodeSettings

#: Connections of an agent are not closed for idleness: it works as long as it lives.
AGENT_SETTINGS = NodeSettings(
    idle_seconds=float("inf"), max_processes=1024, max_processes_per_task=1024
)


class RetryRules(Struct, frozen=True, kw_only=True):
    """Between ``first_seconds`` and ``limit_seconds``; after ``park_after`` failures, parked."""

    first_seconds: float = 5.0
    limit_seconds: float = 60.0
    park_after: int = 12
    park_seconds: float = 600.0

    def applied(self, settings: NodeSettings = AGENT_SETTINGS) -> NodeSettings:
        """Return settings by which a bridge keeps its connections: a delay, up to twice that."""
        return replace(
            settings,
            keep=True,
            reconnects=1,
            backoff_seconds=2 * self.first_seconds,
            backoff_floor=0.5,
            backoff_limit_seconds=self.limit_seconds,
            park_after=self.park_after,
            park_seconds=self.park_seconds,
        )
