"""Takes what journals say into ``ledger.db``: the own one as it grows, those of the dead at start.

All of it runs inside write transactions of that database, on whatever thread has them. How far a
journal was taken in is written in the same transaction as its rows, so that nothing is taken in
twice. What is not believed is set aside and named.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

from bascule.audit.event_bytes import event_bytes
from bascule.audit.events import JournalSetAside
from bascule.audit.journal import (
    Journal,
    JournalBroken,
    JournalReader,
    begun_journals,
    found_journals,
    is_live,
    remove_journal,
    remove_segments,
    segment_path,
    set_aside,
)
from bascule.audit.ledger_file import append
from bascule.clock import Clock

logger = logging.getLogger("bascule.ledger")
_TOGETHER = 1024 * 1024


class Intake:
    """The journals of one folder, on their way into the database."""

    def __init__(self, folder: Path, root: bytes, clock: Clock) -> None:
        self._folder = folder
        self._root = root
        self._clock = clock
        self._journal: Journal | None = None
        self._number = 0
        self._reader: JournalReader | None = None
        self._removed = 1
        self._finished: set[str] = set()
        #: Bytes of the own journal that are in the database; set when a transaction has ended.
        self.taken_bytes = 0

    def register(self, connection: sqlite3.Connection, journal: Journal) -> None:
        """Write a journal's name down, before its first line: what is not named is not believed."""
        found = connection.execute(
            "INSERT INTO journals (id, made_at, segment, taken) VALUES (?, ?, 1, 0)",
            (journal.id, self._clock.now()),
        )
        self._journal, self._number = journal, found.lastrowid or 0

    def follow(self, connection: sqlite3.Connection) -> int | None:
        """Take in what the own journal has, up to some amount; return the last row's number."""
        if self._journal is None:
            return None
        reader, self._reader = self._reader or self._reader_of(connection, self._journal), None
        number = self._take(connection, self._number, reader)
        self._reader = reader  # unless that failed: then the next one begins where the rows end
        return number

    def taken(self) -> None:
        """Note that the transaction of ``follow`` has ended well."""
        if self._reader is not None:
            self.taken_bytes = self._reader.read

    def lost(self) -> None:
        """Note that it has not: what was read is read again."""
        self._reader = None

    def take_in_dead(self, connection: sqlite3.Connection) -> bool:
        """Take in what journals of ended processes have, up to some amount; say if that was all."""
        known = dict(connection.execute("SELECT id, number FROM journals"))
        found = found_journals(self._folder)
        for id in begun_journals(self._folder) & known.keys():
            found.setdefault(id, [])
        for id, paths in found.items():
            if id not in known:
                for path in paths:
                    self._set_aside(connection, path, "its process never named it in the ledger", 0)
            elif not self._is_own(id) and not is_live(self._folder, id):
                with closing(self._reader_of(connection, id)) as reader:
                    if self._take(connection, known[id], reader) is not None:
                        return False
                self._finished.add(id)
        return True

    def remove_dead(self) -> None:
        """Remove the files of journals that were taken in; ask after a checkpoint covers them."""
        while self._finished:
            remove_journal(self._folder, self._finished.pop())

    def remove_taken(self) -> None:
        """Remove the segments of the own journal that were taken in, as above."""
        if self._journal is not None and self._reader is not None:
            for number in remove_segments(
                self._folder, self._journal.id, self._reader.segment, self._removed
            ):
                self._removed = number + 1

    def _is_own(self, id: str) -> bool:
        return self._journal is not None and self._journal.id == id

    def _reader_of(self, connection: sqlite3.Connection, journal: Journal | str) -> JournalReader:
        id = journal if isinstance(journal, str) else journal.id
        query = "SELECT segment, taken FROM journals WHERE id = ?"
        segment, taken = connection.execute(query, (id,)).fetchone()
        return JournalReader(self._folder, journal, self._root, segment=segment, after=taken)

    def _take(
        self, connection: sqlite3.Connection, number: int, reader: JournalReader
    ) -> int | None:
        """Take in what comes next; return the last row's number, or None if nothing did."""
        last: int | None = None
        try:
            entries = reader.entries(_TOGETHER)
        except JournalBroken as broken:
            path = segment_path(self._folder, reader.id, reader.segment)
            last = self._set_aside(connection, path, str(broken), max(reader.after, 0))
            reader.skip()
            entries = []
        if entries:
            last = append(connection, ((number, place, event) for place, event in entries))
        connection.execute(
            "UPDATE journals SET segment = ?, taken = ? WHERE number = ?",
            (reader.segment, reader.after, number),
        )
        return last

    def _set_aside(
        self, connection: sqlite3.Connection, path: Path, reason: str, lines: int
    ) -> int:
        name = set_aside(path)
        logger.error("the journal %s is set aside as %s: %s", path.name, name, reason)
        event = JournalSetAside(timestamp=self._clock.now(), name=name, reason=reason, lines=lines)
        return append(connection, [(0, 0, event_bytes(event))])
