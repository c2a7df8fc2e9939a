"""What following a registry needs: a source of snapshots and changes, and a node to give them to.

The registry may be in this process or behind its API; the node is a bridge.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from bascule.model.health import State, Trouble
from bascule.model.snapshot import Snapshot, SnapshotChange

SyncState = Literal["ok", "degraded"]


class ServerState(Protocol):
    """How one server's connection stands, as the pool says it."""

    @property
    def server_id(self) -> str:
        """Return whose connection it is."""
        ...

    @property
    def state(self) -> State:
        """Return the word for where it stands."""
        ...

    @property
    def last_error(self) -> str | None:
        """Return what went wrong last, if anything."""
        ...

    @property
    def trouble(self) -> Trouble | None:
        """Return what is wrong with the server, if anything is."""
        ...

    @property
    def starting(self) -> str | None:
        """Return where a start under way stands, with what the server said last."""
        ...

    @property
    def tool_count(self) -> int | None:
        """Return how many tools it lists, once that is known."""
        ...

    @property
    def latency_ms(self) -> float | None:
        """Return how long its last call took, once there was one."""
        ...

    @property
    def average_latency_ms(self) -> float | None:
        """Return how long its calls take on average, once there was one."""
        ...

    @property
    def reconnects(self) -> int:
        """Return how often it was connected again."""
        ...


class Report(Struct, frozen=True):
    """What a node tells its registry: the revision in force, and every server, once."""

    revision: int
    state: SyncState
    servers: tuple[ServerState, ...]


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


class FollowingNode(Protocol):
    """What follows: it serves a snapshot, and takes another."""

    snapshot: Snapshot

    async def apply(self, snapshot: Snapshot) -> None:
        """Decide by this from now on, then move connections."""
        ...

    def statuses(self) -> Sequence[ServerState]:
        """Return how every server's connection stands."""
        ...
