"""What a PostgreSQL must be before a registry is served from it; nothing in it is changed.

Privileges are tried in a transaction that is undone. The word that the listener waits for goes to
a channel that nobody else has.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from bascule.app.postgres_tables import FORMS
from bascule.app.settings_tables import StoreSettings
from bascule.audit.shared_epoch import FUNCTIONS
from bascule.auth.server_key import HOW_TO_GIVE, KEY_NAME, fingerprint, given_key
from bascule.cli.findings import Checker, Finding
from bascule.clock import SYSTEM_CLOCK, Clock, rfc3339
from bascule.control.secret_keys import KEY_NAME as SECRETS_KEY_NAME
from bascule.control.secret_keys import KeyFile, Keys, key_of_environment
from bascule.db.driver import FAULTS, Connection, Row
from bascule.db.errors import StoreUnavailable
from bascule.db.postgres import Postgres, ended, hang_up, lock_key, said
from bascule.db.postgres_presence import Presence
from bascule.db.private_files import KeyUnusable

#: How far from the database's time a replica's may be, without a word and at all.
_NEAR_SECONDS, _FAR_SECONDS = 1.0, 30.0
_HEAR_SECONDS = 3.0
_OLDEST = 140_000
_KNOWN: Mapping[str, int] = {part: len(forms) for part, forms in FORMS.items()}
_SURE = frozenset({"require", "verify-ca", "verify-full"})
_VERIFIED = frozenset({"verify-ca", "verify-full"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_SERVER = """SELECT current_setting('server_version_num')::int, current_setting('server_version'),
    current_setting('server_encoding'), pg_is_in_recovery(),
    current_setting('synchronous_commit'), current_setting('fsync'),
    current_setting('transaction_read_only')"""
PAST_POOLER = "set store.listen_dsn (BASCULE_LISTEN_DSN) to the server itself, past the pooler"
_GIVE_SECRETS_KEY = (
    f"copy {SECRETS_KEY_NAME} from another replica (mode 0600), or give it in BASCULE_SECRETS_KEY"
)
_NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
_ENCRYPTED = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl"
_TABLES = """SELECT relname, has_table_privilege(oid, 'SELECT, INSERT, UPDATE, DELETE'),
    pg_has_role(relowner, 'MEMBER')
    FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
    AND relname = ANY ($1::text[]) ORDER BY relname"""
_NAMES = re.compile(r"CREATE TABLE (\w+)")
_OURS = [
    "bascule_forms",
    *(name for forms in FORMS.values() for name in _NAMES.findall("".join(forms))),
]


async def database(
    store: StoreSettings,
    data: Path,
    say: Callable[[str], None],
    *,
    forms: Mapping[str, int] = _KNOWN,
    clock: Clock = SYSTEM_CLOCK,
) -> AsyncGenerator[Finding, None]:
    """Look at a database from all sides, as far as it can be reached."""
    say("looking for the database")
    postgres = Postgres(store.dsn or "", listen_dsn=store.listen_dsn, most=1)
    try:
        await postgres.open()
    except StoreUnavailable as error:
        yield Checker("database").failed(str(error), _mend_open(str(error)))
        return
    looks: tuple[tuple[str, Callable[[], Awaitable[Finding]]], ...] = (
        ("at the server", lambda: _server(postgres)),
        ("at its TLS", lambda: _encryption(postgres, store)),
        ("at its clock", lambda: _time(postgres, clock)),
        ("at the forms of its tables", lambda: _forms(postgres, forms)),
        ("at the privileges", lambda: _privileges(postgres)),
        ("at the fingerprint of the key", lambda: _fingerprint(postgres, data)),
        ("at the key of the secrets", lambda: _secrets_key(postgres, data)),
        ("whether a word is heard", lambda: _listener(postgres)),
    )
    try:
        for what, look in looks:
            say(f"looking {what}")
            yield await look()
    except StoreUnavailable as error:
        yield Checker("database").failed(str(error), "look at the server's log")
    finally:
        await postgres.close()


def _mend_open(words: str) -> str:
    if "is a pooler" in words:
        return PAST_POOLER
    if "authentication" in words or "role" in words:
        return (
            "correct the user or the password in store.dsn (BASCULE_DSN), PGPASSWORD or the file "
            "that PGPASSFILE names"
        )
    if "does not exist" in words:
        return "make it: createdb NAME, or name another in store.dsn (BASCULE_DSN)"
    if "SSL" in words or "certificate" in words:
        return "let the server offer TLS, or correct sslmode and sslrootcert in store.dsn"
    return "start the server, or correct host and port in store.dsn (BASCULE_DSN)"


async def _server(postgres: Postgres) -> Finding:
    """Look whether the server is one that can be written to, and keeps what it acknowledged."""
    told = Checker("database")
    row = await postgres.read(lambda connection: connection.fetchrow(_SERVER))
    if row is None:
        return told.failed(f"{postgres.where} does not say what it is", "look at its log")
    number, version, encoding, standby, synchronous, fsync, _ = row
    here = f"{postgres.where}, version {version}"
    if number < _OLDEST:
        return told.failed(f"{here}, is too old", f"use version {_OLDEST // 10_000} or newer")
    if encoding != "UTF8":
        mend = "make a database with ENCODING 'UTF8' TEMPLATE template0"
        return told.failed(f"{here}, has the encoding {encoding}", mend)
    if standby:
        mend = "name the primary: store.dsn may list hosts, with ?target_session_attrs=primary"
        return told.failed(f"{here}, is a standby and takes no writes", mend)
    if fsync == "off" or synchronous == "off":
        name = "fsync" if fsync == "off" else "synchronous_commit"
        mend = f"set {name} to on"
        return told.warning(f"{here}, may lose acknowledged writes: {name} is off", mend)
    return told.ok(here)


async def _encryption(postgres: Postgres, store: StoreSettings) -> Finding:
    """Look whether others can listen in on the way to the server."""
    told = Checker("database TLS")
    links = [("store.dsn", store.dsn), ("store.listen_dsn", store.listen_dsn)]
    modes = [(name, *_way(dsn)) for name, dsn in links if dsn is not None]
    open_ways = [name for name, remote, mode in modes if remote and mode not in _SURE]
    if open_ways:
        words = f"{' and '.join(open_ways)} may lead over the network without TLS"
        return told.warning(words, "add ?sslmode=verify-full&sslrootcert=FILE to it")
    unverified = [name for name, remote, mode in modes if remote and mode not in _VERIFIED]
    if unverified:
        words = f"{' and '.join(unverified)} takes any certificate for the server's"
        return told.warning(words, "use sslmode=verify-full with sslrootcert=FILE")
    version: str | None = await postgres.read(lambda c: c.fetchval(_ENCRYPTED))
    return told.ok(version or "the server is on this machine")


def _way(dsn: str) -> tuple[bool, str]:
    """Say whether a DSN leads over a network, and what it asks of TLS."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    named = parts.netloc.rpartition("@")[2] or query.get("host", [""])[0]
    hosts = [host.rpartition(":")[0] or host for host in named.split(",")]
    remote = any(host and not host.startswith("/") and host not in _LOOPBACK for host in hosts)
    return remote, query.get("sslmode", ["prefer"])[0]


async def _time(postgres: Postgres, clock: Clock) -> Finding:
    """Compare the clocks; how long the question took is nobody's fault."""
    told = Checker("database clock")
    before = clock.now()
    there: float = await postgres.read(
        lambda connection: connection.fetchval(
            "SELECT extract(epoch FROM clock_timestamp())::float8"
        )
    )
    after = clock.now()
    apart = max(before - there, there - after, 0.0)
    mend = "keep the clocks of both machines with NTP"
    if apart > _FAR_SECONDS:
        words = f"this machine's clock and the database's are {apart:.0f} s apart"
        return told.failed(f"{words}: here it is {rfc3339(after)}", mend)
    if apart > _NEAR_SECONDS:
        return told.warning(f"the clocks are {apart:.1f} s apart", mend)
    return told.ok("this machine's clock and the database's agree")


async def _forms(postgres: Postgres, known: Mapping[str, int]) -> Finding:
    """Look whether every part's tables can be served, or brought to a form that can."""
    told = Checker("form")

    async def work(connection: Connection) -> list[Row]:
        if await connection.fetchval("SELECT to_regclass('bascule_forms')") is None:
            return []
        return await connection.fetch("SELECT part, form FROM bascule_forms ORDER BY part")

    found: dict[str, int] = {row[0]: row[1] for row in await postgres.read(work)}
    newer = [f"{part} {form}" for part, form in found.items() if form > known.get(part, 0) + 1]
    if newer:
        words = f"written by a newer version of Bascule: {', '.join(newer)}"
        return told.failed(words, "install that version here, or name another database")
    older = [part for part, form in known.items() if found.get(part, 0) < form]
    if not found:
        return told.ok("an empty database: tables are made at the first start")
    if older:
        return told.ok(f"brought to its newest form at the next start: {', '.join(older)}")
    return told.ok(", ".join(f"{part} {form}" for part, form in found.items()))


class _Undo(Exception):
    """Ends a transaction that was only tried."""


async def _privileges(postgres: Postgres) -> Finding:
    """Try what a start does, and undo it."""
    told = Checker("privileges")
    name = f"bascule_preflight_{secrets.token_hex(4)}"
    step = "to make tables"
    mend = "GRANT CREATE, USAGE ON SCHEMA … TO the user; or make the user own the database"

    untold: list[str] = []

    async def work(connection: Connection) -> None:
        nonlocal step, mend
        await connection.execute(f"CREATE TABLE {name} (one integer PRIMARY KEY)")
        step, mend = "to write", "give a user and a server that may write"
        await connection.execute(f"INSERT INTO {name} VALUES (1)")  # noqa: S608 - our own name
        step, mend = "to take advisory locks", "GRANT EXECUTE ON FUNCTION of the message"
        await connection.execute("SELECT pg_try_advisory_xact_lock($1)", lock_key(name))
        step, mend = "to look at the tables", "GRANT SELECT ON the tables of bascule"
        refused = [
            row[0] for row in await connection.fetch(_TABLES, _OURS) if not (row[1] and row[2])
        ]
        if refused:
            step = f"for {', '.join(refused[:3])}, which belongs to another user"
            mend = "connect as the user who made the tables, or make this one a member of it"
            raise StoreUnavailable("not its owner")
        for function in FUNCTIONS:
            query = "SELECT has_function_privilege($1, 'EXECUTE')"
            if not await connection.fetchval(query, function):
                untold.append(function)
        raise _Undo

    try:
        await postgres.write(work)
    except _Undo:
        if untold:
            words = f"a failover is told less surely: the user may not call {', '.join(untold)}"
            return told.warning(words, f"GRANT EXECUTE ON FUNCTION {untold[0]} TO the user")
        return told.ok("tables can be made and written, locks taken")
    except StoreUnavailable as error:
        return told.failed(f"there is no privilege {step}: {error}", mend)
    return told.failed("a transaction was not undone", "look at the server's log")


async def _fingerprint(postgres: Postgres, data: Path) -> Finding:
    """Look whether the tokens there are under the key that is here."""
    told = Checker("tokens' key")

    async def work(connection: Connection) -> str | None:
        if await connection.fetchval("SELECT to_regclass('bascule_token_head')") is None:
            return None
        return await connection.fetchval("SELECT fingerprint FROM bascule_token_head")

    there = await postgres.read(work)
    try:
        key = given_key(data / KEY_NAME)
    except (KeyUnusable, OSError) as error:
        return told.failed(f"no key can be read here: {error}", HOW_TO_GIVE)
    if there is None:
        return told.ok("there are no tokens yet")
    if key is None or fingerprint(key) != there:
        what = "is missing" if key is None else "is not that of the other replicas"
        return told.failed(f"the key of {data} {what}", f"copy {KEY_NAME} from one: {HOW_TO_GIVE}")
    return told.ok("it is that of the other replicas")


async def _secrets_key(postgres: Postgres, data: Path) -> Finding:
    """Look whether the secrets there are under the key that is here, as a start does."""
    told = Checker("secrets' key")

    async def work(connection: Connection) -> tuple[str | None, bool]:
        if await connection.fetchval("SELECT to_regclass('bascule_secrets_head')") is None:
            return None, False
        query = "SELECT key_id, EXISTS (SELECT FROM bascule_secrets) FROM bascule_secrets_head"
        row = await connection.fetchrow(query)
        return (None, False) if row is None else (row[0], row[1])

    key_id, used = await postgres.read(work)
    try:
        keys = Keys(KeyFile(data / SECRETS_KEY_NAME), key_of_environment())
        known = key_id is None or keys.find(key_id) is not None
    except (KeyUnusable, OSError) as error:
        return told.failed(f"no key can be read here: {error}", _GIVE_SECRETS_KEY)
    if key_id is None:
        return told.ok("the first replica brings it, or makes it")
    if known:
        return told.ok("it is that of the other replicas")
    if used or await Presence(postgres, "secrets").others():
        return told.failed(f"the key of the other replicas is not in {data}", _GIVE_SECRETS_KEY)
    return told.ok("no secret is under another, and no replica runs: it is replaced")


async def _listener(postgres: Postgres) -> Finding:
    """Listen as a replica does, and say a word as another one does."""
    told = Checker("listener")
    try:
        heard = await _hears(postgres)
    except (*FAULTS, StoreUnavailable) as error:
        mend = "correct store.listen_dsn (BASCULE_LISTEN_DSN): it must lead to the server itself"
        return told.failed(f"nobody can listen: {said(error)}", mend)
    if not heard:
        words = "a NOTIFY was not heard: a pooler stands between and swallows it"
        return told.failed(words, PAST_POOLER)
    return told.ok("a NOTIFY is heard")


async def _hears(postgres: Postgres) -> bool:
    channel = f"bascule_preflight_{secrets.token_hex(4)}"
    heard = asyncio.Event()
    connection = await postgres.connect()

    async def listen(_: Connection) -> None:
        await connection.add_listener(channel, lambda *_: heard.set())

    try:
        await ended(connection, listen, _HEAR_SECONDS)
        await postgres.statement("SELECT pg_notify($1, '')", channel)
        with suppress(TimeoutError):
            async with asyncio.timeout(_HEAR_SECONDS):
                await heard.wait()
    finally:
        await hang_up(connection)
    return heard.is_set()
