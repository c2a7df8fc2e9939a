"""Secrets: set, bound to who may be given them, listed without their values, and resolved.

A value is sealed and kept in ``secrets.db`` under a key that is elsewhere. It is given to a server
or a backend that it was bound to and whose record has not changed since, and to the key's owner in
Python. Whatever is done is noted before it is done.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Required, TypedDict

import msgspec

from bascule.audit.events import Act, SecretAction, SecretChanged
from bascule.auth.token_store import refuse_open_folder
from bascule.auth.tokens import Note
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.control.envelope import OuterKey
from bascule.control.sealed_secrets import NewVersion, SealedSecrets
from bascule.control.sealing import SecretSealer
from bascule.control.secret_keys import KEY_NAME, KeyFile, Keys, key_of_environment
from bascule.control.secret_listing import listed, use_in
from bascule.control.secret_store import FILE_NAME, SqliteSecretStore
from bascule.control.secret_tables import SecretStore, marks
from bascule.db.errors import StoreUnavailable
from bascule.db.private_files import KeyUnusable
from bascule.errors import SecretUnbound, SecretUnreadable, refuse_any
from bascule.model.reference import is_secret_name
from bascule.model.secret_use import SecretUse, UserKind
from bascule.model.snapshot import Snapshot
from bascule.wire.api.secrets import SecretShown

MAX_VALUE_BYTES = 64 * 1024
#: What is said of a secret's name where all of them are meant.
ALL_NAMES = "*"
_OTHERS_RUN = (
    "other replicas run ({}) with the key that the secrets have now, and would open none under "
    "another: stop them, change the key, give them the new one, and start them again"
)


class SecretParts(TypedDict, total=False):
    """What secrets are made with."""

    note: Required[Note]
    records: Callable[[], Snapshot]
    clock: Clock


class Secrets:
    """The secrets of one store; ``open_secrets`` makes it. It is a ``SecretResolver``.

    ``records`` are those of the registry as they stand.
    """

    def __init__(
        self,
        store: SecretStore,
        keys: Keys,
        *,
        note: Note,
        records: Callable[[], Snapshot] = Snapshot,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self._keys = keys
        self._sealed = SealedSecrets(store, keys, clock)
        self._note = note
        #: The records of those who may be given secrets, as they stand.
        self.records = records
        self._clock = clock
        self._writing = asyncio.Lock()
        self._telling = asyncio.Lock()
        self._told: Mapping[str, object] = {}
        #: What was last given a version, and that.
        self._named: tuple[object, str] = None, ""
        self._subscribers: list[Callable[[str], None]] = []
        #: All values that this process gave to anybody, old versions too: to be masked.
        self.known_values: frozenset[str] = frozenset()

    @staticmethod
    def open(
        data_dir: str | Path, *, key: OuterKey | None = None, note: Note | None = None
    ) -> OwnSecrets:
        """Return the secrets of a data directory for the owner of their key, without async.

        ``key`` is that key, where it is neither in ``BASCULE_SECRETS_KEY``, which is read and taken
        out of the environment, nor in the directory.
        """
        return OwnSecrets(Path(data_dir), key or key_of_environment(), note)

    async def start(self) -> None:
        """Raise KeyUnusable without the store's key; finish a change of keys that was cut off."""
        if self._store.shared and await self._store.read(self._sealed.lacks_key):
            alone = not await self._store.others()
            await self._store.write(partial(self._sealed.claim, alone=alone))
        if await self._store.read(self._sealed.check):
            await self._store.write(self._sealed.finish)
        self._told = await self._store.read(marks)

    # --- writing

    async def set(self, name: str, value: str, *, by: str, bind: Sequence[SecretUse] = ()) -> int:
        """Keep a value as the next version, bind it besides, and return the version's number.

        The version before is forgotten.
        """
        refuse_any([*name_problems(name), *_value_problems(value)])
        async with self._changing():
            while True:  # once, unless another process sets it between the note and the write
                await self._store.has_moved()
                version = await self._store.read(lambda tables: tables.next_version(name))
                new = NewVersion(name, version, value, by, bind)
                await self._noted("set", name, by, version=version)
                for use in bind:
                    await self._noted("bound", name, by, version=version, use=use)
                if await self._store.write(partial(self._sealed.put, new=new)):
                    return version

    async def bind(self, name: str, use: SecretUse, *, by: str) -> None:
        """Let a server or backend, as its record stands, be given a secret; raise KeyError."""
        await self._refuse_unknown(name)
        async with self._changing():
            await self._noted("bound", name, by, use=use)
            if not await self._store.write(partial(self._sealed.bind, name=name, use=use, by=by)):
                raise KeyError(name)

    async def unbind(self, name: str, kind: UserKind, user: str, *, by: str) -> bool:
        """Give a secret to a server or backend no more; say whether it was bound to it."""
        await self._refuse_unknown(name)
        async with self._changing():
            await self._noted("unbound", name, by, use=SecretUse(kind, user, ""))
            return await self._store.write(lambda one: one.remove_binding(name, kind, user))

    async def remove(self, name: str, *, by: str) -> None:
        """Forget a secret and its bindings; raise KeyError."""
        await self._refuse_unknown(name)
        async with self._changing():
            await self._noted("removed", name, by)
            await self._store.write(lambda tables: tables.remove(name))

    async def rekey(self, new: OuterKey | None = None, *, by: str) -> None:
        """Wrap every data key again, under another outer key; no value is touched.

        A key that is given stays with whoever gives it, and the key file goes. Without one a new
        key is made, which takes the place of the one in the file. Raise KeyUnusable where other
        replicas run, which would not have it.
        """
        self._sealed.keys.refuse_change(new)
        others = await self._store.others()
        if others:
            raise KeyUnusable(_OTHERS_RUN.format(others))
        async with self._changing():
            await self._noted("rekeyed", ALL_NAMES, by)
            await self._store.write(partial(self._sealed.rekey, new=new))
            if new is None:
                await self._store.write(self._sealed.finish)
            else:
                self._sealed.keys.take_over(new)
            await self._store.forget_log()

    # --- reading

    async def secret(self, name: str, use: SecretUse) -> str:
        """Return a secret for a server or backend.

        Raise KeyError if there is none of that name, SecretUnbound if it is not bound to this use,
        and SecretUnreadable if it cannot be opened.
        """
        try:
            value = await self._resolved(name, use)
        except (KeyError, SecretUnbound):
            if not await self._store.has_moved():
                raise
            value = await self._resolved(name, use)
        if value not in self.known_values:  # others compare it by identity
            self.known_values |= {value}
        return value

    async def given(self, name: str, use: SecretUse, *, to: str) -> str:
        """Return a secret for a server or backend of a node elsewhere; raise as ``secret`` does.

        Unlike what stays in this process, that it left is noted.
        """
        value = await self.secret(name, use)
        await self._noted("read", name, to, use=use)
        return value

    async def _resolved(self, name: str, use: SecretUse) -> str:
        try:
            return await self._store.read(partial(self._sealed.resolve, name=name, use=use))
        except (KeyUnusable, StoreUnavailable) as error:
            raise SecretUnreadable(str(error)) from None

    async def get(self, name: str, *, by: str) -> str:
        """Return a secret to the owner of the key; raise KeyError."""
        await self._refuse_unknown(name)
        await self._noted("read", name, by)
        return await self._store.read(partial(self._sealed.open, name=name))

    async def listing(self) -> tuple[SecretShown, ...]:
        """Return what is shown of all secrets, by name; never a value."""
        await self._store.has_moved()
        rows, bindings = await self._store.read(self._sealed.everything)
        return listed(rows, bindings, self.records())

    async def shown(self, name: str) -> SecretShown:
        """Return what is shown of one secret; raise KeyError."""
        for one in await self.listing():
            if one.name == name:
                return one
        raise KeyError(name)

    def use(self, kind: UserKind, user: str) -> SecretUse | None:
        """Return a server or backend as its record stands, to bind to it; None if there is none."""
        return use_in(self.records(), kind, user)

    # --- telling

    @property
    def version(self) -> str:
        """Return what all values and bindings together are called, at every replica the same."""
        if self._named[0] is not self._told:
            told = msgspec.json.encode(self._told, order="sorted")
            self._named = self._told, hashlib.sha256(told).hexdigest()[:32]
        return self._named[1]

    def sealer(self) -> SecretSealer:
        """Return what seals other things than secrets under the key of these."""
        return SecretSealer(self._keys)

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call with the name of each secret whose value or bindings change; return how to end it.

        Other processes' changes are noticed while ``follow`` runs.
        """
        self._subscribers.append(changed)
        return partial(self._subscribers.remove, changed)

    async def follow(self, clock: Clock = SYSTEM_CLOCK) -> None:
        """Notice what other processes write, until cancelled."""
        seen: object = None
        while True:
            stamp = self._store.state()
            if stamp is None or stamp != seen:
                with suppress(StoreUnavailable):  # whoever needs a secret is told
                    await self._tell()
                    seen = stamp
            await self._store.pause(seen, clock)

    @asynccontextmanager
    async def _changing(self) -> AsyncGenerator[None]:
        """Make one change after another; subscribers are told of it."""
        async with self._writing:
            yield
        with suppress(StoreUnavailable):  # it is done, and ``follow`` notices it later
            await self._tell()

    async def _tell(self) -> None:
        async with self._telling:
            now = await self._store.read(marks)
            before, self._told = self._told, now
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                for changed in tuple(self._subscribers):
                    changed(name)

    async def _noted(
        self,
        action: SecretAction,
        name: str,
        by: str,
        *,
        version: int | None = None,
        use: SecretUse | None = None,
    ) -> None:
        at = self._clock.now()
        user = None if use is None else _user(use)
        await self._note(
            SecretChanged(
                timestamp=at, by=by, action=action, name=name, version=version, server_id=user
            )
        )

    async def _refuse_unknown(self, name: str) -> None:
        """Raise KeyError before anything is noted of a name that is none."""
        await self._store.has_moved()
        if await self._store.read(lambda tables: tables.row(name)) is None:
            raise KeyError(name)


def _user(use: SecretUse) -> str:
    """Return what events call a user of secrets: backends have names of their own."""
    return use.id if use.kind == "server" else f"backend:{use.id}"


def name_problems(name: str) -> list[str]:
    """Say why a text cannot name a secret; it is not repeated, for it may be one."""
    if is_secret_name(name):
        return []
    must = "1 to 64 of A-Z a-z 0-9 . _ -, first a letter or digit; and no credential itself"
    return [f"name: must be {must}"]


def _value_problems(value: str) -> list[str]:
    """Say what is wrong with a value; it is in no message."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return ["value: must be text that UTF-8 can say"]
    if not 0 < size <= MAX_VALUE_BYTES:
        return [f"value: must be 1 to {MAX_VALUE_BYTES} bytes of UTF-8, and has {size}"]
    return ["value: must hold no NUL character"] if "\0" in value else []


class OwnSecrets:
    """The secrets of a data directory, for the owner of their key and without async."""

    def __init__(self, data_dir: Path, key: OuterKey | None, note: Note | None) -> None:
        self._data_dir = data_dir
        self._key = key
        self._note = note

    def __repr__(self) -> str:
        return f"OwnSecrets({str(self._data_dir)!r})"

    def __enter__(self) -> OwnSecrets:
        return self

    def __exit__(self, *_: object) -> None:
        self._key = None

    def get(self, name: str) -> str:
        """Return a secret; raise KeyError if there is none of that name. It is an event."""
        if not (self._data_dir / FILE_NAME).exists():
            raise StoreUnavailable(f"{self._data_dir} has no secrets: there is no {FILE_NAME}")
        with ThreadPoolExecutor(1) as apart:  # an event loop may be running here
            return apart.submit(lambda: asyncio.run(self._get(name))).result()

    async def _get(self, name: str) -> str:
        async with open_secrets(self._data_dir, key=self._key, note=self._note) as secrets:
            return await secrets.get(name, by="owner")


@asynccontextmanager
async def open_secrets(
    data_dir: Path,
    *,
    key: OuterKey | None = None,
    note: Note | None = None,
    records: Callable[[], Snapshot] = Snapshot,
    clock: Clock = SYSTEM_CLOCK,
) -> AsyncGenerator[Secrets, None]:
    """Return the secrets of a data directory, which is made if need be, private to its owner.

    Without ``key`` it is in the directory's key file, which the first secret makes. Without
    ``note`` what is done is written to the directory's ledger. Raise KeyUnusable or
    StoreUnavailable where the secrets cannot be opened; nothing is changed then.
    """
    refuse_open_folder(data_dir)
    await asyncio.to_thread(data_dir.mkdir, mode=0o700, parents=True, exist_ok=True)
    keys = Keys(KeyFile(data_dir / KEY_NAME), key)
    store = await SqliteSecretStore(data_dir / FILE_NAME).open()
    try:
        secrets = Secrets(
            store, keys, note=note or _noting_in(data_dir), records=records, clock=clock
        )
        await secrets.start()
        yield secrets
    finally:
        await store.close()


def _noting_in(data_dir: Path) -> Note:
    async def note(act: Act) -> None:
        from bascule.audit.direct import note_directly  # noqa: PLC0415 - a served one has a ledger

        await note_directly(data_dir, act)

    return note
