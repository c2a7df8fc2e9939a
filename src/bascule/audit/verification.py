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
from bascule.audit.ledger_file import FILE, MIGRATIONS, Tables
from bascule.audit.row_walk import Found, RowWalk, stored_rows
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import read_only, refuse_foreign
from bascule.db.statements import Statements

#: Told how many rows are compared, now and then; what it raises ends the verification.
Told: TypeAlias = Callable[[int], None]
_SQLITE = b"SQLite format 3\0"
#: After how many rows it is told.
_STRIDE = 500


def verify(
    source: Path | Statements,
    anchors: Iterable[bytes] | None = None,
    public_key: str | None = None,
    *,
    told: Told = lambda _: None,
    tables: Tables = FILE,
) -> Verification:
    """Verify a ledger against anchor lines and the public key of whoever signed them.

    Without lines it takes those in the ledger, without a key the one that the first line names.
    A connection should be inside a transaction, so that all is read as of one moment. It raises
    StoreUnavailable for a file that is no ledger, InvalidRecord for a key that is none.
    """
    given = None if public_key is None else read_public_key(public_key)
    if not isinstance(source, Path):
        return _of_chain(source, anchors, given, told, tables)
    try:
        with source.open("rb") as file:
            if file.read(len(_SQLITE)) != _SQLITE:
                file.seek(0)
                return _of_export(file, anchors or (), given, told)
        with _opened(source) as connection:
            return _of_chain(connection, anchors, given, told, tables)
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


def _of_chain(
    statements: Statements,
    anchors: Iterable[bytes] | None,
    given: str | None,
    told: Told,
    tables: Tables,
) -> Verification:
    problems = Problems()
    _check_checkpoints(statements, tables, problems)
    lines = stored(statements, tables) if anchors is None else anchors
    walk = AnchorWalk(lines, given, tables.ledger_id(statements))
    before = _base(statements, tables, problems)
    rows = _counted(stored_rows(statements, problems, tables=tables), told)
    return _walked(rows, walk, problems, before, tables)


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
    tables: Tables = FILE,
) -> Verification:
    walk = RowWalk(anchors.checked(problems), problems, tables=tables)
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


def _base(statements: Statements, tables: Tables, problems: Problems) -> tuple[int, bytes] | None:
    try:
        return tables.base(statements)
    except ValueError:
        problems.add(None, "the table meta has no number or hash in base_number or base_hash")
        return None


def _check_checkpoints(statements: Statements, tables: Tables, problems: Problems) -> None:
    """Compare what the table says of anchors with their lines."""
    query = (
        f"SELECT number, tip, made_at, anchor FROM {tables.checkpoints}"  # noqa: S608 - constants
        f" WHERE {tables.mine} ORDER BY number"
    )
    for number, tip, made_at, lines in statements.execute(query):
        signed = parsed(bytes(lines).split(b"\n")[0])
        said = signed and (signed.number, bytes.fromhex(signed.tip), signed.made_at)
        if said != (number, tip, made_at):
            problems.add(number, "the checkpoint of this row does not say what was signed")
