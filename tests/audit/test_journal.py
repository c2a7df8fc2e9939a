"""The journal: lines survive, half a line was never there, and no line is believed unseen."""

from __future__ import annotations

import errno
import hmac
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.audit.journal import (
    Disk,
    Entry,
    Journal,
    JournalBroken,
    JournalReader,
    found_journals,
    is_live,
)
from bascule.audit.journal_keys import MAC_CHARACTERS, Mac, SegmentKeys

ROOT = bytes(range(32))
events = st.lists(st.lists(st.binary(max_size=40).map(lambda b: b.hex().encode()), max_size=5))


def read(folder: Path, id: str, *, segment: int = 1, after: int = 0) -> list[bytes]:
    reader = JournalReader(folder, id, ROOT, segment=segment, after=after)
    found: list[bytes] = []
    while entries := reader.entries(300):
        assert [place for place, _ in entries] == list(
            range(len(found) + 1 + after, len(found) + 1 + after + len(entries))
        )
        found += [event for _, event in entries]
    reader.close()
    return found


@settings(max_examples=50, deadline=None)
@given(groups=events, segment_bytes=st.integers(1, 400))
def test_what_is_appended_is_read_in_order_over_any_number_of_segments(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[bytes]], segment_bytes: int
):
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder, ROOT, segment_bytes=segment_bytes)
    for group in groups:
        journal.append(group)
    journal.close()
    expected = [event for group in groups for event in group]
    assert read(folder, journal.id) == expected
    half = len(expected) // 2
    assert read(folder, journal.id, after=half) == expected[half:]


def test_a_journal_is_private_and_locked_while_its_process_lives(tmp_path: Path):
    journal = Journal(tmp_path / "j", ROOT)
    journal.append([b"{}"])
    [path] = found_journals(tmp_path / "j")[journal.id]
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o700
    assert is_live(tmp_path / "j", journal.id)
    journal.close()
    assert not is_live(tmp_path / "j", journal.id)
    assert not is_live(tmp_path / "j", "unknown")


def test_half_a_line_at_the_end_is_as_if_it_had_never_been(tmp_path: Path):
    journal = Journal(tmp_path, ROOT)
    journal.append([b'{"a":1}'])
    journal.append([b'{"b":2}'])
    journal.close()
    [path] = found_journals(tmp_path)[journal.id]
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rindex(b"\n") + 1
    for end in range(last, len(whole)):
        path.write_bytes(whole[:end])
        assert read(tmp_path, journal.id) == [b'{"a":1}']


def entries_until_broken(reader: JournalReader) -> Iterator[Entry]:
    try:
        while entries := reader.entries(10_000):
            yield from entries
    except JournalBroken:
        return
    raise AssertionError("every line was believed")


changes: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "edited": lambda lines: [*lines[:2], lines[2].replace(b"22}", b"29}"), *lines[3:]],
    "removed": lambda lines: [*lines[:2], *lines[3:]],
    "swapped": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "repeated": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "without its first line": lambda lines: lines[1:],
    "with another's line": lambda lines: [*lines[:2], b"0" * 32 + b' {"e":1}\n', *lines[2:]],
}


@pytest.mark.parametrize("change", changes)
def test_a_line_that_was_changed_is_not_believed_nor_any_after_it(change: str, tmp_path: Path):
    journal = Journal(tmp_path, ROOT)
    for number in range(1, 6):
        journal.append([b'{"n":%d}' % (number * 11)])
    journal.close()
    [path] = found_journals(tmp_path)[journal.id]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(changes[change](lines)))
    reader = JournalReader(tmp_path, journal.id, ROOT)
    believed = [event for _, event in entries_until_broken(reader)]
    assert believed == [b'{"n":%d}' % (n * 11) for n in range(1, len(believed) + 1)]
    assert len(believed) < 4


def test_a_journal_under_another_key_is_not_believed(tmp_path: Path):
    journal = Journal(tmp_path, secrets.token_bytes(32))
    journal.append([b"{}"])
    with pytest.raises(JournalBroken):
        read(tmp_path, journal.id)


def test_a_segment_that_is_gone_is_missed(tmp_path: Path):
    journal = Journal(tmp_path, ROOT, segment_bytes=1)
    for number in range(3):
        journal.append([b"%d" % number])
    journal.close()
    paths = found_journals(tmp_path)[journal.id]
    paths[1].write_bytes(b"")
    reader = JournalReader(tmp_path, journal.id, ROOT)
    assert [found for _, found in reader.entries(1000)] == [b"0"]
    with pytest.raises(JournalBroken, match="lines 2 to 2 are missing"):
        reader.entries(1000)
    reader.skip()
    assert reader.entries(1000) == []


def test_a_key_of_a_segment_before_is_forgotten():
    keys = SegmentKeys(ROOT, "a")
    first = keys.at(1).of(b"", b"x")
    assert keys.at(2).of(b"", b"x") != first
    with pytest.raises(ValueError, match="segment 1 is forgotten"):
        keys.at(1)


class BadDisk(Disk):
    """A disk that takes so many bytes and then none, and may not even give them back."""

    def __init__(self, room: int, *, stuck: bool) -> None:
        self.room = room
        self.stuck = stuck

    def write(self, file: int, data: bytes | bytearray) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "no space left on device")
        written = os.write(file, bytes(data[: self.room]))
        self.room -= written
        return written

    def truncate(self, file: int, size: int) -> None:
        if self.stuck:
            raise OSError(errno.EIO, "input/output error")
        os.ftruncate(file, size)


@settings(max_examples=60, deadline=None)
@given(groups=events, room=st.integers(0, 600), stuck=st.booleans(), segment=st.integers(1, 400))
def test_what_a_full_disk_refused_is_not_there_and_what_it_took_is(
    tmp_path_factory: pytest.TempPathFactory,
    groups: list[list[bytes]],
    room: int,
    stuck: bool,
    segment: int,
):
    folder = tmp_path_factory.mktemp("journal")
    disk = BadDisk(room, stuck=stuck)
    journal = Journal(folder, ROOT, segment_bytes=segment, disk=disk)
    taken: list[bytes] = []
    for number, group in enumerate(groups):
        lines = [b"%d-%s" % (number, event) for event in group]
        try:
            journal.append(lines)
            taken += lines
        except OSError:
            disk.room = 10_000
    disk.room = 10_000
    journal.append([b"last"])
    journal.close()
    reader = JournalReader(folder, journal.id, ROOT)
    found: list[bytes] = []
    places: list[int] = []
    while entries := reader.entries(1000):
        found += [event for _, event in entries]
        places += [place for place, _ in entries]
    assert len(set(places)) == len(places)
    assert places == sorted(places)
    # A disk that is stuck may have kept whole lines of a group that it refused, never half ones.
    refused = [line for line in found if line not in {*taken, b"last"}]
    assert [line for line in found if line not in refused] == [*taken, b"last"]
    assert not refused or stuck


def test_after_a_flush_that_failed_another_segment_begins(tmp_path: Path):
    class Torn(Disk):
        @staticmethod
        def flush(_file: int) -> None:
            raise OSError(errno.EIO, "input/output error")

    journal = Journal(tmp_path, ROOT, disk=Torn())
    journal.append([b"1"])
    with pytest.raises(OSError, match="input/output"):
        journal.flush()
    journal.append([b"2"])
    assert len(found_journals(tmp_path)[journal.id]) == 2
    assert read(tmp_path, journal.id) == [b"1", b"2"]


@given(key=st.binary(min_size=32, max_size=32), before=st.binary(), event=st.binary())
def test_the_mac_of_a_line_is_hmac_sha256(key: bytes, before: bytes, event: bytes):
    expected = hmac.digest(key, before + event, "sha256").hex()[:MAC_CHARACTERS]
    assert Mac(key).of(before, event) == expected.encode()
