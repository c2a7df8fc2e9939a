"""What following a registry needs: a source of snapshots and changes, and a node to give them to.

The registry may be in this process or behind its API; the node is a bridge.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from bascule.model.snapshot import Snapshot, SnapshotChange
from bascule.model.status import ServerStatus
from bascule.node.changes import Announcing

#: A ``stale`` node has not heard from its registry for so long that it decides nothing; neither
#: does one that its registry has ``refused``.
SyncState = Literal["ok", "degraded", "stale", "refused"]


class Report(Struct, frozen=True):
    """What a node tells its registry: the revision in force, and every server, once.

    ``reason`` is why it is degraded.
    """

    revision: int
    state: Literal["ok", "degraded"]
    servers: tuple[ServerStatus, ...]
    reason: str | None = None


class RegistrySource(Protocol):
    """A registry as a node sees it. Every method may raise a BasculeError."""

    async def snapshot(self, known: Snapshot | None = None) -> Snapshot:
        """Return everything at the newest revision; ``known`` itself if it is that."""
        ...

    async def watch(self, since: Snapshot) -> AsyncGenerator[SnapshotChange, None]:
        """Return the changes after a snapshot as they come; an idle one repeats the revision."""
        ...

    async def report(self, report: Report) -> None:
        """Take what the node says, in place of what it said before."""
        ...


class FollowingNode(Announcing, Protocol):
    """What follows: it serves a snapshot, takes another, and tells of its connections."""

    snapshot: Snapshot

    async def apply(self, snapshot: Snapshot) -> None:
        """Decide by this from now on, then move connections."""
        ...

    def statuses(self) -> Sequence[ServerStatus]:
        """Return how every server's connection stands."""
        ...
