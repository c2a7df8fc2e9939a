"""The ledger's tables in PostgreSQL, where each replica has a chain of its own.

All rows are counted together as well, in the order of their commits: that is how readers count, who
see the events of all replicas. Whoever adds rows holds ``ledger_head``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bascule.audit.chain import SEARCHED, Columns, columns
from bascule.audit.ledger_file import Tables, tip
from bascule.db.postgres_transactions import fitting
from bascule.db.statements import Statements

#: How much of a text is searched for; an index takes no more.
_SEARCHED_CHARACTERS = 500
#: For how long a process counts as living after it was heard of.
LIVE_SECONDS = 30
#: The channel on which steps of approvals, and new rows, are told.
CHANNEL = "bascule_ledger"
#: The row with which some replica says that it removed a chain of another; no node can say so.
REMOVED = """SELECT 1 FROM ledger_events WHERE event = 'ledger_cut'
    AND NOT EXISTS (SELECT FROM ledger_chains c WHERE c.number = chain AND c.received)
    AND convert_from(body, 'UTF8')::json ->> 'chain' = ? LIMIT 1"""
#: Rows of which the size is estimated, and what a row takes besides its event.
_SAMPLE, _ROW_BYTES = 1_000, 400

FORMS = (
    """
CREATE TABLE ledger_head (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    number bigint NOT NULL DEFAULT 0, cut bigint NOT NULL DEFAULT 0
);
INSERT INTO ledger_head DEFAULT VALUES;
CREATE TABLE ledger_meta (key text PRIMARY KEY, value text NOT NULL);
CREATE TABLE ledger_epochs (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE,
    began_at timestamptz NOT NULL DEFAULT now(), identity text NOT NULL, reason text NOT NULL
);
CREATE TABLE ledger_chains (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE,
    node text NOT NULL, follows text, began_at timestamptz NOT NULL DEFAULT now(),
    base_number bigint NOT NULL DEFAULT 0, base_hash bytea NOT NULL
);
CREATE TABLE ledger_journals (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE,
    made_at double precision NOT NULL, segment bigint NOT NULL, taken bigint NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now(), mark bytea
);
CREATE TABLE ledger_events (
    number bigint PRIMARY KEY, chain integer NOT NULL, link bigint NOT NULL,
    journal bigint NOT NULL, place bigint NOT NULL, hash bytea NOT NULL, body bytea NOT NULL,
    timestamp double precision, event text, request_id text, session_id text, task_id text,
    caller text, token_id text, person text, server_id text, tool_name text, status text,
    code text, approval_id text, UNIQUE (chain, link)
);
CREATE INDEX ledger_events_request_id ON ledger_events (request_id, number)
    WHERE request_id IS NOT NULL;
CREATE INDEX ledger_events_timestamp ON ledger_events (timestamp);
CREATE INDEX ledger_events_server_id ON ledger_events (server_id, number)
    WHERE server_id IS NOT NULL;
CREATE INDEX ledger_events_caller ON ledger_events (caller, number) WHERE caller IS NOT NULL;
CREATE INDEX ledger_events_approval_id ON ledger_events (approval_id, number)
    WHERE approval_id IS NOT NULL;
CREATE TABLE ledger_checkpoints (
    chain integer NOT NULL, number bigint NOT NULL, tip bytea NOT NULL,
    made_at double precision NOT NULL, anchor bytea NOT NULL, PRIMARY KEY (chain, number)
);
CREATE TABLE approvals (
    id text PRIMARY KEY, state text NOT NULL, call text NOT NULL, asker text NOT NULL,
    token_id text, task_id text, server_id text NOT NULL, tool_name text NOT NULL,
    asked_at double precision NOT NULL, expires_at double precision NOT NULL,
    moved_at double precision NOT NULL, journal text, body bytea NOT NULL,
    rowid bigint GENERATED ALWAYS AS IDENTITY
);
CREATE INDEX approvals_call ON approvals (call);
CREATE INDEX approvals_asker ON approvals (asker, moved_at);
CREATE INDEX approvals_state ON approvals (state, expires_at);
CREATE INDEX approvals_asked_at ON approvals (asked_at);
CREATE INDEX approvals_moved_at ON approvals (moved_at);
CREATE TABLE approval_contents (id text PRIMARY KEY, sealed bytea NOT NULL);
CREATE TABLE parked_turns (
    id text PRIMARY KEY, owner text NOT NULL, parked_at double precision NOT NULL,
    expires_at double precision NOT NULL, size bigint NOT NULL, sealed bytea NOT NULL,
    holder text, rowid bigint GENERATED ALWAYS AS IDENTITY
);
""",
    "ALTER TABLE ledger_chains ADD COLUMN seen_at timestamptz NOT NULL DEFAULT now()",
    # What nodes send; ``process`` is the journal of the node's process.
    """
ALTER TABLE ledger_chains ADD COLUMN received boolean NOT NULL DEFAULT false;
ALTER TABLE ledger_chains ADD COLUMN process bigint NOT NULL DEFAULT 0;
""",
)


class SharedTables(Tables):
    """The tables as one replica writes to them: to its own chain, which may become another one."""

    events = "ledger_events"
    checkpoints = "ledger_checkpoints"
    journals = "ledger_journals"
    meta = "ledger_meta"
    number = "link"
    number_of = "e.link"
    chains = "ledger_chains"
    received = "c.received"
    heard = "c.seen_at > now() - interval '15 minutes'"
    node = "(SELECT c.node FROM ledger_chains c WHERE c.number = e.chain AND c.received)"
    chain = "(SELECT c.id FROM ledger_chains c WHERE c.number = e.chain)"
    leading = ("number", "chain", "link")

    def __init__(self, own: int = 0) -> None:
        super().__init__(own)
        #: Number and hash of the last row that the write under way has added to the own chain.
        self.appended: tuple[int, bytes] | None = None

    def note_appended(self, number: int, digest: bytes) -> None:
        """Take notice of the last row that was added."""
        self.appended = number, digest

    def ring(self, statements: Statements) -> None:
        """Tell other replicas that approvals moved, with the commit."""
        statements.execute("SELECT pg_notify(?, '')", (CHANNEL,))

    @property
    def mine(self) -> str:
        """Return which rows are those of the own chain."""
        return f"chain = {self.own}"

    def lead(self, statements: Statements, number: int, count: int) -> Iterable[Sequence[object]]:
        """Yield for each of so many rows its number among all, its chain and its number there."""
        query = "UPDATE ledger_head SET number = number + ? RETURNING number"
        [self.given] = statements.execute(query, (count,)).fetchone()
        first = self.given - count + 1
        return ((first + more, self.own, number + 1 + more) for more in range(count))

    def columns(self, event: bytes) -> Columns:
        """Return what can be searched for of an event, as its row has it."""
        return tuple(map(self.column, columns(event)))

    def column(self, value: object) -> object:
        """Return a value as a column has it: text without its end, where it is very long."""
        return fitting(value[:_SEARCHED_CHARACTERS] if isinstance(value, str) else value)

    def searched(self, statements: Statements) -> str:
        """Return the columns for searching."""
        return ", ".join(f'"{name}"' for name in SEARCHED)

    def ledger_id(self, statements: Statements) -> str | None:
        """Return the id that anchors name."""
        query = "SELECT id FROM ledger_chains WHERE number = ?"
        [found] = statements.execute(query, (self.own,)).fetchone() or [None]
        return found

    def base(self, statements: Statements) -> tuple[int, bytes]:
        """Return the number and the hash of the last row that was cut off the front."""
        query = "SELECT base_number, base_hash FROM ledger_chains WHERE number = ?"
        return statements.execute(query, (self.own,)).fetchone()

    def begin_chain(
        self, statements: Statements, id: str, node: str, base: tuple[int, bytes], now: float
    ) -> int:
        """Begin the chain of a node after a row; return its number."""
        [number] = statements.execute(
            "INSERT INTO ledger_chains (id, node, base_number, base_hash, received)"
            " VALUES (?, ?, ?, ?, true) RETURNING number",
            (id, node, *base),
        ).fetchone()
        return number

    def note_seen(self, statements: Statements, process: int, now: float) -> None:
        """Note that a node has sent something of this chain, and of which journal it is."""
        query = "UPDATE ledger_chains SET seen_at = now(), process = ? WHERE number = ?"
        statements.execute(query, (process, self.own))

    def bounds(self, statements: Statements) -> tuple[int, int]:
        """Return the last number that was ever cut off, and the last of all, as readers count."""
        return statements.execute("SELECT cut, number FROM ledger_head").fetchone()

    def first(self, statements: Statements) -> int:
        """Return the number from which on there are rows, as readers count."""
        query = "SELECT coalesce(min(number), 1) FROM ledger_events"
        return statements.execute(query).fetchone()[0]

    def add_checkpoint(self, statements: Statements, values: Sequence[object]) -> None:
        """Keep a checkpoint: number, tip, time and lines."""
        query = "INSERT INTO ledger_checkpoints VALUES (?, ?, ?, ?, ?)"
        statements.execute(query, (self.own, *values))

    def cutting(self, statements: Statements, last: int) -> None:
        """Note the last number that goes, as readers count."""
        statements.execute(
            "UPDATE ledger_head SET cut = greatest(cut, (SELECT number FROM ledger_events"
            " WHERE chain = ? AND link = ?))",
            (self.own, last),
        )

    def cut(self, statements: Statements, last: int, tip: bytes) -> None:
        """Note that the rows up to one were cut off."""
        query = "UPDATE ledger_chains SET base_number = ?, base_hash = ? WHERE number = ?"
        statements.execute(query, (last, tip, self.own))

    def used_bytes(self, statements: Statements) -> int:
        """Return about how many bytes the own chain takes, judged by its last rows."""
        rows = tip(statements, self)[0] - self.base(statements)[0]
        [size] = statements.execute(
            "SELECT coalesce(avg(octet_length(body)), 0)::double precision FROM (SELECT body"
            " FROM ledger_events WHERE chain = ? ORDER BY link DESC LIMIT ?) AS sample",
            (self.own, _SAMPLE),
        ).fetchone()
        return round(rows * (size + _ROW_BYTES))

    def is_live(self, journal: str) -> str:
        """Return the condition that the process of a journal was heard of lately."""
        return (
            f"EXISTS (SELECT 1 FROM ledger_journals l WHERE l.id = {journal}"  # noqa: S608 - constants
            f" AND l.seen_at > now() - interval '{LIVE_SECONDS} seconds')"
        )

    def by(self, index: str | None) -> str:
        """Return no way through the events: PostgreSQL finds one."""
        return ""
