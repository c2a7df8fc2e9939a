"""The anchor file and the key that signs its lines."""

from __future__ import annotations

import fcntl
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from bascule.audit.anchors import (
    KEY_NAME,
    Anchors,
    AnchorsUnavailable,
    SigningKey,
    is_signed,
    key_id,
    line_digest,
    parsed,
    read_public_key,
)
from bascule.audit.chain import GENESIS
from bascule.audit.checkpoints import checkpoint, last_line, store, stored
from bascule.audit.verification import verify
from bascule.db.private_files import KeyUnusable
from tests.audit.small_ledger import LEDGER_ID, add, anchors_in, empty, lines

TIP = b"\1" * 32


def file_of(folder: Path) -> Path:
    return folder / "anchors.jsonl"


@pytest.mark.requirement("audit:ledger:checkpoints")
def test_each_line_is_signed_and_names_the_line_before(tmp_path: Path):
    anchors = anchors_in(tmp_path)
    made = [anchors.add(3, TIP, 1.5), anchors.add(5, TIP, 2.5)]
    assert lines(tmp_path) == made
    first, second = map(parsed, made)
    assert first is not None
    assert second is not None
    assert (first.kind, first.ledger_id, first.number) == ("checkpoint", LEDGER_ID, 3)
    assert (first.tip, first.made_at, first.before) == (TIP.hex(), 1.5, GENESIS.hex())
    assert second.before == line_digest(made[0])
    assert is_signed(first)
    assert is_signed(second)
    assert first.public_key == anchors.public_key()
    assert first.key_id == key_id(anchors.public_key())


def test_file_and_key_are_private_and_made_at_first_use(tmp_path: Path):
    anchors = anchors_in(tmp_path)
    assert list(tmp_path.iterdir()) == []
    anchors.add(1, TIP, 1.0)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {KEY_NAME: 0o600, "anchors.jsonl": 0o600}


def test_a_checkpoint_is_logged_with_its_row_and_tip(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "bascule.ledger")
    anchors_in(tmp_path).add(7, TIP, 1.0)
    [record] = caplog.records
    assert "row 7" in record.getMessage()
    assert TIP.hex() in record.getMessage()


def test_a_flood_of_checkpoints_is_not_one_of_lines_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG, "bascule.ledger")
    anchors = anchors_in(tmp_path)
    for number, now in enumerate((100.0, 101.0, 109.9, 110.0, 50.0), start=1):
        anchors.add(number, TIP, now)
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.INFO, logging.DEBUG, logging.DEBUG, logging.INFO, logging.INFO]


def test_a_new_process_goes_on_after_the_last_line(tmp_path: Path):
    first = anchors_in(tmp_path).add(1, TIP, 1.0)
    second = parsed(anchors_in(tmp_path).add(2, TIP, 2.0))
    assert second is not None
    assert second.before == line_digest(first)


def test_two_processes_that_add_in_turn_make_one_chain(tmp_path: Path):
    one, other = anchors_in(tmp_path), anchors_in(tmp_path)
    made = [one.add(1, TIP, 1.0), other.add(2, TIP, 2.0), one.add(3, TIP, 3.0)]
    befores = [anchor.before for anchor in map(parsed, made) if anchor]
    assert befores == [GENESIS.hex(), *map(line_digest, made[:2])]


def test_a_new_file_goes_on_from_the_last_line_of_the_ledger(tmp_path: Path):
    last = anchors_in(tmp_path).add(1, TIP, 1.0)
    elsewhere = Anchors(tmp_path / "elsewhere", tmp_path / KEY_NAME, LEDGER_ID, last=last)
    line = parsed(elsewhere.add(2, TIP, 2.0))
    assert line is not None
    assert line.before == line_digest(last)


@pytest.mark.parametrize("kept", [1, 20, 300, -1])
def test_half_a_line_is_never_joined_to_the_next(tmp_path: Path, kept: int):
    """Half the second line was written; it was not acknowledged, and the third says so too."""
    anchors = anchors_in(tmp_path)
    first, second = anchors.add(1, TIP, 1.0), anchors.add(2, TIP, 2.0)
    file_of(tmp_path).write_bytes(first + b"\n" + second[:kept])
    third = anchors_in(tmp_path).add(2, TIP, 3.0)
    assert lines(tmp_path) == [first, second[:kept], third]
    found = parsed(third)
    assert found is not None
    assert found.before == line_digest(first)


@pytest.mark.parametrize("kept", [1, 5, 20])
def test_half_of_the_first_line_is_left_behind(tmp_path: Path, kept: int):
    anchors = anchors_in(tmp_path)
    torn = anchors.add(1, TIP, 1.0)[:kept]
    file_of(tmp_path).write_bytes(torn)
    again = anchors.add(1, TIP, 1.0)
    assert lines(tmp_path) == [torn, again]


def test_a_line_that_lacks_only_its_end_counts(tmp_path: Path):
    anchors = anchors_in(tmp_path)
    first, second = anchors.add(1, TIP, 1.0), anchors.add(2, TIP, 2.0)
    file_of(tmp_path).write_bytes(first + b"\n" + second)
    third = anchors.add(3, TIP, 3.0)
    assert lines(tmp_path) == [first, second, third]
    found = parsed(third)
    assert found is not None
    assert found.before == line_digest(second)


def test_a_torn_line_is_counted_and_does_not_break_the_chain(tmp_path: Path):
    connection, anchors = empty(), anchors_in(tmp_path)
    add(connection, range(1, 4))
    assert checkpoint(connection, anchors, 1.0)
    with file_of(tmp_path).open("ab") as file:
        file.write(b'{"kind":"checkpoint","ledg')
    add(connection, range(4, 6))
    assert checkpoint(connection, anchors, 2.0)
    found = verify(connection, lines(tmp_path), anchors.public_key())
    assert found.ok
    assert (found.anchors, found.anchors_torn, found.unprotected) == (2, 1, 0)


def test_a_full_disk_leaves_half_a_line_and_is_tried_again(tmp_path: Path):
    """The limit on the size of files stands for the full disk, in a process of its own."""
    script = """
import resource, signal, sys
from pathlib import Path
from bascule.audit.anchors import AnchorsUnavailable
from tests.audit.small_ledger import anchors_in
folder = Path(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
anchors = anchors_in(folder)
first = anchors.add(1, bytes(32), 1.0)
resource.setrlimit(resource.RLIMIT_FSIZE, (len(first) + 100, resource.RLIM_INFINITY))
for _ in range(2):
    try:
        anchors.add(2, bytes(32), 2.0)
    except AnchorsUnavailable as error:
        print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
anchors.add(2, bytes(32), 3.0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        check=True,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    first, again = done.stdout.splitlines()
    assert "anchors.jsonl" in first
    assert "no anchor was added" in first
    assert "anchors.jsonl" in again
    kept = [anchor for anchor in map(parsed, lines(tmp_path)) if anchor]
    assert [anchor.number for anchor in kept] == [1, 2]
    assert kept[1].before == line_digest(lines(tmp_path)[0])


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path):
    for file in (tmp_path / "none" / "anchors", tmp_path):
        anchors = Anchors(file, tmp_path / KEY_NAME, LEDGER_ID)
        with pytest.raises(AnchorsUnavailable, match=str(file)):
            anchors.add(1, TIP, 1.0)


def test_a_file_that_another_process_holds_is_not_waited_for(tmp_path: Path):
    anchors = anchors_in(tmp_path)
    anchors.add(1, TIP, 1.0)
    with file_of(tmp_path).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(AnchorsUnavailable, match="in use"):
            anchors.add(2, TIP, 2.0)
    assert anchors.add(2, TIP, 2.0)


@pytest.mark.parametrize("size", [20, 100_000])
def test_a_file_of_something_else_is_not_written_to(tmp_path: Path, size: int):
    file_of(tmp_path).write_bytes(b"[ledger]\n" * size)
    before = file_of(tmp_path).read_bytes()
    with pytest.raises(AnchorsUnavailable, match=r"anchors\.jsonl"):
        anchors_in(tmp_path).add(1, TIP, 1.0)
    assert file_of(tmp_path).read_bytes() == before


def test_the_file_of_another_ledger_is_not_written_to(tmp_path: Path):
    anchors_in(tmp_path).add(1, TIP, 1.0)
    other = Anchors(file_of(tmp_path), tmp_path / KEY_NAME, "led-2")
    with pytest.raises(AnchorsUnavailable, match="another ledger"):
        other.add(2, TIP, 2.0)
    assert len(lines(tmp_path)) == 1


def test_a_ledger_that_is_shorter_than_its_anchors_is_not_anchored(tmp_path: Path):
    anchors = anchors_in(tmp_path)
    anchors.add(5, TIP, 1.0)
    for number, tip in [(4, TIP), (5, b"\2" * 32)]:
        with pytest.raises(AnchorsUnavailable, match="bascule audit verify"):
            anchors.add(number, tip, 2.0)


def test_a_long_file_is_read_at_its_end(tmp_path: Path):
    anchors = anchors_in(tmp_path)
    *_, last = [anchors.add(number, TIP, 1.0) for number in range(1, 201)]
    assert file_of(tmp_path).stat().st_size > 65_536
    line = parsed(anchors_in(tmp_path).add(201, TIP, 2.0))
    assert line is not None
    assert line.before == line_digest(last)


def test_a_key_that_others_may_read_is_refused_with_the_command(tmp_path: Path):
    anchors = anchors_in(tmp_path)
    anchors.add(1, TIP, 1.0)
    key = tmp_path / KEY_NAME
    key.chmod(0o640)
    with pytest.raises(KeyUnusable, match=f"chmod 600 {key}"):
        anchors.add(2, TIP, 2.0)
    key.chmod(0o600)
    assert anchors.add(2, TIP, 2.0)


@pytest.mark.parametrize("content", [b"", b"short", b"k" * 33])
def test_a_key_that_is_none_is_refused_and_not_replaced(tmp_path: Path, content: bytes):
    key = tmp_path / KEY_NAME
    key.write_bytes(content)
    key.chmod(0o600)
    with pytest.raises(KeyUnusable, match="not a key"):
        anchors_in(tmp_path).add(1, TIP, 1.0)
    assert key.read_bytes() == content


def test_another_key_or_none_does_not_go_on_where_one_has_signed(tmp_path: Path):
    anchors = anchors_in(tmp_path)
    anchors.add(1, TIP, 1.0)
    expected = key_id(anchors.public_key())
    (tmp_path / KEY_NAME).write_bytes(b"k" * 32)
    with pytest.raises(KeyUnusable, match=f"another key.*{expected}"):
        anchors.add(2, TIP, 2.0)
    (tmp_path / KEY_NAME).unlink()
    with pytest.raises(KeyUnusable, match=f"missing.*{expected}"):
        anchors.add(2, TIP, 2.0)
    assert not (tmp_path / KEY_NAME).exists()
    assert len(lines(tmp_path)) == 1


def test_a_new_key_is_named_by_the_old_and_signs_from_there_on(tmp_path: Path):
    anchors, other = anchors_in(tmp_path), anchors_in(tmp_path)
    anchors.add(1, TIP, 1.0)
    old = anchors.public_key()
    named, taken = map(parsed, anchors.renew(2.0))
    new = anchors.public_key()
    assert named is not None
    assert taken is not None
    assert new != old
    assert (named.kind, named.public_key, named.next_key) == ("key", old, new)
    assert (taken.kind, taken.public_key, taken.number) == ("checkpoint", new, 1)
    assert is_signed(named)
    assert is_signed(taken)
    later = parsed(other.add(2, TIP, 3.0))
    assert later is not None
    assert later.public_key == new, "a process that was there before goes on with the new key"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["anchors.jsonl", KEY_NAME]


def test_a_renewal_that_was_killed_is_finished_or_forgotten(tmp_path: Path):
    anchors = anchors_in(tmp_path)
    anchors.add(1, TIP, 1.0)
    key, waiting = tmp_path / KEY_NAME, tmp_path / f"{KEY_NAME}.next"
    old = key.read_bytes()
    waiting.write_bytes(b"k" * 32)  # killed before the lines were written
    waiting.chmod(0o600)
    assert anchors.add(2, TIP, 2.0)
    assert key.read_bytes() == old
    anchors.renew(3.0)
    new = key.read_bytes()
    assert new not in (old, b"k" * 32)
    key.rename(waiting)  # killed before the file was replaced
    key.write_bytes(old)
    key.chmod(0o600)
    assert anchors.add(3, TIP, 4.0)
    assert key.read_bytes() == new
    assert not waiting.exists()


def test_half_a_renewal_is_a_renewal(tmp_path: Path):
    """The line in which the new key signs was torn, and its file was not in place yet."""
    anchors = anchors_in(tmp_path)
    first = anchors.add(1, TIP, 1.0)
    old = (tmp_path / KEY_NAME).read_bytes()
    named, taken = anchors.renew(2.0)
    (tmp_path / KEY_NAME).rename(tmp_path / f"{KEY_NAME}.next")
    (tmp_path / KEY_NAME).write_bytes(old)
    (tmp_path / KEY_NAME).chmod(0o600)
    file_of(tmp_path).write_bytes(b"\n".join([first, named, taken[:40]]))
    later, change = parsed(anchors_in(tmp_path).add(2, TIP, 3.0)), parsed(named)
    assert later is not None
    assert change is not None
    assert later.public_key == change.next_key
    assert later.before == line_digest(named)


def test_only_one_spelling_of_an_anchor_is_one(tmp_path: Path):
    line = anchors_in(tmp_path).add(1, TIP, 1.0)
    assert parsed(line) is not None
    for other in (line + b" ", line.replace(b":", b": ", 1), line.replace(b"1.0", b"1.00"), b"{}"):
        assert parsed(other) is None


def test_no_text_shows_the_private_key():
    seed = bytes(range(32))
    key = SigningKey(seed)
    shown = repr(key) + str(key) + key.public + key.key_id
    assert seed.hex() not in shown
    assert repr(seed)[2:20] not in shown


def test_the_public_key_is_one_line_that_is_read_back():
    public = SigningKey(b"k" * 32).public
    assert public.startswith("ed25519:")
    assert read_public_key(f" {public}\n") == public


def test_signing_is_loaded_when_it_is_needed():
    script = (
        "import sys, bascule.audit.verification, bascule.audit.retention, "
        "bascule.audit.ledger_check; print('cryptography' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert done.stdout.strip() == "False"


def test_a_ledger_keeps_its_anchors_and_makes_none_without_new_rows(tmp_path: Path):
    connection, anchors = empty(), anchors_in(tmp_path)
    assert checkpoint(connection, anchors, 1.0) is None
    add(connection, range(1, 4))
    first = checkpoint(connection, anchors, 2.0)
    assert checkpoint(connection, anchors, 3.0) is None
    assert list(stored(connection)) == [first] == lines(tmp_path)


def test_lines_for_one_row_are_kept_together_in_their_order(tmp_path: Path):
    connection, anchors = empty(), anchors_in(tmp_path)
    add(connection, range(1, 4))
    first = checkpoint(connection, anchors, 2.0)
    renewed = anchors.renew(3.0)
    for line in renewed:
        store(connection, line)
    assert list(stored(connection)) == [first, *renewed]
    assert last_line(connection) == renewed[-1]
    assert verify(connection).ok
    with pytest.raises(ValueError, match="anchor"):
        store(connection, b"{}")


def test_lines_that_a_killed_process_did_not_keep_are_taken_from_the_file(tmp_path: Path):
    connection, anchors = empty(), anchors_in(tmp_path)
    add(connection, range(1, 4))
    checkpoint(connection, anchors, 1.0)
    add(connection, range(4, 6))
    connection.execute("BEGIN")
    assert checkpoint(connection, anchors, 2.0)
    connection.execute("ROLLBACK")
    add(connection, range(6, 8))
    assert checkpoint(connection, anchors_in(tmp_path), 3.0)
    assert list(stored(connection)) == lines(tmp_path)
    assert len(lines(tmp_path)) == 3
    assert verify(connection).ok
