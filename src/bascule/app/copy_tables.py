"""What a registry consists of, table by table, wherever it is kept.

A row is the same tuple of plain values in every place, and rows have one order, so that a digest
over them is the same too. How a place spells a table is said here where it differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from bascule.audit.chain import GENESIS, SEARCHED, columns
from bascule.auth.token_record import TokenRecord
from bascule.control.secret_store import Binding, Row

Part = Literal["registry", "tokens", "secrets", "ledger"]
PARTS: tuple[Part, ...] = ("registry", "tokens", "secrets", "ledger")


class Table(Struct, frozen=True, kw_only=True):
    """One table of a part; ``order`` are the columns that no two rows have the same of."""

    part: Part
    name: str
    columns: tuple[str, ...]
    order: tuple[str, ...]

    @property
    def title(self) -> str:
        """Return what it is called everywhere."""
        return f"{self.part}.{self.name}"


class Sql(Struct, frozen=True, kw_only=True):
    """How a place reads a table, in order, and adds a row to it.

    ``clear`` makes a table empty that has one row from the start; what has no ``add`` is read off
    others.
    """

    read: str
    add: str | None = None
    clear: str | None = None


_VERSION = ("kind", "id", "revision", "updated_at", "owner", "body")
HEAD = Table(
    part="registry",
    name="head",
    columns=("store_id", "revision", "floor", "floor_mark", "predecessor"),
    order=("store_id",),
)
SECRETS_HEAD = Table(
    part="secrets", name="head", columns=("store_id", "epoch", "key_id"), order=("store_id",)
)
SECRETS = Table(part="secrets", name="secrets", columns=Row.__struct_fields__, order=("name",))
TOKENS = Table(
    part="tokens",
    name="tokens",
    columns=("place", *TokenRecord.__struct_fields__),
    order=("place",),
)
LEDGER_META = Table(part="ledger", name="meta", columns=("key", "value"), order=("key",))
#: Each has rows of its own; ``id`` is what anchors name it by, the base what was cut off its front.
#: It began at so many microseconds.
CHAINS = Table(
    part="ledger",
    name="chains",
    columns=("number", "id", "node", "follows", "began_at", "base_number", "base_hash"),
    order=("number",),
)
#: ``number`` counts the rows of all chains, ``link`` those of one. The columns for searching are
#: made anew from the body, as each place has them.
EVENTS = Table(
    part="ledger",
    name="events",
    columns=("number", "chain", "link", "journal", "place", "body", "hash"),
    order=("number",),
)
BODY = EVENTS.columns.index("body")
CHECKPOINTS = Table(
    part="ledger",
    name="checkpoints",
    columns=("chain", "number", "tip", "made_at", "anchor"),
    order=("chain", "number"),
)
#: The last number that a row was given, and the last that was cut off.
COUNT = Table(part="ledger", name="count", columns=("number", "cut"), order=())
TABLES: tuple[Table, ...] = (
    HEAD,
    Table(
        part="registry",
        name="revisions",
        columns=("revision", "at", "actor", "note", "mark"),
        order=("revision",),
    ),
    Table(part="registry", name="changes", columns=_VERSION, order=("kind", "id", "revision")),
    Table(part="registry", name="objects", columns=_VERSION, order=("kind", "id")),
    Table(part="registry", name="pairs", columns=("body",), order=("body",)),
    Table(
        part="registry",
        name="proposals",
        columns=("number", "kind", "id", "body", "base", "actor", "at"),
        order=("number",),
    ),
    Table(
        part="registry",
        name="assignments",
        columns=("node", "tasks", "labels", "actor", "at"),
        order=("node",),
    ),
    TOKENS,
    SECRETS_HEAD,
    SECRETS,
    Table(
        part="secrets",
        name="bindings",
        columns=Binding.__struct_fields__,
        order=("name", "kind", "id"),
    ),
    Table(part="secrets", name="removed", columns=("name", "version"), order=("name",)),
    LEDGER_META,
    Table(
        part="ledger",
        name="journals",
        columns=("number", "id", "made_at", "segment", "taken"),
        order=("number",),
    ),
    CHAINS,
    EVENTS,
    CHECKPOINTS,
    COUNT,
    Table(
        part="ledger",
        name="approvals",
        columns=(
            *("id", "state", "call", "asker", "token_id", "task_id", "server_id", "tool_name"),
            *("asked_at", "expires_at", "moved_at", "journal", "body"),
        ),
        order=("rowid",),
    ),
    Table(part="ledger", name="approval_contents", columns=("id", "sealed"), order=("id",)),
    Table(
        part="ledger",
        name="parked_turns",
        columns=("id", "owner", "parked_at", "expires_at", "size", "sealed", "holder"),
        order=("rowid",),
    ),
)


def plain_sql(table: Table, name: str) -> Sql:
    """Return how SQLite spells a table that has just these columns."""
    columns, marks = ", ".join(table.columns), ", ".join("?" * len(table.columns))
    return Sql(
        read=f"SELECT {columns} FROM {name} ORDER BY {', '.join(table.order)}",  # noqa: S608 - constants
        add=f"INSERT INTO {name} ({columns}) VALUES ({marks})",  # noqa: S608 - constants
    )


_KEPT = ("number", "journal", "place", "body", "hash")
_OF_CHAIN = "'ledger_id', 'base_number', 'base_hash'"
_SQLITE: Mapping[str, Sql] = {
    HEAD.title: Sql(
        read=f"SELECT {', '.join(HEAD.columns)} FROM meta",  # noqa: S608 - constants
        add=f"INSERT INTO meta (one, {', '.join(HEAD.columns)}) VALUES (1, ?, ?, ?, ?, ?)",  # noqa: S608 - constants
        clear="DELETE FROM meta",
    ),
    SECRETS_HEAD.title: Sql(
        read="SELECT store_id, epoch, key_id FROM meta",
        add="INSERT INTO meta (one, store_id, epoch, key_id) VALUES (1, ?, ?, ?)",
        clear="DELETE FROM meta",
    ),
    LEDGER_META.title: Sql(
        read=f"SELECT key, value FROM meta WHERE key NOT IN ({_OF_CHAIN}) ORDER BY key",  # noqa: S608 - a constant
        add="INSERT INTO meta (key, value) VALUES (?, ?)",
    ),
    # ledger.db has one chain, whose rows are all rows.
    CHAINS.title: Sql(
        read=f"""SELECT 1, value, '', NULL,
            (SELECT CAST(coalesce(min(made_at), 0) * 1e6 AS INTEGER) FROM journals),
            CAST(coalesce((SELECT value FROM meta WHERE key = 'base_number'), 0) AS INTEGER),
            coalesce((SELECT value FROM meta WHERE key = 'base_hash'), '{GENESIS.hex()}')
            FROM meta WHERE key = 'ledger_id'""",  # noqa: S608 - a constant
        add="""INSERT INTO meta (key, value)
            VALUES ('ledger_id', ?2), ('base_number', ?6), ('base_hash', ?7)""",
    ),
    EVENTS.title: Sql(
        read="SELECT number, 1, number, journal, place, body, hash FROM events ORDER BY number",
        add=f"INSERT INTO events ({', '.join((*_KEPT, *SEARCHED))})"  # noqa: S608 - constants
        f" VALUES ({', '.join('?' * len((*_KEPT, *SEARCHED)))})",
    ),
    CHECKPOINTS.title: Sql(
        read="SELECT 1, number, tip, made_at, anchor FROM checkpoints ORDER BY number",
        add="INSERT INTO checkpoints (number, tip, made_at, anchor) VALUES (?2, ?3, ?4, ?5)",
    ),
    COUNT.title: Sql(
        read="""SELECT coalesce((SELECT max(number) FROM events), cut), cut
            FROM (SELECT CAST(coalesce((SELECT value FROM meta WHERE key = 'base_number'), 0)
            AS INTEGER) AS cut)""",
    ),
}


def sqlite_sql(table: Table) -> Sql:
    """Return how the files of a data directory spell a table."""
    return _SQLITE.get(table.title) or plain_sql(table, table.name)


def sqlite_values(table: Table, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row as the files of a data directory have it.

    Raise ``msgspec.MsgspecError`` or ``UnicodeDecodeError`` for a row of the ledger with no event.
    """
    if table is EVENTS:
        number, _, _, *more = row
        return (number, *more, *columns(row[BODY]))
    if table is CHAINS:
        *more, base, digest = row
        return (*more, str(base), digest)
    return row
