"""What a machine must have before it serves: a folder, its keys, a port, TLS files, the time.

Nothing is written: a folder that is missing is not made, and a port is bound and let go.
"""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import sqlite3
import ssl
import stat
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

from bascule.app.copy_tables import PARTS
from bascule.app.data_dir import URL_FILE, owner_key
from bascule.app.file_places import FILES, NEWEST
from bascule.app.settings import ServerSettings
from bascule.asgi.serve import CannotServe, NeedsTls, bound
from bascule.auth.key_text import HOW
from bascule.auth.server_key import HOW_TO_GIVE, KEY_NAME, VARIABLE, given_key
from bascule.auth.token_store import FILE_NAME as TOKENS_FILE
from bascule.auth.token_store import refuse_open_folder
from bascule.cli.findings import Checker, Finding
from bascule.cli.process_checkup import LITTLE_BYTES, size_text
from bascule.clock import SYSTEM_CLOCK, Clock, rfc3339
from bascule.db.errors import StoreUnavailable
from bascule.db.private_files import KeyUnusable
from bascule.db.sqlite import read_only, refuse_foreign

#: Less free space than this is no place to begin.
_LEAST_BYTES = 16 * 1024 * 1024
_OTHERS = 0o077
_DAY = 86_400.0
#: A certificate that ends within this is worth a word.
_SOON_DAYS = 14
#: No machine of today is before this version was made: 2026-11-01.
_EARLIEST = 1_793_491_200.0
_LATEST = _EARLIEST + 50 * 365 * _DAY


# --- the data directory


def data_directory(data: Path) -> Finding:
    """Look whether the folder is there, or can be made, and is its owner's alone."""
    told = Checker("data directory")
    if data.exists() and not data.is_dir():
        return told.failed(f"{data} is not a directory", "name another with --data-dir")
    if not data.exists():
        return _missing_directory(told, data)
    try:
        refuse_open_folder(data)
    except KeyUnusable as error:
        words, _, mend = str(error).partition("; ")
        return told.failed(words, mend)
    return _owned_directory(told, data)


def _missing_directory(told: Checker, data: Path) -> Finding:
    above = _nearest(data)
    if above.is_dir() and _may_write(above):
        return told.ok(f"{data} is made at the first start")
    what = f"{data} does not exist, and cannot be made in {above}"
    return told.failed(what, f"make it as the user who serves: mkdir -m 700 -p {data}")


def _owned_directory(told: Checker, data: Path) -> Finding:
    found = data.stat()
    if found.st_uid != os.geteuid():
        what = f"{data} belongs to {_user(found.st_uid)}, and you are {_user(os.geteuid())}"
        mend = f"run this as the user who serves, or: chown -R {_user(os.geteuid())} {data}"
        return told.warning(what, mend) if os.geteuid() == 0 else told.failed(what, mend)
    if not _may_write(data):
        return told.failed(f"{data} cannot be written to", f"chmod u+rwx {data}, or mount it rw")
    mode = stat.S_IMODE(found.st_mode)
    if mode & _OTHERS:
        words = f"{data} has mode {mode:04o}: others see its files"
        return told.warning(words, f"chmod 700 {data}")
    return told.ok(f"{data}, mode {mode:04o}")


def _may_write(folder: Path) -> bool:
    """Say whether files can be made in a folder; root may, except where nobody may."""
    read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
    return not read_only and os.access(folder, os.R_OK | os.W_OK | os.X_OK)


def _nearest(path: Path) -> Path:
    """Return the nearest folder above that is there."""
    return next(above for above in path.absolute().parents if above.exists())


def _user(uid: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"uid {uid}"


def free_space(data: Path) -> Finding:
    """Look whether there is room for what happens."""
    told = Checker("free space")
    place = data if data.exists() else _nearest(data)
    free = shutil.disk_usage(place).free
    words = f"{size_text(free)} are free on the disk of {place}"
    mend = "make room, or name a data directory on another disk"
    if free < _LEAST_BYTES:
        return told.failed(f"only {words}", mend)
    if free < LITTLE_BYTES:
        return told.warning(f"only {words}: calls stop when it is full", mend)
    return told.ok(words)


def not_served(data: Path) -> Finding:
    """Look whether another process serves the folder."""
    told = Checker("other process")
    if owner_key(data) is None:
        return told.ok(f"none serves {data}")
    where = ""
    with suppress(OSError):
        where = f", at {(data / URL_FILE).read_text(encoding='utf-8').strip()}"
    mend = "stop it first, or give another --data-dir to serve beside it"
    return told.failed(f"{data} is served by another process{where}", mend)


# --- keys and certificates


def server_key(data: Path, *, shared: bool) -> Finding:
    """Look whether the key that tokens are checked with is one, private, and that of the others."""
    told = Checker("server key")
    path = data / KEY_NAME
    try:
        key = given_key(path)
    except KeyUnusable as error:
        words, _, mend = str(error).partition("; ")
        return told.failed(words, mend or HOW)
    except OSError as error:
        return told.failed(f"{path} cannot be read: {error.strerror}", f"chmod 600 {path}")
    if key is not None:
        return told.ok(f"{path} is a key" if path.exists() else f"{VARIABLE} is a key")
    if (data / TOKENS_FILE).exists():
        return told.failed(f"{path} is missing, and there are tokens under it", HOW_TO_GIVE)
    if shared:
        words = f"there is none: the first replica makes {path}, and the others need the same one"
        return told.warning(words, f"make one for all: openssl rand -base64 32, in {VARIABLE}")
    return told.ok(f"{path} is made at the first start")


def tls_files(server: ServerSettings, clock: Clock = SYSTEM_CLOCK) -> Finding:
    """Look whether certificate and key can be read, fit each other, and are good today."""
    told = Checker("TLS files")
    certificate, key = server.tls_certificate, server.tls_key
    if certificate is None or key is None:
        return told.ok("none are set: plain HTTP")
    for path in (certificate, key):
        try:
            with Path(path).open("rb"):
                pass
        except OSError as error:
            mend = "name a file that the user who serves can read"
            return told.failed(f"{path} cannot be read: {error.strerror}", mend)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        mend = "give a certificate chain and its own key, both PEM, the key without a password"
        what = "does not fit" if error.reason == "KEY_VALUES_MISMATCH" else "cannot be used with"
        return told.failed(f"{key} {what} {certificate}: {error.reason or error}", mend)
    return dated(told, Path(certificate), Path(key), clock)


def dated(told: Checker, certificate: Path, key: Path, clock: Clock) -> Finding:
    """Look whether a certificate is good today, and its key nobody else's to read."""
    from cryptography import x509  # noqa: PLC0415 - 50 ms, and few have one

    first = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
    begins, ends = first.not_valid_before_utc.timestamp(), first.not_valid_after_utc.timestamp()
    now = clock.now()
    until = f"{certificate} is good until {rfc3339(ends)}"
    mend = "put a new certificate there"
    if now >= ends:
        return told.failed(f"{certificate} has expired, at {rfc3339(ends)}", mend)
    if now < begins:
        return told.failed(f"{certificate} is not good before {rfc3339(begins)}", mend)
    if ends - now < _SOON_DAYS * _DAY:
        return told.warning(f"{until}: less than {_SOON_DAYS} days", mend)
    if key.stat().st_mode & _OTHERS:
        return told.warning(f"{key}: others may read it", f"chmod 600 {key}")
    return told.ok(f"{until}, and fits its key")


# --- the files of a data directory

_FILES: Mapping[str, int] = {FILES[part]: NEWEST[part] for part in PARTS}


def stored_forms(data: Path) -> Finding:
    """Look whether every file can be opened by this version, or brought to a form that can."""
    told = Checker("form")
    there = [name for name in _FILES if (data / name).exists() and (data / name).stat().st_size]
    older: list[str] = []
    for name in there:
        try:
            form = _form(data / name, _FILES[name])
        except (StoreUnavailable, sqlite3.Error, OSError) as error:
            mend = "install the version that wrote it, or restore the file from a backup"
            return told.failed(str(error), mend)
        if form < _FILES[name]:
            older.append(name)
    if not there:
        return told.ok(f"{data} has no databases: they are made at the first start")
    if older:
        return told.ok(f"brought to its newest form at the next start: {', '.join(older)}")
    return told.ok(f"as this version knows it: {', '.join(there)}")


def _form(path: Path, newest: int) -> int:
    with closing(read_only(path)) as connection:
        refuse_foreign(connection, path, newest)
        [form] = connection.execute("PRAGMA user_version").fetchone()
    return int(form)


# --- the port and the time


async def port(server: ServerSettings) -> Finding:
    """Look whether the address is here, free, and may be bound."""
    told = Checker("port")
    exposed = server.insecure or server.tls_certificate is not None
    try:
        listening = await bound(server.host, server.port, exposed=exposed)
    except NeedsTls as error:
        return told.failed(str(error), "--tls-certificate and --tls-key, or --insecure")
    except CannotServe as error:
        return told.failed(str(error), _mend_port(server, error.__cause__))
    with listening:
        where = f"{server.host}:{server.port or 'any'}"
        return told.ok(f"{where} is free")


def _mend_port(server: ServerSettings, cause: BaseException | None) -> str:
    if isinstance(cause, PermissionError):
        return "choose a --port of 1024 or more, or give the process CAP_NET_BIND_SERVICE"
    number = cause.errno if isinstance(cause, OSError) else None
    if number == errno.EADDRINUSE:
        return f"stop whoever listens there (ss -ltnp sport = :{server.port}), or choose a --port"
    return "give --host an address of this machine, for instance 127.0.0.1 or 0.0.0.0"


def time_of_day(clock: Clock = SYSTEM_CLOCK) -> Finding:
    """Look whether the time can be right at all."""
    told = Checker("clock")
    now = clock.now()
    if _EARLIEST <= now < _LATEST:
        return told.ok(f"it is {rfc3339(now)}")
    return told.failed(f"it cannot be {rfc3339(now)}", "set the clock, and keep it with NTP")
