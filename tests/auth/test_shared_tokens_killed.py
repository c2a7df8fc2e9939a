"""A PostgreSQL that is killed, hangs or is away: nothing made twice, nothing acknowledged lost."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bascule.auth.postgres_token_store import open_shared_tokens
from bascule.auth.server_key import KEY_NAME
from bascule.auth.tokens import Minted, Tokens
from bascule.clock import SYSTEM_CLOCK
from bascule.db.driver import Connection
from bascule.db.errors import OutcomeUnknown, StoreUnavailable
from bascule.db.postgres_outcome import certain_write, open_outcomes
from tests.auth.replicas import reached, replica
from tests.postgres.cluster import Cluster
from tests.postgres.lost_answers import lost_answers
from tests.scale import scaled
from tests.waits import until

pytestmark = [pytest.mark.timeout(300), pytest.mark.requirement("security:tokens:database-killed")]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncGenerator[Cluster, None]:
    one = await asyncio.to_thread(lambda: Cluster(tmp_path / "pg").make().start())
    try:
        yield one
    finally:
        await asyncio.to_thread(one.kill)


class Writer:
    """Makes and ends tokens until told to stop, and remembers what it was told."""

    def __init__(self, tokens: Tokens, name: str) -> None:
        self.tokens = tokens
        self.name = name
        self.made: list[Minted] = []
        self.ended: list[Minted] = []
        self.doubtful: set[str] = set()
        self.refused = 0
        self.numbers = itertools.count()

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            number = next(self.numbers)
            try:
                minted = await self.tokens.mint(f"{self.name}-{number}", "viewer")
            except StoreUnavailable:
                self.refused += 1
                await SYSTEM_CLOCK.sleep(0)  # a socket that is gone is refused without a turn
                continue
            self.made.append(minted)
            if number % 3 == 0:
                await self._end(minted)

    async def _end(self, minted: Minted) -> None:
        try:
            assert await self.tokens.revoke(minted.record.id)
            self.ended.append(minted)
        except StoreUnavailable:
            self.doubtful.add(minted.record.id)

    def kept(self) -> dict[str, Minted]:
        gone = {minted.record.id for minted in self.ended} | self.doubtful
        return {m.record.id: m for m in self.made if m.record.id not in gone}


async def test_a_database_killed_under_writes_loses_and_doubles_nothing(
    cluster: Cluster, tmp_path: Path
):
    async with AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(replica(cluster.dsn(), tmp_path / name))
            for name in "ab"
        ]
        writers = [
            Writer(tokens, f"{name}{number}")
            for name, tokens in zip("ab", replicas, strict=True)
            for number in range(3)
        ]
        for _ in range(scaled(50)):
            await _killed_under(cluster, writers)
        made = sum(len(writer.made) for writer in writers)
        assert sum(writer.refused for writer in writers)
        assert made > len(writers)
        for tokens in replicas:
            await until(lambda tokens=tokens: _agree(tokens, writers))
        for tokens in replicas:
            for writer in writers:
                for minted in writer.kept().values():
                    assert await tokens.verify(minted.token) is not None
                for minted in writer.ended:
                    assert await tokens.verify(minted.token) is None


async def _killed_under(cluster: Cluster, writers: list[Writer]) -> None:
    stop, before = asyncio.Event(), [len(writer.made) for writer in writers]
    running = [asyncio.create_task(writer.run(stop)) for writer in writers]
    try:
        await until(lambda: _grown(writers, before))
        refused = sum(writer.refused for writer in writers)
        await asyncio.to_thread(cluster.kill)
        await until(lambda: sum(writer.refused for writer in writers) > refused)
        await asyncio.to_thread(cluster.start)
        again = [len(writer.made) for writer in writers]
        await until(lambda: _grown(writers, again))
    finally:
        stop.set()
        await asyncio.gather(*running)


def _grown(writers: list[Writer], before: list[int]) -> bool:
    return all(len(writer.made) > count for writer, count in zip(writers, before, strict=True))


async def _agree(tokens: Tokens, writers: list[Writer]) -> bool:
    """Say whether a replica has what was acknowledged, and nothing that was refused."""
    names = Counter(record.name for record in await tokens.records())
    assert {name: count for name, count in names.items() if count > 1} == {}, "made twice"
    there = {record.id for record in await tokens.records()}
    kept: set[str] = set().union(*(writer.kept() for writer in writers))
    ended = {minted.record.id for writer in writers for minted in writer.ended}
    doubtful: set[str] = set().union(*(writer.doubtful for writer in writers))
    return kept <= there and not ended & there and there <= kept | doubtful


async def test_a_commit_that_nobody_answered_is_found_out_afterwards(cluster: Cluster):
    async with reached(cluster.dsn()) as postgres:
        await open_outcomes(postgres)
        await postgres.statement("CREATE TABLE kept (name text)")

        async def outcome(name: str, spoil: Callable[[Connection], object]) -> str:
            async def work(connection: Connection) -> str:
                await connection.execute("INSERT INTO kept VALUES ($1)", name)
                spoil(connection)
                return name

            try:
                return await certain_write(postgres, work)
            except OutcomeUnknown:
                return "undecided"
            except StoreUnavailable:
                return "refused"

        assert await outcome("whole", lambda connection: None) == "whole"
        assert await outcome("cut", lambda connection: connection.terminate()) == "refused"
        rows = await postgres.fetch("SELECT name FROM kept")
        assert [row["name"] for row in rows] == ["whole"]


async def test_while_the_database_is_away_known_tokens_go_on_and_nothing_is_written(
    cluster: Cluster, tmp_path: Path
):
    async with replica(cluster.dsn(), tmp_path / "a") as tokens:
        known = await tokens.mint("known", "viewer")
        never_used = await tokens.mint("never used", "operator")
        await asyncio.to_thread(cluster.kill)
        for _ in range(3):
            assert await tokens.verify(known.token) is not None
            assert tokens.recall(known.token.encode()) is not None
        assert await tokens.verify(never_used.token) is not None
        assert len(await tokens.listing()) == 2
        for work in (
            tokens.mint("new", "viewer"),
            tokens.revoke(known.record.id),
            tokens.verify("bsc_" + "x" * 43),
        ):
            with pytest.raises(StoreUnavailable):
                await work
        await asyncio.to_thread(cluster.start)
        assert await until(lambda: _revoked(tokens, known))
        assert await tokens.verify(known.token) is None
        assert await tokens.verify(never_used.token) is not None


async def _revoked(tokens: Tokens, minted: Minted) -> bool:
    try:
        return await tokens.revoke(minted.record.id)
    except StoreUnavailable:
        return False


async def test_a_database_that_hangs_holds_up_nobody_whose_token_is_known(
    cluster: Cluster, tmp_path: Path
):
    async with (
        reached(cluster.dsn(), seconds=1) as postgres,
        open_shared_tokens(postgres, tmp_path / "a") as tokens,
    ):
        known = await tokens.mint("known", "viewer")
        cluster.pause()
        try:
            refused = await asyncio.gather(
                tokens.mint("new", "viewer"),
                *(tokens.verify(f"bsc_{number:043}") for number in range(20)),
                return_exceptions=True,
            )
            assert all(isinstance(one, StoreUnavailable) for one in refused), refused
            assert await tokens.verify(known.token) is not None
        finally:
            cluster.go_on()
        assert await until(lambda: _revoked(tokens, known))


async def test_a_token_is_acknowledged_once_it_is_known_that_it_was_made(
    cluster: Cluster, tmp_path: Path
):
    async with (
        lost_answers(cluster, tmp_path) as way,
        reached(way.dsn) as postgres,
        open_shared_tokens(postgres, tmp_path / "a", follow=False) as tokens,
    ):
        way.loses = True
        minting = asyncio.create_task(tokens.mint("ci", "viewer"))
        await until(lambda: way.away)
        way.away = False
        minted = await minting
        assert await tokens.verify(minted.token) is not None
        async with replica(cluster.dsn(), tmp_path / "b", key=_key(tmp_path / "a")) as other:
            assert await other.records() == (minted.record,)


async def test_a_token_whose_making_stays_in_doubt_is_taken_back(cluster: Cluster, tmp_path: Path):
    """Nobody was given it, so nobody misses it."""
    async with (
        lost_answers(cluster, tmp_path) as way,
        reached(way.dsn, seconds=1) as postgres,
        open_shared_tokens(postgres, tmp_path / "a") as tokens,
        replica(cluster.dsn(), tmp_path / "b", key=_key(tmp_path / "a")) as other,
    ):
        kept = await tokens.mint("kept", "viewer")
        way.loses = True
        with pytest.raises(OutcomeUnknown):
            await tokens.mint("doubtful", "viewer")
        await until(lambda: _has_names(other, ["kept", "doubtful"]))
        way.away = False
        await until(lambda: _has_names(other, ["kept"]))
        assert await tokens.verify(kept.token) is not None


def _key(folder: Path) -> bytes:
    return (folder / KEY_NAME).read_bytes()


async def _has_names(tokens: Tokens, names: list[str]) -> bool:
    return [record.name for record in await tokens.records()] == names
