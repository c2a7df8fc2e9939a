"""A data directory whose registry is gone is not served as if it had never had one.

Tokens without a registry are what a lost file leaves, or half a restored backup. Only tokens that
were made before the first start are another matter, and whoever makes them says so in a file.
"""

from __future__ import annotations

from collections.abc import Sized
from pathlib import Path

from bascule.app.data_dir import STORE_FILE
from bascule.auth.token_store import FILE_NAME
from bascule.db.private_files import write_private
from bascule.errors import BasculeError

#: There while tokens were made in a directory that was never served.
UNSTARTED_FILE = "unstarted"


#: There while a registry is being copied into a directory; what is in it is nobody's yet.
UNFINISHED = "copying"


class RegistryLost(BasculeError):
    """There are tokens, and not the registry that they are for."""

    code = "registry_missing"


def refuse_unfinished(data: Path) -> None:
    """Raise RegistryLost where a copy was interrupted, before a key is made that is not its own."""
    if (data / UNFINISHED).exists() and not _is_there(data / STORE_FILE):
        raise RegistryLost(f"a copy into {data} was interrupted: begin it again, or remove {data}")


def refuse_lost_registry(data: Path, tokens: Sized) -> None:
    """Raise RegistryLost where a start would begin with an empty registry unasked."""
    if _is_there(data / STORE_FILE) or not tokens or (data / UNSTARTED_FILE).exists():
        return
    raise RegistryLost(
        f"{data} has tokens and no registry: {STORE_FILE} is missing or empty; put it back from a "
        "backup, or give --new-registry to begin with an empty one"
    )


def has_registry(data: Path) -> bool:
    """Say whether a directory has a registry of its own."""
    return _is_there(data / STORE_FILE)


def may_be_lost(data: Path) -> bool:
    """Say whether a registry is missing where there is a file for tokens."""
    return (data / FILE_NAME).exists() and not _is_there(data / STORE_FILE)


def note_registry(data: Path) -> None:
    """Note that the directory has a registry from now on."""
    (data / UNSTARTED_FILE).unlink(missing_ok=True)


def is_fresh(data: Path) -> bool:
    """Say whether nobody has used a directory yet: neither tokens nor a registry are there."""
    return not (data / FILE_NAME).exists() and not _is_there(data / STORE_FILE)


def note_unstarted(data: Path) -> None:
    """Note that tokens were made before the first start."""
    write_private(data / UNSTARTED_FILE, b"")


def _is_there(store: Path) -> bool:
    try:
        return store.stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
