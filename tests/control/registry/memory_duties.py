"""Duties in memory: the twin of those on PostgreSQL, for replicas of one process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from bascule.control.registry.duties import Duty, FileCopy


class Office:
    """What replicas share: who has which duty, and their copies."""

    def __init__(self) -> None:
        self.taken: set[Duty] = set()
        self.copies: dict[str, FileCopy] = {}


class MemoryDuties:
    """``Duties`` of one replica among those of an office."""

    def __init__(self, office: Office, replica: str) -> None:
        self.replica = replica
        self._office = office

    @asynccontextmanager
    async def mine(self, duty: Duty) -> AsyncGenerator[bool, None]:
        if duty in self._office.taken:
            yield False
            return
        self._office.taken.add(duty)
        try:
            yield True
        finally:
            self._office.taken.remove(duty)

    async def copies(self) -> tuple[FileCopy, ...]:
        return tuple(self._office.copies[one] for one in sorted(self._office.copies))

    async def keep_copy(self, copy: FileCopy) -> None:
        self._office.copies[copy.replica] = copy
