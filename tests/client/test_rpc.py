"""A registry followed over gRPC: its writes, its tokens, its end, and whatever else it may send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from bascule.asgi.serve import Tls
from bascule.auth.node_tokens import NodeTokens, taken
from bascule.auth.tokens import Tokens
from bascule.client import rpc
from bascule.client.followed import Bounds
from bascule.client.http import ApiError, Unreachable
from bascule.client.rpc import MAX_MESSAGE_BYTES, NeedsTls, RpcAccess, RpcSource
from bascule.clock import SYSTEM_CLOCK
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.rpc.guard import RpcGuard
from bascule.control.rpc.nodes import NodeRpc
from bascule.control.rpc.port import RpcPort
from bascule.control.rpc.registry import RegistryRpc
from bascule.model.snapshot import Snapshot
from bascule.model.status import ServerStatus
from bascule.node.changes import Changes
from bascule.node.sync.follower import Follower, SyncSettings
from bascule.wire.pb import node_pb2 as pb
from tests.asgi.caller import make_tokens
from tests.control.registry.build import BY, server
from tests.control.registry.memory_store import MemoryStore
from tests.grpc_ends import grpc_ends as grpc_ends
from tests.outbound.authority import Authority
from tests.waits import SOON_SECONDS, until

QUICK = SyncSettings(poll_seconds=0.2, backoff_seconds=0.01, backoff_limit_seconds=0.05)
STATUS = ServerStatus(server_id="fs", state="connected", tool_count=2)


class Node(Changes):
    """A ``FollowingNode``."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    async def apply(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def statuses(self) -> tuple[ServerStatus, ...]:
        return (STATUS,)


class Plane:
    """A registry with its tokens; its port may end and open again."""

    def __init__(self, service: RegistryService, tokens: Tokens, token: str) -> None:
        self.service = service
        self.tokens = tokens
        self.token = token
        self.nodes: NodeRpc
        self.port = 0
        self._served = AsyncExitStack()

    async def serve(self, tls: Tls | None = None) -> None:
        enter = self._served.enter_async_context
        self.nodes = await enter(NodeRpc(self.service, self.tokens, SYSTEM_CLOCK))
        services = [RegistryRpc(self.service).service(), self.nodes.service()]
        guard = RpcGuard(self.tokens, SYSTEM_CLOCK)
        self.port = (await enter(RpcPort(services, guard, port=self.port, tls=tls))).port

    async def end(self) -> None:
        await self._served.aclose()

    async def write(self, name: str, **fields: Any) -> None:
        await self.service.put("server", name, server(name, **fields), BY)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def source(self, **options: Any) -> RpcSource:
        return RpcSource(self.target, RpcAccess(token=self.token), **options)


@asynccontextmanager
async def plane_of(tls: Tls | None = None) -> AsyncGenerator[Plane, None]:
    tokens = make_tokens(SYSTEM_CLOCK)
    async with open_registry(MemoryStore(clock=SYSTEM_CLOCK)) as service:
        plane = Plane(service, tokens, (await tokens.mint("n", "node")).token)
        await plane.serve(tls)
        try:
            yield plane
        finally:
            await plane.end()


@pytest.fixture(autouse=True)
async def ends(grpc_ends: None) -> None:
    """Leave no call under way."""


@pytest.fixture
async def plane() -> AsyncGenerator[Plane, None]:
    async with plane_of() as opened:
        yield opened


@asynccontextmanager
async def following(
    source: RpcSource, known: Snapshot | None = None
) -> AsyncGenerator[tuple[Node, Follower], None]:
    node = Node(await source.snapshot() if known is None else known)
    follower = Follower(source, node, settings=QUICK)
    task = asyncio.create_task(follower.run())
    try:
        yield node, follower
    finally:
        task.cancel()
        await asyncio.wait([task])


# --- following


async def test_a_node_follows_writes_and_reports(plane: Plane):
    await plane.write("fs")
    async with plane.source() as source, following(source) as (node, follower):
        await plane.write("jira", stdio={"command": "x", "env": {"TOKEN": "s3cret"}})
        await until(lambda: node.snapshot == plane.service.snapshot())
        assert node.snapshot.servers["jira"].stdio.env["TOKEN"] == "s3cret"  # pyright: ignore[reportOptionalMemberAccess] - it has one
        await plane.service.delete("server", "fs", BY)
        await until(lambda: node.snapshot == plane.service.snapshot())
        await until(lambda: follower.state == "ok")
        await until(lambda: [one.node for one in plane.service.standing.nodes()] == ["n"])
        [report] = plane.service.standing.nodes()
        assert report.servers[0].tool_count == STATUS.tool_count
    await until(lambda: not plane.nodes.streams)


async def test_a_node_that_leaves_is_forgotten(plane: Plane):
    async with plane.source() as source:
        await source.leave()
        async with following(source):
            await until(lambda: [one.node for one in plane.service.standing.nodes()] == ["n"])
        await source.leave()
        assert plane.service.standing.nodes() == ()


async def test_a_node_goes_on_alone_and_comes_back_where_it_was(plane: Plane):
    await plane.write("fs")
    async with plane.source() as source, following(source) as (node, follower):
        had = node.snapshot
        await plane.end()
        await until(lambda: follower.state == "degraded")
        await plane.write("jira")
        assert node.snapshot is had
        await until(lambda: f"{plane.target}: the registry cannot be" in (follower.problem or ""))
        await plane.serve()
        await until(lambda: node.snapshot == plane.service.snapshot())
        await until(lambda: follower.state == "ok")
        assert node.snapshot.servers["fs"] is had.servers["fs"]  # it was told what is new alone


async def test_who_asks_is_told_the_newest_and_only_what_is_new(plane: Plane):
    await plane.write("a")
    async with plane.source() as source:
        known = await source.snapshot()
        assert await source.snapshot(known) is known
        await plane.write("b")
        await plane.write("c")
        found = await source.snapshot(known)
        assert found == plane.service.snapshot()
        assert found.servers["a"] is known.servers["a"]
        assert source.welcome is None
        async with aclosing(await source.watch(found)) as changes:
            await plane.write("d")
            async with asyncio.timeout(SOON_SECONDS):
                change = await anext(changes)
            assert [*change.records] == [("server", "d")]
        async with aclosing(await source.watch(known)) as changes:
            async with asyncio.timeout(SOON_SECONDS):
                assert [(await anext(changes)).revision for _ in range(3)] == [2, 3, 4]


async def test_a_position_below_the_floor_leads_to_the_whole(plane: Plane):
    for name in "abc":
        await plane.write(name)
    known = await plane.service.snapshot_at(1)
    async with plane.source(bounds=Bounds(items=6)) as source:
        assert await source.snapshot(known) == plane.service.snapshot()
    async with plane.source() as source:
        older = Snapshot(store_id="another", revision=1, mark="ab")
        assert await source.snapshot(older) == plane.service.snapshot()


@pytest.mark.requirement("sync:doubt-once")
async def test_a_registry_that_is_doubted_is_sent_once_while_it_stays_as_it_is(plane: Plane):
    await plane.write("a")
    older = Snapshot(store_id="another", revision=1, mark="ab")
    async with plane.source() as source:
        found = await source.snapshot(older)
        assert await source.snapshot(older) is found
        await plane.write("b")
        newer = await source.snapshot(older)
        assert newer == plane.service.snapshot()
        await plane.service.announce("another", BY)
        announced = await source.snapshot(older)
        assert (newer.predecessor, announced.predecessor) == ("", "another")


async def test_catching_up_waits_for_what_the_registry_has(plane: Plane):
    await plane.write("a")
    async with plane.source() as source, following(source) as (node, follower):
        await until(lambda: follower.state == "ok" and source.welcome is not None)
        for number in range(5):
            await plane.write(f"b{number}")
            await follower.catch_up()
            assert node.snapshot.revision == plane.service.view.revision
        assert len(plane.nodes.streams) == 1


# --- tokens


@pytest.mark.requirement("registry:grpc:follow-tokens")
async def test_tokens_and_their_end_reach_a_node(plane: Plane):
    minted = await plane.tokens.mint("c", "client", task_id="t")
    known = NodeTokens()
    source = plane.source(on_tokens=lambda tokens, keys: known.take(*taken(tokens, keys)))
    async with source, following(source):
        await until(lambda: known.recall(minted.token.encode()))
        another = await plane.tokens.mint("d", "client", task_id="u")
        await until(lambda: known.recall(another.token.encode()))
        principal = known.recall(minted.token.encode())
        assert principal == await plane.tokens.verify(minted.token)
        assert known.recall(plane.token.encode()) is None
        assert known.key_for("cursor") == plane.tokens.key_for("cursor")
        await plane.tokens.revoke(minted.record.id)
        await until(lambda: known.recall(minted.token.encode()) is None)
        assert known.recall(another.token.encode()) is not None


async def test_a_registry_that_is_not_followed_brings_no_tokens(plane: Plane):
    given: list[object] = []
    async with plane.source(on_tokens=lambda *told: given.append(told)) as source:
        found = await source.snapshot()
        assert (given, source.welcome) == ([], None)
        async with aclosing(await source.watch(found)) as changes:
            await plane.write("a")
            async with asyncio.timeout(SOON_SECONDS):
                await anext(changes)
        assert len(given) == 1
        assert source.welcome is not None
        assert (source.welcome.node, source.welcome.tasks) == ("n", None)


async def test_a_node_whose_token_ended_is_told_so(plane: Plane):
    async with plane.source() as source, following(source) as (_, follower):
        [own] = await plane.tokens.records()
        await plane.tokens.revoke(own.id)
        await until(lambda: "refuses the token of this node" in (follower.problem or ""))
        with pytest.raises(ApiError) as refused:
            await source.snapshot()
        assert refused.value.code == "unauthenticated"


async def test_a_second_process_is_told_of_the_first(plane: Plane):
    async with plane.source() as first, following(first), plane.source() as second:
        with pytest.raises(ApiError, match="another process follows") as refused:
            await second.snapshot()
        assert refused.value.code == "already_exists"


# --- the way there


async def test_a_registry_that_is_not_there_is_named(plane: Plane):
    await plane.end()
    async with plane.source() as source:
        with pytest.raises(Unreachable, match=plane.target):
            await source.snapshot()


async def test_a_registry_elsewhere_is_reached_with_tls_alone():
    for target in "registry.example:7071", "10.0.0.1:7071", "[2001:db8::1]:7071":
        async with RpcSource(target, RpcAccess(token="t")) as source:
            with pytest.raises(NeedsTls, match="certificate authority"):
                await source.snapshot()


async def test_a_registry_with_tls_knows_a_node_by_its_certificate(tmp_path: Path):
    authority = Authority(tmp_path)
    certificate = authority.issue("server", "127.0.0.1")
    tls = Tls(certificate=certificate, key=certificate, client_ca=authority.ca)
    async with plane_of(tls) as plane:
        own = Path(authority.issue("own", "spiffe://bascule/node/n"))
        access = RpcAccess(token=plane.token, ca=Path(authority.ca), certificate=own)
        async with RpcSource(plane.target, access) as source:
            assert await source.snapshot() == plane.service.snapshot()
        async with plane.source() as source:
            with pytest.raises(Unreachable):
                await source.snapshot()
        gone = RpcAccess(token=plane.token, ca=tmp_path / "gone")
        async with RpcSource(plane.target, gone) as source:
            with pytest.raises(Unreachable, match="gone: cannot be read"):
                await source.snapshot()


# --- whatever it sends


WELCOME = pb.FollowResponse(welcome=pb.Welcome(node="n", bookmark_ms=10_000)).SerializeToString()


def part(*records: pb.Record, partial: bool = False, revision: int = 9) -> bytes:
    position = pb.Position(store_id="s", revision=revision, mark="ab")
    said = pb.SnapshotPart(position=position, records=records, partial=partial)
    return pb.FollowResponse(snapshot=said).SerializeToString()


def record(name: str) -> pb.Record:
    return pb.Record(server={"server_id": name, "transport": "stdio", "stdio": {"command": "x"}})


@asynccontextmanager
async def sending(messages: Iterable[bytes]) -> AsyncGenerator[str, None]:
    """Serve a stream of any bytes to whoever follows; give the address."""

    async def follow(request: bytes, context: Any) -> AsyncIterator[bytes]:
        del request, context
        for message in messages:
            yield message

    behaviour: Any = follow
    handler = grpc.method_handlers_generic_handler(
        rpc.SERVICE, {"Follow": grpc.unary_stream_rpc_method_handler(behaviour)}
    )
    sender = aio.server()
    sender.add_generic_rpc_handlers((handler,))
    port = sender.add_insecure_port("127.0.0.1:0")
    await sender.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await sender.stop(None)


class After:
    """A message, and then another without an end."""

    def __init__(self, first: bytes, others: bytes) -> None:
        self._first, self._others = first, others

    def __iter__(self) -> Iterator[bytes]:
        return chain([self._first], repeat(self._others))


MANY = [record(f"s{number}") for number in range(200)]
NO_RECORD = pb.Record(server={"server_id": "?"})
TOKEN = pb.ClientToken(id="a", name="a", role="client", digest=b"d")
BAD: dict[str, tuple[Iterable[bytes], str]] = {
    "no message": ([b"\xff\xff"], "cannot be read"),
    "no welcome": ([part()], "is this Bascule"),
    "no record": ([WELCOME, part(NO_RECORD)], "server_id"),
    "an end": ([WELCOME, part(record("a"), partial=True)], "before all was said"),
    "too many records": (
        [WELCOME, part(*MANY)],
        "more than",
    ),
    "endless parts": (After(WELCOME, part(record("a"), partial=True)), "more than"),
    "endless nothing": (After(WELCOME, part(partial=True)), "more than"),
    "an endless message": ([WELCOME, bytes(MAX_MESSAGE_BYTES + 1)], "larger than"),
    "too many tokens": (
        [
            WELCOME,
            pb.FollowResponse(tokens={"upserts": [TOKEN] * 200}).SerializeToString(),
        ],
        "more than",
    ),
}


@pytest.mark.requirement("sync:bounded")
@pytest.mark.parametrize("case", BAD)
async def test_what_a_registry_sends_is_bounded_and_what_there_was_stays(case: str):
    messages, words = BAD[case]
    access = RpcAccess(token="t")
    known = Snapshot(store_id="s", revision=8, mark="cd")
    async with sending(messages) as target:
        source = RpcSource(target, access, bounds=Bounds(items=100))
        async with source:
            with pytest.raises(Exception, match=words):
                await source.snapshot()
        source = RpcSource(target, access, bounds=Bounds(items=100))
        async with source, following(source, known) as (node, follower):
            await until(lambda: words in (follower.problem or ""))
            assert (node.snapshot, follower.state) == (known, "degraded")


@pytest.mark.requirement("sync:bounded")
async def test_the_bytes_of_a_snapshot_are_bounded():
    large = record("a")
    large.server.stdio.env["A"] = "x" * 10_000
    async with sending([WELCOME, *[part(large, partial=True)] * 11, part()]) as target:
        source = RpcSource(target, RpcAccess(token="t"), bounds=Bounds(size=100_000))
        async with source:
            with pytest.raises(Unreachable, match="100000 bytes"):
                await source.snapshot()


async def test_what_a_newer_registry_says_besides_is_left_aside():
    newer = bytes([0x9A, 0x3F, 0x01, 0x78])  # field 1011
    said = pb.FollowResponse.FromString(part(record("a"), pb.Record.FromString(newer)))
    said.snapshot.records[0].server.MergeFromString(newer)
    token = pb.ClientToken(id="b", name="b", role="warden", digest=b"d")
    tokens = pb.FollowResponse(tokens={"whole": True, "upserts": [TOKEN, token]})
    messages = [WELCOME, newer, tokens.SerializeToString(), said.SerializeToString()]
    given: list[Any] = []
    async with sending(messages) as target:
        source = RpcSource(target, RpcAccess(token="t"), on_tokens=lambda *one: given.append(one))
        async with source:
            found = await source.snapshot()
            assert [*found.servers] == ["a"]
            changes = await source.watch(found)
            assert [one async for one in changes] == []
    [(known, _)] = given
    assert [one.id for one in known] == ["a"]
