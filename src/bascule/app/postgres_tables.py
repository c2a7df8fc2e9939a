"""How a PostgreSQL spells the tables of a registry (``copy_tables.py``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from bascule.app.copy_tables import (
    BODY,
    CHAINS,
    CHECKPOINTS,
    COUNT,
    EVENTS,
    HEAD,
    LEDGER_META,
    SECRETS,
    SECRETS_HEAD,
    TABLES,
    TOKENS,
    Table,
)
from bascule.audit.chain import SEARCHED
from bascule.audit.shared_tables import FORMS as LEDGER_FORMS
from bascule.audit.shared_tables import SharedTables
from bascule.auth.postgres_token_store import FORMS as TOKENS_FORMS
from bascule.control.postgres_secret_store import FORMS as SECRETS_FORMS
from bascule.control.registry.postgres_assignments import FORMS as ASSIGNMENTS_FORMS
from bascule.control.registry.postgres_duties import FORMS as DUTIES_FORMS
from bascule.control.registry.postgres_reports import FORMS as REPORTS_FORMS
from bascule.control.registry.postgres_store import FORMS as REGISTRY_FORMS
from bascule.control.work.postgres_rows import FORMS as WORKS_FORMS
from bascule.db.postgres_outcome import FORMS as OUTCOMES_FORMS

Values: TypeAlias = tuple[Any, ...]
#: The parts of a database as they are brought forward, each with its forms. What nodes reported
#: and what they were asked is not copied: it is said again, and nobody waits for it any more.
FORMS: Mapping[str, tuple[str, ...]] = {
    "registry": REGISTRY_FORMS,
    "reports": REPORTS_FORMS,
    "assignments": ASSIGNMENTS_FORMS,
    "duties": DUTIES_FORMS,
    "works": WORKS_FORMS,
    "outcomes": OUTCOMES_FORMS,
    "tokens": TOKENS_FORMS,
    "secrets": SECRETS_FORMS,
    "ledger": LEDGER_FORMS,
}
_TASKS = TOKENS.columns.index("tasks")
_SPEAKS = TOKENS.columns.index("acts_for_users")
_columns = SharedTables().columns


def _same(row: Values) -> Values:
    return row


class Spelling(Struct, frozen=True, kw_only=True):
    """How a table is read, in order, and a row added to it; ``clear`` comes before the first one.

    ``taken`` makes a row as all places have it of one that was read, ``given`` one to be added.
    """

    read: str
    add: str
    clear: str | None = None
    taken: Callable[[Values], Values] = _same
    given: Callable[[Values], Values] = _same


def _plain(table: Table, name: str, *, identity: bool = False) -> Spelling:
    columns, order = ", ".join(table.columns), ", ".join(_ordered(one) for one in table.order)
    override = " OVERRIDING SYSTEM VALUE" if identity else ""
    return Spelling(
        read=f"SELECT {columns} FROM {name} ORDER BY {order}",  # noqa: S608 - constants
        add=f"INSERT INTO {name} ({columns}){override} VALUES ({_marks(len(table.columns))})",  # noqa: S608 - constants
    )


def _ordered(column: str) -> str:
    """Have texts in the order of their bytes, as SQLite has them."""
    return (
        f'{column} COLLATE "C"'
        if column in {"kind", "id", "key", "name", "body", "node"}
        else column
    )


def _marks(count: int) -> str:
    return ", ".join(f"${number}" for number in range(1, count + 1))


# --- tokens


def _token_taken(row: Values) -> Values:
    values = list(row)
    values[_SPEAKS] = int(values[_SPEAKS])
    if values[_TASKS] is not None:
        values[_TASKS] = msgspec.json.encode(values[_TASKS]).decode()
    return tuple(values)


def _token_given(row: Values) -> Values:
    values = list(row)
    values[_SPEAKS] = bool(values[_SPEAKS])
    if values[_TASKS] is not None:
        values[_TASKS] = msgspec.json.decode(values[_TASKS], type=list[str])
    return tuple(values)


_TOKEN_COLUMNS = ", ".join(TOKENS.columns)
_EVENT_COLUMNS = (*EVENTS.columns, *SEARCHED)
_CHAIN_COLUMNS = ", ".join(CHAINS.columns)
_SPELLINGS: Mapping[str, Spelling] = {
    HEAD.title: Spelling(
        read="""SELECT store_id, h.revision, floor, mark, predecessor
            FROM registry_head h JOIN registry_revisions r ON r.revision = h.floor""",
        # The floor's own revision has the mark by which those who are there are known.
        add="""WITH head AS (
                INSERT INTO registry_head (store_id, revision, floor, predecessor)
                VALUES ($1, $2, $3, $5)
            ) INSERT INTO registry_revisions VALUES ($3, 0, '', '', $4)""",
        clear="DELETE FROM registry_head; DELETE FROM registry_revisions",
    ),
    "registry.revisions": Spelling(
        read="""SELECT revision, at, actor, note, mark FROM registry_revisions
            WHERE revision > (SELECT floor FROM registry_head) ORDER BY revision""",
        add="INSERT INTO registry_revisions VALUES ($1, $2, $3, $4, $5)",
    ),
    "registry.pairs": Spelling(
        read='SELECT body FROM registry_pairs ORDER BY body COLLATE "C"',
        add="INSERT INTO registry_pairs (digest, body) VALUES ($1, $2)",
        given=lambda row: (sha256(row[0].encode()).digest(), row[0]),
    ),
    TOKENS.title: Spelling(
        read=f"SELECT {_TOKEN_COLUMNS} FROM bascule_tokens WHERE digest IS NOT NULL ORDER BY place",  # noqa: S608 - constants
        add=f"""INSERT INTO bascule_tokens (revision, {_TOKEN_COLUMNS})
            VALUES ($1, {_marks(len(TOKENS.columns))})""",  # noqa: S608 - constants
        taken=_token_taken,
        given=_token_given,
    ),
    # Another mark has those who have read the secrets read them anew.
    SECRETS_HEAD.title: Spelling(
        read="SELECT store_id, epoch, key_id FROM bascule_secrets_head",
        add="""INSERT INTO bascule_secrets_head (one, store_id, epoch, key_id, mark)
            VALUES (true, $1, $2, $3, uuid_send(gen_random_uuid()))""",
        clear="DELETE FROM bascule_secrets_head",
    ),
    CHAINS.title: Spelling(
        read="""SELECT number, id, node, follows, (extract(epoch FROM began_at) * 1000000)::bigint,
            base_number, encode(base_hash, 'hex') FROM ledger_chains ORDER BY number""",
        add=f"""INSERT INTO ledger_chains ({_CHAIN_COLUMNS}) OVERRIDING SYSTEM VALUE
            VALUES ($1, $2, $3, $4, to_timestamp(0) + $5 * interval '1 microsecond', $6,
                decode($7, 'hex'))""",  # noqa: S608 - constants
    ),
    EVENTS.title: Spelling(
        read=_plain(EVENTS, "ledger_events").read,
        add=f"""INSERT INTO ledger_events ({", ".join(_EVENT_COLUMNS)})
            VALUES ({_marks(len(_EVENT_COLUMNS))})""",  # noqa: S608 - constants
        given=lambda row: (*row, *_columns(row[BODY])),
    ),
    CHECKPOINTS.title: _plain(CHECKPOINTS, "ledger_checkpoints"),
    COUNT.title: Spelling(
        read="SELECT number, cut FROM ledger_head",
        add="INSERT INTO ledger_head (number, cut) VALUES ($1, $2)",
        clear="DELETE FROM ledger_head",
    ),
    LEDGER_META.title: _plain(LEDGER_META, "ledger_meta"),
}
_NUMBERED = frozenset({"registry.proposals", "ledger.journals"})
_NAMES: Mapping[str, str] = {
    SECRETS.title: "bascule_secrets",
    "secrets.bindings": "bascule_secret_bindings",
    "secrets.removed": "bascule_removed_secrets",
    **{f"ledger.{name}": name for name in ("approvals", "approval_contents", "parked_turns")},
}


def _spelled(table: Table) -> Spelling:
    found = _SPELLINGS.get(table.title)
    if found is not None:
        return found
    name = _NAMES.get(table.title, f"{table.part}_{table.name}")
    return _plain(table, name, identity=table.title in _NUMBERED)


SPELLINGS: Mapping[str, Spelling] = {table.title: _spelled(table) for table in TABLES}
#: What nobody has who has not used a database, and what it is called.
USED: Mapping[str, str] = {
    "a registry": "SELECT revision > 0 FROM registry_head",
    "tokens": "SELECT EXISTS (SELECT FROM bascule_tokens)",
    "secrets": "SELECT EXISTS (SELECT FROM bascule_secrets)",
    "a ledger": "SELECT EXISTS (SELECT FROM ledger_events)",
    "approvals": "SELECT EXISTS (SELECT FROM approvals)",
}
#: Said when all rows are there; ``$1`` of the first is the fingerprint of the server's key.
KEYED = """UPDATE bascule_token_head SET fingerprint = $1,
    revision = (SELECT coalesce(max(revision), 0) FROM bascule_tokens)"""
FINISH = (
    *(
        f"""SELECT setval(pg_get_serial_sequence('{name}', 'number'), max(number))
            FROM {name} HAVING max(number) > 0"""  # noqa: S608 - constants
        for name in ("registry_proposals", "ledger_chains", "ledger_journals")
    ),
    # No database has this identity: whoever opens it voids what waits for approval.
    """INSERT INTO ledger_epochs (id, identity, reason)
        VALUES (left(replace(gen_random_uuid()::text, '-', ''), 16), '{"database": "a copy"}',
            'copied')""",
    *(f"NOTIFY bascule_{part}" for part in ("registry", "tokens", "secrets", "ledger")),
)
