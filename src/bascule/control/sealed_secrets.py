"""What is done to secrets inside a transaction of their store: to seal, bind, open, wrap again.

A binding is signed under the outer key: a row that somebody else wrote into the file binds nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from hmac import compare_digest
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from bascule.clock import Clock
from bascule.control import secret_store as stored
from bascule.control.envelope import NotOpened, OuterKey, new_key, rewrap, seal, unseal
from bascule.control.secret_keys import Keys
from bascule.control.secret_store import Binding, Head, Row
from bascule.db.private_files import KeyUnusable
from bascule.errors import SecretUnbound, SecretUnreadable
from bascule.model.secret_use import SecretUse


class NewVersion(Struct, frozen=True):
    """A version to be kept, and whom it is bound to besides; no ``repr`` shows its value."""

    name: str
    version: int
    value: str
    by: str
    bind: Sequence[SecretUse] = ()

    def __repr__(self) -> str:
        return f"NewVersion({self.name!r}, {self.version})"


class SealedSecrets:
    """The secrets of a store under the keys of this process; each method is one transaction's."""

    def __init__(self, path: Path, keys: Keys, clock: Clock) -> None:
        self.keys = keys
        self._path = path
        self._clock = clock

    # --- keys

    def check(self, connection: sqlite3.Connection) -> bool:
        """Raise KeyUnusable without the store's key; say whether a new one is not in its place."""
        now = stored.head(connection)
        if stored.count(connection):
            self._key(now)
        else:
            self.keys.check()
        return self.keys.is_unfinished(now.key_id)

    def finish(self, connection: sqlite3.Connection) -> None:
        """Put the store's key in the key file's place, if it is still beside it."""
        self.keys.finish(stored.head(connection).key_id)

    def rekey(self, connection: sqlite3.Connection, new: OuterKey | None) -> None:
        """Wrap every data key again: under a key that somebody gives, or under one for the file.

        That one is written beside the file before the commit.
        """
        key = new or new_key()
        now, old = self._key_for_writing(connection)
        after = stored.advance(connection, key.id)
        for row in stored.rows(connection):
            places = now.place(row.name, row.version), after.place(row.name, row.version)
            with self._telling_which(row.name):
                stored.put_wrapped(connection, row.name, rewrap(old, key, places, row.wrapped))
        for bound in stored.bindings(connection):
            if _is_signed(old, now, bound):  # others stay as void as they are
                signature = _signature(key, after, bound.name, bound.use)
                stored.put_binding(connection, replace(bound, signature=signature))
        if new is None:
            self.keys.file.put_beside(key)

    def _key(self, now: Head) -> OuterKey:
        key = None if now.key_id is None else self.keys.find(now.key_id)
        if key is None:
            raise KeyUnusable(self.keys.lack(self._path))
        return key

    def _key_for_writing(self, connection: sqlite3.Connection) -> tuple[Head, OuterKey]:
        """Return the key; the first secret of an empty store may bring another."""
        self.finish(connection)
        now = stored.head(connection)
        if stored.count(connection):
            return now, self._key(now)
        key = self.keys.first()
        return (now if key.id == now.key_id else stored.advance(connection, key.id)), key

    # --- secrets

    def put(self, connection: sqlite3.Connection, new: NewVersion) -> bool:
        """Keep a version; False if another process has taken its number."""
        if stored.next_version(connection, new.name) != new.version:
            return False
        now, key = self._key_for_writing(connection)
        at = self._clock.now()
        envelope = seal(key, now.place(new.name, new.version), new.value)
        row = Row(new.name, new.version, at, at, new.by, envelope.wrapped, envelope.sealed)
        stored.put(connection, row)
        for use in new.bind:
            self.bind(connection, new.name, use, new.by)
        return True

    def bind(self, connection: sqlite3.Connection, name: str, use: SecretUse, by: str) -> bool:
        """Bind a secret; False if there is none of that name."""
        if stored.row(connection, name) is None:
            return False
        now = stored.head(connection)
        signature = _signature(self._key(now), now, name, use)
        at = self._clock.now()
        bound = Binding(name, use.kind, use.id, use.digest, at, by, signature)
        stored.put_binding(connection, bound)
        return True

    def resolve(self, connection: sqlite3.Connection, name: str, use: SecretUse) -> str:
        """Return the value for one that it is bound to; raise KeyError or SecretUnbound."""
        if stored.row(connection, name) is None:
            raise KeyError(name)
        bound = stored.binding(connection, name, use.kind, use.id)
        if bound is None or bound.use != use or not self.holds(connection, bound):
            raise SecretUnbound(
                f"the secret {name!r} is not bound to the {use.kind} {use.id!r} as its record "
                "stands; an administrator can bind it: bascule secrets bind "
                f"{name} --{use.kind} {use.id}"
            )
        return self.open(connection, name)

    def open(self, connection: sqlite3.Connection, name: str) -> str:
        """Return the value; raise KeyError, or SecretUnreadable."""
        row = stored.row(connection, name)
        if row is None:
            raise KeyError(name)
        now = stored.head(connection)
        with self._telling_which(name):
            return unseal(self._key(now), now.place(name, row.version), row.envelope)

    def everything(
        self, connection: sqlite3.Connection
    ) -> tuple[tuple[Row, ...], tuple[tuple[Binding, bool], ...]]:
        """Return all secrets, sealed, and all bindings, with whether they hold."""
        rows = tuple(stored.rows(connection))
        bound = stored.bindings(connection)
        return rows, tuple((one, self.holds(connection, one)) for one in bound)

    def holds(self, connection: sqlite3.Connection, bound: Binding) -> bool:
        """Say whether the holder of the key wrote a binding."""
        now = stored.head(connection)
        return _is_signed(self._key(now), now, bound)

    @contextmanager
    def _telling_which(self, name: str) -> Generator[None]:
        try:
            yield
        except NotOpened:
            raise SecretUnreadable(
                f"the secret {name!r} in {self._path} does not open: its row was changed, or comes "
                f"from elsewhere; set it again: bascule secrets set {name}"
            ) from None


def _signature(key: OuterKey, now: Head, name: str, use: SecretUse) -> bytes:
    return key.sign(now.store_id, now.epoch, name, use.kind, use.id, use.digest)


def _is_signed(key: OuterKey, now: Head, bound: Binding) -> bool:
    return compare_digest(bound.signature, _signature(key, now, bound.name, bound.use))
