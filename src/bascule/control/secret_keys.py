"""Where the outer key of the secrets comes from: a private file, a variable, or a descriptor.

A key file is changed in an order in which no kill loses a key: the new one is written beside it,
under its own id; the store is committed; then it takes the old one's place. Whoever finds that the
store has gone on to a key beside the file finishes that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import MutableMapping
from pathlib import Path

from bascule.auth.key_text import HOW, KEY_BYTES, key_of_text
from bascule.control.envelope import KEY_ID_DIGITS, OuterKey, new_key
from bascule.db.private_files import KeyUnusable, read_key, sync_folder, write_private

KEY_NAME = "secrets.key"
VARIABLE = "BASCULE_SECRETS_KEY"
DESCRIPTOR_OPTION = "--secrets-key-fd"
_MAX_GIVEN = 256
_OTHERS = 0o077
_FIRST_FREE_DESCRIPTOR = 3


def key_of_environment(environ: MutableMapping[str, str] = os.environ) -> OuterKey | None:
    """Return the variable's key, if it is set; no child of this process inherits it any more."""
    text = environ.pop(VARIABLE, None)
    return None if text is None else OuterKey(key_of_text(text, VARIABLE))


def key_of_descriptor(number: int, option: str = DESCRIPTOR_OPTION) -> OuterKey:
    """Read a key from a descriptor to its end, and close it: 32 bytes, or these in text.

    Call it before anything else is opened: a number that whoever started the process left free
    belongs to something else soon, to the event loop for one.
    """
    where = f"{option} {number}"
    if number < _FIRST_FREE_DESCRIPTOR:
        raise KeyUnusable(
            f"{where}: must be {_FIRST_FREE_DESCRIPTOR} or more; those below are standard input, "
            "output and error"
        )
    try:
        if not _is_readable(os.fstat(number).st_mode):
            raise KeyUnusable(f"{where}: must be a file or a pipe")
        with os.fdopen(number, "rb") as given:
            data = given.read(_MAX_GIVEN)
    except OSError as error:
        raise KeyUnusable(f"{where}: cannot be read: {error.strerror}") from None
    if len(data) == KEY_BYTES:
        return _key(data, where)
    return OuterKey(key_of_text(data.decode("ascii", "replace").strip(), where))


def _is_readable(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _key(data: bytes, where: str) -> OuterKey:
    if data.isascii() and data.decode("ascii").isprintable():
        raise KeyUnusable(f"{where}: is a text, and not a key: {HOW}")
    return OuterKey(data)


class KeyFile:
    """``secrets.key`` of a data directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> OuterKey | None:
        """Return the key, or None if there is no such file; raise KeyUnusable."""
        return self._read(self.path)

    def made(self) -> OuterKey:
        """Return the key, made now if there is none; of two who make one, both get the same."""
        if not self.path.exists():
            write_private(self.path, new_key().raw, replace=False)
            sync_folder(self.path)
        key = self.read()
        if key is None:
            raise KeyUnusable(f"{self.path}: was taken away while it was read; try again")
        return key

    def put_beside(self, key: OuterKey) -> None:
        """Write the next key, before the store is changed to it."""
        beside = self._beside(key.id)
        write_private(beside, key.raw)
        sync_folder(beside)

    def finish(self, key_id: str) -> None:
        """Put the key that the store has now in its place, if it is still beside it.

        Others beside it are of changes that came to nothing. Whoever calls this holds the store's
        lock for writing.
        """
        if self.has_beside(key_id):
            self._beside(key_id).replace(self.path)
            sync_folder(self.path)
        for left in self.path.parent.glob(f"{self.path.name}.{'[0-9a-f]' * KEY_ID_DIGITS}"):
            left.unlink(missing_ok=True)

    def has_beside(self, key_id: str) -> bool:
        """Say whether the key of this id is beside the file and not yet in its place."""
        return self._beside(key_id).exists()

    def find(self, key_id: str) -> OuterKey | None:
        """Return the key of this id, from the file or from beside it."""
        for path in (self._beside(key_id), self.path):
            key = self._read(path)
            if key is not None and key.id == key_id:
                return key
        return None

    def remark(self) -> str | None:
        """Say what whoever looks after this machine should know about the file."""
        try:
            mode = self.path.lstat().st_mode
        except OSError:
            return None
        if mode & _OTHERS:
            return f"{self.path}: others may read it; run chmod 600 {self.path}"
        return None

    def _beside(self, key_id: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{key_id}")

    def _read(self, path: Path) -> OuterKey | None:
        try:
            return _key(read_key(path, KEY_BYTES), str(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise KeyUnusable(f"{path}: cannot be read: {error.strerror}") from None


class Keys:
    """The keys of this process: one that it was given, or those of its file."""

    def __init__(self, file: KeyFile, given: OuterKey | None = None) -> None:
        self.file = file
        self._given = given
        self._known = given

    def __repr__(self) -> str:
        return f"Keys({str(self.file.path)!r}, given={self._given!r})"

    def check(self) -> None:
        """Raise KeyUnusable for a key file that is no key, before there is anything to open."""
        if self._given is None:
            self.file.read()

    def find(self, key_id: str) -> OuterKey | None:
        """Return the key of this id. The file is read again when the store has another key."""
        known = self._known
        if known is not None and known.id == key_id:
            return known
        if self._given is not None:
            return None
        self._known = self.file.find(key_id)
        return self._known

    def first(self) -> OuterKey:
        """Return the key for a store that has no secret yet; the file is made now."""
        return self._given or self.file.made()

    def present(self) -> OuterKey:
        """Return the key that there was before; raise KeyUnusable where it was taken away."""
        key = self._given or self.file.read()
        if key is None:
            raise KeyUnusable(f"{self.file.path}: is missing; put it back")
        return key

    def is_unfinished(self, key_id: str | None) -> bool:
        """Say whether the key of this id is still beside the file."""
        return self._given is None and key_id is not None and self.file.has_beside(key_id)

    def finish(self, key_id: str | None) -> None:
        """Put the key of this id in the file's place. Hold the store's lock for writing."""
        if self._given is None and key_id is not None:
            self.file.finish(key_id)

    def refuse_change(self, new: OuterKey | None) -> None:
        """Raise KeyUnusable where a key that was given would be changed for one in the file."""
        if new is None and self._given is not None:
            raise KeyUnusable(
                f"the key was given in {VARIABLE} or with {DESCRIPTOR_OPTION}, and so must the "
                "next one be: bascule secrets rekey --new-key-fd N"
            )

    def take_over(self, new: OuterKey) -> None:
        """Go on with a key that was given; the file has no use any more."""
        self._known = self._given = new
        self.file.path.unlink(missing_ok=True)

    def lack(self, store: str, anew: str) -> str:
        """Say that the key of a store is not here, and what to do; ``anew`` where it is lost."""
        if self._given is not None:
            what = f"the key that was given is not the one of {store}"
        elif self.file.path.exists():
            what = f"{self.file.path}: is not the key of {store}"
        else:
            what = f"{self.file.path}: is missing, and {store} cannot be opened without it"
        return (
            f"{what}; put the right one back from a backup, or give it: bascule up "
            f"{DESCRIPTOR_OPTION} N, or {VARIABLE}. If it is lost, so are the secrets: {anew} and "
            "set them again"
        )
