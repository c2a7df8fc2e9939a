"""Writes that share a commit: those that arrive while one runs go together into the next.

A commit costs about the same for one write as for a hundred. What fails is undone alone; a commit
that fails fails for everybody in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
C_contra = TypeVar("C_contra", contravariant=True)
T = TypeVar("T")

#: Writes of one commit at most, so that nobody waits for a very long one.
MOST = 1_000


class Work(Protocol[C_contra]):
    """A part of a transaction."""

    def run(self, connection: C_contra, /) -> None:
        """Do it; what it raises undoes this part and no other."""
        ...

    def committed(self) -> None:
        """Take notice that it is durable; called in the order of the works."""
        ...


class Store(Protocol[C_co]):
    """What makes several works durable with one commit."""

    async def write_all(self, works: Sequence[Work[C_co]], /) -> Sequence[Exception | None]:
        """Run one transaction; return for each work why it was undone, None where it is durable.

        It raises when nothing of the transaction was acknowledged.
        """
        ...


class Group(Generic[C]):
    """A store's writers, of one event loop; its connections are of type ``C``."""

    def __init__(self, store: Store[C]) -> None:
        self._store = store
        self._waiting: deque[_Member[C]] = deque()
        self._committing: asyncio.Task[None] | None = None

    async def write(self, work: Callable[[C], T], *, after: Callable[[T], None] | None = None) -> T:
        """Run a part of a transaction; return what it returned, once that is durable.

        ``after`` is called right after the commit, on the writer's thread, also when whoever
        waited has been cancelled meanwhile. A work whose waiter was cancelled before its
        transaction began is not run.
        """
        write = _Write(work, after)
        member = _Member(write, asyncio.get_running_loop().create_future())
        self._waiting.append(member)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_all())
        await member.done
        return write.result

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                await self._commit(self._together())
        finally:
            self._committing = None

    def _together(self) -> list[_Member[C]]:
        take = self._waiting.popleft
        taken = [take() for _ in range(min(len(self._waiting), MOST))]
        return [member for member in taken if not member.done.done()]

    async def _commit(self, members: Sequence[_Member[C]]) -> None:
        if not members:
            return
        try:
            failures = await self._store.write_all([member.work for member in members])
        except asyncio.CancelledError:
            for member in members:
                member.done.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - those who wait are told, each of them
            failures = [error] * len(members)
        for member, failure in zip(members, failures, strict=True):
            member.tell(failure)


class _Member(Generic[C]):
    """Who waits for a work."""

    def __init__(self, work: Work[C], done: asyncio.Future[None]) -> None:
        self.work = work
        self.done = done

    def tell(self, failure: Exception | None) -> None:
        if self.done.done():  # cancelled meanwhile
            return
        if failure is None:
            self.done.set_result(None)
        elif isinstance(failure, StopIteration):  # which no future takes
            self.done.set_exception(RuntimeError("a work raised StopIteration"))
        else:
            self.done.set_exception(failure)


class _Write(Generic[C, T]):
    """A function as a work, with what it returned."""

    result: T

    def __init__(self, work: Callable[[C], T], after: Callable[[T], None] | None) -> None:
        self._work = work
        self._after = after

    def run(self, connection: C, /) -> None:
        self.result = self._work(connection)

    def committed(self) -> None:
        if self._after is not None:
            self._after(self.result)
