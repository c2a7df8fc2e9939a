"""A write to the registry on PostgreSQL beside a bare transaction of the same rows, in turn.

The bare ones are made by the driver itself on one connection, into the same tables of another
database of the same server. They check nothing, keep nothing at hand and tell nobody: *plain* is a
transaction as one would write it, *one statement* the least that there can be.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from statistics import median
from typing import Any, TypeAlias

import asyncpg

from bascule.clock import SYSTEM_CLOCK
from bascule.control.registry.postgres_store import PostgresStore
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.store import Author, new_mark
from bascule.db.postgres import Postgres
from bench.rounds import rotated
from bench.table import Row, at_most

SERVERS = 200
ROUNDS = 24
WRITES = 40
BY = Author("bench")
#: A write of a server by its number, and what it is called then.
Write: TypeAlias = Callable[[int, str], Awaitable[object]]

_COUNTER = "UPDATE registry_head SET revision = revision + 1 RETURNING revision"
_REVISION = "INSERT INTO registry_revisions VALUES ($1, $2, $3, $4, $5)"
_CHANGE = "INSERT INTO registry_changes VALUES ('server', $1, $2, $3, NULL, $4)"
_OBJECT = """UPDATE registry_objects SET revision = $2, updated_at = $3, body = $4
    WHERE kind = 'server' AND id = $1"""
_ONE_STATEMENT = f"""WITH head AS ({_COUNTER}), noted AS (
        INSERT INTO registry_revisions SELECT revision, $2, $4, $5, $6 FROM head
    ), logged AS (
        INSERT INTO registry_changes SELECT 'server', $1, revision, $2, NULL, $3 FROM head
    ) UPDATE registry_objects o SET revision = head.revision, updated_at = $2, body = $3
    FROM head WHERE kind = 'server' AND id = $1"""  # noqa: S608 - a constant


def server(number: int, name: str = "") -> dict[str, Any]:
    """Return a record as many have it."""
    return {
        "server_id": f"server{number}",
        "transport": "stdio",
        "display_name": name,
        "stdio": {"command": "true", "env": {"TOKEN": "secret://token"}},
        "allowed_tools": ["read_*", "search_*"],
    }


async def rows(dsn: str, bare_dsn: str) -> list[Row]:
    """Compare writes, round by round, in milliseconds."""
    async with _registry(dsn) as service, _bare(bare_dsn) as connection:
        bodies = await _seed(service, dsn, connection)
        rounds = await _rounds(
            {
                "registry": _through(service),
                "plain": _plain(connection, bodies),
                "one statement": _one_statement(connection, bodies),
            }
        )
    return [
        at_most("write: p50, the registry / a bare transaction", _over(rounds, "plain"), "x", 1.5),
        Row("write: p50, the registry / one bare statement", _over(rounds, "one statement"), "x"),
        *(Row(f"write: p50, {name}", median(each), "ms") for name, each in rounds.items()),
    ]


def _over(rounds: Mapping[str, list[float]], below: str) -> float:
    pairs = zip(rounds["registry"], rounds[below], strict=True)
    return median(one / other for one, other in pairs)


async def _rounds(writes: Mapping[str, Write]) -> dict[str, list[float]]:
    """Let them take turns, some writes each; the median of each round."""
    taken: dict[str, list[float]] = {name: [] for name in writes}
    numbers = count(1)  # 0 is what they are called already
    for number in range(ROUNDS + 1):
        for name in rotated(list(writes), number):
            each = [await _timed(writes[name], next(numbers)) for _ in range(WRITES)]
            if number:  # the first round is for warming up
                taken[name].append(median(each) * 1e3)
    return taken


async def _timed(write: Write, number: int) -> float:
    began = SYSTEM_CLOCK.monotonic()
    await write(number % SERVERS, f"write {number:09}")
    return SYSTEM_CLOCK.monotonic() - began


@asynccontextmanager
async def _registry(dsn: str) -> AsyncGenerator[RegistryService]:
    postgres = await Postgres(dsn).open()
    try:
        async with open_registry(await PostgresStore(postgres).open()) as service:
            yield service
    finally:
        await postgres.close()


@asynccontextmanager
async def _bare(dsn: str) -> AsyncGenerator[Any]:
    """Make the tables, and connect."""
    postgres = await Postgres(dsn).open()
    await PostgresStore(postgres).open()
    await postgres.close()
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def _seed(service: RegistryService, dsn: str, bare: Any) -> list[str]:
    """Have the same servers in both; return their bodies, to be renamed."""
    records = [server(number, "write 000000000") for number in range(SERVERS)]
    await service.import_records([("server", one) for one in records], "upsert", BY)
    connection = await asyncpg.connect(dsn)
    try:
        found = await connection.fetch("SELECT * FROM registry_objects")
    finally:
        await connection.close()
    await bare.copy_records_to_table("registry_objects", records=[tuple(row) for row in found])
    by_id = {row["id"]: row["body"] for row in found}
    return [by_id[f"server{number}"] for number in range(SERVERS)]


def _through(service: RegistryService) -> Write:
    async def write(number: int, name: str) -> None:
        written = await service.put("server", f"server{number}", server(number, name), BY)
        assert written.change is not None

    return write


def _plain(connection: Any, bodies: list[str]) -> Write:
    async def write(number: int, name: str) -> None:
        key, body, now = f"server{number}", _renamed(bodies, number, name), SYSTEM_CLOCK.now()
        async with connection.transaction():
            revision = await connection.fetchval(_COUNTER)
            await connection.execute(_REVISION, revision, now, BY.actor, BY.note, new_mark())
            await connection.execute(_CHANGE, key, revision, now, body)
            assert await connection.execute(_OBJECT, key, revision, now, body) == "UPDATE 1"

    return write


def _one_statement(connection: Any, bodies: list[str]) -> Write:
    async def write(number: int, name: str) -> None:
        key, body, now = f"server{number}", _renamed(bodies, number, name), SYSTEM_CLOCK.now()
        done = await connection.execute(
            _ONE_STATEMENT, key, now, body, BY.actor, BY.note, new_mark()
        )
        assert done == "UPDATE 1"

    return write


def _renamed(bodies: list[str], number: int, name: str) -> str:
    renamed = bodies[number].replace("write 000000000", name)
    assert name in renamed
    return renamed
