"""A journal that somebody changed: what is lost is named, and what comes after it is taken in."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bascule.audit.journal import Journal, found_journals
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.db.sqlite import plain_commit
from tests.audit.calls import Ended, Leaving
from tests.waits import until

KEY = bytes(32)


def told(folder: Path) -> list[str]:
    """Return of each row the request it is about, or why it is there."""
    with closing(sqlite3.connect(folder / "ledger.db")) as connection:
        bodies = connection.execute("SELECT body FROM events ORDER BY number").fetchall()
    events = [json.loads(body) for (body,) in bodies]
    return [event.get("request_id") or event["event"] for event in events]


def edited(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"alice", b"mallo"))


def truncated(path: Path) -> None:
    os.truncate(path, 10)


@pytest.mark.parametrize("harm", [edited, truncated, Path.unlink])
async def test_a_process_whose_own_journal_is_harmed_goes_on_in_another_segment(
    tmp_path: Path, harm: Callable[[Path], None]
):
    ledger = await SqliteLedger(tmp_path, key=KEY).open()
    ledger.intent(Leaving(1))
    [[path]] = found_journals(tmp_path / "journal").values()
    harm(path)
    async with asyncio.timeout(20):
        await ledger.taken_in()
        assert told(tmp_path) == ["set_aside"]
        ledger.intent(Leaving(2))
        ledger.outcome(Ended(2))
        await ledger.taken_in()
        assert told(tmp_path) == ["set_aside", "r2", "r2"]
        assert ledger.backlog == 0
    await ledger.close()
    assert found_journals(tmp_path / "journal") == {}


async def test_of_a_dead_journal_the_segments_after_a_broken_one_are_taken_in(tmp_path: Path):
    await (await SqliteLedger(tmp_path, key=KEY).open()).close()
    journal = Journal(tmp_path / "journal", KEY, segment_bytes=1)
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as connection:
        connection.execute(
            "INSERT INTO journals (id, made_at, segment, taken) VALUES (?, 1.0, 1, 0)",
            (journal.id,),
        )
    for number in range(4):
        journal.append([b'{"event":"call_intent","request_id":"r%d"}' % number])
    journal.close()
    second = found_journals(tmp_path / "journal")[journal.id][1]
    second.write_bytes(second.read_bytes().replace(b"r1", b"r9"))
    await (await SqliteLedger(tmp_path, key=KEY).open()).close()
    assert told(tmp_path) == ["r0", "set_aside", "r2", "r3"]


async def test_after_a_commit_that_failed_no_byte_of_older_segments_counts_as_waiting(
    tmp_path: Path,
):
    failing = False

    def commit(connection: sqlite3.Connection) -> None:
        if failing:
            raise sqlite3.OperationalError("disk I/O error")
        plain_commit(connection)

    ledger = await SqliteLedger(tmp_path, key=KEY, commit=commit).open()
    large = {"a": "x" * 12_000}
    for number in range(400):  # more than one segment
        ledger.outcome(Ended(number, arguments=large))
    await ledger.taken_in()
    failing = True
    ledger.intent(Leaving(1000))
    await until(lambda: ledger.trouble is not None)
    failing = False
    await until(lambda: ledger.trouble is None)
    async with asyncio.timeout(20):
        ledger.intent(Leaving(1001))
        await ledger.taken_in()
    assert ledger.backlog == 0
    assert told(tmp_path)[-2:] == ["r1000", "r1001"]
    await ledger.close()
