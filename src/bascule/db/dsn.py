"""The address of a PostgreSQL as people write it, judged without a driver and never repeated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, urlsplit

from bascule.db.errors import StoreUnavailable

if TYPE_CHECKING:
    from bascule.db.postgres import Postgres

#: What is expected, wherever one is given.
FORM = "postgresql://USER@HOST:PORT/DATABASE"
_SCHEMES = frozenset({"postgresql", "postgres"})
_SECRET = frozenset({"password", "sslpassword"})
_FILES = frozenset({"passfile", "servicefile", "sslkey", "sslcert", "sslrootcert"})
#: Below the home of whoever runs the process; the driver looks there unasked.
_USUAL_FILES = (".pgpass", ".pg_service.conf", ".postgresql")


def dsn_problem(dsn: str) -> str | None:
    """Say what is wrong with a DSN, if anything; its own words are not in it."""
    parts = _parts(dsn)
    if parts is None or parts.scheme not in _SCHEMES or not dsn.startswith(f"{parts.scheme}://"):
        return f"must be a URL: {FORM}"
    if "@" in parts.path + parts.query or parts.fragment:
        return f"must be {FORM}, with / ? # and @ in a name or a password as %2F %3F %23 %40"
    if not _has_ports(parts) or any(character.isspace() for character in dsn):
        return f"must be {FORM}, with a port that is a number"
    return None


def has_password(dsn: str) -> bool:
    """Say whether a DSN has a secret in it."""
    parts = _parts(dsn)
    if parts is None:
        return False
    words, at, _ = parts.netloc.rpartition("@")
    named = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    return bool(at and ":" in words) or bool(named & _SECRET)


def named_files(dsn: str) -> tuple[str, ...]:
    """Return the files with passwords, keys and certificates that a DSN names."""
    parts = _parts(dsn)
    asked = [] if parts is None else parse_qsl(parts.query)
    return tuple(value for name, value in asked if name in _FILES)


def driver_files(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return where a driver looks for the same, if a DSN does not say."""
    named = (environ.get(f"PG{name.upper()}") for name in sorted(_FILES))
    home = environ.get("HOME")
    usual = [] if not home else [f"{home.rstrip('/')}/{name}" for name in _USUAL_FILES]
    return (*(name for name in named if name), *usual)


def _parts(dsn: str) -> SplitResult | None:
    try:
        return urlsplit(dsn)
    except ValueError:  # brackets that do not close
        return None


def _has_ports(parts: SplitResult) -> bool:
    """Say whether every host, of which there may be several, has a port or none."""
    hosts = parts.netloc.rpartition("@")[2].split(",")
    ports = [host.rpartition("]")[2].rpartition(":")[2] for host in hosts if _names_port(host)]
    return all(port.isascii() and port.isdigit() for port in ports)


def _names_port(host: str) -> bool:
    return ":" in host.rpartition("]")[2]


def postgres_at(dsn: str, *, listen_dsn: str | None = None) -> Postgres:
    """Return the database at a DSN, to be opened; raise StoreUnavailable without a driver."""
    try:
        from bascule.db.postgres import Postgres  # noqa: PLC0415 - an extra, and 60 ms
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StoreUnavailable(
            "PostgreSQL needs its driver, which is not installed: pip install 'bascule[scale]'"
        ) from error
    return Postgres(dsn, listen_dsn=listen_dsn)
