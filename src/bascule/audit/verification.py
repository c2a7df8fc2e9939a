"""Verification: what was changed in a ledger, as far as its anchors reach.

It reads rows and anchors once, side by side, in the memory of a few rows, and changes nothing. The
file may be ``ledger.db``, in use or not, or rows that were exported.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeAlias

from bascule.audit.anchor_walk import AnchorWalk
from bascule.audit.anchors import parsed, read_public_key
from bascule.audit.checkpoints import stored
from bascule.audit.export import rows_of_export
from bascule.audit.findings import Problems, Verification
from bascule.audit.ledger_file import MIGRATIONS, base
from bascule.audit.row_walk import Found, RowWalk, stored_rows
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import read_only, refuse_foreign

#: Told how many rows are compared, now and then; what it raises ends the verification.
Told: TypeAlias = Callable[[int], None]
_SQLITE = b"SQLite format 3\0"
#: After how many rows it is told.
_STRIDE = 500
_CHECKPOINTS = "SELECT number, tip, made_at, anchor FROM checkpoints ORDER BY number"


def verify(
    source: Path | sqlite3.Connection,
    anchors: Iterable[bytes] | None = None,
    public_key: str | None = None,
    *,
    told: Told = lambda _: None,
) -> Verification:
    """Verify a ledger against anchor lines and the public key of whoever signed them.

    Without lines it takes those in the ledger, without a key the one that the first line names.
    A connection should be inside a transaction, so that all is read as of one moment. It raises
    StoreUnavailable for a file that is no ledger, InvalidRecord for a key that is none.
    """
    given = None if public_key is None else read_public_key(public_key)
    if isinstance(source, sqlite3.Connection):
        return _of_database(source, anchors, given, told)
    try:
        with source.open("rb") as file:
            if file.read(len(_SQLITE)) != _SQLITE:
                file.seek(0)
                return _of_export(file, anchors or (), given, told)
        with _opened(source) as connection:
            return _of_database(connection, anchors, given, told)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnavailable(f"{source} cannot be read: {error}") from error


@contextmanager
def _opened(path: Path) -> Generator[sqlite3.Connection, None, None]:
    with closing(read_only(path)) as connection:
        refuse_foreign(connection, path, len(MIGRATIONS))
        tables = {name for [name] in connection.execute("SELECT name FROM sqlite_schema")}
        if not {"meta", "events", "checkpoints"} <= tables:
            raise StoreUnavailable(f"{path} is not a ledger: it has no events")
        connection.execute("BEGIN")
        yield connection


def _of_export(
    lines: Iterable[bytes], anchors: Iterable[bytes], given: str | None, told: Told
) -> Verification:
    found = ((row, None) if row else None for row in rows_of_export(lines))
    return _walked(_counted(found, told), AnchorWalk(anchors, given), Problems())


def _of_database(
    connection: sqlite3.Connection,
    anchors: Iterable[bytes] | None,
    given: str | None,
    told: Told,
) -> Verification:
    problems = Problems()
    _check_checkpoints(connection, problems)
    query = "SELECT value FROM meta WHERE key = 'ledger_id'"
    [ledger_id] = connection.execute(query).fetchone() or [None]
    walk = AnchorWalk(stored(connection) if anchors is None else anchors, given, ledger_id)
    before = _base(connection, problems)
    return _walked(_counted(stored_rows(connection, problems), told), walk, problems, before)


def _counted(found: Iterable[Found], told: Told) -> Iterator[Found]:
    for count, one in enumerate(found):
        if count % _STRIDE == 0:
            told(count)
        yield one


def _walked(
    found: Iterable[Found],
    anchors: AnchorWalk,
    problems: Problems,
    before: tuple[int, bytes] | None = None,
) -> Verification:
    walk = RowWalk(anchors.checked(problems), problems)
    for one in found:
        walk.take(one)
    walk.finish(before, anchored=anchors.count > 0)
    believed = anchors.finish(problems)
    return Verification(
        ok=not problems.count,
        rows=walk.rows,
        first=walk.first and walk.first.number,
        last=walk.last and walk.last.number,
        unprotected=walk.unprotected if believed else walk.rows,
        anchors=anchors.count,
        anchors_torn=anchors.torn,
        anchored_at=walk.anchored_at if believed else None,
        key_id=anchors.key_id,
        key_from=anchors.key_from,
        cuts=tuple(walk.cuts),
        problems=tuple(problems.told),
        problem_count=problems.count,
    )


def _base(connection: sqlite3.Connection, problems: Problems) -> tuple[int, bytes] | None:
    try:
        return base(connection)
    except ValueError:
        problems.add(None, "the table meta has no number or hash in base_number or base_hash")
        return None


def _check_checkpoints(connection: sqlite3.Connection, problems: Problems) -> None:
    """Compare what the table says of anchors with their lines."""
    for number, tip, made_at, lines in connection.execute(_CHECKPOINTS):
        signed = parsed(bytes(lines).split(b"\n")[0])
        said = signed and (signed.number, bytes.fromhex(signed.tip), signed.made_at)
        if said != (number, tip, made_at):
            problems.add(number, "the checkpoint of this row does not say what was signed")
