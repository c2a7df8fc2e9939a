"""What a process keeps in its data directory, and how others find out that it serves it.

Whoever holds the lock serves the directory. It writes a fresh key into the lock's file, and
answers a challenge with it, so that a command knows whom it talks to before it shows a token: an
address may outlive its process, and another may hold the port by then. The token store names its
own files.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bascule.auth.token_store import SETUP_NAME
from bascule.db.private_files import write_private

STORE_FILE = "registry.db"
SETUP_FILE = SETUP_NAME
#: The bundled demo's server, written anew at every start.
DEMO_FOLDER = "demo"
#: Says that the demo's task was made: it is made once, and may be edited and removed.
DEMO_MADE_FILE = "demo-made"
#: The task of commands on this machine that name none.
DEFAULT_TASK_FILE = "default-task"
#: Where the process serves, while it does.
URL_FILE = "url"
LOCK_FILE = "lock"
#: The header by which a command shows whose process it asks (``owner_proof``).
OWNER_HEADER = "Bascule-Owner"
_KEY_BYTES = 32
_PURPOSE = b"bascule serves this data directory\0"
#: The name of this process among those that share a PostgreSQL.
REPLICA_FILE = "replica"
#: The name of the node that a directory is of, as its control plane called it.
NODE_FILE = "node-name"
#: The root of a node's own keys, made at its first start.
NODE_KEY_FILE = "node.key"
#: What servers keep from one start to the next, a HOME for each of them.
HOMES_FOLDER = "homes"


@contextmanager
def served_alone(data_dir: Path) -> Generator[None]:
    """Refuse a data directory that another process serves; a lock dies with its owner.

    The address of an owner that was killed is taken away first: it is not ours.
    """
    with unserved(data_dir) as descriptor:
        (data_dir / URL_FILE).unlink(missing_ok=True)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, secrets.token_bytes(_KEY_BYTES), 0)
        yield


@contextmanager
def unserved(data_dir: Path) -> Generator[int]:
    """Let nobody serve a data directory meanwhile; refuse one that another process serves."""
    path = data_dir / LOCK_FILE
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, data_dir)
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, data_dir: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # Commands only read here, and a web server costs them 40 ms.
        from bascule.asgi.serve import CannotServe  # noqa: PLC0415

        raise CannotServe(f"{data_dir} is served by another process{_where(data_dir)}") from None


def _where(data_dir: Path) -> str:
    try:
        url = (data_dir / URL_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return ""  # it is not that far yet
    return f", at {url}; give another --data-dir to serve beside it"


def owner_key(data_dir: Path) -> bytes | None:
    """Return the key of the process that holds the lock, or None if none does."""
    try:
        with (data_dir / LOCK_FILE).open("rb") as lock:
            if not _is_held(lock.fileno()):
                return None
            key = lock.read(_KEY_BYTES + 1)
    except OSError:
        return None
    return key if len(key) == _KEY_BYTES else None  # it took the lock just now


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def proof_of(key: bytes, nonce: str, port: int) -> str:
    """Return what only the lock's owner can answer to a challenge.

    The port is a part of it: the answer of the owner, passed on by another port's, proves nothing.
    """
    challenge = _PURPOSE + f"{nonce}:{port}".encode()
    return hmac.digest(key, challenge, hashlib.sha256).hex()


def owner_proof(key: bytes, port: int) -> str:
    """Return what only those can show to a process who read its data directory.

    No challenge has this form, so that the process gives it to nobody who asks.
    """
    return proof_of(key, OWNER_HEADER, port)


def process_mark(data_dir: Path) -> str | None:
    """Return what the process that serves is known by, for what ends with it; None if none does."""
    key = owner_key(data_dir)
    return None if key is None else hmac.digest(key, b"bascule process", hashlib.sha256).hex()[:16]


@contextmanager
def published(data_dir: Path, url: str) -> Generator[None]:
    """Let commands on this machine find the server, while it is there."""
    path = data_dir / URL_FILE
    write_private(path, url.encode() + b"\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def replica_name(data_dir: Path) -> str:
    """Return the name of a directory's process among replicas, made once and kept."""
    path = data_dir / REPLICA_FILE
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:48].strip(".-_") or "replica"
    write_private(path, f"{host}-{secrets.token_hex(3)}\n".encode(), replace=False)
    return path.read_text(encoding="utf-8").strip()
