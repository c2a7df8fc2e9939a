"""What somebody else puts where journals are: never a row, never signed, set aside and named."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bascule.audit.intake import Intake
from bascule.audit.journal import Journal, found_journals, segment_path
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.clock import SYSTEM_CLOCK

KEY = bytes(32)
FORGED = b'{"event":"call_intent","request_id":"forged"}'
WRITTEN = b'{"event":"call_intent","request_id":"written"}'
MB = 1024 * 1024


def rows(data: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(data / "ledger.db")) as connection:
        query = "SELECT body FROM events ORDER BY number"
        return [json.loads(body) for (body,) in connection.execute(query)]


def signed(data: Path) -> int:
    with closing(sqlite3.connect(data / "ledger.db")) as connection:
        [count] = connection.execute("SELECT max(number) FROM checkpoints").fetchone()
        return count


async def started(data: Path) -> None:
    """Start and stop, as the next process does."""
    await (await SqliteLedger(data, key=KEY).open()).close()


def written(folder: Path, event: bytes, key: bytes = KEY) -> Path:
    """Write a journal of one event as a process does that was killed; return its file."""
    journal = Journal(folder, key)
    journal.append([event])
    journal.close()
    return segment_path(folder, journal.id, 1)


def named(data: Path, path: Path) -> None:
    """Name a journal in the ledger, as only its own process may."""
    with closing(sqlite3.connect(data / "ledger.db", isolation_level=None)) as connection:
        connection.execute(
            "INSERT INTO journals (id, made_at, segment, taken) VALUES (?, 1.0, 1, 0)",
            (path.name.split(".")[0],),
        )


def replaced(path: Path, make: Callable[[Path], object]) -> Path:
    path.unlink()
    make(path)
    return path


def bind_socket(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


def is_there(path: Path) -> bool:
    return os.path.lexists(path)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100 * MB)


#: What stands in the place of a journal that its process had named.
stand_ins: dict[str, Callable[[Path], object]] = {
    "a link": lambda path: path.symlink_to(path.parent.parent / "elsewhere"),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a socket": bind_socket,
    "100 MB without an end of line": sparse,
    "a million empty lines": lambda path: path.write_bytes(b"\n" * 1_000_000),
    "a line of another program": lambda path: path.write_bytes(b"hello\n"),
    "lines without their first": lambda path: path.write_bytes(b"0" * 32 + b" " + FORGED + b"\n"),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", stand_ins)
async def test_what_stands_in_the_place_of_a_journal_is_set_aside_and_named(
    kind: str, tmp_path: Path
):
    await started(tmp_path)
    elsewhere = written(tmp_path / "other", FORGED)
    (tmp_path / "elsewhere").write_bytes(elsewhere.read_bytes())
    path = written(tmp_path / "journal", WRITTEN)
    named(tmp_path, path)
    replaced(path, stand_ins[kind])
    await started(tmp_path)
    [row] = rows(tmp_path)
    assert row["event"] == "set_aside"
    assert path.name in row["name"]
    assert is_there(tmp_path / "journal" / row["name"])
    assert not is_there(path)
    await started(tmp_path)
    assert len(rows(tmp_path)) == 1, "it is named once"


@pytest.mark.parametrize("key", [KEY, secrets.token_bytes(32)], ids=["right key", "wrong key"])
async def test_a_journal_that_nobody_named_is_set_aside_whatever_it_says(
    key: bytes, tmp_path: Path
):
    await started(tmp_path)
    path = written(tmp_path / "journal", FORGED, key)
    await started(tmp_path)
    [row] = rows(tmp_path)
    assert (row["event"], row["reason"]) == (
        "set_aside",
        "its process never named it in the ledger",
    )
    assert (tmp_path / "journal" / row["name"]).exists()
    assert not path.exists()


async def test_a_journal_under_a_wrong_key_is_set_aside_though_its_name_is_known(tmp_path: Path):
    await started(tmp_path)
    named(tmp_path, written(tmp_path / "journal", FORGED, secrets.token_bytes(32)))
    await started(tmp_path)
    [row] = rows(tmp_path)
    assert row["event"] == "set_aside"


@pytest.mark.parametrize("number", [2, 3, 999_999_999])
async def test_a_segment_that_is_added_to_a_journal_is_set_aside_and_the_rest_believed(
    number: int, tmp_path: Path
):
    await started(tmp_path)
    path = written(tmp_path / "journal", WRITTEN)
    named(tmp_path, path)
    added = segment_path(path.parent, path.name.split(".")[0], number)
    added.write_bytes(path.read_bytes())
    await started(tmp_path)
    first, second = rows(tmp_path)
    assert first["request_id"] == "written"
    assert (second["event"], added.name in second["name"]) == ("set_aside", True)
    assert found_journals(tmp_path / "journal") == {}


async def test_a_live_journal_is_left_alone_whoever_else_starts(tmp_path: Path):
    ledger = await SqliteLedger(tmp_path, key=KEY).open()
    journal = Journal(tmp_path / "journal", KEY)
    await ledger.database.write(
        lambda connection: Intake(tmp_path / "journal", KEY, SYSTEM_CLOCK).register(
            connection, journal
        )
    )
    journal.append([WRITTEN])
    await started(tmp_path)
    assert rows(tmp_path) == []
    journal.close()
    await started(tmp_path)
    assert [row["request_id"] for row in rows(tmp_path)] == ["written"]
    await ledger.close()


async def test_no_checkpoint_is_made_over_a_forged_event(tmp_path: Path):
    await started(tmp_path)
    written(tmp_path / "journal", FORGED)
    named(tmp_path, written(tmp_path / "journal", FORGED, secrets.token_bytes(32)))
    await started(tmp_path)
    assert {row["event"] for row in rows(tmp_path)} == {"set_aside"}
    assert signed(tmp_path) == len(rows(tmp_path)) == 2
