"""A node is told of what it is assigned, on its stream, and of nothing else."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from bascule.model.assignment import ALL, Assignment
from tests.control.registry.build import BY
from tests.control.rpc.counter import RpcCounter, Watched
from tests.control.rpc.test_nodes import said

STATUS = grpc.StatusCode
BILLING = Assignment(tasks=("billing",))


async def put(counter: RpcCounter, *records: tuple[str, dict[str, Any]]) -> None:
    """Write records as one revision."""
    await counter.service.import_records(records, "upsert", BY)  # pyright: ignore[reportArgumentType] - kinds are words


def server(name: str, *tags: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    plain = {"server_id": name, "transport": "stdio", "stdio": {"command": "x"}}
    return "server", {**plain, "tags": [*tags], "allowed_tools": ["*"], **fields}


def task(name: str, *servers: str, **policy: Any) -> tuple[str, dict[str, Any]]:
    mcp = {"enabled": True, "default_server_ids": [*servers], **policy}
    return "task", {"task_id": name, "mcp": mcp}


async def assign(counter: RpcCounter, assignment: Assignment) -> None:
    service = counter.service
    await service.assignments.assign("node", assignment, BY, at=counter.clock.now(), note=None)
    service.tick()


async def furnish(counter: RpcCounter) -> None:
    """Write two tasks with a server each and one that both have."""
    await put(
        counter,
        server("ledger", "dmz"),
        server("desk"),
        server("shared", "dmz"),
        task("billing", "ledger", "shared", profile="careful"),
        task("support", "desk", "shared", allowed_groups=["agents"]),
        ("profile", {"name": "careful", "allowed_server_ids": ["ledger", "shared"]}),
        ("profile", {"name": "other"}),
        ("user", {"user_id": "alice", "groups": ["agents"]}),
        ("user", {"user_id": "bob"}),
        ("backend", {"name": "models", "base_url": "https://models.example/v1"}),
    )


def keys(records: Any) -> set[str]:
    names = {"server": "server_id", "task": "task_id", "user": "user_id"}
    found: set[str] = set()
    for one in records:
        kind = one.WhichOneof("record")
        key = "" if kind == "platform" else getattr(getattr(one, kind), names.get(kind, "name"))
        found.add(f"{kind} {key}")
    return found


async def begun(counter: RpcCounter, **fields: Any) -> tuple[Watched, Any]:
    """Return a stream and the snapshot that it began with."""
    stream = counter.follow(**fields)
    _, _, snapshot = await said(stream, "welcome", "tokens", "snapshot")
    return stream, snapshot


_BILLING = {
    *("task billing", "server ledger", "server shared", "profile careful"),
    *("user alice", "user bob", "backend models"),
}


@pytest.mark.requirement("registry:nodes:assigned-part")
async def test_a_node_is_sent_the_records_and_tokens_of_its_tasks_and_no_others(
    counter: RpcCounter,
):
    await furnish(counter)
    await counter.tokens.mint("till", "client", task_id="billing")
    await counter.tokens.mint("phone", "client", task_id="support")
    await assign(counter, BILLING)
    stream = counter.follow()
    welcome, tokens, snapshot = await said(stream, "welcome", "tokens", "snapshot")
    assert [*welcome.assignment.tasks.values] == ["billing"]
    assert not welcome.assignment.HasField("labels")
    assert keys(snapshot.records) == _BILLING
    assert [one.name for one in tokens.upserts] == ["viewer", "till"]


@pytest.mark.requirement("registry:nodes:assigned-part")
async def test_labels_leave_the_servers_with_one_of_these_tags(counter: RpcCounter):
    await furnish(counter)
    await assign(counter, Assignment(labels=("dmz",)))
    _, snapshot = await begun(counter)
    servers = {one for one in keys(snapshot.records) if one.startswith(("server", "task"))}
    assert servers == {"server ledger", "server shared", "task billing", "task support"}
    await assign(counter, Assignment(tasks=("support",), labels=("dmz",)))
    _, snapshot = await begun(counter)
    found = keys(snapshot.records)
    assert {one for one in found if one.startswith("server")} == {"server shared"}
    assert {one for one in found if one.startswith("user")} == {"user alice"}


@pytest.mark.requirement("registry:nodes:assigned-part")
async def test_a_change_elsewhere_says_nothing_but_where_the_registry_is(counter: RpcCounter):
    await furnish(counter)
    await assign(counter, BILLING)
    stream, snapshot = await begun(counter)
    await put(counter, server("desk", "new", stdio={"command": "s3cret"}))
    [change] = await said(stream, "change")
    assert not change.upserts
    assert not change.deletes
    assert (change.since, change.position.revision) == (snapshot.position.revision, 2)
    await put(counter, server("ledger", "dmz", display_name="L"), server("desk"))
    [change] = await said(stream, "change")
    assert keys(change.upserts) == {"server ledger"}
    await counter.clock.advance(10)
    [bookmark] = await said(stream, "bookmark")
    assert bookmark.revision == 3


@pytest.mark.requirement("registry:nodes:assigned-part")
async def test_what_comes_into_reach_is_sent_and_what_leaves_it_is_taken_away(counter: RpcCounter):
    await furnish(counter)
    await assign(counter, BILLING)
    stream, _ = await begun(counter)
    await put(counter, task("billing", "desk"))
    [change] = await said(stream, "change")
    assert keys(change.upserts) == {"task billing", "server desk"}
    deleted = {f"{one.kind} {one.key}" for one in change.deletes}
    assert deleted == {"server ledger", "server shared", "profile careful"}


@pytest.mark.requirement("registry:nodes:reassigned-at-once")
async def test_another_assignment_reaches_a_node_on_its_stream_at_once(counter: RpcCounter):
    await furnish(counter)
    await counter.tokens.mint("till", "client", task_id="billing")
    stream, _ = await begun(counter)
    await assign(counter, BILLING)
    kinds = "welcome", "tokens", "bookmark", "change"
    welcome, tokens, _, change = await said(stream, *kinds)
    assert [*welcome.assignment.tasks.values] == ["billing"]
    assert [one.name for one in tokens.upserts] == ["viewer", "till"]
    assert (change.since, change.position.revision, change.part) == (1, 1, BILLING.part)
    deleted = {f"{one.kind} {one.key}" for one in change.deletes}
    assert deleted == {"server desk", "task support", "profile other"}
    await assign(counter, ALL)
    welcome, tokens, change = await said(stream, "welcome", "tokens", "change")
    assert not welcome.assignment.HasField("tasks")
    assert keys(change.upserts) == {"server desk", "task support", "profile other"}
    assert (change.since, change.part) == (1, "")
    await put(counter, server("desk", "new"))
    [change] = await said(stream, "change")
    assert keys(change.upserts) == {"server desk"}


@pytest.mark.requirement("registry:nodes:assigned-part")
async def test_a_node_that_comes_back_is_sent_what_it_lacks_of_its_part(counter: RpcCounter):
    await furnish(counter)
    await assign(counter, BILLING)
    _, snapshot = await begun(counter)
    at = snapshot.position
    place: dict[str, Any] = {"since_revision": 1, "store_id": at.store_id, "mark": at.mark}
    await said(counter.follow(**place, part=snapshot.part), "welcome", "tokens", "bookmark")
    await put(counter, server("ledger", "dmz", display_name="L"), server("desk"))
    back = counter.follow(**place, part=snapshot.part)
    *_, change, _ = await said(back, "welcome", "tokens", "change", "bookmark")
    assert keys(change.upserts) == {"server ledger"}
    # Whoever had another part begins anew.
    _, snapshot = await begun(counter, **place)
    assert keys(snapshot.records) == _BILLING
    await assign(counter, ALL)
    _, snapshot = await begun(counter, **place, part=BILLING.part)
    assert (snapshot.part, len(keys(snapshot.records))) == ("", 10)


@pytest.mark.requirement("registry:nodes:assigned-part")
async def test_a_node_with_a_part_reads_no_more_by_other_methods(counter: RpcCounter):
    await furnish(counter)
    await assign(counter, BILLING)
    refused = await counter.refusal("ListMcpServers", "node")
    assert refused.status is STATUS.PERMISSION_DENIED
    assert "assigned tasks billing" in refused.words
    watch = await counter.watch("WatchTasks", "node").refusal()
    assert watch.status is STATUS.PERMISSION_DENIED
    assert (await counter.ask("GetPlatform", "node")).revision == 1
    await assign(counter, ALL)
    assert len((await counter.ask("ListMcpServers", "node")).servers) == 3
