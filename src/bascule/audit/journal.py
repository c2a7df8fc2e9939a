"""The journal: events of one process, appended by one write each, until the ledger has them.

A journal is a series of segments, ``<id>.<number>.journal``. A line has an event, and a MAC over it
and the MAC of the line before, under a key that every new segment replaces with one made from it;
the first line of a segment says how many events came before. What was written survives the kill of
any process. Half a line at the end of a segment was never acknowledged, and what it speaks of never
happened.

The lock file is held for as long as the process lives.
"""

from __future__ import annotations

import errno
import fcntl
import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TypeAlias

import orjson

from bascule.audit.journal_keys import MAC_CHARACTERS, SegmentKeys

FOLDER = "journal"
SEGMENT_BYTES = 4 * 1024 * 1024
_START = b"0" * MAC_CHARACTERS
#: More bytes than a line can have.
_LONGEST = 128 * 1024
_NAME = re.compile(r"([0-9a-f]{16})\.([0-9]{6,})\.journal")


#: The place of an event in its journal, counted from 1, and the event.
Entry: TypeAlias = tuple[int, bytes]


class JournalBroken(Exception):
    """A line that this journal's process did not write, or not there."""


class Disk:
    """How a journal's bytes get to the disk; tests have one that fails."""

    write = staticmethod(os.write)
    truncate = staticmethod(os.ftruncate)
    flush = staticmethod(os.fdatasync)
    flush_folder = staticmethod(os.fsync)


class Journal:
    """The journal that this process writes to. One thread at a time."""

    def __init__(
        self,
        folder: Path,
        root: bytes,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        durable: bool = False,
        disk: Disk = Disk(),  # noqa: B008 - it holds nothing
    ) -> None:
        self.folder = folder
        self.id = secrets.token_hex(8)
        #: How many events it has, and bytes.
        self.place = 0
        self.written = 0
        #: The segment, and how many bytes of it are whole; in one, for those who read meanwhile.
        self.end = (0, 0)
        #: Places before the next segment that may stand in the last one or not.
        self._unsure = 0
        #: A segment to which nothing is added any more, because what of it is kept is not known.
        self._doubted = -1
        #: Whether somebody who waits for a flush may have a line there.
        self._unsaid = False
        self._filing = Lock()
        self._keys = SegmentKeys(root, self.id)
        self._segment_bytes = segment_bytes
        self._durable = durable
        self._disk = disk
        self._file: int | None = None
        self._before = _START
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _locked(lock_path(folder, self.id))

    def append(self, events: Sequence[bytes]) -> None:
        """Write events with one write; raise OSError when not all of them can be relied on."""
        if not events:
            return
        segment, size = self.end
        if self._file is None or size >= self._segment_bytes or self._doubted == segment:
            self._begin_segment()
            size = 0
        lines = bytearray()
        before = self._before if size else self._first_line(lines)
        mac = self._mac.of
        for event in events:
            before = mac(before, event)
            lines += b"%b %b\n" % (before, event)
        self._write(lines, len(events))
        self._before = before
        self.place += len(events)
        self._unsure = 0

    def flush(self) -> None:
        """Wait until what was written is on the disk, whatever happens to the power.

        Another thread may write meanwhile. After a flush that failed, what of the segment is on the
        disk is not known: the next line begins another, and the next flush fails too, for those who
        wrote while this one ran.
        """
        unsaid, self._unsaid = self._unsaid, False
        segment = self._flush_segment()
        if unsaid or self._doubted == segment:
            raise OSError(errno.EIO, "an earlier flush failed")

    def doubt(self, segment: int) -> None:
        """Add nothing more to a segment; who waits for a flush of it is refused."""
        self._doubted, self._unsaid = segment, True

    def close(self) -> None:
        """Let go of the files. Any number of times."""
        self._abandon()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _first_line(self, lines: bytearray) -> bytes:
        head = orjson.dumps(
            {
                "journal": self.id,
                "segment": self.end[0],
                "after": self.place,
                "unsure": self._unsure,
                "written": self.written,
            }
        )
        found = self._mac.of(_START, head)
        lines += b"%b %b\n" % (found, head)
        return found

    def _begin_segment(self) -> None:
        """Make the next file; its first line is written with the events after it."""
        if self._lock < 0:
            raise OSError(errno.EBADF, "the journal is closed")
        segment = self.end[0]
        if self._durable and self._doubted != segment:
            self._flush_segment()
        self._abandon()
        path = segment_path(self.folder, self.id, segment + 1)
        self._file = os.open(path, _flags(os.O_CREAT | os.O_EXCL | os.O_APPEND), 0o600)
        self.end = (segment + 1, 0)
        self._mac = self._keys.at(segment + 1)
        if self._durable:
            self._flush_folder()

    def _flush_folder(self) -> None:
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._disk.flush_folder(folder)
        except OSError:
            self._abandon()
            raise
        finally:
            os.close(folder)

    def _flush_segment(self) -> int:
        with self._filing:
            segment, file = self.end[0], None if self._file is None else os.dup(self._file)
        if file is None:
            return segment
        try:
            self._disk.flush(file)
        except OSError:
            self.doubt(segment)
            raise
        finally:
            os.close(file)
        return segment

    def _write(self, lines: bytearray, count: int) -> None:
        if self._file is None:
            raise OSError(errno.EBADF, "the journal is closed")
        try:
            written = self._disk.write(self._file, lines)
        except OSError:
            self._take_back(count)
            raise
        if written < len(lines):
            self._take_back(count)
            raise OSError(errno.ENOSPC, "the disk took a part of what was to be written")
        segment, size = self.end
        self.end = (segment, size + written)
        self.written += written

    def _take_back(self, count: int) -> None:
        """Take what was half written away; where even that fails, the segment ends with it."""
        try:
            self._disk.truncate(self._file or -1, self.end[1])
        except OSError:
            self.place += count
            self._unsure += count
            self._abandon()

    def _abandon(self) -> None:
        """End the segment; the next line begins another."""
        with self._filing:
            file, self._file = self._file, None
            if file is not None:
                os.close(file)


class JournalReader:
    """Reads a journal line by line, while it is written or after, and believes no line unseen.

    ``after`` is the last place that is known already, ``segment`` the one where that was, or with a
    ``gap`` a later one. Of a journal of this process no more is read than was written as a whole.
    """

    def __init__(
        self,
        folder: Path,
        journal: str | Journal,
        root: bytes,
        *,
        segment: int = 1,
        after: int = 0,
        gap: bool = False,
    ) -> None:
        self._writing = journal if isinstance(journal, Journal) else None
        self.id = journal.id if isinstance(journal, Journal) else journal
        self.segment = max(segment, 1)
        #: How many bytes were read.
        self.read = 0
        self._folder = folder
        self.after = after
        self._keys = SegmentKeys(root, self.id)
        self._file: int | None = None
        self._skipped = gap
        self._begin()

    def _begin(self) -> None:
        self._offset = 0
        self._place: int | None = None
        self._before = _START
        self._mac = self._keys.at(self.segment)

    def entries(self, most_bytes: int) -> list[Entry]:
        """Return what comes next, about so much of it; nothing when there is no more for now.

        Raise JournalBroken at a line that is not the journal's, once those before it were returned.
        """
        found: list[Entry] = []
        while not found:
            further = self._has_further()  # asked first: then nothing is added to this one
            data = self._next(most_bytes)
            if data:
                found = self._believed(data)
            elif further:
                self._close_file()
                self.segment += 1
                self._begin()
            else:
                break
        return found

    def skip(self) -> None:
        """Leave the rest of a segment that is not believed, and go on after it."""
        if self._writing is not None:
            self._writing.doubt(self.segment)
            self.read = self._writing.written
        self._close_file()
        self.segment += 1
        self._begin()
        self._skipped = True

    def close(self) -> None:
        """Let go of the file."""
        self._close_file()

    def _has_further(self) -> bool:
        if self._writing is not None:
            return self._writing.end[0] > self.segment
        return segment_path(self._folder, self.id, self.segment + 1).exists()

    def _next(self, most_bytes: int) -> bytes:
        """Return whole lines; at least one, if there is one."""
        own = self._own_bytes()
        if self._file is None:
            self._file = self._open()
        data = b""
        if self._file is not None:
            most_bytes = most_bytes if own is None else min(most_bytes, own)
            data = os.pread(self._file, most_bytes, self._offset)
        end = data.rfind(b"\n") + 1
        if not end and len(data) > _LONGEST:
            raise self._broken("a line does not end")
        if not end and own:
            raise self._broken("what was written is gone")
        return data[:end]

    def _own_bytes(self) -> int | None:
        """Return how many bytes this process wrote here beyond what was read; None: not known."""
        segment, size = (0, 0) if self._writing is None else self._writing.end
        return max(size - self._offset, 0) if segment == self.segment else None

    def _open(self) -> int | None:
        path = segment_path(self._folder, self.id, self.segment)
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                raise self._broken("it is not a plain file")
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None

    def _broken(self, problem: str) -> JournalBroken:
        return JournalBroken(f"{problem} (segment {self.segment}, byte {self._offset})")

    def _believed(self, data: bytes) -> list[Entry]:
        """Return the events of lines that fit; the first that does not raises, but only then."""
        found: list[Entry] = []
        for line in data.splitlines(keepends=True):
            problem = self._read_line(line, found)
            if problem is not None:
                if found:
                    return found
                raise self._broken(problem)
        return found

    def _read_line(self, line: bytes, found: list[Entry]) -> str | None:
        event = line[MAC_CHARACTERS + 1 : -1]
        expected = self._mac.of(self._before, event)
        if not hmac.compare_digest(line[: MAC_CHARACTERS + 1], expected + b" "):
            return "a line was changed or put there by another"
        place = self._place
        if place is None:
            problem = self._read_head(event)
            if problem is not None:
                return problem
        else:
            self._place = place = place + 1
            if place > self.after:
                found.append((place, event))
                self.after = place
        size = len(line)
        self._before = expected
        self._offset += size
        self.read += size
        return None

    def _read_head(self, event: bytes) -> str | None:
        head = orjson.loads(event)
        if head["after"] - head["unsure"] > self.after and not self._skipped:
            return f"lines {self.after + 1} to {head['after']} are missing"
        self._place = head["after"]
        self.read = head["written"]
        self.after = max(self.after, head["after"])
        self._skipped = False
        return None

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def is_live(folder: Path, journal_id: str) -> bool:
    """Say whether the process of a journal lives."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        lock = os.open(lock_path(folder, journal_id), flags)
    except OSError as error:  # where that cannot be told, what is left of the dead can wait
        return error.errno not in (errno.ENOENT, errno.ELOOP)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def found_journals(folder: Path) -> dict[str, list[Path]]:
    """Return the segments in a folder by the journal that they say they are of, in order."""
    found: dict[str, list[Path]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        named = _NAME.fullmatch(path.name)
        if named:
            found.setdefault(named[1], []).append(path)
    return {id: sorted(paths, key=segment_number) for id, paths in found.items()}


def found_locks(folder: Path) -> list[str]:
    """Return the journals of which there is a lock file, held or not."""
    return [path.stem for path in folder.glob("*.lock")]


def remove_journal(folder: Path, journal_id: str) -> None:
    """Remove what is left of a journal that the ledger has."""
    for path in found_journals(folder).get(journal_id, []):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        lock_path(folder, journal_id).unlink()


def remove_segments(folder: Path, journal_id: str, before: int, start: int = 1) -> Iterator[int]:
    """Remove the segments from one up to another; yield the number of each."""
    for number in range(start, before):
        segment_path(folder, journal_id, number).unlink(missing_ok=True)
        yield number


def set_aside(path: Path) -> str:
    """Keep a file that is not believed, where nobody takes it for a journal; return its name.

    Its old name is to be removed when the new one is written down: a kill in between loses nothing.
    """
    aside = path.parent / "aside"
    aside.mkdir(mode=0o700, exist_ok=True)
    kept = aside / f"{path.name}.{secrets.token_hex(4)}"
    try:
        os.link(path, kept, follow_symlinks=False)
    except OSError:  # a folder has one name only; of what somebody removed there is only the name
        with suppress(FileNotFoundError):
            path.rename(kept)
    return f"{aside.name}/{kept.name}"


def segment_number(path: Path) -> int:
    """Return which segment of its journal a file says it is."""
    return int(path.name.split(".")[1])


def segment_path(folder: Path, journal_id: str, number: int) -> Path:
    """Return where a segment is."""
    return folder / f"{journal_id}.{number:06}.journal"


def lock_path(folder: Path, journal_id: str) -> Path:
    """Return the file that the process of a journal holds locked."""
    return folder / f"{journal_id}.lock"


def _locked(path: Path) -> int:
    """Make a lock file; nobody sees it unlocked while its process lives."""
    new = path.with_suffix(".new")
    lock = os.open(new, _flags(os.O_CREAT | os.O_EXCL), 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.rename(path)
    return lock


def _flags(further: int) -> int:
    return os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | further
