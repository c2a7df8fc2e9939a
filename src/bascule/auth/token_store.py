"""Token records in a file of their own, beside the registry.

They are no records of the registry: minting and revoking move no revision and leave no history,
and a copy of the registry has no token in it. What was looked up is remembered only while nobody
has written to the file, so that a token that another process revoked is refused at its next use.
"""

from __future__ import annotations

import hmac
import sqlite3
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from bascule.auth.file_state import FileState, Stamp
from bascule.auth.server_key import HOW_TO_GIVE, KEY_NAME, TOKENS_NAME, server_key
from bascule.auth.token_record import FORM_2_FIELDS, TokenKeys, TokenRecord
from bascule.auth.tokens import Note, Tokens
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.private_files import KeyUnusable, private_folder, write_private
from bascule.db.sqlite import Database, Migration

FILE_NAME = TOKENS_NAME
#: The administrator's token of the first start, until the first one of one's own.
SETUP_NAME = "setup-token"
#: There once ``tokens.db`` has sealed rows. From then on a file without seals is not taken: rows
#: that somebody edited would get theirs, just by saying that the file is an old one. It holds the
#: fingerprint of the key that the seals were made with.
SEALED_NAME = "tokens.sealed"
_FIRST: Migration = (
    """CREATE TABLE tokens (
        place INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL, role TEXT NOT NULL, task_id TEXT,
        created_at REAL NOT NULL, expires_at REAL
    ) STRICT""",
)
#: How many forms the file has had.
NEWEST_FORM = 4
#: Links and pages; the seals of rows that are neither fit as they are.
_FOURTH: Migration = (
    "ALTER TABLE tokens ADD COLUMN grants TEXT",
    "ALTER TABLE tokens ADD COLUMN process TEXT",
)
_FIELDS = TokenRecord.__struct_fields__
_COLUMNS = ", ".join(_FIELDS)
_KEPT_SEAL = "COALESCE(CAST(seal AS BLOB), x'')"  # whatever an editor made of it
_READ = _COLUMNS.replace("seal", _KEPT_SEAL)
_MARKS = ", ".join("?" * len(_FIELDS))
_OLDER = (*FORM_2_FIELDS, "seal")
_ALL_OLDER = f"SELECT {', '.join((*FORM_2_FIELDS, _KEPT_SEAL))} FROM tokens"  # noqa: S608 - a constant
_SEAL = "UPDATE tokens SET seal = ? WHERE id = ?"
_ALL = f"SELECT {_READ} FROM tokens ORDER BY place"  # noqa: S608 - a constant
_BY_DIGEST = f"SELECT {_READ} FROM tokens WHERE digest = ?"  # noqa: S608 - a constant
_INSERT = f"INSERT INTO tokens ({_COLUMNS}) VALUES ({_MARKS})"  # noqa: S608 - a constant
_INSERT_FIRST = f"""INSERT INTO tokens ({_COLUMNS}) SELECT {_MARKS}
    WHERE NOT EXISTS (SELECT 1 FROM tokens)"""  # noqa: S608 - a constant
_REPLACE = f"""UPDATE tokens SET ({_COLUMNS}) = ({_MARKS})
    WHERE id = ? AND digest = ? AND seal = ?"""  # noqa: S608 - a constant


class SqliteTokenStore:
    """A ``TokenStore`` in one file. ``open`` it before use."""

    def __init__(self, path: str | Path, keys: TokenKeys) -> None:
        self._database = Database(path)
        self._keys = keys
        self._mark = self._database.path.with_name(SEALED_NAME)
        self._files = FileState([str(path), f"{path}-wal"])
        self._listed: tuple[Stamp | None, tuple[TokenRecord, ...]] = (None, ())

    async def open(self) -> SqliteTokenStore:
        """Open the file, or make it, readable by its owner alone.

        The rows of a file without seals get theirs, once in the life of a data directory.
        """
        migrations = (_FIRST, self._second(), self._third(), _FOURTH)
        self._refuse_other_key()
        await self._database.open(migrations, outdated=self._outdated())
        if self._marked() != self._keys.fingerprint:
            write_private(self._mark, self._keys.fingerprint.encode())
        return self

    def _refuse_other_key(self) -> None:
        """Raise KeyUnusable where the seals in the file were made with another key."""
        path = self._database.path
        if self._marked() not in ("", self._keys.fingerprint) and path.exists():
            raise KeyUnusable(
                f"the key of this server is not the one that {path} was written under: "
                f"{HOW_TO_GIVE}. If it is lost, so are the tokens: move {path} away and make them "
                "again"
            )

    def _marked(self) -> str:
        """Return which key there was at the last start; older versions did not say."""
        try:
            return self._mark.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def _second(self) -> Migration:
        return (
            "ALTER TABLE tokens ADD COLUMN person TEXT",
            "ALTER TABLE tokens ADD COLUMN seal BLOB NOT NULL DEFAULT x''",
            self._seal,
        )

    def _seal(self, connection: sqlite3.Connection) -> None:
        for record in _older_records(connection):
            connection.execute(_SEAL, (self._keys.older_seal(record), record.id))

    def _third(self) -> Migration:
        return (
            "ALTER TABLE tokens ADD COLUMN acts_for_users INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE tokens ADD COLUMN made_by TEXT",
            "ALTER TABLE tokens ADD COLUMN tasks TEXT",
            self._seal_again,
        )

    def _seal_again(self, connection: sqlite3.Connection) -> None:
        """Seal the new fields too, of rows that nobody edited; the others stay altered."""
        for record in _older_records(connection):
            if hmac.compare_digest(record.seal, self._keys.older_seal(record)):
                connection.execute(_SEAL, (self._keys.sealed(record).seal, record.id))

    def _outdated(self) -> Mapping[int, str]:
        """Refuse a file without seals where there was one with them."""
        if not self._mark.exists():
            return {}
        return {
            1: "its tokens were sealed once, so somebody edited it, or put an old copy there; put "
            f"back a newer copy, or, if you trust every role in it, remove {self._mark}"
        }

    async def add(self, record: TokenRecord) -> None:
        """Keep a record; it is durable on return."""
        row = _row(record)
        await self._database.write(lambda connection: connection.execute(_INSERT, row) and None)

    async def add_first(self, record: TokenRecord, prepare: Callable[[], Awaitable[None]]) -> bool:
        """Keep a record if there is no other, once all is prepared; say whether it was."""
        if await self.records():
            return False
        await prepare()
        row = _row(record)
        return await self._database.write(lambda c: c.execute(_INSERT_FIRST, row).rowcount > 0)

    async def by_digest(self, *digests: bytes) -> TokenRecord | None:
        """Return the record with exactly one of these digests."""
        return await self._database.read(lambda connection: _by_digest(connection, digests))

    async def replace(self, old: TokenRecord, new: TokenRecord) -> bool:
        """Put another record in the place of one; False if that is not there as it was."""
        values = (*_row(new), old.id, old.digest, old.seal)
        return await self._database.write(lambda c: c.execute(_REPLACE, values).rowcount > 0)

    async def remove(self, token_id: str) -> bool:
        """Forget a record; say whether there was one."""
        query = "DELETE FROM tokens WHERE id = ?"
        return await self._database.write(lambda c: c.execute(query, (token_id,)).rowcount > 0)

    async def records(self) -> tuple[TokenRecord, ...]:
        """Return all records, oldest first."""
        stamp = self.state()
        if stamp is not None and stamp == self._listed[0]:
            return self._listed[1]
        records = await self._database.read(
            lambda connection: tuple(record_of_row(row) for row in connection.execute(_ALL))
        )
        self._listed = stamp, records
        return records

    def state(self) -> Stamp | None:
        """Return what changes with every write, by whatever process; None while that is unsure."""
        return self._files.stamp()

    async def close(self) -> None:
        """Let go of the file."""
        await self._database.close()
        self._files.close()


def _by_digest(connection: sqlite3.Connection, digests: Iterable[bytes]) -> TokenRecord | None:
    rows = (connection.execute(_BY_DIGEST, (digest,)).fetchone() for digest in digests)
    return next((record_of_row(row) for row in rows if row is not None), None)


def _older_records(connection: sqlite3.Connection) -> list[TokenRecord]:
    """Read the rows of form 2; what they do not have is as nobody has set it."""
    rows = connection.execute(_ALL_OLDER).fetchall()
    return [TokenRecord(**dict(zip(_OLDER, row, strict=True))) for row in rows]


def _row(record: TokenRecord) -> tuple[object, ...]:
    tasks = None if record.tasks is None else msgspec.json.encode(record.tasks).decode()
    return tuple({**asdict(record), "tasks": tasks}.values())


def record_of_row(row: Sequence[Any]) -> TokenRecord:
    """Return a row as a record; what cannot be read stays as it is, and no seal fits it."""
    found = TokenRecord(**dict(zip(_FIELDS, row, strict=True)))
    flag: object = found.acts_for_users
    return replace(
        found,
        acts_for_users=bool(flag) if flag in {0, 1} else found.acts_for_users,
        tasks=_tasks(found.tasks),
    )


def _tasks(kept: Any) -> Any:
    """Read a list of tasks, as JSON keeps it."""
    try:
        return None if kept is None else msgspec.json.decode(kept, type=tuple[str, ...])
    except (msgspec.DecodeError, TypeError):
        return kept


def refuse_open_folder(folder: Path) -> None:
    """Refuse a folder in which anybody may put another file in the place of a key or an address."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return  # it is made, or missed, by whoever needs it
    if mode & stat.S_IWOTH:
        raise KeyUnusable(
            f"{folder}: everybody may write to it, and so replace its key; run chmod o-w {folder}, "
            "or name a new folder inside it"
        )


@asynccontextmanager
async def open_tokens(
    data_dir: Path, *, clock: Clock = SYSTEM_CLOCK, note: Note | None = None
) -> AsyncGenerator[Tokens, None]:
    """Return the tokens of a data directory, which is made if need be, private to its owner.

    ``note`` writes down who makes and ends tokens.
    """
    refuse_open_folder(data_dir)
    private_folder(data_dir)  # a key that is given makes none
    key = server_key(data_dir / KEY_NAME)
    store = await SqliteTokenStore(data_dir / FILE_NAME, TokenKeys(key)).open()
    try:
        yield Tokens(store, key, clock, setup_file=data_dir / SETUP_NAME, note=note)
    finally:
        await store.close()
