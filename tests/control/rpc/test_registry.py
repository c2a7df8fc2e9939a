"""The registry over gRPC: lists, watches and writes of every kind."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from bascule.control.registry.service import Settings
from bascule.control.registry.store import Retention
from bascule.control.rpc import registry
from bascule.model.kinds import Kind
from bascule.model.role import Role
from bascule.wire.pb import errors_pb2, records_pb2, registry_pb2
from tests.control.registry.build import BY, server
from tests.control.rpc.counter import RpcCounter, open_counter

READERS: list[Role] = ["admin", "operator", "approver", "viewer", "node"]
STATUS = grpc.StatusCode


async def written(counter: RpcCounter, *names: str, **fields: Any) -> int:
    """Write servers as one revision, and return that."""
    records = [("server", server(name, **fields)) for name in names]
    await counter.service.import_records(records, "upsert", BY)  # pyright: ignore[reportArgumentType] - the kind is a word
    return counter.service.view.revision


def ids(answer: Any) -> list[str]:
    return [one.server_id for one in answer.servers]


# --- lists


@pytest.mark.requirement("registry:grpc:list")
@pytest.mark.parametrize("role", READERS)
async def test_a_list_has_the_revision_and_every_server(counter: RpcCounter, role: Role):
    await written(counter, "fs", "jira")
    found = await counter.ask("ListMcpServers", role)
    view = counter.service.view
    assert (found.revision, found.store_id, found.mark) == (1, view.store_id, view.mark)
    assert ids(found) == ["fs", "jira"]
    assert found.servers[0].info.revision == 1


async def test_a_list_comes_in_pages(counter: RpcCounter):
    await written(counter, "a", "b", "c")
    first = await counter.ask("ListMcpServers", limit=2)
    assert (ids(first), first.next_cursor) == (["a", "b"], "b")
    second = await counter.ask("ListMcpServers", limit=2, cursor=first.next_cursor)
    assert (ids(second), second.next_cursor) == (["c"], "")
    refused = await counter.refusal("ListMcpServers", limit=0)
    assert (refused.status, refused.read(errors_pb2.Refusal).field) == (
        STATUS.INVALID_ARGUMENT,
        "limit",
    )


async def test_a_list_that_must_not_be_older_waits_or_is_refused(counter: RpcCounter):
    await written(counter, "a")
    assert (await counter.ask("ListMcpServers", at_least=1)).revision == 1
    refused = await counter.refusal("ListMcpServers", at_least=2)
    assert refused.status is STATUS.UNAVAILABLE


async def test_only_a_node_sees_literal_values(counter: RpcCounter):
    await written(counter, "a", stdio={"command": "x", "env": {"TOKEN": "s3cret"}})
    seen = {
        role: (await counter.ask("ListMcpServers", role)).servers[0].stdio.env["TOKEN"]
        for role in READERS
    }
    assert {role for role, value in seen.items() if value == "s3cret"} == {"node"}
    assert seen["admin"] == "***"


async def test_a_client_is_told_nothing(counter: RpcCounter):
    refused = await counter.refusal("ListMcpServers", "client")
    assert refused.status is STATUS.PERMISSION_DENIED
    assert refused.read(errors_pb2.Refusal).code == "forbidden"
    assert [(one.status, one.caller) for one in counter.turned_away] == [(403, "client")]


@pytest.mark.parametrize(
    ("kind", "one", "many", "data"),
    [
        ("task", "Task", "Tasks", {"task_id": "t", "name": "T"}),
        ("profile", "Profile", "Profiles", {"name": "p"}),
        ("backend", "Backend", "Backends", {"name": "b", "base_url": "https://b.example/v1"}),
        ("user", "User", "Users", {"user_id": "u@example.org"}),
    ],
)
async def test_other_kinds_are_written_listed_watched_and_deleted_alike(
    counter: RpcCounter, kind: Kind, one: str, many: str, data: dict[str, Any]
):
    wrote = await counter.ask(f"Upsert{one}", "admin", **{kind: data})
    assert (wrote.revision, wrote.changed) == (1, True)
    [found] = getattr(await counter.ask(f"List{many}"), f"{kind}s")
    key, name = next(iter(data.items()))
    assert getattr(found, key) == name
    watch = counter.watch(f"Watch{many}", since_revision=0)
    assert list((await watch.next()).upserts) == [name]
    assert (await counter.ask(f"Delete{one}", "admin", **{key: name})).revision == 2
    assert list((await watch.next()).deletes) == [name]


async def test_the_platform_is_read_before_it_is_written(counter: RpcCounter):
    assert (await counter.ask("GetPlatform")).revision == 0
    platform = records_pb2.PlatformRecord(tool_denylist=["rm*"])
    await counter.ask("UpsertPlatform", platform=platform)
    assert list((await counter.ask("GetPlatform")).platform.tool_denylist) == ["rm*"]
    watch = counter.watch("WatchPlatform", since_revision=0, include_objects=True)
    assert list((await watch.next()).platform[0].tool_denylist) == ["rm*"]


# --- writes


@pytest.mark.requirement("registry:grpc:write-admin")
@pytest.mark.parametrize("role", ["approver", "viewer", "node", "client", None])
async def test_who_neither_administers_nor_operates_writes_nothing(
    counter: RpcCounter, role: Role | None
):
    await written(counter, "a")
    upsert = await counter.refusal("UpsertMcpServer", role, server=stdio("b"))
    delete = await counter.refusal("DeleteMcpServer", role, server_id="a")
    wanted = STATUS.UNAUTHENTICATED if role is None else STATUS.PERMISSION_DENIED
    assert (upsert.status, delete.status) == (wanted, wanted)
    assert counter.service.view.revision == 1


def stdio(name: str, **fields: Any) -> records_pb2.McpServerRecord:
    return records_pb2.McpServerRecord(
        server_id=name, transport="stdio", stdio={"command": "x"}, **fields
    )


async def test_a_write_says_what_it_did_and_holds_to_what_was_expected(counter: RpcCounter):
    first = await counter.ask("UpsertMcpServer", server=stdio("a"), expected_revision=0)
    assert (first.revision, first.changed, first.server.server_id) == (1, True, "a")
    same = await counter.ask("UpsertMcpServer", server=stdio("a"))
    assert (same.revision, same.changed) == (1, False)
    refused = await counter.refusal("UpsertMcpServer", server=stdio("a"), expected_revision=0)
    assert refused.status is STATUS.ABORTED
    refused = await counter.refusal("DeleteMcpServer", server_id="a", expected_revision=7)
    assert refused.status is STATUS.ABORTED
    refused = await counter.refusal("DeleteMcpServer", server_id="b")
    assert refused.status is STATUS.NOT_FOUND
    assert (await counter.ask("DeleteMcpServer", server_id="a", expected_revision=1)).revision == 2


async def test_a_masked_value_that_comes_back_keeps_what_it_masked(counter: RpcCounter):
    await written(counter, "a", stdio={"command": "x", "env": {"TOKEN": "s3cret"}})
    [shown] = (await counter.ask("ListMcpServers")).servers
    shown.display_name = "A"
    await counter.ask("UpsertMcpServer", server=shown)
    [found] = (await counter.ask("ListMcpServers", "node")).servers
    assert (found.display_name, found.stdio.env["TOKEN"]) == ("A", "s3cret")


async def test_a_field_that_is_not_known_is_refused_by_its_path(counter: RpcCounter):
    newer = stdio("a").SerializeToString() + bytes([0x9A, 0x3F, 0x01, 0x78])  # field 1011
    request = registry_pb2.UpsertMcpServerRequest()
    request.server.MergeFromString(newer)
    refused = await counter.refusal("UpsertMcpServer", server=request.server)
    assert refused.status is STATUS.INVALID_ARGUMENT
    assert refused.read(errors_pb2.Refusal).problems == ["1011: unknown field"]
    assert counter.service.view.revision == 0


async def test_a_record_that_says_nothing_is_refused_by_the_field(counter: RpcCounter):
    for fields, field in ({}, "server"), ({"server": {}}, "server.server_id"):
        refused = await counter.refusal("UpsertMcpServer", "admin", **fields)
        assert refused.status is STATUS.INVALID_ARGUMENT
        assert refused.read(errors_pb2.Refusal).field == field
    refused = await counter.refusal("UpsertMcpServer", server=stdio("a", tool_namespace="?"))
    [problem] = refused.read(errors_pb2.Refusal).problems
    assert problem.startswith("tool_namespace")


# --- watches


@pytest.mark.requirement("registry:grpc:watch")
async def test_a_watch_tells_ids_alone_unless_records_are_asked_for(counter: RpcCounter):
    light = counter.watch("WatchMcpServers", since_revision=0)
    whole = counter.watch("WatchMcpServers", "node", since_revision=0, include_objects=True)
    masked = counter.watch("WatchMcpServers", since_revision=0, include_objects=True)
    await written(counter, "fs", "jira", stdio={"command": "x", "env": {"TOKEN": "s3cret"}})
    event = await light.next()
    assert (event.revision, list(event.upserts), ids(event)) == (1, ["fs", "jira"], [])
    assert [one.stdio.env["TOKEN"] for one in (await whole.next()).servers] == ["s3cret"] * 2
    assert [one.stdio.env["TOKEN"] for one in (await masked.next()).servers] == ["***"] * 2
    await counter.ask("DeleteMcpServer", server_id="jira")
    event = await light.next()
    assert (event.revision, list(event.deletes), event.mark) == (
        2,
        ["jira"],
        counter.service.view.mark,
    )


async def test_a_watch_without_a_revision_begins_now_and_has_bookmarks(counter: RpcCounter):
    await written(counter, "a")
    watch = counter.watch("WatchMcpServers")
    await watch.begun()
    await written(counter, "b")
    event = await watch.next()
    assert (event.revision, list(event.upserts), event.bookmark) == (2, ["b"], False)
    await counter.clock.advance(10)
    event = await watch.next()
    assert (event.revision, event.bookmark, event.store_id) == (
        2,
        True,
        counter.service.view.store_id,
    )


async def test_a_watch_may_begin_with_all_there_is(
    counter: RpcCounter, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(registry, "PART_BYTES", 40)
    await written(counter, "a", "b")
    watch = counter.watch("WatchMcpServers", send_initial=True, include_objects=True)
    parts = [await watch.next() for _ in range(3)]
    assert [ids(part) for part in parts] == [["a"], ["b"], []]
    assert [(part.initial, part.partial, part.bookmark) for part in parts] == [
        (True, True, False),
        (True, True, False),
        (True, False, True),
    ]
    await written(counter, "c", "d")
    parts = [await watch.next() for _ in range(2)]
    assert [(ids(part), part.partial) for part in parts] == [(["c"], True), (["d"], False)]
    refused = counter.watch("WatchMcpServers", send_initial=True, since_revision=1)
    assert (await refused.refusal()).read(errors_pb2.Refusal).field == "since_revision"


@pytest.mark.requirement("registry:grpc:watch-too-old")
async def test_a_watch_from_below_the_floor_is_told_the_floor():
    settings = Settings(ring=2, retention=Retention(changes=2))
    async with open_counter(settings=settings) as counter:
        for number in range(5):
            await written(counter, f"s{number}")
        floor = await counter.service.compact()
        refused = await counter.watch("WatchMcpServers", since_revision=1).refusal()
        assert refused.status is STATUS.FAILED_PRECONDITION
        assert refused.read(errors_pb2.BelowFloor).compacted_revision == floor > 1


async def test_a_position_of_another_store_or_of_the_future_is_told_which(counter: RpcCounter):
    await written(counter, "a")
    other = await counter.watch("WatchMcpServers", since_revision=1, store_id="other").refusal()
    assert other.status is STATUS.FAILED_PRECONDITION
    assert other.read(errors_pb2.StoreChanged).case == "another_store"
    ahead = await counter.watch("WatchMcpServers", since_revision=9).refusal()
    assert ahead.status is STATUS.OUT_OF_RANGE
    assert ahead.read(errors_pb2.AheadOfHead).head == 1


async def test_a_revoked_token_is_sent_nothing_more(counter: RpcCounter):
    watch = counter.watch("WatchMcpServers", since_revision=0)
    await written(counter, "a")
    assert (await watch.next()).revision == 1
    [viewer] = [one for one in await counter.tokens.records() if one.role == "viewer"]
    await counter.tokens.revoke(viewer.id)
    await written(counter, "b")
    assert (await watch.refusal()).status is STATUS.UNAUTHENTICATED
