"""A ``ledger.db`` from before nodes had chains in it: read as it is, and brought forward."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from bascule.audit.chain import SEARCHED, columns, link
from bascule.audit.ledger_check import end_check
from bascule.audit.ledger_file import FILE_NAME, MIGRATIONS, file_tables, tip
from bascule.audit.search import LedgerFile, LedgerReader
from bascule.audit.search_queries import EVERYTHING
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.audit.verification import verify
from bascule.db.sqlite import Database
from tests.audit.calls import Leaving
from tests.audit.ledgers import KEY
from tests.audit.small_ledger import LEDGER_ID, event

ROWS = 6


async def old_file(folder: Path) -> Path:
    """Make a file of the form before, with rows."""
    path = folder / FILE_NAME
    database = Database(path, shrinks=True)
    await database.open(MIGRATIONS[:2])
    await database.close()
    names = ("number", "journal", "place", "hash", "body", *SEARCHED)
    marks = ", ".join("?" * len(names))
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("INSERT INTO meta VALUES ('ledger_id', ?)", (LEDGER_ID,))
        before = bytes(32)
        for number in range(1, ROWS + 1):
            body = event(number)
            before = link(before, number, 1, number, body)
            values = (number, 1, number, before, body, *columns(body))
            query = f"INSERT INTO events ({', '.join(names)}) VALUES ({marks})"  # noqa: S608
            file.execute(query, values)
    return path


async def test_an_older_file_is_searched_exported_and_verified_as_it_is(tmp_path: Path):
    path = await old_file(tmp_path)
    found = verify(path)
    assert (found.ok, found.rows, found.last) == (True, ROWS, ROWS)
    with closing(LedgerFile(path)) as file:
        reader = LedgerReader(file, tables=file.tables)
        page = await reader.search(EVERYTHING, None, 100)
        lines = b"".join([part async for part in reader.export()]).splitlines()
    assert (page.tip, len(lines)) == (ROWS, ROWS)
    with closing(sqlite3.connect(path)) as file:
        assert end_check(file) is None
        assert tip(file, file_tables(file))[0] == ROWS
        assert file.execute("PRAGMA user_version").fetchone() == (2,)


async def test_an_older_file_is_brought_forward_and_its_chain_goes_on(tmp_path: Path):
    path = await old_file(tmp_path)
    ledger = await SqliteLedger(tmp_path, key=KEY).open()
    ledger.intent(Leaving(1))
    await ledger.close()
    found = verify(path)
    assert (found.ok, found.rows, found.unprotected) == (True, ROWS + 1, 0)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM events WHERE link IS NOT NULL").fetchone() == (0,)
