"""How a replica follows what others write: a bell rings, and every two seconds it looks anyway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.errors import StoreUnavailable
from bascule.db.postgres import Postgres
from bascule.db.postgres_listener import Listener
from bascule.lifetime import Tasks

POLL_SECONDS = 2.0


@asynccontextmanager
async def following(
    postgres: Postgres,
    channel: str,
    catch_up: Callable[[], Awaitable[None]],
    clock: Clock = SYSTEM_CLOCK,
) -> AsyncGenerator[None]:
    """Catch up whenever somebody may have written, while the block runs."""
    bell = asyncio.Event()
    tasks = Tasks()
    tasks.start(Listener(postgres, channel, lambda _: bell.set()).run())
    tasks.start(_ring(bell, clock))
    tasks.start(_follow(bell, catch_up))
    try:
        yield
    finally:
        await tasks.end()


async def _ring(bell: asyncio.Event, clock: Clock) -> None:
    """Ring now and then, however long a look takes: what is written meanwhile is seen next."""
    while True:
        await clock.sleep(POLL_SECONDS)
        bell.set()


async def _follow(bell: asyncio.Event, catch_up: Callable[[], Awaitable[None]]) -> None:
    while True:
        bell.clear()
        with suppress(StoreUnavailable):  # what is known goes on, and the next look may succeed
            await catch_up()
        await bell.wait()


class Turns:
    """Looks that answer everybody who asked before they began."""

    def __init__(self, look: Callable[[], Awaitable[None]]) -> None:
        self._look = look
        self._one = asyncio.Lock()
        self._asked = 0
        self._answered = 0
        self._trouble: StoreUnavailable | None = None

    async def take(self) -> None:
        """Look, or be answered by whoever looks next; raise StoreUnavailable."""
        self._asked += 1
        mine = self._asked
        async with self._one:
            if self._answered < mine:
                await self._answer()
            if self._trouble is not None:
                raise StoreUnavailable(str(self._trouble)) from self._trouble

    async def _answer(self) -> None:
        asked, self._trouble = self._asked, None
        try:
            await self._look()
        except StoreUnavailable as error:
            self._trouble = error
        self._answered = asked
