"""Takes what journals say into ``ledger.db``: the own one as it grows, those of the dead at start.

All of it runs on the thread of that database, inside its write transactions or, ``taken`` and
``cover``, right after one. How far a journal was taken in is written in the same transaction as its
rows, so that nothing is taken in twice. What is not believed is set aside and named.
"""

from __future__ import annotations

import logging
from contextlib import closing, suppress
from pathlib import Path

from bascule.audit.event_bytes import event_bytes
from bascule.audit.events import JournalSetAside
from bascule.audit.journal import (
    Entry,
    Journal,
    JournalBroken,
    JournalReader,
    found_journals,
    found_locks,
    is_live,
    remove_journal,
    remove_segments,
    segment_number,
    segment_path,
    set_aside,
)
from bascule.audit.ledger_file import FILE, Tables, append
from bascule.clock import Clock
from bascule.db.statements import Statements

logger = logging.getLogger("bascule.ledger")
#: Bytes of one transaction: a few hundred rows.
_TOGETHER = 256 * 1024


class Intake:
    """The journals of one folder, on their way into the database."""

    def __init__(self, folder: Path, root: bytes, clock: Clock, tables: Tables = FILE) -> None:
        #: Where rows go; another chain has others.
        self.tables = tables
        self._folder = folder
        self._root = root
        self._clock = clock
        self._journal: Journal | None = None
        self._number = 0
        #: Whether the database lacks what it had.
        self._went_back = False
        #: Stands where the rows of the last transaction end; None: where the database says.
        self._reader: JournalReader | None = None
        self._read: JournalReader | None = None
        self._removed = 1
        self._finished: set[str] = set()
        self._aside: list[Path] = []
        #: Bytes of the own journal that are in the database; set when a transaction has ended.
        self.taken_bytes = 0

    def register(self, statements: Statements, journal: Journal) -> None:
        """Write a journal's name down, before its first line: what is not named is not believed."""
        self._number = self._name(statements, journal.id)
        self._journal = journal

    def _name(self, statements: Statements, id: str) -> int:
        statements.execute(
            f"INSERT INTO {self.tables.journals} (id, made_at, segment, taken) VALUES (?, ?, 1, 0)",  # noqa: S608 - constants
            (id, self._clock.now()),
        )
        return self._number_of(statements, id)

    def _number_of(self, statements: Statements, id: str) -> int:
        query = f"SELECT number FROM {self.tables.journals} WHERE id = ?"  # noqa: S608 - constants
        return statements.execute(query, (id,)).fetchone()[0]

    def follow(self, statements: Statements) -> int | None:
        """Take in what the own journal has, up to some amount; return the last row's number."""
        if self._journal is None:
            return None
        self._forget()
        reader, self._reader = self._reader or self._reader_of(statements, self._journal), None
        self._read = reader
        self._number = self._number or self._number_of(statements, self._journal.id)
        return self._take(statements, self._number, reader)

    def go_back(self) -> None:
        """Read again what the database has lost, as far as it is still there.

        It names no journal any more that began after the moment that it went back to.
        """
        self._went_back, self._number = True, 0
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def taken(self) -> None:
        """Note that the transaction has ended well; otherwise what was read is read again."""
        reader, self._read = self._read, None
        if reader is not None:
            self._reader, self.taken_bytes = reader, reader.read
        while self._aside:
            with suppress(OSError):
                self._aside.pop().unlink(missing_ok=True)

    def take_in_dead(self, statements: Statements) -> bool:
        """Take in what journals of ended processes have, up to some amount; say if that was all."""
        self._forget()
        known = dict(statements.execute(f"SELECT id, number FROM {self.tables.journals}"))  # noqa: S608 - constants
        found = found_journals(self._folder)
        for id, paths in found.items():
            if id not in known and self._went_back:
                known[id] = self._name(statements, id)
            if id not in known:
                self._set_all_aside(statements, paths, "its process never named it in the ledger")
            elif self._is_dead(id) and self._take_dead(statements, known[id], id, paths):
                return False
        self._finished.update(filter(self._is_dead, found_locks(self._folder)))
        return True

    def cover(self) -> None:
        """Remove what a checkpoint covers now: journals of the dead, segments of the own one."""
        try:
            while self._finished:
                remove_journal(self._folder, self._finished.pop())
            if self._journal is not None and self._reader is not None:
                for number in remove_segments(
                    self._folder, self._journal.id, self._reader.segment, self._removed
                ):
                    self._removed = number + 1
        except OSError as error:
            logger.warning("a journal that was taken in cannot be removed: %s", error)

    def close(self) -> None:
        """Let go of the files."""
        for reader in (self._reader, self._read):
            if reader is not None:
                reader.close()

    def _forget(self) -> None:
        """Forget what a transaction did that was lost."""
        self._aside.clear()
        lost, self._read = self._read, None
        if lost is not None:
            lost.close()

    def _take_dead(self, statements: Statements, number: int, id: str, paths: list[Path]) -> bool:
        """Take in what comes next of a dead journal; say if there was any."""
        with closing(self._reader_of(statements, id)) as reader:
            if self._take(statements, number, reader) is not None:
                return True
        further = [path for path in paths if segment_number(path) > reader.segment]
        self._set_all_aside(statements, further, "the segments before it are missing")
        self._finished.add(id)
        return False

    def _is_dead(self, id: str) -> bool:
        own = self._journal is not None and self._journal.id == id
        return not own and not is_live(self._folder, id)

    def _reader_of(self, statements: Statements, journal: Journal | str) -> JournalReader:
        id = journal if isinstance(journal, str) else journal.id
        query = f"SELECT segment, taken FROM {self.tables.journals} WHERE id = ?"  # noqa: S608 - constants
        segment, taken = statements.execute(query, (id,)).fetchone()
        if self._went_back:
            left = map(segment_number, found_journals(self._folder).get(id, []))
            segment = max(segment, min(left, default=segment))
        return JournalReader(
            self._folder,
            journal,
            self._root,
            segment=segment,
            after=taken,
            gap=self._went_back,
        )

    def _take(self, statements: Statements, number: int, reader: JournalReader) -> int | None:
        """Take in what comes next; return the last row's number, or None if nothing did."""
        last: int | None = None
        entries: list[Entry] | None = None
        while entries is None:
            try:
                entries = reader.entries(_TOGETHER)
            except JournalBroken as broken:
                path = segment_path(self._folder, reader.id, reader.segment)
                last = self._set_aside(statements, path, str(broken), reader.after)
                reader.skip()
        if entries:
            rows = ((number, place, event) for place, event in entries)
            last = append(statements, rows, self.tables)
        statements.execute(
            f"UPDATE {self.tables.journals} SET segment = ?, taken = ? WHERE number = ?",  # noqa: S608 - constants
            (reader.segment, reader.after, number),
        )
        return last

    def _set_all_aside(self, statements: Statements, paths: list[Path], reason: str) -> None:
        for path in paths:
            self._set_aside(statements, path, reason, 0)

    def _set_aside(self, statements: Statements, path: Path, reason: str, lines: int) -> int:
        name = set_aside(path)
        self._aside.append(path)
        logger.error("the journal %s is set aside as %s: %s", path.name, name, reason)
        event = JournalSetAside(timestamp=self._clock.now(), name=name, reason=reason, lines=lines)
        return append(statements, [(0, 0, event_bytes(event))], self.tables)
