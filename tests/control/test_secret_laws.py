"""Laws of secrets: a changed row never opens, a new key keeps every value, and a plain model."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from bascule.audit.ledger import MemoryLedger
from bascule.auth.encryption import NotOpened
from bascule.control.envelope import (
    Envelope,
    OuterKey,
    Place,
    new_key,
    rewrap,
    seal,
    unseal,
)
from bascule.control.secret_store import FILE_NAME
from bascule.control.secrets import Secrets, open_secrets
from bascule.errors import SecretUnbound, SecretUnreadable
from bascule.model.secret_use import SecretUse, UserKind
from tests.control.keeping_secrets import Files, House, Shared
from tests.postgres.databases import database
from tests.scale import scaled

names = st.sampled_from(["a", "b", "c"])
values = st.text(
    st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), min_size=1, max_size=40
)
kinds: st.SearchStrategy[UserKind] = st.sampled_from(["server", "backend"])
uses = st.builds(SecretUse, kinds, st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]))
places = st.builds(Place, names, st.integers(0, 9), names, st.integers(1, 9))
keys = st.builds(OuterKey, st.binary(min_size=32, max_size=32))


@given(keys, places, values)
def test_an_envelope_opens_in_its_place(key: OuterKey, place: Place, value: str):
    assert unseal(key, place, seal(key, place, value)) == value


@given(keys, keys, places, values, st.integers(0, 9))
def test_wrapping_again_keeps_the_value_and_leaves_it_sealed(
    old: OuterKey, new: OuterKey, place: Place, value: str, epoch: int
):
    envelope = seal(old, place, value)
    after = replace(place, epoch=epoch)
    again = rewrap(old, new, (place, after), envelope.wrapped)
    assert unseal(new, after, Envelope(again, envelope.sealed)) == value
    if (old.id, place) != (new.id, after):
        with pytest.raises(NotOpened):
            unseal(old, place, Envelope(again, envelope.sealed))


@given(keys, places, values, places)
def test_an_envelope_opens_in_no_other_place(key: OuterKey, place: Place, value: str, other: Place):
    envelope = seal(key, place, value)
    for elsewhere in (
        other,
        replace(place, store_id=other.store_id),
        replace(place, epoch=other.epoch),
        replace(place, name=other.name),
        replace(place, version=other.version),
    ):
        if elsewhere != place:
            with pytest.raises(NotOpened):
                unseal(key, elsewhere, envelope)
    with pytest.raises(NotOpened):
        unseal(new_key(), place, envelope)


@given(keys, places, values, st.data())
def test_a_changed_shortened_or_mixed_envelope_does_not_open(
    key: OuterKey, place: Place, value: str, data: st.DataObject
):
    envelope = seal(key, place, value)
    other = seal(key, place, value)
    for field in ("wrapped", "sealed"):
        whole: bytes = getattr(envelope, field)
        at = data.draw(st.integers(0, len(whole) - 1))
        changed = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
        for wrong in (changed, whole[:at], whole + b"\0", getattr(other, field)):
            with pytest.raises(NotOpened):
                unseal(key, place, replace(envelope, **{field: wrong}))


#: What an intruder with the file and without the key may write into a column.
COLUMNS = {
    "secrets": ("name", "version", "wrapped", "sealed"),
    "meta": ("store_id", "epoch"),
    "bindings": ("name", "kind", "id", "digest", "signature"),
}


@settings(max_examples=scaled(300), deadline=None)
@given(st.data())
def test_a_store_edited_without_its_key_gives_nobody_more_than_before(data: st.DataObject):
    with TemporaryDirectory() as folder:
        asyncio.run(_edited(Path(folder), data))


async def _edited(folder: Path, data: st.DataObject) -> None:
    bound = {"a": SecretUse("server", "x", "1"), "b": SecretUse("server", "y", "2")}
    async with open_secrets(folder, note=MemoryLedger().note) as secrets:
        for name, use in bound.items():
            await secrets.set(name, f"value of {name}", by="ada", bind=[use])
    _edit(folder, data)
    async with open_secrets(folder, note=MemoryLedger().note) as secrets:
        for name in "abc":
            for use in (*bound.values(), SecretUse("server", "x", "2")):
                with suppress(KeyError, SecretUnbound, SecretUnreadable):
                    assert await secrets.secret(name, use) == f"value of {name}"
                    assert bound[name] == use


def _edit(folder: Path, data: st.DataObject) -> None:
    table = data.draw(st.sampled_from(sorted(COLUMNS)))
    column = data.draw(st.sampled_from(COLUMNS[table]))
    other = data.draw(st.sampled_from(["swap", "other"]))
    with closing(sqlite3.connect(folder / FILE_NAME, isolation_level=None)) as connection:
        found: list[Any] = connection.execute(f"SELECT {column} FROM {table}").fetchall()  # noqa: S608 - constants
        olds = [row[0] for row in found]
        new = olds[::-1] if other == "swap" and len(olds) > 1 else [_another(old) for old in olds]
        with suppress(sqlite3.IntegrityError):
            for old, value in zip(olds, new, strict=True):
                connection.execute(
                    f"UPDATE {table} SET {column} = ? WHERE {column} = ?",  # noqa: S608 - constants
                    (value, old),
                )
                if other == "swap":
                    break


def _another(old: Any) -> Any:
    if isinstance(old, bytes):
        return bytes([old[0] ^ 1]) + old[1:]
    return old + 1 if isinstance(old, int) else {"x": "y", "1": "2", "a": "c"}.get(old, f"{old}x")


class AnyOrder(RuleBasedStateMachine):
    """Set, bind, unbind, remove and new keys, in any order, from two processes on one store."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.both = self.runner.run(self.open())
        self.values: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.bound: dict[tuple[str, UserKind, str], str] = {}

    async def house(self) -> House:
        return Files()

    async def open(self) -> list[Secrets]:
        house, folder = await self.house(), Path(self.folder.name)
        return [await self.stack.enter_async_context(house.opened(folder)) for _ in range(2)]

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()
        self.folder.cleanup()

    @rule(who=st.integers(0, 1), name=names, value=values, bind=st.lists(uses, max_size=2))
    def set(self, who: int, name: str, value: str, bind: list[SecretUse]) -> None:
        version = self.runner.run(self.both[who].set(name, value, by="ada", bind=bind))
        self.versions[name] = self.versions.get(name, 0) + 1
        assert version == self.versions[name]
        self.values[name] = value
        self.bound.update({(name, use.kind, use.id): use.digest for use in bind})

    @rule(who=st.integers(0, 1), name=names, use=uses)
    def bind(self, who: int, name: str, use: SecretUse) -> None:
        if self._is_known(name, self.both[who].bind(name, use, by="ada")):
            self.bound[name, use.kind, use.id] = use.digest

    @rule(who=st.integers(0, 1), name=names, use=uses)
    def unbind(self, who: int, name: str, use: SecretUse) -> None:
        if self._is_known(name, self.both[who].unbind(name, use.kind, use.id, by="ada")):
            self.bound.pop((name, use.kind, use.id), None)

    @rule(who=st.integers(0, 1), name=names)
    def remove(self, who: int, name: str) -> None:
        if self._is_known(name, self.both[who].remove(name, by="ada")):
            del self.values[name]
            self.bound = {key: digest for key, digest in self.bound.items() if key[0] != name}

    @rule(who=st.integers(0, 1))
    def rekey(self, who: int) -> None:
        self.runner.run(self.both[who].rekey(by="ada"))

    @rule(who=st.integers(0, 1), name=names, use=uses)
    def resolve(self, who: int, name: str, use: SecretUse) -> None:
        work = self.both[who].secret(name, use)
        if self.bound.get((name, use.kind, use.id)) == use.digest:
            assert self.runner.run(work) == self.values[name]
        else:
            with pytest.raises(SecretUnbound if name in self.values else KeyError):
                self.runner.run(work)

    @invariant()
    def both_list_the_same(self) -> None:
        for secrets in self.both:
            listed = self.runner.run(secrets.listing())
            assert {one.name: one.version for one in listed} == {
                name: self.versions[name] for name in self.values
            }
            bound = {(one.name, b.kind, b.id) for one in listed for b in one.bound}
            assert bound == set(self.bound)

    def _is_known(self, name: str, work: Any) -> bool:
        if name in self.values:
            self.runner.run(work)
            return True
        with pytest.raises(KeyError):
            self.runner.run(work)
        return False


AnyOrder.TestCase.settings = settings(
    max_examples=scaled(100), stateful_step_count=20, deadline=None
)
TestAnyOrder = AnyOrder.TestCase


class AnyOrderShared(AnyOrder):
    """The same on one database, by two who have the same key file."""

    async def house(self) -> House:
        return Shared(await self.stack.enter_async_context(database()), follow=False)


AnyOrderShared.TestCase.settings = settings(
    max_examples=scaled(50), stateful_step_count=20, deadline=None
)
TestAnyOrderShared = AnyOrderShared.TestCase
