"""What nodes have sent of their ledgers, in a copy of the registry that has it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bascule.app.archive import Archive
from bascule.app.copying import Copied, Copying, Source, Target
from bascule.app.file_places import DataDirectory
from bascule.app.postgres_place import PostgresPlace
from bascule.audit.chain import GENESIS, Row, link
from bascule.audit.journaled_ledger import JournaledLedger
from bascule.audit.received import Reached, SentRows, receive
from bascule.audit.verification import verify
from bascule.db.sqlite import read_only
from tests.app.moving import fill
from tests.audit.calls import made
from tests.audit.questions import opened_ledger, shared_ledger
from tests.postgres.databases import database

NODE = "east"


def rows_of(count: int) -> list[Row]:
    rows, before = list[Row](), GENESIS
    for number in range(1, count + 1):
        event = f'{{"event":"call","request_id":"r{number}"}}'.encode()
        before = link(before, number, 1, number, event)
        rows.append(Row(number, 1, number, event, before))
    return rows


ROWS = rows_of(6)


async def send(ledger: JournaledLedger, rows: list[Row]) -> Reached:
    """Have a ledger take rows of a node."""
    before = GENESIS if rows[0].number == 1 else ROWS[rows[0].number - 2].hash
    sent = SentRows(node=NODE, ledger="led-9", before=before, rows=rows)
    taken = await ledger.database.write(lambda found: receive(found, ledger.tables, sent, 5.25))
    await ledger.note(made(rows[0].number))
    await ledger.taken_in()
    return taken.reached


async def copy(source: Source, target: Target) -> Copied:
    return await Copying(source, target).run()


def listed(data: Path) -> list[tuple[str, int | None]]:
    """Return the rows of nodes in a directory, by what they are of and their place there."""
    with closing(read_only(data / "ledger.db")) as file:
        query = """SELECT c.node || '/' || c.id, coalesce(e.link, e.number) FROM events e
            JOIN chains c ON c.number = e.chain ORDER BY e.number"""
        return file.execute(query).fetchall()


@pytest.mark.requirement("registry:copy:chains")
async def test_the_chains_of_nodes_stay_what_they_are_and_go_on_in_a_copy(tmp_path: Path):
    origin, back, again = tmp_path / "origin", tmp_path / "back", tmp_path / "again"
    replica, backup = tmp_path / "replica", tmp_path / "kept"
    replica.mkdir()
    await fill(origin)
    async with opened_ledger(origin) as ledger:
        await send(ledger, ROWS[:2])
        await send(ledger, ROWS[2:3])
    before = verify(origin / "ledger.db")
    assert (before.ok, len(listed(origin))) == (True, 3)
    await copy(DataDirectory(origin), DataDirectory(again, keys=origin))
    assert listed(again) == listed(origin)
    assert verify(again / "ledger.db").rows == before.rows
    async with database() as dsn:
        await copy(DataDirectory(origin), PostgresPlace(dsn, keys=origin))
        async with shared_ledger(dsn, replica) as ledger:
            assert await send(ledger, ROWS[2:5]) == Reached(5, ROWS[4].hash, 0)
        await copy(PostgresPlace(dsn), Archive(backup))
        await copy(PostgresPlace(dsn), DataDirectory(back, keys=origin))
    assert listed(back) == [(f"{NODE}/led-9", number) for number in range(1, 6)]
    found = verify(back / "ledger.db")
    assert (found.ok, found.problems) == (True, ())
    async with opened_ledger(back) as ledger:
        assert await send(ledger, ROWS) == Reached(6, ROWS[5].hash, 0)
    assert verify(back / "ledger.db").problems == ()
    restored = tmp_path / "restored"
    await copy(Archive(backup), DataDirectory(restored, keys=origin))
    assert listed(restored) == [(f"{NODE}/led-9", number) for number in range(1, 6)]


async def test_a_backup_from_before_nodes_had_chains_is_restored(tmp_path: Path):
    origin, backup, target = tmp_path / "origin", tmp_path / "kept", tmp_path / "target"
    await fill(origin)
    await copy(DataDirectory(origin), Archive(backup))
    with closing(sqlite3.connect(backup)) as file, file:
        file.execute("DROP TABLE ledger_node_chains")
        file.execute("DELETE FROM contents WHERE name = 'ledger.node_chains'")
    await copy(Archive(backup), DataDirectory(target, keys=origin))
    assert verify(target / "ledger.db").rows == verify(origin / "ledger.db").rows
