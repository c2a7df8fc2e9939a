"""What only one replica of a control plane does at a time, and what replicas know of each other.

``postgres_duties.py`` is for replicas that share a database. One that has its store for itself
(``LocalDuties``) has every duty, always.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, Protocol

from msgspec import Struct

#: Compaction of the past, loading of files, and forgetting of nodes that are gone.
Duty = Literal["compaction", "files", "forgetting"]


class FileCopy(Struct, frozen=True, kw_only=True):
    """What a replica's files said when it looked last.

    ``load`` is the number of its own last load among those of all replicas, 0 if there was none:
    clocks of several machines do not say what came first.
    """

    replica: str
    digest: str
    seen_at: float
    load: int = 0


class Duties(Protocol):
    """Shares duties among replicas. What cannot be asked raises StoreUnavailable."""

    #: The name of this one.
    replica: str

    def mine(self, duty: Duty) -> AbstractAsyncContextManager[bool]:
        """Say whether the duty is this replica's for as long as the block; it waits for nobody."""
        ...

    async def copies(self) -> tuple[FileCopy, ...]:
        """Return what replicas said last of their copies of the files."""
        ...

    async def keep_copy(self, copy: FileCopy) -> None:
        """Keep what this replica says of its copy, in place of what it said before."""
        ...


class LocalDuties:
    """``Duties`` of a process that shares its store with nobody."""

    def __init__(self, replica: str = "local") -> None:
        self.replica = replica
        self._copy: tuple[FileCopy, ...] = ()

    @asynccontextmanager
    async def mine(self, duty: Duty) -> AsyncGenerator[bool, None]:
        """Say yes."""
        del duty
        yield True

    async def copies(self) -> tuple[FileCopy, ...]:
        """Return what this process said."""
        return self._copy

    async def keep_copy(self, copy: FileCopy) -> None:
        """Keep it for as long as the process lives."""
        self._copy = (copy,)
