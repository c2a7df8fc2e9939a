"""What is done to secrets inside a transaction of their store: to seal, bind, open, wrap again.

A binding is signed under the outer key: a row that somebody else wrote into the file binds nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from hmac import compare_digest

from msgspec import Struct
from msgspec.structs import replace

from bascule.auth.encryption import NotOpened
from bascule.clock import Clock
from bascule.control.envelope import OuterKey, new_key, rewrap, seal, unseal
from bascule.control.secret_keys import Keys
from bascule.control.secret_tables import Binding, Head, Row, SecretStore, SecretTables
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

    def __init__(self, store: SecretStore, keys: Keys, clock: Clock) -> None:
        self.keys = keys
        self._where, self._anew = store.where, store.anew
        self._clock = clock

    # --- keys

    def check(self, tables: SecretTables) -> bool:
        """Raise KeyUnusable without the store's key; say whether a new one is not in its place."""
        now = tables.head()
        if tables.count():
            self._key(now)
        else:
            self.keys.check()
        return self.keys.is_unfinished(now.key_id)

    def lacks_key(self, tables: SecretTables) -> bool:
        """Say whether the store has no key yet, or one that is not here."""
        key_id = tables.head().key_id
        return key_id is None or self.keys.find(key_id) is None

    def claim(self, tables: SecretTables, *, alone: bool) -> None:
        """Have a store that is shared begin with the key of this process; raise KeyUnusable.

        Another that is in use is not replaced, though there be no secret yet.
        """
        now = tables.head()
        if now.key_id is None or (alone and not tables.count()):
            tables.advance(self.keys.first().id)
        else:
            self._key(now)

    def finish(self, tables: SecretTables) -> None:
        """Put the store's key in the key file's place, if it is still beside it."""
        self.keys.finish(tables.head().key_id)

    def rekey(self, tables: SecretTables, new: OuterKey | None) -> None:
        """Wrap every data key again: under a key that somebody gives, or under one for the file.

        That one is written beside the file before the commit.
        """
        key = new or new_key()
        now, old = self._key_for_writing(tables)
        after = tables.advance(key.id)
        for row in tables.rows():
            places = now.place(row.name, row.version), after.place(row.name, row.version)
            with self._telling_which(row.name):
                tables.put_wrapped(row.name, rewrap(old, key, places, row.wrapped))
        for bound in tables.bindings():
            if _is_signed(old, now, bound):  # others stay as void as they are
                signature = _signature(key, after, bound.name, bound.use)
                tables.put_binding(replace(bound, signature=signature))
        if new is None:
            self.keys.file.put_beside(key)

    def _key(self, now: Head) -> OuterKey:
        key = None if now.key_id is None else self.keys.find(now.key_id)
        if key is None:
            raise KeyUnusable(self.keys.lack(self._where, self._anew))
        return key

    def _key_for_writing(self, tables: SecretTables) -> tuple[Head, OuterKey]:
        """Return the key; the first secret of an empty store may bring another."""
        self.finish(tables)
        now = tables.head()
        if tables.count():
            return now, self._key(now)
        key = self.keys.first()
        return (now if key.id == now.key_id else tables.advance(key.id)), key

    # --- secrets

    def put(self, tables: SecretTables, new: NewVersion) -> bool:
        """Keep a version; False if another process has taken its number."""
        if tables.next_version(new.name) != new.version:
            return False
        now, key = self._key_for_writing(tables)
        at = self._clock.now()
        envelope = seal(key, now.place(new.name, new.version), new.value)
        row = Row(new.name, new.version, at, at, new.by, envelope.wrapped, envelope.sealed)
        tables.put(row)
        for use in new.bind:
            self.bind(tables, new.name, use, new.by)
        return True

    def bind(self, tables: SecretTables, name: str, use: SecretUse, by: str) -> bool:
        """Bind a secret; False if there is none of that name."""
        if tables.row(name) is None:
            return False
        now = tables.head()
        signature = _signature(self._key(now), now, name, use)
        at = self._clock.now()
        bound = Binding(name, use.kind, use.id, use.digest, at, by, signature)
        tables.put_binding(bound)
        return True

    def resolve(self, tables: SecretTables, name: str, use: SecretUse) -> str:
        """Return the value for one that it is bound to; raise KeyError or SecretUnbound."""
        if tables.row(name) is None:
            raise KeyError(name)
        bound = tables.binding(name, use.kind, use.id)
        if bound is None or bound.use != use or not self.holds(tables, bound):
            raise SecretUnbound(
                f"the secret {name!r} is not bound to the {use.kind} {use.id!r} as its record "
                "stands; an administrator can bind it: bascule secrets bind "
                f"{name} --{use.kind} {use.id}"
            )
        return self.open(tables, name)

    def open(self, tables: SecretTables, name: str) -> str:
        """Return the value; raise KeyError, or SecretUnreadable."""
        row = tables.row(name)
        if row is None:
            raise KeyError(name)
        now = tables.head()
        with self._telling_which(name):
            return unseal(self._key(now), now.place(name, row.version), row.envelope)

    def everything(
        self, tables: SecretTables
    ) -> tuple[tuple[Row, ...], tuple[tuple[Binding, bool], ...]]:
        """Return all secrets, sealed, and all bindings, with whether they hold."""
        rows = tuple(tables.rows())
        bound = tables.bindings()
        return rows, tuple((one, self.holds(tables, one)) for one in bound)

    def holds(self, tables: SecretTables, bound: Binding) -> bool:
        """Say whether the holder of the key wrote a binding."""
        now = tables.head()
        return _is_signed(self._key(now), now, bound)

    @contextmanager
    def _telling_which(self, name: str) -> Generator[None]:
        try:
            yield
        except NotOpened:
            raise SecretUnreadable(
                f"the secret {name!r} in {self._where} does not open: its row was changed, or "
                f"comes from elsewhere; set it again: bascule secrets set {name}"
            ) from None


def _signature(key: OuterKey, now: Head, name: str, use: SecretUse) -> bytes:
    return key.sign(now.store_id, now.epoch, name, use.kind, use.id, use.digest)


def _is_signed(key: OuterKey, now: Head, bound: Binding) -> bool:
    return compare_digest(bound.signature, _signature(key, now, bound.name, bound.use))
