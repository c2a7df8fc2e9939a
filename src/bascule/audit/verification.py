"""Verification: what was changed in a ledger, as far as its anchors reach.

It reads rows and anchors once, side by side, in the memory of a few rows, and changes nothing. The
file may be ``ledger.db``, in use or not, or rows that were exported.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bascule.audit.anchor_walk import AnchorWalk
from bascule.audit.anchors import key_id, parsed, read_public_key
from bascule.audit.chain import GENESIS
from bascule.audit.checkpoints import stored
from bascule.audit.export import rows_of_export
from bascule.audit.findings import MOST_TOLD, KeyFrom, Problem, Problems, Verification
from bascule.audit.ledger_file import FILE, MIGRATIONS, Tables, file_tables
from bascule.audit.row_walk import Found, RowWalk, stored_rows
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import read_only, refuse_foreign
from bascule.db.statements import Statements

#: How long a whole database may take to be verified.
VERIFY_SECONDS = 86_400.0
#: Told how many rows are compared, now and then; what it raises ends the verification.
Told: TypeAlias = Callable[[int], None]
#: After how many rows it is told.
_STRIDE = 500
_NO_NAMES: Mapping[str, str] = {}


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
        return _chain_walk(source, Chain("", "", tables, anchors), given, told).finish()
    try:
        if _is_database(source):
            with _opened(source) as connection:
                return _of_file(connection, anchors, given, told)
        with source.open("rb") as file:
            return _of_export(file, anchors or (), given, told)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnavailable(f"{source} cannot be read: {error}") from error


def _is_database(path: Path) -> bool:
    """Ask SQLite what a file is.

    Whoever opens a database without SQLite and closes it ends the locks that this process has on
    it: the next process to close the file would take the log of what is not in it yet away.
    """
    if not path.is_file() or not path.stat().st_size:
        return False
    try:
        read_only(path).close()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        return False
    return True


@contextmanager
def _opened(path: Path) -> Generator[sqlite3.Connection, None, None]:
    with closing(read_only(path)) as connection:
        refuse_foreign(connection, path, len(MIGRATIONS))
        tables = {name for [name] in connection.execute("SELECT name FROM sqlite_schema")}
        if not {"meta", "events", "checkpoints"} <= tables:
            raise StoreUnavailable(f"{path} is not a ledger: it has no events")
        connection.execute("BEGIN")
        yield connection


def _of_file(
    connection: sqlite3.Connection,
    anchors: Iterable[bytes] | None,
    given: str | None,
    told: Told,
) -> Verification:
    """Verify the own chain of a file, and those that nodes have sent."""
    tables = file_tables(connection)
    own = Chain("", "", tables, anchors)
    nodes = [] if tables.chains is None else [*received_chains(connection, tables)]
    if not nodes:
        return _chain_walk(connection, own, given, told).finish()
    id = tables.ledger_id(connection) or ""
    return verify_chains(connection, [Chain(id, id, tables, anchors), *nodes], told, given)


def received_chains(statements: Statements, tables: Tables) -> Iterator[Chain]:
    """Yield the chains of nodes."""
    found = statements.execute(
        f"SELECT number, id, node FROM {tables.chains} c WHERE {tables.received} ORDER BY number"  # noqa: S608 - constants
    ).fetchall()
    for number, id, node in found:
        yield Chain(id, f"{id} of {node}", tables.of(number), received=True)


def _of_export(
    lines: Iterable[bytes], anchors: Iterable[bytes], given: str | None, told: Told
) -> Verification:
    """Verify the chains of an export, each with its own anchors; the one of a file has no name."""
    found = _counted((row and (row, None) for row in rows_of_export(lines)), told)
    first = list(islice(found, 1))
    name = first[0][0].chain if first and first[0] else ""
    if not name:
        walk = _Walk(AnchorWalk(anchors, given))
        for one in chain(first, found):
            walk.take(one)
        return walk.finish()
    walks = {
        one: _Walk(AnchorWalk(kept, _signer(kept, given), one))
        for one, kept in _by_ledger(anchors).items()
    }
    for one in chain(first, found):
        name = name if one is None else one[0].chain
        if name not in walks:
            walks[name] = _Walk(AnchorWalk((), None, name))
        walks[name].received |= one is not None and bool(one[0].node)
        walks[name].take(one)
    return _together(walks, given=given)


def _by_ledger(anchors: Iterable[bytes]) -> dict[str, list[bytes]]:
    """Return anchors by the ledger that they are of; what is none belongs to the one before it."""
    found: dict[str, list[bytes]] = {}
    name = None
    for line in anchors:
        anchor = parsed(line.strip())
        name = name if anchor is None else anchor.ledger_id
        if name is not None:
            found.setdefault(name, []).append(line)
    return found


def _signer(lines: list[bytes], given: str | None) -> str | None:
    """Return the given key for anchors of which it has signed some."""
    signed = {anchor.public_key for anchor in map(parsed, map(bytes.strip, lines)) if anchor}
    return given if given in signed else None


def merged(chains: Mapping[str, Verification], given: str | None = None) -> Verification:
    """Return what was found of several chains as one; a problem names its chain."""
    found = list(chains.values())
    told = [
        Problem(problem.row, f"{problem.words} (chain {name})")
        for name, one in chains.items()
        for problem in one.problems
    ]
    count = sum(one.problem_count for one in found)
    vouched = next((one for one in found if one.key_from == "given"), None)
    if given is not None and vouched is None:
        count += 1
        told.insert(0, Problem(None, f"no anchor is signed by the given key, {key_id(given)}"))
    [only] = found if len(found) == 1 else [None]
    doubtful: KeyFrom | None = "given" if found else None
    for one in found:
        doubtful = one.key_from if one.key_from != "given" else doubtful
    return Verification(
        ok=not count,
        rows=sum(one.rows for one in found),
        first=only and only.first,
        last=only and only.last,
        unprotected=sum(one.unprotected for one in found),
        anchors=sum(one.anchors for one in found),
        anchors_torn=sum(one.anchors_torn for one in found),
        anchored_at=min((one.anchored_at for one in found if one.anchored_at), default=None),
        key_id=next((one.key_id for one in (vouched, *found) if one and one.key_id), None),
        key_from=doubtful,
        cuts=tuple(cut for one in found for cut in one.cuts)[-MOST_TOLD:],
        problems=tuple(told[:MOST_TOLD]),
        problem_count=count,
    )


def verify_chains(
    statements: Statements,
    chains: Iterable[Chain],
    told: Told = lambda _: None,
    given: str | None = None,
) -> Verification:
    """Verify several chains of one database, each against its anchors.

    Those of nodes are signed by their own keys; a given one is that of the others.
    """
    walks: dict[str, _Walk] = {}
    names: dict[str, str] = {}
    done = 0
    for one in chains:
        key = None if one.received else given
        walk = _chain_walk(statements, one, key, partial(_told_after, done, told))
        walks[one.id], names[one.id] = walk, one.name
        done += walk.rows
    return _together(walks, names, given)


def _told_after(done: int, told: Told, count: int) -> None:
    told(done + count)


class Chain(Struct, frozen=True):
    """A chain of a database: its id, its name for people, where it is, and its anchors."""

    id: str
    name: str
    tables: Tables
    anchors: Iterable[bytes] | None = None
    #: Whether a node sends it.
    received: bool = False


def _together(
    walks: Mapping[str, _Walk], names: Mapping[str, str] = _NO_NAMES, given: str | None = None
) -> Verification:
    """Return what was found of all chains, but of those that one of them says are removed."""
    removed = {id for walk in walks.values() for id in walk.removed}
    fronts = {id: front for walk in walks.values() for id, front in walk.fronts.items()}
    for id, walk in walks.items():
        walk.check_front(fronts.get(id))
    left = {id: walk for id, walk in walks.items() if id not in removed}
    found = {names.get(id, id): walk.finish() for id, walk in left.items()}
    own = {
        name: one
        for (name, one), walk in zip(found.items(), left.values(), strict=True)
        if not walk.received
    }
    if len(own) in (0, len(found)):
        return merged(found, given)
    by = merged(own, given)  # what nodes signed themselves says nothing about who signed the rest
    return replace(
        merged(found, given), key_id=by.key_id, key_from=by.key_from, anchored_at=by.anchored_at
    )


def _chain_walk(statements: Statements, chain: Chain, given: str | None, told: Told) -> _Walk:
    tables, problems = chain.tables, Problems()
    _check_checkpoints(statements, tables, problems)
    lines = stored(statements, tables) if chain.anchors is None else chain.anchors
    anchors = AnchorWalk(lines, given, tables.ledger_id(statements))
    before = _base(statements, tables, problems)
    walk = _Walk(anchors, problems, tables, before, received=chain.received)
    for found in _counted(stored_rows(statements, problems, tables=tables), told):
        walk.take(found)
    return walk


def _counted(found: Iterable[Found], told: Told) -> Iterator[Found]:
    for count, one in enumerate(found):
        if count % _STRIDE == 0:
            told(count)
        yield one


class _Walk:
    """Rows of one chain and its anchors, side by side; ``before`` is the row before the first."""

    def __init__(
        self,
        anchors: AnchorWalk,
        problems: Problems | None = None,
        tables: Tables = FILE,
        before: tuple[int, bytes] | None = None,
        *,
        received: bool = False,
    ) -> None:
        self._anchors = anchors
        self._problems = problems = problems or Problems()
        checked = anchors.checked(problems)
        self._rows = RowWalk(checked, problems, tables=tables, received=received)
        self._before = before
        self.take = self._rows.take
        self.removed, self.fronts = self._rows.removed, self._rows.fronts

    @property
    def rows(self) -> int:
        return self._rows.rows

    @property
    def received(self) -> bool:
        """Say whether a node sent the rows."""
        return self._rows.received

    @received.setter
    def received(self, value: bool) -> None:
        self._rows.received = value

    def check_front(self, said: tuple[int, bytes] | None) -> None:
        """See that what a node's chain begins after is what the own chain says of it."""
        before = said or (0, GENESIS)
        if self.received and self._before is not None and self._before != before:
            words = f"the chain is said to begin after it, and the own one says after {before[0]}"
            self._problems.add(self._before[0], words)

    def finish(self) -> Verification:
        """Return what was found."""
        anchors, walk, problems = self._anchors, self._rows, self._problems
        walk.finish(self._before, anchored=anchors.count > 0)
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
