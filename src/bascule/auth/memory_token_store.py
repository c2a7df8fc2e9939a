"""Where token records live, as tokens need it, and the same in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from bascule.auth.token_record import TokenRecord


class TokenStore(Protocol):
    """Where token records live."""

    async def add(self, record: TokenRecord) -> None:
        """Keep a record; it is durable on return."""
        ...

    async def add_first(self, record: TokenRecord, prepare: Callable[[], Awaitable[None]]) -> bool:
        """Keep a record if there is no other, once all is prepared; say whether it was."""
        ...

    async def by_digest(self, *digests: bytes) -> TokenRecord | None:
        """Return the record with exactly one of these digests."""
        ...

    async def replace(self, old: TokenRecord, new: TokenRecord) -> bool:
        """Put another record in the place of one; False if that is not there as it was."""
        ...

    async def remove(self, token_id: str) -> bool:
        """Forget a record; say whether there was one."""
        ...

    async def records(self) -> tuple[TokenRecord, ...]:
        """Return all records, oldest first."""
        ...

    def state(self) -> object:
        """Return what is another after every write, by whatever process; None while unsure."""
        ...


class MemoryTokenStore:
    """A ``TokenStore`` that lives as long as its process."""

    def __init__(self) -> None:
        self._by_digest: dict[bytes, TokenRecord] = {}
        self._writes = 0

    async def add(self, record: TokenRecord) -> None:
        """Keep a record."""
        self._writes += 1
        self._by_digest[record.digest] = record

    async def add_first(self, record: TokenRecord, prepare: Callable[[], Awaitable[None]]) -> bool:
        """Keep a record if there is no other."""
        if self._by_digest:
            return False
        await prepare()
        await self.add(record)
        return True

    async def by_digest(self, *digests: bytes) -> TokenRecord | None:
        """Return the record with exactly one of these digests."""
        found = (self._by_digest.get(digest) for digest in digests)
        return next((record for record in found if record is not None), None)

    async def replace(self, old: TokenRecord, new: TokenRecord) -> bool:
        """Put another record in the place of one; False if that is not there as it was."""
        if self._by_digest.get(old.digest) != old:
            return False
        self._writes += 1
        self._by_digest = {
            record.digest: record
            for record in (new if one == old else one for one in self._by_digest.values())
        }
        return True

    async def remove(self, token_id: str) -> bool:
        """Forget a record."""
        self._writes += 1
        found = [record.digest for record in self._by_digest.values() if record.id == token_id]
        for digest in found:
            del self._by_digest[digest]
        return bool(found)

    async def records(self) -> tuple[TokenRecord, ...]:
        """Return all records, oldest first."""
        return tuple(self._by_digest.values())

    def state(self) -> int:
        """Return how often there was a write."""
        return self._writes
