"""The journal: events of one process, appended by one write each, until the ledger has them.

A journal is a series of segments, ``<id>.<number>.journal``. Each line has a MAC over the line
before it, under a key that every new segment replaces with one made from it; the first line of a
segment says how many came before. What was written survives the kill of any process. Half a line
at the end of a segment was never acknowledged, and what it speaks of never happened.

The lock file is held for as long as the process lives.
"""

from __future__ import annotations

import errno
import fcntl
import hmac
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson

FOLDER = "journal"
SEGMENT_BYTES = 4 * 1024 * 1024
_MAC_CHARACTERS = 32
_START = b"0" * _MAC_CHARACTERS
#: The last place before a segment, where only its first line can tell.
UNKNOWN = -1
_NAME = re.compile(r"([0-9a-f]{16})\.(\d{6,})\.journal")
_LOCK_NAME = re.compile(r"([0-9a-f]{16})\.lock")


class Entry(NamedTuple):
    """An event of a journal, and its place there, counted from 1."""

    place: int
    event: bytes


class JournalBroken(Exception):
    """A line that this journal's process did not write, or not there."""


class Disk:
    """How a journal's bytes get to the disk; tests have one that fails."""

    write = staticmethod(os.write)
    truncate = staticmethod(os.ftruncate)
    flush = staticmethod(os.fdatasync)


class SegmentKeys:
    """The keys of a journal's segments, each made from the one before, which is forgotten."""

    def __init__(self, root: bytes, journal_id: str) -> None:
        self.segment = 0
        self._key = hmac.digest(root, journal_id.encode(), "sha256")

    def at(self, segment: int) -> hmac.HMAC:
        """Go on to a segment, never back; return what makes the MACs of its lines."""
        if segment < self.segment:
            raise ValueError(f"the key of segment {segment} is forgotten")
        while self.segment < segment:
            self._key = hmac.digest(self._key, b"next", "sha256")
            self.segment += 1
        return hmac.new(self._key, digestmod="sha256")


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
        #: How many events it has, and bytes; how many of these are in the segment.
        self.place = 0
        self.written = 0
        self.size = 0
        self.segment = 0
        #: Places before the next segment that may stand in the last one or not.
        self._unsure = 0
        #: A segment of which a flush failed, or that somebody else changed.
        self._doubted = -1
        self._keys = SegmentKeys(root, self.id)
        self._segment_bytes = segment_bytes
        self._durable = durable
        self._disk = disk
        self._file: int | None = None
        self._before = _START
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(lock_path(folder, self.id), _flags(os.O_CREAT | os.O_EXCL), 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def append(self, events: Sequence[bytes]) -> None:
        """Write events with one write; raise OSError when not all of them can be relied on."""
        full = self.size >= self._segment_bytes or self._doubted == self.segment
        if self._file is None or full:
            self._begin_segment()
        before, lines = self._before, bytearray()
        for event in events:
            before = self._line(lines, before, event)
        self._write(lines, len(events))
        self._before = before
        self.place += len(events)

    def flush(self) -> None:
        """Wait until what was written is on the disk, whatever happens to the power.

        Another thread may write meanwhile. After a flush that failed, what of the segment is on the
        disk is not known: the next line begins another.
        """
        segment, file = self.segment, None if self._file is None else os.dup(self._file)
        if file is None:
            return
        try:
            self._disk.flush(file)
        except OSError:
            self._doubted = segment
            raise
        finally:
            os.close(file)

    def leave(self, segment: int) -> None:
        """Add no more to a segment that is not as it was written. Any thread may say so."""
        self._doubted = segment

    def close(self) -> None:
        """Let go of the files. Any number of times."""
        self._abandon()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _line(self, lines: bytearray, before: bytes, event: bytes) -> bytes:
        mac = self._hmac.copy()
        mac.update(before)
        mac.update(event)
        found = mac.hexdigest()[:_MAC_CHARACTERS].encode()
        lines += found
        lines += b" "
        lines += event
        lines += b"\n"
        return found

    def _begin_segment(self) -> None:
        if self._durable and self._doubted != self.segment:
            self.flush()
        self._abandon()
        number = self.segment + 1
        path = segment_path(self.folder, self.id, number)
        self._file = os.open(path, _flags(os.O_CREAT | os.O_EXCL | os.O_APPEND), 0o600)
        if self._durable:
            _flush_folder(self.folder)
        self.size = 0
        self.segment = number
        self._hmac = self._keys.at(number)
        head = {
            "journal": self.id,
            "segment": number,
            "after": self.place,
            "unsure": self._unsure,
            "bytes": self.written,
        }
        lines = bytearray()
        before = self._line(lines, _START, orjson.dumps(head))
        try:
            self._write(lines, 0)
        except OSError:
            self._abandon()  # no line may stand there without the first
            raise
        self._before, self._unsure = before, 0

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
        self.size += written
        self.written += written

    def _take_back(self, count: int) -> None:
        """Take what was half written away; where even that fails, the segment ends with it."""
        try:
            self._disk.truncate(self._file or -1, self.size)
        except OSError:
            self.place += count
            self._unsure += count
            self._abandon()

    def _abandon(self) -> None:
        """End the segment; the next line begins another."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


class JournalReader:
    """Reads a journal line by line, while it is written or after, and believes no line unseen.

    ``after`` is the last place that is known already, ``segment`` the one where that was; after
    a segment that is not believed, ``UNKNOWN``. Of a journal of this process no more is read than
    was written as a whole.
    """

    def __init__(
        self, folder: Path, journal: str | Journal, root: bytes, *, segment: int = 1, after: int = 0
    ) -> None:
        self._writing = journal if isinstance(journal, Journal) else None
        self.id = journal.id if isinstance(journal, Journal) else journal
        self.segment = max(segment, 1)
        #: How many of the journal's bytes were read, those that are known already included.
        self.read = 0
        self._folder = folder
        self.after = after
        self._keys = SegmentKeys(root, self.id)
        self._file: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._offset = 0
        self._place: int | None = None
        self._before = _START
        self._hmac = self._keys.at(self.segment)

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
        if self._writing is not None and not self._has_further():
            self._writing.leave(self.segment)
            self.read = self._writing.written  # what it adds is in the next one
        self._close_file()
        self.segment += 1
        self.after = UNKNOWN
        self._begin()

    def close(self) -> None:
        """Let go of the file."""
        self._close_file()

    def _has_further(self) -> bool:
        return segment_path(self._folder, self.id, self.segment + 1).exists()

    def _next(self, most_bytes: int) -> bytes:
        """Return whole lines; at least one, if there is one."""
        if self._file is None:
            try:
                path = segment_path(self._folder, self.id, self.segment)
                self._file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                self._refuse_loss(self._own_bytes())
                return b""
        left = self._own_bytes()
        most_bytes = most_bytes if left is None else min(most_bytes, left)
        data = os.pread(self._file, max(most_bytes, 0), self._offset)
        lines = data[: data.rfind(b"\n") + 1]
        if not lines:
            self._refuse_loss(left)
        return lines

    def _own_bytes(self) -> int | None:
        """Return how many bytes this process wrote here beyond what was read; None: not known."""
        writing = self._writing
        if writing is None or writing.segment != self.segment:
            return None
        return writing.size - self._offset

    def _refuse_loss(self, left: int | None) -> None:
        """Refuse a file that has less than this process wrote to it."""
        if left is not None and left > 0 and self._own_bytes() is not None:
            raise JournalBroken(f"what was written is gone (segment {self.segment})")

    def _believed(self, data: bytes) -> list[Entry]:
        """Return the events of lines that fit; the first that does not raises, but only then."""
        found: list[Entry] = []
        for line in data.splitlines(keepends=True):
            problem = self._read_line(line, found)
            if problem is not None:
                if found:
                    return found
                raise JournalBroken(f"{problem} (segment {self.segment}, byte {self._offset})")
        return found

    def _read_line(self, line: bytes, found: list[Entry]) -> str | None:
        event = line[_MAC_CHARACTERS + 1 : -1]
        mac = self._hmac.copy()
        mac.update(self._before)
        mac.update(event)
        expected = mac.hexdigest()[:_MAC_CHARACTERS].encode()
        if not hmac.compare_digest(line[: _MAC_CHARACTERS + 1], expected + b" "):
            return "a line was changed or put there by another"
        if self._place is None:
            problem = self._read_head(event)
            if problem is not None:
                return problem
        else:
            self._place += 1
            if self._place > self.after:
                found.append(Entry(self._place, event))
                self.after = self._place
        self._before = expected
        self._offset += len(line)
        self.read += len(line)
        return None

    def _read_head(self, event: bytes) -> str | None:
        head = orjson.loads(event)
        if self.after != UNKNOWN and head["after"] - head["unsure"] > self.after:
            return f"lines {self.after + 1} to {head['after']} are missing"
        self._place = head["after"]
        self.after = max(self.after, head["after"])
        self.read = head["bytes"]
        return None

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def is_live(folder: Path, journal_id: str) -> bool:
    """Say whether the process of a journal lives."""
    try:
        lock = os.open(lock_path(folder, journal_id), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def found_journals(folder: Path) -> dict[str, list[Path]]:
    """Return the segments in a folder by the journal that they say they are of, in order."""
    found: dict[str, list[tuple[int, Path]]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        named = _NAME.fullmatch(path.name)
        if named:
            found.setdefault(named[1], []).append((int(named[2]), path))
    return {id: [path for _, path in sorted(paths)] for id, paths in found.items()}


def begun_journals(folder: Path) -> set[str]:
    """Return the journals that a process began, whether or not it wrote a line."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return {named[1] for path in paths if (named := _LOCK_NAME.fullmatch(path.name))}


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
    """Keep a file that is not believed, where nobody takes it for a journal; return its name."""
    aside = path.parent / "aside"
    aside.mkdir(mode=0o700, exist_ok=True)
    kept = aside / f"{path.name}.{secrets.token_hex(4)}"
    with suppress(FileNotFoundError):  # somebody removed it: then its name is all there is
        path.rename(kept)
    return f"{aside.name}/{kept.name}"


def segment_path(folder: Path, journal_id: str, number: int) -> Path:
    """Return where a segment is."""
    return folder / f"{journal_id}.{number:06}.journal"


def lock_path(folder: Path, journal_id: str) -> Path:
    """Return the file that the process of a journal holds locked."""
    return folder / f"{journal_id}.lock"


def _flags(further: int) -> int:
    return os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | further


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
