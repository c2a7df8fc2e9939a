"""Statements of one transaction, in words that every database here understands.

What judges by rows is written once, as a plain function over ``Statements``: SQLite's own
connection is one, and PostgreSQL has one of its own (``db/postgres_transactions.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from bascule.db.group import Work

T = TypeVar("T")
#: Values by the place of their ``?``, or by their ``:name``.
Values: TypeAlias = Sequence[Any] | Mapping[str, Any]


class Found(Protocol):
    """What a statement found, as tuples."""

    @property
    def rowcount(self) -> int:
        """Return how many rows a statement changed."""
        ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Statements(Protocol):
    """A transaction, on the thread that it runs on."""

    def execute(self, query: str, values: Values = (), /) -> Found:
        """Run one statement."""
        ...


class Transactions(Protocol):
    """A database whose transactions are functions over their statements."""

    @property
    def refusal(self) -> str | None:
        """Return why the last write was refused, in words without a path; None if it was not."""
        ...

    async def write(
        self, work: Callable[[Statements], T], *, after: Callable[[T], None] | None = None
    ) -> T:
        """Run a whole transaction; return what it returned, once that is durable.

        ``after`` is called right after the commit, also when whoever waited has been cancelled
        meanwhile.
        """
        ...

    async def write_all(self, works: Sequence[Work[Statements]], /) -> Sequence[Exception | None]:
        """Run one transaction of several works; see :class:`bascule.db.group.Store`."""
        ...

    async def read(self, work: Callable[[Statements], T]) -> T:
        """Run several queries over one snapshot."""
        ...

    async def heal(self) -> None:
        """After a write that failed, read what is really there; raise StoreUnavailable."""
        ...

    async def forget_log(self) -> None:
        """Empty the log of what was overwritten, where there is one that can be."""
        ...

    async def close(self) -> None:
        """Wait for what is under way, then let go of the database."""
        ...
