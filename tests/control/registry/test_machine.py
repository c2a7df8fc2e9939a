"""Registry, watch and a following cache against a small model, in any order of events."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bascule.control.registry.errors import Compacted, Conflict, NotFound
from bascule.control.registry.plan import Edit
from bascule.control.registry.service import RegistryService, Settings
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import Change, Event, Retention, Store, View
from bascule.model.kinds import Kind
from bascule.model.server import ServerRecord
from bascule.model.task import TaskRecord
from bascule.testing.clock import FakeClock
from tests.control.registry.build import BY, server
from tests.control.registry.conftest import postgres, postgres_store
from tests.control.registry.memory_store import MemoryStore
from tests.postgres.databases import database
from tests.scale import scaled
from tests.waits import SOON_SECONDS

T = TypeVar("T")
KEYS: list[tuple[Kind, str]] = [("server", "a"), ("server", "b"), ("task", "a")]
keys = st.sampled_from(KEYS)
words = st.sampled_from(["", "x", "y"])
SETTINGS = Settings(ring=3, retention=Retention(changes=4))


def plain(key: tuple[Kind, str], word: str) -> dict[str, Any]:
    if key[0] == "server":
        return server(key[1], display_name=word)
    return {"task_id": key[1], "name": word}


class Follower:
    """A node's cache: lists once, then follows; lists anew when told that it is too late."""

    def __init__(self) -> None:
        self.view: View | None = None
        self.events: AsyncGenerator[Event, None] | None = None

    async def connect(self, service: RegistryService) -> None:
        if self.events is None:
            self.view = self.view or service.view
            try:
                self.events = await service.watch(self.view.revision)
            except Compacted as error:
                self.too_late(service, error.floor)
                self.events = await service.watch(self.view.revision)

    def too_late(self, service: RegistryService, floor: int) -> None:
        assert self.view is not None
        assert self.view.revision < floor
        self.view = service.view

    async def hang_up(self) -> None:
        if self.events is not None:
            await self.events.aclose()
            self.events = None

    async def take(self, service: RegistryService, most: int) -> None:
        """Take some of what is waiting, each the revision after the last."""
        for _ in range(most):
            await self.connect(service)
            assert self.view is not None
            assert self.events is not None
            if self.view.revision == service.view.revision:
                return
            try:
                event = await anext(self.events)
            except Compacted as error:
                self.too_late(service, error.floor)
                self.events = None
                continue
            if isinstance(event, Change):
                assert event.revision == self.view.revision + 1
                self.view = self.view.after(event)


class RegistryMachine(RuleBasedStateMachine):
    """The model: what each object says, the revision that said it, and the state at each."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        self.now: dict[tuple[Kind, str], tuple[str, int]] = {}
        self.past: list[dict[tuple[Kind, str], str]] = [{}]
        self.floor = 0
        self.followers = [Follower(), Follower()]
        self.store = self.run(self.open_store())
        self.service = self.run(self.serve())
        self.store_id = self.service.view.store_id

    async def open_store(self) -> Store:
        return MemoryStore(clock=self.clock)

    async def serve(self) -> RegistryService:
        return RegistryService(
            self.store, await self.store.view(), clock=self.clock, settings=SETTINGS
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(SOON_SECONDS):
                return await work

        return self.runner.run(bounded())

    def teardown(self) -> None:
        self.run(self.store.close())
        self.runner.close()

    def moved(self, edits: dict[tuple[Kind, str], str | None]) -> None:
        """Move the model: one revision for all that differs, none if nothing does."""
        said = {key: word for key, (word, _) in self.now.items()}
        wanted = {**said, **edits}
        kept = {key: word for key, word in wanted.items() if word is not None}
        if kept != said:
            revision = len(self.past)
            self.past.append(kept)
            for key in edits:
                if key not in kept:
                    self.now.pop(key, None)
                elif kept[key] != said.get(key):
                    self.now[key] = (kept[key], revision)

    @rule(key=keys, word=words)
    def put(self, key: tuple[Kind, str], word: str) -> None:
        self.run(self.service.put(*key, plain(key, word), BY))
        self.moved({key: word})

    @rule(key=keys, word=words, expected=st.integers(0, 6))
    def put_expecting(self, key: tuple[Kind, str], word: str, expected: int) -> None:
        current = self.now.get(key, ("", 0))[1]
        try:
            self.run(self.service.put(*key, plain(key, word), BY, expected_revision=expected))
        except Conflict as error:
            found = error.current
        else:
            found = expected
            self.moved({key: word})
        assert found == current

    @rule(key=keys)
    def delete(self, key: tuple[Kind, str]) -> None:
        try:
            self.run(self.service.delete(*key, BY))
        except NotFound:
            assert key not in self.now
        else:
            assert key in self.now
            self.moved({key: None})

    @rule(edits=st.dictionaries(keys, words, min_size=1))
    def apply(self, edits: dict[tuple[Kind, str], str]) -> None:
        many = [Edit(kind=key[0], key=key[1], data=plain(key, word)) for key, word in edits.items()]
        self.run(self.service.apply(many, BY))
        self.moved(dict(edits))

    @rule(back=st.integers(0, 8))
    def rollback(self, back: int) -> None:
        revision = max(0, len(self.past) - 1 - back)
        try:
            self.run(self.service.rollback(revision, BY))
        except Compacted:
            assert revision < self.floor
        else:
            assert revision >= self.floor
            self.moved({key: self.past[revision].get(key) for key in KEYS})

    @rule()
    def compact(self) -> None:
        self.floor = max(self.floor, len(self.past) - 1 - SETTINGS.retention.changes)
        assert self.run(self.service.compact()) == self.floor

    @rule(which=st.integers(0, 1), most=st.integers(1, 9))
    def take(self, which: int, most: int) -> None:
        self.run(self.followers[which].take(self.service, most))

    @rule(which=st.integers(0, 1))
    def hang_up(self, which: int) -> None:
        self.run(self.followers[which].hang_up())

    @rule()
    def restart(self) -> None:
        """Serve the same store anew: the ring is lost, the followers know nothing of it."""
        for follower in self.followers:
            self.run(follower.hang_up())
        self.service.close()
        self.service = self.run(self.serve())

    @invariant()
    def the_registry_is_what_the_model_says(self) -> None:
        view = self.service.view
        assert (view.store_id, view.revision) == (self.store_id, len(self.past) - 1)
        assert {k: (said(s.record), s.revision) for k, s in view.objects.items()} == self.now
        assert self.run(self.store.view()) == view

    @invariant()
    def a_follower_never_sees_what_never_was(self) -> None:
        for follower in self.followers:
            if follower.view is not None:
                seen = {key: said(s.record) for key, s in follower.view.objects.items()}
                assert seen == self.past[follower.view.revision]

    @precondition(lambda self: len(self.past) > 1)
    @rule(which=st.integers(0, 1))
    def catch_up(self, which: int) -> None:
        self.run(self.followers[which].take(self.service, 100))
        assert self.followers[which].view == self.service.view


def said(record: object) -> str:
    if isinstance(record, ServerRecord):
        return record.display_name
    assert isinstance(record, TaskRecord)
    return record.name


class SqliteMachine(RegistryMachine):
    """The same over a file, which is closed and opened in between."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        super().__init__()

    async def open_store(self) -> Store:
        path = self.folder / "registry.db"
        return await SqliteStore(path, clock=self.clock, synchronous="OFF").open()

    @rule()
    def reopen(self) -> None:
        for follower in self.followers:
            self.run(follower.hang_up())
        self.run(self.store.close())
        self.store = self.run(self.open_store())
        self.service = self.run(self.serve())

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


_EMPTY = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"


class PostgresMachine(RegistryMachine):
    """The same over a database, which is emptied at first, and left and opened in between."""

    dsn: ClassVar[str]

    def __init__(self) -> None:
        self.opened = AsyncExitStack()
        super().__init__()

    async def open_store(self) -> Store:
        async with postgres(self.dsn) as bare:
            await bare.write(
                lambda c: c.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            )
        return await self.opened.enter_async_context(postgres_store(self.dsn, self.clock))

    @rule()
    def reopen(self) -> None:
        for follower in self.followers:
            self.run(follower.hang_up())
        again = self.opened.enter_async_context(postgres_store(self.dsn, self.clock))
        self.store = self.run(again)
        self.service = self.run(self.serve())

    def teardown(self) -> None:
        self.run(self.opened.aclose())
        super().teardown()


TestOverMemory = RegistryMachine.TestCase
TestOverMemory.settings = settings(max_examples=scaled(600), stateful_step_count=40)
TestOverSqlite = SqliteMachine.TestCase
TestOverSqlite.settings = settings(max_examples=scaled(200), stateful_step_count=25)


class TestOverPostgres(PostgresMachine.TestCase):
    settings = settings(max_examples=scaled(100), stateful_step_count=25)
    runner: asyncio.Runner
    database: AbstractAsyncContextManager[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.runner, cls.database = asyncio.Runner(), database()
        PostgresMachine.dsn = cls.runner.run(cls.database.__aenter__())

    @classmethod
    def tearDownClass(cls) -> None:
        cls.runner.run(cls.database.__aexit__(None, None, None))
        cls.runner.close()
