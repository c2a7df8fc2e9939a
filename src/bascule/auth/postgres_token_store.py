"""Token records in a PostgreSQL that replicas share: each has all of them in memory.

A token is looked up in memory, so that calls go on while the database is away; one that is not
known there is asked for. Every write has a revision, in the order of commits, and leaves a row with
it, also where a token was ended: who follows reads what is newer than what it has. It reads
everything anew where the database may not be the one that it was: after a restart, a restore, or
when it was away for longer than ends are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

from bascule.auth.following import Turns, following
from bascule.auth.postgres_page_uses import PostgresPageUses
from bascule.auth.server_key import KEY_NAME, VARIABLE, fingerprint, given_key, server_key
from bascule.auth.token_record import TokenRecord
from bascule.auth.token_store import SETUP_NAME, refuse_open_folder
from bascule.auth.tokens import SETUP_ID, Note, Tokens
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.driver import Connection, Row
from bascule.db.postgres import Postgres, Work
from bascule.db.postgres_outcome import Doubt, Undecided, certain_write, happened, open_outcomes
from bascule.db.private_files import KeyUnusable

CHANNEL = "bascule_tokens"
#: What pages end with: they are open at all replicas, and outlive each of them.
SHARED_PROCESS = "replicas"
#: How many ended tokens are kept for those who follow, at least.
KEPT_ENDS = 10_000
FORMS = (
    """
    CREATE TABLE bascule_token_head (
        one boolean PRIMARY KEY CHECK (one), revision bigint NOT NULL, floor bigint NOT NULL,
        fingerprint text
    );
    INSERT INTO bascule_token_head VALUES (true, 0, 0, NULL);
    CREATE TABLE bascule_tokens (
        id text PRIMARY KEY, revision bigint NOT NULL UNIQUE, place bigint NOT NULL,
        name text, role text, task_id text, person text, created_at float8, expires_at float8,
        digest bytea UNIQUE, acts_for_users boolean, made_by text, tasks text[], grants text,
        process text, seal bytea, used_at float8
    )""",
)
_FIELDS = TokenRecord.__struct_fields__
_KEPT = tuple(field for field in _FIELDS if field != "id")
_COLUMNS = ", ".join(("id", *_KEPT))
_MARKS = ", ".join(f"${number}" for number in range(2, len(_FIELDS) + 2))
_LOCK = "SELECT revision FROM bascule_token_head FOR UPDATE"
_NEXT = f"""UPDATE bascule_token_head SET revision = revision + 1
    RETURNING revision, pg_notify('{CHANNEL}', '')"""  # noqa: S608 - a constant
_INSERT = f"""INSERT INTO bascule_tokens (revision, place, {_COLUMNS})
    VALUES ($1, $1, {_MARKS})"""  # noqa: S608 - a constant
_LIVES = "SELECT EXISTS (SELECT FROM bascule_tokens WHERE id = $1 AND digest IS NOT NULL)"
_IS_SAME = "SELECT EXISTS (SELECT FROM bascule_tokens WHERE id = $1 AND digest = $2 AND seal = $3)"
_CHANGE = f"""UPDATE bascule_tokens SET revision = $1,
    ({", ".join(_KEPT)}) = ROW ({_MARKS.partition(", ")[2]}) WHERE id = $2"""  # noqa: S608 - a constant
_END = f"""UPDATE bascule_tokens SET revision = $1,
    {", ".join(f"{field} = NULL" for field in (*_KEPT, "used_at"))} WHERE id = $2"""  # noqa: S608 - a constant
#: One row at least, with what says whether it is still the same database.
_NEWER = f"""
    SELECT head.revision AS head, head.floor,
        pg_postmaster_start_time() AS started, pg_relation_filenode('bascule_tokens') AS file,
        token.revision, token.place, {", ".join(f"token.{field}" for field in _FIELDS)}
    FROM bascule_token_head AS head LEFT JOIN bascule_tokens AS token ON token.revision > $1
    ORDER BY token.revision"""  # noqa: S608 - a constant
_RAISE_FLOOR = f"""UPDATE bascule_token_head SET floor = revision - {KEPT_ENDS}
    WHERE revision - floor > {2 * KEPT_ENDS} RETURNING floor"""  # noqa: S608 - a constant
_FORGET_KEY = "UPDATE bascule_token_head SET fingerprint = NULL"
_FORGET_ENDS = "DELETE FROM bascule_tokens WHERE digest IS NULL AND revision <= $1"


class PostgresTokenStore:
    """A ``TokenStore`` that replicas share. ``open`` it before use."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        #: All tokens, by id, each with its place among them; and by digest.
        self._records: dict[str, tuple[int, TokenRecord]] = {}
        self._by_digest: dict[bytes, TokenRecord] = {}
        self._listed: tuple[TokenRecord, ...] | None = None
        self._writes = 0
        #: How far the database was read, and which it was.
        self._revision = -1
        self._same: tuple[object, object] = None, None
        self._turns = Turns(self._look)
        #: What was written here and is not read yet: nothing older takes its place.
        self._own: dict[str, tuple[int, TokenRecord | None]] = {}
        #: Tokens that may have been made although nobody was given them.
        self._doubtful: dict[str, Doubt] = {}

    async def open(self) -> PostgresTokenStore:
        """Make the tables, or bring them to their newest form, and read them."""
        await open_outcomes(self._postgres)
        await self._postgres.migrate("tokens", FORMS)
        await self.catch_up()
        return self

    # --- what a TokenStore does

    async def add(self, record: TokenRecord) -> None:
        """Keep a record; it is durable on return."""

        async def work(connection: Connection) -> int:
            return await _inserted(connection, record)

        try:
            self._take(await self._write(work), record.id, record)
        except Undecided as error:
            self._doubtful[record.id] = error.doubt
            raise

    async def add_first(self, record: TokenRecord, prepare: Callable[[], Awaitable[None]]) -> bool:
        """Keep a record if there is no other, once all is prepared; say whether it was."""

        async def work(connection: Connection) -> int | None:
            await connection.execute(_LOCK)
            query = "SELECT EXISTS (SELECT FROM bascule_tokens WHERE digest IS NOT NULL)"
            if await connection.fetchval(query):
                return None
            await prepare()
            await connection.execute("DELETE FROM bascule_tokens WHERE id = $1", record.id)
            return await _inserted(connection, record)

        return self._take(await self._write(work), record.id, record)

    async def by_digest(self, *digests: bytes) -> TokenRecord | None:
        """Return the record with exactly one of these digests."""
        found = self._known(digests)
        if found is None:  # it may have been made at another replica just now
            await self.catch_up()
            found = self._known(digests)
        return found

    async def replace(self, old: TokenRecord, new: TokenRecord) -> bool:
        """Put another record in the place of one; False if that is not there as it was."""

        async def work(connection: Connection) -> int | None:
            await connection.execute(_LOCK)
            if not await connection.fetchval(_IS_SAME, old.id, old.digest, old.seal):
                return None
            if old.id != new.id:
                await _end(connection, old.id)
                return await _inserted(connection, new)
            revision: int = await connection.fetchval(_NEXT)
            await connection.execute(_CHANGE, revision, *_row(new))
            return revision

        revision = await self._write(work)
        if revision is None:
            await self.catch_up()  # whoever asks next sees what became of it
        elif old.id != new.id:
            self._take(revision, old.id, None)
        return self._take(revision, new.id, new)

    async def remove(self, token_id: str) -> bool:
        """Forget a record; say whether there was one."""

        async def work(connection: Connection) -> int | None:
            await connection.execute(_LOCK)
            if not await connection.fetchval(_LIVES, token_id):
                return None
            return await _end(connection, token_id)

        return self._take(await self._write(work), token_id, None)

    async def records(self) -> tuple[TokenRecord, ...]:
        """Return all records, oldest first."""
        if self._listed is None:
            placed = sorted(self._records.values(), key=lambda one: one[0])
            self._listed = tuple(record for _, record in placed)
        return self._listed

    def state(self) -> int:
        """Return how often anything here has changed."""
        return self._writes

    # --- the key

    async def claimed_fingerprint(self, mine: str | None) -> str | None:
        """Return the fingerprint of the key that the tokens are under: this one, if none was."""
        query = """UPDATE bascule_token_head SET fingerprint = coalesce(fingerprint, $1)
            RETURNING fingerprint"""

        async def work(connection: Connection) -> str | None:
            return await connection.fetchval(query, mine)

        return await self._postgres.write(work)

    # --- following

    async def catch_up(self) -> None:
        """Take what others have written; raise StoreUnavailable."""
        await self._turns.take()

    async def tend(self) -> None:
        """Catch up, and clear away what nobody needs; for a replica that goes on."""
        await self.catch_up()
        for token_id, doubt in tuple(self._doubtful.items()):
            made = await happened(self._postgres, doubt)
            if made is None:
                continue
            if made:
                await self.remove(token_id)
            del self._doubtful[token_id]

    async def _look(self) -> None:
        known = max((self._revision, *(own for own, _ in self._own.values())))
        rows = await self._postgres.fetch(_NEWER, self._revision)
        moved = self._revision < rows[0]["floor"] or known > rows[0]["head"]
        if self._revision >= 0 and (moved or _which(rows) != self._same):
            rows = await self._postgres.fetch(_NEWER, -1)
            self._forget()
        head, self._same = rows[0], _which(rows)
        for row in rows:
            if row["id"] is not None:
                self._put(row["id"], None if row["digest"] is None else _record(row), row["place"])
        self._revision = head["head"]
        self._own = {key: own for key, own in self._own.items() if own[0] > self._revision}
        for token_id, (revision, record) in self._own.items():
            self._put(token_id, record, revision)
        if head["head"] - head["floor"] > 2 * KEPT_ENDS:
            await self._forget_ends()

    async def _forget_ends(self) -> None:
        async def work(connection: Connection) -> None:
            floor: int | None = await connection.fetchval(_RAISE_FLOOR)
            if floor is not None:
                await connection.execute(_FORGET_ENDS, floor)

        await self._postgres.write(work)

    async def _write(self, work: Work[int | None]) -> int | None:
        return await certain_write(self._postgres, work)

    # --- what is in memory

    def _known(self, digests: tuple[bytes, ...]) -> TokenRecord | None:
        found = (self._by_digest.get(digest) for digest in digests)
        return next((record for record in found if record is not None), None)

    def _take(self, revision: int | None, token_id: str, record: TokenRecord | None) -> bool:
        """Know what was written here, unless something newer was read; say whether it was."""
        if revision is None:
            return False
        if revision > self._revision:
            self._own[token_id] = revision, record
            self._put(token_id, record, revision)
        return True

    def _put(self, token_id: str, record: TokenRecord | None, place: int) -> None:
        """Keep a record in its place, which it has for good; None: it was ended."""
        self._listed = None
        self._writes += 1
        before, old = self._records.pop(token_id, (place, None))
        if old is not None:
            self._by_digest.pop(old.digest, None)
        if record is not None:
            self._records[token_id] = before, record
            self._by_digest[record.digest] = record

    def _forget(self) -> None:
        self._records, self._by_digest, self._own, self._listed = {}, {}, {}, None
        self._writes += 1


@asynccontextmanager
async def open_shared_tokens(
    postgres: Postgres,
    data_dir: Path,
    *,
    clock: Clock = SYSTEM_CLOCK,
    note: Note | None = None,
    follow: bool = True,
) -> AsyncGenerator[Tokens, None]:
    """Return the tokens that replicas share, under the key that they share.

    The key is in the data directory or given; the first replica makes it. ``note`` writes down who
    makes and ends tokens. Without ``follow`` what others write is seen when something is asked for
    that is not known. Raise KeyUnusable where the key is another than the tokens'.
    """
    refuse_open_folder(data_dir)
    store = await PostgresTokenStore(postgres).open()
    key = await _agreed_key(store, data_dir / KEY_NAME, postgres.where)
    setup = SetupFile(data_dir / SETUP_NAME, store)
    tokens = Tokens(store, key, clock, setup_file=setup.path, note=note)
    tokens.uses = uses = PostgresPageUses(postgres, clock)
    tokens.process = SHARED_PROCESS

    async def tend() -> None:
        await setup.tend()
        await uses.save()

    async with following(postgres, CHANNEL, tend, clock) if follow else nullcontext():
        yield tokens


class SetupFile:
    """The file of the setup token, which goes with it wherever that is ended."""

    def __init__(self, path: Path, store: PostgresTokenStore) -> None:
        self.path = path
        self._store = store
        self._had = False

    async def tend(self) -> None:
        """Follow the others."""
        await self._store.tend()
        has = any(record.id == SETUP_ID for record in await self._store.records())
        if self._had and not has:
            self.path.unlink(missing_ok=True)
        self._had = has


async def _agreed_key(store: PostgresTokenStore, path: Path, where: str) -> bytes:
    """Return the key that the tokens are under; the first replica makes it."""
    key = given_key(path)
    if key is None and await store.claimed_fingerprint(None) is not None:
        raise KeyUnusable(f"{path}: is missing; {_how_to_agree(path, where)}")
    made = key is None
    key = server_key(path) if key is None else key
    mine = fingerprint(key)
    if await store.claimed_fingerprint(mine) == mine:
        return key
    if made:  # another replica was faster
        await asyncio.to_thread(path.unlink)
    raise KeyUnusable(
        f"the key of this server is not that of the other replicas; {_how_to_agree(path, where)}"
    )


def _how_to_agree(path: Path, where: str) -> str:
    return (
        f"the replicas on {where} share one key: copy the {KEY_NAME} of another to {path} (mode "
        f"0600), or give it in {VARIABLE}. If it is lost, so are the tokens: {_FORGET_KEY}, and "
        "make them again"
    )


def _which(rows: list[Row]) -> tuple[object, object]:
    """Return which database this is: another after a restart, or once its table was filled anew."""
    return rows[0]["started"], rows[0]["file"]


async def _end(connection: Connection, token_id: str) -> int:
    revision: int = await connection.fetchval(_NEXT)
    await connection.execute(_END, revision, token_id)
    return revision


async def _inserted(connection: Connection, record: TokenRecord) -> int:
    revision: int = await connection.fetchval(_NEXT)
    await connection.execute(_INSERT, revision, *_row(record))
    return revision


def _row(record: TokenRecord) -> tuple[object, ...]:
    """Return a record's values, its id first."""
    values: dict[str, object] = {field: getattr(record, field) for field in _KEPT}
    if record.tasks is not None:
        values["tasks"] = list(record.tasks)
    return record.id, *values.values()


def _record(row: Row) -> TokenRecord:
    values = {field: row[field] for field in _FIELDS}
    if values["tasks"] is not None:
        values["tasks"] = tuple(values["tasks"])
    return TokenRecord(**values)
