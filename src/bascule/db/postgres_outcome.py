"""What became of a transaction whose commit was not answered.

Each leaves a random mark in a table, which is there if and only if it happened. That it can happen
no more is known by its number; the number alone would not do, as a server that crashed may give it
to another.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TypeVar

from msgspec import Struct

from bascule.clock import SYSTEM_CLOCK
from bascule.db.driver import Connection
from bascule.db.errors import OutcomeUnknown, StoreUnavailable
from bascule.db.postgres import Postgres, Work

T = TypeVar("T")
FORMS = (
    """CREATE TABLE bascule_outcomes (
        mark bytea PRIMARY KEY, at timestamptz NOT NULL DEFAULT now()
    )""",
)
_PAUSE_SECONDS = 0.1
#: Leaves a mark, and takes away some that nobody asks about any more.
_LEAVE_MARK = """
    WITH old AS (
        SELECT mark FROM bascule_outcomes WHERE at < now() - interval '1 hour'
        LIMIT 100 FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM bascule_outcomes USING old WHERE bascule_outcomes.mark = old.mark
    )
    INSERT INTO bascule_outcomes (mark) VALUES ($1) RETURNING txid_current()"""
#: Asking takes a number of its own, above every one that was given: a snapshot ends before the
#: youngest that still runs. One above it is of before a crash, and asking for that would fail.
_RUNS = """
    SELECT CASE WHEN $1 < txid_current() THEN txid_status($1) = 'in progress' ELSE false END"""
_HAPPENED = "SELECT EXISTS (SELECT FROM bascule_outcomes WHERE mark = $1)"


class Doubt(Struct, frozen=True):
    """A transaction whose outcome is not known."""

    mark: bytes
    number: int


class Undecided(OutcomeUnknown):
    """The outcome of a write is not known, and nobody could be asked in time."""

    def __init__(self, message: str, doubt: Doubt) -> None:
        super().__init__(message)
        self.doubt = doubt


async def open_outcomes(postgres: Postgres) -> None:
    """Make the table of marks; before the first ``certain_write``."""
    await postgres.migrate("outcomes", FORMS)


async def certain_write(postgres: Postgres, work: Work[T]) -> T:
    """Run a whole transaction as ``Postgres.write``, and find out what is in doubt afterwards.

    Raise StoreUnavailable when nothing was written, and Undecided when nobody could be asked for
    as long again.
    """
    mark = secrets.token_bytes(8)
    known: list[tuple[T, int]] = []

    async def marked(connection: Connection) -> T:
        result = await work(connection)
        known.append((result, await connection.fetchval(_LEAVE_MARK, mark)))
        return result

    try:
        return await postgres.write(marked)
    except OutcomeUnknown as error:
        for result, number in known:  # without its mark nothing was committed
            if await _settled(postgres, Doubt(mark, number), str(error)):
                return result
        raise StoreUnavailable(f"nothing was written: {error}") from error


async def happened(postgres: Postgres, doubt: Doubt) -> bool | None:
    """Say whether a transaction happened; None: not yet, but it may.

    Raise StoreUnavailable where nobody can be asked.
    """
    if await postgres.read(lambda c: c.fetchval(_RUNS, doubt.number)):
        return None
    # Asked for in this order: now that it has ended, it is seen if it happened.
    return bool(await postgres.read(lambda c: c.fetchval(_HAPPENED, doubt.mark)))


async def _settled(postgres: Postgres, doubt: Doubt, why: str) -> bool:
    try:
        async with asyncio.timeout(postgres.seconds):
            while True:
                found = await _asked(postgres, doubt)
                if found is not None:
                    return found
                await SYSTEM_CLOCK.sleep(_PAUSE_SECONDS)
    except TimeoutError:
        raise Undecided(why, doubt) from None


async def _asked(postgres: Postgres, doubt: Doubt) -> bool | None:
    try:
        return await happened(postgres, doubt)
    except StoreUnavailable:
        return None
