"""What a process keeps in its data directory, and how others find out that it serves it.

The token store names its own files. Below: the file system. Above: ``up.py``, and commands that
look for the process on this machine.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bascule.asgi.tokens import write_private
from bascule.control.token_store import SETUP_NAME

STORE_FILE = "registry.db"
SETUP_FILE = SETUP_NAME
#: The bundled demo's records, written anew at every start.
DEMO_FOLDER = "demo"
#: Where the process serves, while it does.
URL_FILE = "url"
LOCK_FILE = "lock"
#: What servers keep from one start to the next, a HOME for each of them.
HOMES_FOLDER = "homes"


@contextmanager
def served_alone(data_dir: Path) -> Generator[None]:
    """Refuse a data directory that another process serves; a lock dies with its owner."""
    path = data_dir / LOCK_FILE
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, data_dir)
        yield
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


@contextmanager
def published(data_dir: Path, url: str) -> Generator[None]:
    """Let commands on this machine find the server, while it is there."""
    path = data_dir / URL_FILE
    write_private(path, url.encode() + b"\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
