"""The ledger that replicas share: a chain each, all rows together, and PostgreSQL may go away."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from bascule.audit.export import rows_of_export
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.postgres_ledger import PostgresLedger
from bascule.audit.verification import Verification, verify
from bascule.clock import SYSTEM_CLOCK
from bascule.db.postgres import Postgres
from bascule.testing import FakeClock
from bascule.wire.api.audit import AuditEntry, AuditFilters
from tests.audit.calls import Ended, Leaving, made
from tests.audit.ledger_rows import opened
from tests.audit.questions import shared_ledger
from tests.postgres.cluster import Cluster, own_cluster
from tests.postgres.databases import database
from tests.scale import SOAK
from tests.waits import until

EVERYTHING = AuditFilters()
HARMS = {
    "changed": "UPDATE ledger_events SET body = '{}'",
    "removed": "DELETE FROM ledger_events",
    "moved": "UPDATE ledger_events SET chain = 1, link = 7",
}


@pytest.fixture
async def dsn() -> AsyncGenerator[str, None]:
    async with database() as dsn:
        yield dsn


def folder(parent: Path, name: str) -> Path:
    found = parent / name
    found.mkdir(exist_ok=True)
    return found


async def verified(ledger: PostgresLedger) -> Verification:
    return await asyncio.to_thread(ledger.verify, lambda _: None)


async def exported(ledger: PostgresLedger) -> bytes:
    return b"".join([lines async for lines in ledger.reader().export()])


def anchors(parent: Path) -> list[bytes]:
    return [
        line
        for path in sorted(parent.rglob("ledger-*.anchors"))
        for line in path.read_bytes().splitlines()
    ]


# --- several replicas


@pytest.mark.requirement("audit:ledger:postgres")
async def test_every_replica_has_its_chain_and_sees_the_rows_of_all(dsn: str, tmp_path: Path):
    async with (
        shared_ledger(dsn, folder(tmp_path, "one")) as one,
        shared_ledger(dsn, folder(tmp_path, "other")) as other,
    ):
        for number in range(20):
            ledger = one if number % 2 else other
            ledger.intent(Leaving(number))
            ledger.outcome(Ended(number))
        await asyncio.gather(one.taken_in(), other.taken_in())
        for ledger in (one, other):
            page = await ledger.reader().search(EVERYTHING, None, 100)
            assert {str(entry.event["request_id"]) for entry in page.entries} == {
                f"r{number}" for number in range(20)
            }
            assert [entry.number for entry in page.entries] == sorted(
                (entry.number for entry in page.entries), reverse=True
            )
            assert await ledger.newer_than(39, 30)
        await asyncio.gather(one.checkpoint(), other.checkpoint())
        found = await verified(one)
        assert (found.ok, found.rows, found.unprotected, found.problems) == (True, 40, 0, ())
        rows = [row for row in rows_of_export((await exported(one)).splitlines()) if row]
    chains = {row.chain: [one.number for one in rows if one.chain == row.chain] for row in rows}
    assert list(chains.values()) == [list(range(1, 21))] * 2


async def test_who_follows_is_told_of_rows_that_another_replica_wrote(dsn: str, tmp_path: Path):
    async with (
        shared_ledger(dsn, folder(tmp_path, "one")) as one,
        shared_ledger(dsn, folder(tmp_path, "other")) as other,
    ):
        before = one.number
        following = asyncio.create_task(one.newer_than(before, 30))
        other.outcome(Ended(1))
        assert await following
        stretch = await one.reader().after(before, EVERYTHING, 10)
        assert [entry.event["request_id"] for entry in stretch.entries] == ["r1"]


@pytest.mark.requirement("audit:ledger:postgres")
@pytest.mark.parametrize("harm", HARMS)
async def test_a_row_that_was_changed_is_found_in_whichever_chain(
    dsn: str, tmp_path: Path, harm: str
):
    async with (
        shared_ledger(dsn, folder(tmp_path, "one")) as one,
        shared_ledger(dsn, folder(tmp_path, "other")) as other,
    ):
        for number in range(6):
            for ledger in (one, other):
                ledger.intent(Leaving(number))
        for ledger in (one, other):
            await ledger.checkpoint()
        assert (await verified(one)).ok
        which = " WHERE link = 3 AND chain = (SELECT max(number) FROM ledger_chains)"
        statement = HARMS[harm] + which
        postgres = await Postgres(dsn).open()
        await postgres.statement(statement)
        await postgres.close()
        found = await verified(one)
        assert not found.ok
        assert any("of other" in problem.words for problem in found.problems)
        lines = await exported(one)
    path = tmp_path / "exported"
    path.write_bytes(lines)
    assert not verify(path, anchors(tmp_path)).ok


async def test_an_export_of_all_chains_is_verified_with_the_anchors_of_all(
    dsn: str, tmp_path: Path
):
    async with (
        shared_ledger(dsn, folder(tmp_path, "one")) as one,
        shared_ledger(dsn, folder(tmp_path, "other")) as other,
    ):
        for ledger in (one, other):
            for number in range(3):
                ledger.intent(Leaving(number))
        for ledger in (one, other):
            await ledger.checkpoint()
        path = tmp_path / "exported"
        path.write_bytes(await exported(one))
    kept = anchors(tmp_path)
    found = verify(path, kept)
    assert (found.ok, found.rows, found.unprotected) == (True, 6, 0)
    keys = {json.loads(line)["public_key"] for line in kept}
    assert len(keys) == 2
    for key in keys:
        assert verify(path, kept, key).ok
    other_key = "ed25519:" + "A" * 43
    assert not verify(path, kept, other_key).ok
    ids = {json.loads(line)["ledger_id"] for line in kept}
    for id in ids:  # whoever takes a whole chain away
        lines = [line for line in path.read_bytes().splitlines() if json.loads(line)["chain"] != id]
        less = tmp_path / "less"
        less.write_bytes(b"\n".join(lines) + b"\n")
        missing = verify(less, kept)
        assert any(f"missing (chain {id})" in problem.words for problem in missing.problems)


async def test_texts_that_postgresql_does_not_take_are_kept_as_they_were(dsn: str, tmp_path: Path):
    names = ["nul \0 inside", "long " * 2_000, "é\u2028"]
    async with shared_ledger(dsn, tmp_path) as ledger:
        for name in names:
            ledger.session_opened(opened(caller=name))
        await ledger.checkpoint()
        for name in names:
            page = await ledger.reader().search(AuditFilters(caller=name), None, 10)
            assert [entry.event["caller"] for entry in page.entries] == [name]
        assert (await verified(ledger)).ok


async def test_the_oldest_rows_of_a_chain_are_cut_and_no_others(dsn: str, tmp_path: Path):
    async with shared_ledger(dsn, folder(tmp_path, "other")) as other:
        other.intent(Leaving(1))
        await other.checkpoint()
        clock = FakeClock()
        async with shared_ledger(dsn, folder(tmp_path, "one"), clock=clock) as one:
            one.intent(Leaving(2))
            await one.checkpoint()
            await clock.advance(400 * 86_400)
            one.intent(Leaving(3))

            async def cut() -> bool:
                await one.taken_in()
                page = await one.reader().search(AuditFilters(event="ledger_cut"), None, 10)
                return bool(page.entries)

            await until(cut)
            await one.checkpoint()
            page = await one.reader().search(EVERYTHING, None, 100)
            said = [entry.event.get("request_id") for entry in page.entries]
            assert said == [None, "r3", "r1"]
            assert (await verified(one)).ok
            with pytest.raises(StopAsyncIteration):
                await anext(one.reader().export(AuditFilters(request_id="r2")))


@pytest.mark.requirement("audit:ledger:postgres")
async def test_the_chain_of_a_replica_that_is_gone_goes_once_all_of_it_is_too_old(
    dsn: str, tmp_path: Path
):
    async with shared_ledger(dsn, folder(tmp_path, "gone")) as gone:
        gone.intent(Leaving(1))
    postgres = await Postgres(dsn).open()
    await postgres.statement("UPDATE ledger_chains SET seen_at = now() - interval '400 days'")
    await postgres.close()
    clock = FakeClock()
    clock.jump(SYSTEM_CLOCK.now() - clock.now() + 400 * 86_400)
    async with shared_ledger(dsn, folder(tmp_path, "one"), clock=clock) as one:
        one.intent(Leaving(2))

        async def cut() -> Sequence[AuditEntry]:
            page = await one.reader().search(AuditFilters(event="ledger_cut"), None, 10)
            return page.entries

        [entry] = await until(cut)
        await one.checkpoint()
        assert (await one.reader().life("r1")) is None
        assert (await verified(one)).ok
        path = tmp_path / "exported"
        path.write_bytes(await exported(one))
    kept = anchors(tmp_path)
    id = next(json.loads(line)["ledger_id"] for line in anchors(tmp_path / "gone"))
    assert entry.event["chain"] == id
    assert verify(path, kept).ok, "a row says that it was removed"
    async with shared_ledger(dsn, folder(tmp_path, "gone")) as back:
        back.intent(Leaving(3))
        await back.checkpoint()
        assert (await verified(back)).ok


# --- PostgreSQL away


@pytest.mark.requirement("audit:ledger:postgres-away")
async def test_calls_go_on_while_postgresql_is_away_and_nothing_is_lost(tmp_path: Path):
    with own_cluster() as cluster:
        async with shared_ledger(cluster.dsn(), tmp_path) as ledger:
            ledger.intent(Leaving(0))
            await ledger.taken_in()
            await asyncio.to_thread(cluster.kill)
            for number in range(1, 50):
                assert ledger.intent(Leaving(number)) is None
                ledger.outcome(Ended(number))
            await ledger.note(made(1))
            await until(lambda: ledger.degraded is not None)
            assert ledger.trouble is None, "calls leave"
            assert ledger.intent(Leaving(50)) is None
            await asyncio.to_thread(cluster.start)
            await until(lambda: ledger.degraded is None)
            await until(lambda: ledger.backlog == 0)
            page = await ledger.reader().search(AuditFilters(event="call_intent"), None, 100)
            assert len(page.entries) == 51
            await ledger.checkpoint()
            assert (await verified(ledger)).ok


@pytest.mark.requirement("audit:ledger:postgres-away")
async def test_what_was_written_while_postgresql_is_away_survives_the_process(tmp_path: Path):
    with own_cluster() as cluster:
        async with shared_ledger(cluster.dsn(), tmp_path) as ledger:
            await asyncio.to_thread(cluster.kill)
            ledger.intent(Leaving(1))
        await asyncio.to_thread(cluster.start)
        async with shared_ledger(cluster.dsn(), tmp_path) as ledger:
            page = await ledger.reader().search(EVERYTHING, None, 10)
            assert [entry.event["request_id"] for entry in page.entries] == ["r1"]


async def test_more_than_may_wait_for_postgresql_stops_calls(tmp_path: Path):
    with own_cluster() as cluster:
        settings = LedgerSettings(max_backlog=1024 * 1024)
        async with shared_ledger(cluster.dsn(), tmp_path, settings=settings) as ledger:
            await asyncio.to_thread(cluster.kill)

            async def fill() -> None:
                for number in range(100_000):
                    ledger.outcome(Ended(number, arguments={"text": "x" * 1_000}))
                    written = ledger.intent(Leaving(number))
                    if written is not None:
                        await written

            with pytest.raises(LedgerUnavailable, match="max_backlog"):
                await fill()
            assert ledger.trouble is not None


@pytest.mark.timeout(900)
@pytest.mark.requirement("audit:ledger:postgres-kill")
async def test_no_event_is_lost_or_twice_when_postgresql_is_killed_under_drains(tmp_path: Path):
    rng = random.Random(20)
    written = 0
    with own_cluster() as cluster:
        async with shared_ledger(cluster.dsn(), tmp_path) as ledger:
            for _ in range(50 if SOAK else 5):
                for _ in range(rng.randrange(500, 3_000)):
                    ledger.intent(Leaving(written))
                    written += 1
                drain = asyncio.create_task(ledger.taken_in())
                number = ledger.number
                await ledger.newer_than(number, rng.random() / 5)
                await asyncio.to_thread(cluster.kill)
                await drain
                await asyncio.to_thread(cluster.start)
            await until(lambda: ledger.degraded is None and ledger.backlog == 0)
            await ledger.checkpoint()
            found = await verified(ledger)
            assert (found.problems, found.rows, found.unprotected) == ((), written, 0)
            rows = [row for row in rows_of_export((await exported(ledger)).splitlines()) if row]
    requests = Counter(json.loads(row.event)["request_id"] for row in rows)
    assert set(requests) == {f"r{number}" for number in range(written)}
    assert set(requests.values()) == {1}


# --- a database that went back


@pytest.mark.requirement("audit:ledger:postgres-went-back")
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_database_that_went_back_gets_another_chain_and_what_is_still_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, restarted: bool
):
    with own_cluster() as cluster:
        async with shared_ledger(cluster.dsn(), tmp_path) as ledger:
            ledger.intent(Leaving(1))
            await ledger.checkpoint()
            await asyncio.to_thread(cluster.stop)
            copy = shutil.copytree(cluster.data, cluster.folder / "copy", symlinks=True)
            await asyncio.to_thread(cluster.start)
            await until(lambda: ledger.degraded is None)
            for number in (2, 3):
                ledger.intent(Leaving(number))
            await until(lambda: ledger.backlog == 0)
            if not restarted:
                await put_back(cluster, copy)
                await check(ledger, caplog, ["r1", "r2", "r3", "r4"])
                return
        await put_back(cluster, copy)
        async with shared_ledger(cluster.dsn(), tmp_path) as ledger:
            await check(ledger, caplog, ["r1", "r4"])  # the journal of the others is gone


async def put_back(cluster: Cluster, copy: Path) -> None:
    await asyncio.to_thread(cluster.stop)
    shutil.rmtree(cluster.data)
    shutil.move(copy, cluster.data)
    await asyncio.to_thread(cluster.start)


async def check(
    ledger: PostgresLedger, caplog: pytest.LogCaptureFixture, expected: list[str]
) -> None:
    ledger.intent(Leaving(4))
    await until(lambda: "the database went back" in caplog.text)
    await until(lambda: ledger.degraded is None and ledger.backlog == 0)
    await ledger.checkpoint()
    rows = [row for row in rows_of_export((await exported(ledger)).splitlines()) if row]
    assert [json.loads(row.event)["request_id"] for row in rows] == expected
    assert len({row.chain for row in rows}) == 2
    found = await verified(ledger)
    assert (found.problems, found.unprotected) == ((), 0)
