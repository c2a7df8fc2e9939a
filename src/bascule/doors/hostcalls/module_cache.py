"""Compiled modules on disk, so that the next start need not compile them.

Compiled code is machine code: what this node did not write itself must not be run. So a file
counts only if the folder is private and its first 32 bytes are right under this node's key. It is
read, never mapped: a mapped file that somebody shortens kills the process.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from bascule.db.private_files import KeyUnusable, private_key, write_private

logger = logging.getLogger(__name__)

#: In the user's cache folder, and in the data directory of a node.
MODULES_FOLDER: Final = "modules"
MOST_FILES: Final = 64
MOST_BYTES: Final = 512 * 1024 * 1024
KEY_FILE: Final = "key"
_SUFFIX: Final = ".cwasm"
_KEY_BYTES: Final = 32
_TAG_BYTES: Final = hashlib.sha256().digest_size


class ModuleCache:
    """Compiled modules by name. A cache that cannot be used only costs time: it says so in the log.

    ``key`` is the node's, if it has one; otherwise the folder keeps one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        key: bytes | None = None,
        most_files: int = MOST_FILES,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._folder = folder
        self._key = key
        self._most_files = most_files
        self._most_bytes = most_bytes

    def load(self, name: str) -> bytes | None:
        """Return the code that was kept under a name; None if there is none that may be run."""
        path = self._path(name)
        try:
            key = self._opened()
            found = path.read_bytes()
        except FileNotFoundError:
            return None
        except (OSError, KeyUnusable) as problem:
            logger.warning("the cache of compiled modules is not used: %s", problem)
            return None
        tag, code = found[:_TAG_BYTES], found[_TAG_BYTES:]
        if not hmac.compare_digest(tag, _tag(key, name, code)):
            logger.warning("%s was not written by this node, or is damaged; compiling anew", path)
            return None
        with suppress(OSError):
            os.utime(path)  # the oldest go first
        return code

    def keep(self, name: str, code: bytes) -> None:
        """Keep code under a name; what is oldest goes when there is too much."""
        if len(code) > self._most_bytes:
            return
        try:
            key = self._opened()
            write_private(self._path(name), _tag(key, name, code) + code)
            self._make_room()
        except (OSError, KeyUnusable) as problem:
            logger.warning("a compiled module is not kept: %s", problem)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"

    def _opened(self) -> bytes:
        """Return the key; make the folder if it is not there."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self._folder.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise KeyUnusable(f"{self._folder}: others may use it; run chmod 700 {self._folder}")
        if self._key is None:
            self._key = private_key(self._folder / KEY_FILE, _KEY_BYTES)
        return self._key

    def _make_room(self) -> None:
        kept = sorted(_sizes(self._folder))
        used = sum(size for _, size, _ in kept)
        while len(kept) > self._most_files or used > self._most_bytes:
            _, size, path = kept.pop(0)
            path.unlink(missing_ok=True)
            used -= size


def _sizes(folder: Path) -> list[tuple[float, int, Path]]:
    found: list[tuple[float, int, Path]] = []
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(FileNotFoundError):  # another process made room
            about = path.lstat()
            found.append((about.st_mtime, about.st_size, path))
    return found


def _tag(key: bytes, name: str, code: bytes) -> bytes:
    mac = hmac.new(key, f"{name}\0".encode(), hashlib.sha256)
    mac.update(code)
    return mac.digest()
