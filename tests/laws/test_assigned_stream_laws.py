"""The law of an assigned node's stream: it has exactly its part, at every place it is told of."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.client.followed import Bookmark, Bounds, FollowReader
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Bookmark as Idle
from bascule.control.registry.store import Event, Store, Write
from bascule.control.rpc.node_records import NodeRecords, Telling
from bascule.model.assignment import ALL, Assignment
from bascule.model.snapshot import Position, Snapshot, SnapshotChange
from bascule.policy.share import Shares
from bascule.wire.pb import node_pb2 as pb
from tests.control.registry.build import BY, gone, write
from tests.control.registry.memory_store import MemoryStore
from tests.scale import scaled

SERVERS, TASKS, LABELS = ("a", "b", "c"), ("t", "u"), ("x", "y")


def some(names: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), max_size=2, unique=True)


def _task(key: str, servers: list[str], profile: str | None, group: str | None) -> Write:
    more = {} if profile is None else {"profile": profile}
    groups = {} if group is None else {"allowed_groups": [group]}
    policy = {"enabled": True, "default_server_ids": servers, **more, **groups}
    return write(key, kind="task", task_id=key, mcp=policy)


def _user(key: str, groups: list[str]) -> Write:
    return write(key, kind="user", user_id=key, groups=groups)


WRITES: st.SearchStrategy[Write] = st.one_of(
    st.builds(
        lambda key, tags, word: write(key, tags=tags, display_name=word),
        st.sampled_from(SERVERS),
        some(LABELS),
        st.sampled_from(["", "v"]),
    ),
    st.builds(
        _task,
        st.sampled_from(TASKS),
        some(SERVERS),
        st.none() | st.just("p"),
        st.none() | st.just("g"),
    ),
    st.builds(_user, st.sampled_from(("alice", "bob")), some(("g", "h"))),
    st.just(write("p", kind="profile", name="p", allowed_server_ids=["a", "b"])),
    st.just(write("m", kind="backend", name="m")),
    st.sampled_from(SERVERS).map(gone),
    st.sampled_from(TASKS).map(lambda key: gone(key, kind="task")),
    st.just(gone("p", kind="profile")),
)
ASSIGNMENTS = st.just(ALL) | st.builds(
    lambda tasks, labels: Assignment(
        tasks=None if tasks is None else tuple(tasks),
        labels=None if labels is None else tuple(labels),
    ),
    st.none() | some(TASKS),
    st.none() | some(LABELS),
)
Step: TypeAlias = list[Write] | Assignment | str
STEPS = st.lists(
    st.lists(WRITES, min_size=1, max_size=3, unique_by=lambda one: one.key)
    | ASSIGNMENTS
    | st.sampled_from(["read", "come back", "read"]),
    max_size=12,
)


class Node:
    """A node that keeps what its stream says, and checks all of it."""

    def __init__(self, service: RegistryService, store: Store) -> None:
        self._service = service
        self._store = store
        self._records = NodeRecords(service)
        self._telling: Telling | None = None
        self.known: Snapshot | None = None
        #: What it was assigned before.
        self.past: list[Assignment] = []

    async def come(self) -> None:
        """Open a stream, with what it has already."""
        await self.leave()
        known = self.known
        since = None if known is None else Position(known.store_id, known.revision, known.mark)
        part = "" if known is None else known.part
        self._telling = await self._records.begun("n", since, part)
        await self._hear(self._telling.first)

    async def leave(self) -> None:
        if self._telling is not None:
            await self._telling.events.aclose()

    async def read(self) -> None:
        """Hear all there is to hear."""
        assert self._telling is not None
        event: Event | None = None
        while not isinstance(event, Idle):
            self._service.tick()
            event = await anext(self._telling.events)
            await self._hear(await self._telling.after(event))
        assert self.known is not None
        assert self.known.position == self._service.view.position
        assert self.known.part == self._service.assignments.of("n").part

    async def _hear(self, messages: tuple[bytes, ...]) -> None:
        reader = FollowReader("here", Bounds())
        for data in messages:
            said = reader.read(data)
            if isinstance(said, Snapshot):
                self.known = said
            elif isinstance(said, SnapshotChange):
                assert self.known is not None
                assert self.known.is_followed_by(said)
                self.known = self.known.after(said)
            else:
                assert isinstance(said, Bookmark)
                continue
            await self._check(data)

    async def _check(self, data: bytes) -> None:
        """Check that it has its part at this revision, and was sent nothing beyond that."""
        known = self.known
        assert known is not None
        whole = (await self._store.view(known.revision)).snapshot()
        assignment = next(one for one in self._assigned if one.part == known.part)
        share = Shares(whole).of(assignment)
        for kind in ("server", "task", "profile", "backend", "user"):
            found = {key: one for key, one in whole.items(kind).items() if share.serves(kind, key)}
            assert dict(known.items(kind)) == found
        message = pb.FollowResponse.FromString(data)
        for one in (*message.snapshot.records, *message.change.upserts):
            kind = one.WhichOneof("record")
            key = {"server": "server_id", "task": "task_id", "user": "user_id"}.get(kind, "name")
            assert share.serves(kind, getattr(getattr(one, kind), key))

    @property
    def _assigned(self) -> list[Assignment]:
        return [self._service.assignments.of("n"), ALL, *self.past]


async def follow(steps: list[Step]) -> None:
    store = MemoryStore()
    service = RegistryService(store, await store.view())
    node = Node(service, store)
    await node.come()
    for step in steps:
        if isinstance(step, Assignment):
            node.past.append(step.plain)
            await store.write([write(t, kind="task", task_id=t) for t in step.tasks or ()], BY)
            await service.assignments.assign("n", step, BY, at=0.0, note=None)
        elif isinstance(step, list):
            await store.write(step, BY)
        elif step == "read":
            await node.read()
        else:
            await node.come()
    await node.read()
    await node.leave()
    service.close()


@pytest.mark.requirement("registry:nodes:assigned-law")
@settings(max_examples=scaled(100))
@given(steps=STEPS)
def test_a_node_has_exactly_its_part_and_is_sent_nothing_of_the_rest(steps: list[Step]):
    async def law() -> None:
        async with asyncio.timeout(30):
            await follow(steps)

    asyncio.run(law())
