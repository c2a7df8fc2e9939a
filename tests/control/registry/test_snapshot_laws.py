"""The law of following: changes applied one by one lead to the registry as it is read whole."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.app.local_node import LocalSource
from bascule.clock import SYSTEM_CLOCK
from bascule.control.registry.service import RegistryService
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import Store, View, Write
from bascule.model.kinds import KINDS, PLATFORM, Kind
from bascule.model.platform import PlatformRecord
from bascule.model.snapshot import Snapshot
from tests.control.registry.build import BY, PLAIN, gone, write
from tests.control.registry.memory_store import MemoryStore
from tests.scale import scaled

WORDS = st.sampled_from(["", "x", "y"])
FIELDS: dict[Kind, str] = {"server": "display_name", "task": "name"}


def made(kind: Kind, other: bool, word: str | None) -> Write:
    """Make a write of one of two records of a kind; the platform has one alone."""
    key = PLAIN[kind][0] + ("2" if other and kind != "platform" else "")
    if word is None:
        return gone(key, kind=kind)
    named = {} if kind == "platform" else {NAMES[kind]: key}
    said = {FIELDS[kind]: word} if kind in FIELDS else {}
    return write(key, kind=kind, **named, **said)


NAMES: dict[Kind, str] = {
    "server": "server_id",
    "task": "task_id",
    "profile": "name",
    "backend": "name",
    "user": "user_id",
}
WRITES = st.builds(made, st.sampled_from(KINDS), st.booleans(), st.none() | WORDS)
BATCHES = st.lists(
    st.lists(WRITES, min_size=1, max_size=4, unique_by=lambda one: one.key), max_size=6
)


@asynccontextmanager
async def opened(where: str) -> AsyncGenerator[Store, None]:
    if where == "memory":
        yield MemoryStore()
        return
    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteStore(Path(folder) / "registry.db", synchronous="OFF").open()
        try:
            yield store
        finally:
            await store.close()


def naive(view: View) -> dict[Kind, dict[str, object]]:
    found: dict[Kind, dict[str, object]] = {kind: {} for kind in KINDS}
    found["platform"] = {PLATFORM: PlatformRecord()}
    for (kind, key), stored in view.objects.items():
        found[kind][key] = stored.record
    return found


async def follow(store: Store, batches: list[list[Write]], early: int) -> None:
    """Write, and follow from the revision that ``early`` batches led to."""
    service = RegistryService(store, await store.view())
    source = LocalSource(service, SYSTEM_CLOCK)
    for batch in batches[:early]:
        await store.write(batch, BY)
    found = await source.snapshot()
    async with aclosing(await source.watch(found)) as changes:
        for batch in batches[early:]:
            await store.write(batch, BY)
        while found.revision < service.view.revision:
            change = await anext(changes)
            assert found.is_followed_by(change)
            found = found.after(change)
            check(found, await store.view(found.revision))
    check(found, await store.view())
    service.close()


def check(found: Snapshot, whole: View) -> None:
    assert found == whole.snapshot()
    assert {kind: dict(found.items(kind)) for kind in KINDS} == naive(whole)
    assert [list(found.items(kind)) for kind in KINDS] == [
        sorted(found.items(kind)) for kind in KINDS
    ]


@pytest.mark.requirement("registry:single-truth")
@pytest.mark.parametrize("where", ["memory", "sqlite"])
@settings(max_examples=scaled(50))
@given(batches=BATCHES, early=st.integers(0, 3))
def test_changes_applied_one_by_one_lead_to_what_is_read_whole(
    where: str, batches: list[list[Write]], early: int
):
    async def law() -> None:
        async with asyncio.timeout(10), opened(where) as store:
            await follow(store, batches, early)

    asyncio.run(law())
