"""The driver of PostgreSQL as it is used here, with the types that it does not say itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import asyncpg

#: All that the driver raises: a server that was killed shows as an error of the client.
FAULTS: tuple[type[Exception], ...] = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
_driver: Any = asyncpg


class Row(Protocol):
    """A row: its columns by place and by name."""

    def __getitem__(self, column: int | str, /) -> Any: ...

    def __iter__(self) -> Any: ...

    def __len__(self) -> int: ...


class Connection(Protocol):
    """What a transaction asks of a connection."""

    async def execute(self, query: str, *args: object) -> str: ...

    async def executemany(self, command: str, args: Sequence[Sequence[object]]) -> None: ...

    async def fetch(self, query: str, *args: object) -> list[Row]: ...

    async def fetchrow(self, query: str, *args: object) -> Row | None: ...

    async def fetchval(self, query: str, *args: object) -> Any: ...

    def terminate(self) -> None:
        """Cut it, whatever it does."""
        ...


class OwnConnection(Connection, Protocol):
    """A connection that belongs to one owner."""

    def add_termination_listener(self, callback: Callable[[object], None]) -> None: ...

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    def is_closed(self) -> bool: ...

    async def close(self) -> None: ...


class Pool(Protocol):
    """Connections that are lent and given back."""

    async def acquire(self) -> Connection: ...

    async def release(
        self,
        connection: Connection,
        /,
        *,
        timeout: float,  # noqa: ASYNC109 - the driver's own name
    ) -> None: ...

    def get_size(self) -> int: ...

    def get_idle_size(self) -> int: ...

    async def close(self) -> None: ...

    def terminate(self) -> None: ...


async def connect(dsn: str, *, seconds: float, settings: dict[str, str]) -> OwnConnection:
    """Return a connection of one's own."""
    return await _driver.connect(dsn, timeout=seconds, server_settings=settings)


async def make_pool(
    dsn: str, *, most: int, seconds: float, settings: dict[str, str], prepared: int
) -> Pool:
    """Return a pool, with no connection yet; ``prepared`` statements are kept by each."""
    reset: Callable[[object], Awaitable[None]] = _keep_as_it_is
    return await _driver.create_pool(
        dsn,
        min_size=0,
        max_size=most,
        reset=reset,
        statement_cache_size=prepared,
        server_settings=settings,
        timeout=seconds,
    )


async def _keep_as_it_is(_: object) -> None:
    """Leave a connection as it is when it is given back: transactions leave nothing behind."""
