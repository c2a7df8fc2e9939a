"""The stream of a node: what it begins with, what it is told, and when it ends."""

from __future__ import annotations

import logging
from typing import Any

import grpc
import pytest

from bascule.auth.keys import derived
from bascule.control.registry.service import Settings
from bascule.control.registry.store import Retention
from bascule.control.rpc import told
from bascule.model.role import Role
from bascule.wire.pb import errors_pb2
from tests.asgi.caller import KEY
from tests.control.rpc.counter import RpcCounter, Watched, open_counter
from tests.control.rpc.test_registry import written
from tests.waits import until

STATUS = grpc.StatusCode


async def said(stream: Watched, *wanted: str) -> list[Any]:
    """Return the next messages of a stream, which are of these kinds."""
    found = [await stream.next() for _ in wanted]
    assert [one.WhichOneof("said") for one in found] == [*wanted]
    return [getattr(one, kind) for one, kind in zip(found, wanted, strict=True)]


def ids(records: Any) -> list[str]:
    return [one.server.server_id for one in records]


async def followed(counter: RpcCounter, **fields: Any) -> Watched:
    """Return a stream whose beginning was read."""
    stream = counter.follow(**fields)
    await said(stream, "welcome", "tokens", "snapshot")
    return stream


@pytest.mark.requirement("registry:grpc:follow")
async def test_a_stream_begins_with_welcome_tokens_and_everything(counter: RpcCounter):
    await written(counter, "fs", stdio={"command": "x", "env": {"TOKEN": "s3cret"}})
    welcome, tokens, snapshot = await said(counter.follow(), "welcome", "tokens", "snapshot")
    assert (welcome.node, welcome.bookmark_ms) == ("node", 10_000)
    assert not welcome.assignment.HasField("tasks")
    assert dict(welcome.keys) == {
        "token-digest": derived(KEY, "token-digest"),
        "mcp-session": derived(KEY, "mcp-session"),
        "cursor": derived(KEY, "cursor"),
    }
    assert [(one.name, one.task_id) for one in tokens.upserts] == [("viewer", ""), ("client", "t")]
    assert (tokens.whole, tokens.partial, bool(tokens.version)) == (True, False, True)
    view = counter.service.view
    assert (snapshot.position.revision, snapshot.position.mark) == (1, view.mark)
    assert snapshot.records[0].server.stdio.env["TOKEN"] == "s3cret"


@pytest.mark.parametrize("role", ["admin", "operator", "approver", "viewer", "client", None])
async def test_only_a_node_follows(counter: RpcCounter, role: Role | None):
    refused = await counter.follow(role).refusal()
    wanted = STATUS.UNAUTHENTICATED if role is None else STATUS.PERMISSION_DENIED
    assert refused.status is wanted
    assert len(counter.nodes.streams) == 0


async def test_a_stream_goes_on_with_every_change(counter: RpcCounter):
    stream = await followed(counter)
    await written(counter, "fs", "jira", stdio={"command": "x", "env": {"TOKEN": "s3cret"}})
    [change] = await said(stream, "change")
    assert (change.position.revision, ids(change.upserts)) == (1, ["fs", "jira"])
    assert change.upserts[0].server.stdio.env["TOKEN"] == "s3cret"
    await counter.ask("DeleteMcpServer", server_id="jira")
    [change] = await said(stream, "change")
    assert [(one.kind, one.key) for one in change.deletes] == [("server", "jira")]
    await counter.clock.advance(10)
    [bookmark] = await said(stream, "bookmark")
    assert (bookmark.revision, bookmark.mark) == (2, counter.service.view.mark)


@pytest.mark.requirement("registry:grpc:follow")
async def test_a_stream_from_a_position_has_what_came_since_and_says_when_that_is_all(
    counter: RpcCounter,
):
    await written(counter, "a")
    at = counter.service.view.position
    place: dict[str, Any] = {"since_revision": 1, "store_id": at.store_id, "mark": at.mark}
    await said(counter.follow(**place), "welcome", "tokens", "bookmark")
    await written(counter, "b")
    await written(counter, "c")
    kinds = "welcome", "tokens", "change", "change", "bookmark"
    *_, first, second, bookmark = await said(counter.follow(**place), *kinds)
    assert [ids(one.upserts) for one in (first, second)] == [["b"], ["c"]]
    assert (bookmark.store_id, bookmark.revision) == (at.store_id, 3)


async def test_tokens_at_hand_are_not_sent_again(counter: RpcCounter):
    _, tokens, _ = await said(counter.follow(), "welcome", "tokens", "snapshot")
    await said(counter.follow(tokens_version=tokens.version), "welcome", "snapshot")


async def test_what_is_long_comes_in_parts(counter: RpcCounter, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(told, "PART_BYTES", 40)
    await written(counter, "a", "b")
    stream = counter.follow()
    kinds = "welcome", "tokens", "tokens", "snapshot", "snapshot"
    _, *parts = await said(stream, *kinds)
    assert [part.partial for part in parts] == [True, False, True, False]
    assert [part.whole for part in parts[:2]] == [True, False]
    assert [ids(part.records) for part in parts[2:]] == [["a"], ["b"]]
    await written(counter, "c", "d")
    parts = await said(stream, "change", "change")
    assert [(ids(part.upserts), part.partial) for part in parts] == [(["c"], True), (["d"], False)]


async def test_a_position_that_cannot_be_followed_is_told_why():
    settings = Settings(ring=2, retention=Retention(changes=2))
    async with open_counter(settings=settings) as counter:
        for number in range(5):
            await written(counter, f"s{number}")
        floor = await counter.service.compact()
        old = await counter.follow(since_revision=1).refusal()
        assert old.status is STATUS.FAILED_PRECONDITION
        assert old.read(errors_pb2.BelowFloor).compacted_revision == floor > 1
        other = await counter.follow(since_revision=5, store_id="other").refusal()
        assert other.status is STATUS.FAILED_PRECONDITION
        assert other.read(errors_pb2.StoreChanged).case == "another_store"
        mark: dict[str, Any] = {"store_id": counter.service.view.store_id, "mark": "ab"}
        parted = await counter.follow(since_revision=5, **mark).refusal()
        assert parted.status is STATUS.FAILED_PRECONDITION
        assert parted.read(errors_pb2.StoreChanged).case == "other_copy"
        assert len(counter.nodes.streams) == 0


@pytest.mark.requirement("registry:grpc:follow-tokens")
async def test_tokens_that_are_made_and_revoked_are_told_within_a_second(counter: RpcCounter):
    stream = await followed(counter)
    minted = await counter.tokens.mint("another", "client", task_id="t")
    await counter.clock.advance(1)
    tokens, _ = await said(stream, "tokens", "bookmark")
    assert [one.name for one in tokens.upserts] == ["viewer", "client", "another"]
    assert tokens.upserts[2].digest == minted.record.digest
    await counter.tokens.revoke(minted.record.id)
    await counter.clock.advance(1)
    tokens, _ = await said(stream, "tokens", "bookmark")
    assert [one.name for one in tokens.upserts] == ["viewer", "client"]


@pytest.mark.requirement("registry:grpc:follow-tokens")
async def test_a_node_whose_own_token_is_revoked_is_sent_nothing_more(counter: RpcCounter):
    stream = await followed(counter)
    [own] = [one for one in await counter.tokens.records() if one.role == "node"]
    await counter.tokens.revoke(own.id)
    await counter.clock.advance(1)
    assert (await stream.refusal()).status is STATUS.UNAUTHENTICATED
    await until(lambda: not counter.nodes.streams)


@pytest.mark.requirement("registry:grpc:follow-one-process")
async def test_a_second_process_of_one_name_is_refused_and_said(
    counter: RpcCounter, caplog: pytest.LogCaptureFixture
):
    first = await followed(counter, process="one")
    with caplog.at_level(logging.WARNING, "bascule.nodes"):
        for _ in range(2):
            refused = await counter.follow(process="two").refusal()
            assert refused.status is STATUS.ALREADY_EXISTS
    [line] = caplog.messages
    assert "another process follows as node 'node'" in line
    assert counter.service.standing.doubled == {"node": counter.clock.now()}
    assert [*counter.nodes.streams] == ["node"]
    first.call.cancel()
    await until(lambda: not counter.nodes.streams)
    await followed(counter, process="two")


@pytest.mark.requirement("registry:grpc:follow-one-process")
async def test_a_process_that_comes_back_takes_the_place_of_its_own_stream(counter: RpcCounter):
    first = await followed(counter)
    second = await followed(counter)
    await written(counter, "a")
    assert (await first.refusal()).status is STATUS.UNAVAILABLE
    await said(second, "change")
    assert [*counter.nodes.streams] == ["node"]


@pytest.mark.requirement("registry:grpc:follow-one-process")
async def test_workers_of_a_node_have_identities_of_their_own(counter: RpcCounter):
    for number in ("1", "2"):
        stream = counter.follow(worker=number, process=number)
        [welcome, *_] = await said(stream, "welcome", "tokens", "snapshot")
        assert welcome.node == f"node/{number}"
    assert sorted(counter.nodes.streams) == ["node/1", "node/2"]
    refused = await counter.follow(worker="2", process="another").refusal()
    assert refused.status is STATUS.ALREADY_EXISTS
    assert counter.service.standing.doubled == {"node/2": counter.clock.now()}


@pytest.mark.parametrize("worker", ["0", "65", "-1", "1.0", "one", "", "1000"])
async def test_a_worker_that_is_none_is_refused_by_name(counter: RpcCounter, worker: str):
    refused = await counter.follow(worker=worker).refusal()
    assert refused.status is STATUS.INVALID_ARGUMENT
    assert refused.read(errors_pb2.Refusal).field == "bascule-worker"


async def test_the_own_node_of_a_control_plane_is_not_followed_for(counter: RpcCounter):
    counter.service.standing.own.add("node")
    assert (await counter.follow().refusal()).status is STATUS.PERMISSION_DENIED
    refused = await counter.refusal("Report", "node", state="ok")
    assert refused.status is STATUS.PERMISSION_DENIED


async def test_a_process_needs_a_name(counter: RpcCounter):
    refused = await counter.follow(process="").refusal()
    assert refused.read(errors_pb2.Refusal).field == "process"


# --- reports


@pytest.mark.requirement("registry:node-lost")
async def test_nodes_are_noted_while_they_follow_and_lost_soon_after(counter: RpcCounter):
    standing, clock = counter.service.standing, counter.clock
    stream = await followed(counter)
    await counter.ask("Report", "node", state="ok")
    await clock.advance(100)
    [node] = standing.nodes()
    assert (standing.silence_of(node), clock.now() - node.at) == (None, 0)
    stream.call.cancel()
    await until(lambda: not counter.nodes.streams)
    await clock.advance(16)
    assert standing.silence_of(standing.nodes()[0]) == "lost"


@pytest.mark.requirement("registry:node-lost")
async def test_a_node_is_no_longer_silent_once_it_follows(counter: RpcCounter):
    standing, clock = counter.service.standing, counter.clock
    await counter.ask("Report", "node", state="ok")
    await clock.advance(100)
    assert standing.states() == {"silent": 1}
    await followed(counter)
    assert standing.states() == {"ok": 1}


@pytest.mark.requirement("registry:grpc:node")
@pytest.mark.requirement("registry:grpc:report")
async def test_a_node_reports_under_the_name_of_its_token(counter: RpcCounter):
    await written(counter, "fs")
    servers = [{"server_id": "fs", "state": "connected", "tool_count": 3, "reconnects": 1}]
    said = {"state": "degraded", "reason": "another store\x1b[31m", "revision": 1}
    answer = await counter.ask("Report", "node", **said, servers=servers)
    assert answer.revision == 1
    [report] = counter.service.standing.nodes()
    assert report.reason is not None
    assert report.reason.startswith("another store")
    assert "\x1b" not in report.reason
    assert (report.node, report.state, report.revision) == ("node", "degraded", 1)
    assert (report.servers[0].tool_count, report.servers[0].reconnects) == (3, 1)
    await counter.ask("Report", "node", state="ended")
    assert counter.service.standing.nodes() == ()


@pytest.mark.requirement("registry:grpc:report")
async def test_a_report_is_judged_as_over_http(counter: RpcCounter):
    one = {"server_id": "fs", "state": "connected"}
    strange: list[dict[str, Any]] = [
        {"state": "well"},
        {"state": "ok", "servers": [one, one]},
        {"state": "ok", "servers": [{**one, "reconnects": -1}]},
        {"state": "ok", "servers": [one] * 2_001},
        {"state": "degraded", "reason": "x" * 501},
    ]
    for fields in strange:
        refused = await counter.refusal("Report", "node", **fields)
        assert refused.status is STATUS.INVALID_ARGUMENT
    refused = await counter.refusal("Report", "viewer", state="ok")
    assert refused.status is STATUS.PERMISSION_DENIED
    assert counter.service.standing.nodes() == ()
