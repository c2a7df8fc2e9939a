"""Calls through the gateway: how they are answered, told of, cancelled and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from bascule.audit.approvals import Approvals, MemoryStore
from bascule.audit.metrics import Metrics
from bascule.doors.gateway import calls
from bascule.model.call import LogMessage, Progress
from bascule.wire.era import LEGACY, META
from tests.doors.asking import decided
from tests.doors.door import ASKS
from tests.doors.gateway.stream_site import Peer, Site, Stream, serving
from tests.node.fakes import Doorman, Json, Sent, World, text
from tests.policy.build import server
from tests.waits import SOON_SECONDS, until

WRITER = {"enabled": True, "default_server_ids": ["fs"]}
WAITS = {
    "usual": WRITER,
    "hasty": {**WRITER, "approval_wait_ms": 0},
    "patient": {**WRITER, "approval_wait_ms": 60_000},
}
GENERATIONS = pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
READ, DELETE = "mcp__fs__read", "mcp__fs__delete"


@pytest.fixture
async def site() -> AsyncGenerator[Site, None]:
    async with serving(Site()) as found:
        yield found


@pytest.fixture
async def asking() -> AsyncGenerator[tuple[Site, Approvals], None]:
    """A gateway where deleting needs approval, with tasks that wait for it, or do not."""
    approvals = Approvals(MemoryStore())
    world = World(server("fs", approval_policy=ASKS), tasks=WAITS, approver=approvals)
    async with serving(Site(world.core)) as found:
        yield found, approvals
    await approvals.close()


async def begin(
    peer: Peer, name: str = READ, meta: Json | None = None, id: int | str = 1, **head: str
) -> asyncio.Task[Stream]:
    """Send a call, and return its answer to come."""
    params: Json = {"name": name, "arguments": {}}
    return asyncio.create_task(peer.post("tools/call", params, meta, id=id, also=head))


async def frames(stream: Stream) -> list[Json]:
    """Read an answer whole."""
    if stream.headers["content-type"] == "application/json":
        return [await stream.body()]
    found: list[Json] = []
    while (message := await stream.next()) is not None:
        found.append(message)
    return found


async def whole(peer: Peer, *words: Any, **more: Any) -> tuple[Stream, list[Json]]:
    async with asyncio.timeout(SOON_SECONDS):
        stream = await (await begin(peer, *words, **more))
        return stream, await frames(stream)


def steps(*numbers: float) -> Any:
    async def run(sent: Sent) -> Json:
        assert sent.on_progress is not None
        for number in numbers:
            sent.on_progress(Progress(number, 10, f"step {number}"))
        return text("done")

    return run


@GENERATIONS
@pytest.mark.requirement("gateway:json-first")
async def test_a_call_is_answered_with_json(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    stream, [message] = await whole(peer)
    assert (stream.status, stream.headers["content-type"]) == (200, "application/json")
    assert message["result"]["content"] == [{"type": "text", "text": "done"}]
    assert ("resultType" in message["result"]) == modern


@GENERATIONS
@pytest.mark.parametrize("token", [7, "7", "été", 0], ids=repr)
@pytest.mark.requirement("gateway:progress")
async def test_progress_comes_under_the_callers_own_token_in_order_before_the_result(
    site: Site, modern: bool, token: int | str
):
    site.world.caller.answers("read", steps(1, 2, 3))
    peer = await site.peer(modern=modern)
    stream, messages = await whole(peer, meta={"progressToken": token})
    assert stream.headers["content-type"] == "text/event-stream"
    *told, last = messages
    assert [one["params"] for one in told] == [
        {"progressToken": token, "progress": n, "total": 10, "message": f"step {n}"}
        for n in (1, 2, 3)
    ]
    assert last["id"] == 1


@GENERATIONS
@pytest.mark.requirement("gateway:progress")
async def test_progress_never_goes_back(site: Site, modern: bool):
    site.world.caller.answers("read", steps(1, 5, 5, 3, 6))
    _, messages = await whole(await site.peer(modern=modern), meta={"progressToken": 1})
    assert [one["params"]["progress"] for one in messages[:-1]] == [1, 5, 6]


@GENERATIONS
@pytest.mark.requirement("gateway:json-first")
async def test_whoever_takes_no_stream_gets_the_result_alone(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    peer.headers = {"Accept": "application/json"}
    stream, [message] = await whole(peer, meta={"progressToken": 1})
    assert stream.headers["content-type"] == "application/json"
    assert message["result"]["content"] == [{"type": "text", "text": "done"}]


@GENERATIONS
@pytest.mark.parametrize("token", [True, 1.5, [], {}], ids=repr)
async def test_a_progress_token_of_another_kind_is_refused(site: Site, modern: bool, token: Any):
    peer = await site.peer(modern=modern)
    _, [message] = await whole(peer, meta={"progressToken": token})
    assert message["error"]["code"] == -32602
    assert site.world.caller.sent == []


@GENERATIONS
@pytest.mark.requirement("gateway:json-first")
async def test_a_call_that_takes_long_becomes_a_stream(site: Site, modern: bool):
    guest = Doorman()
    site.world.caller.answers("read", guest)
    peer = await site.peer(modern=modern)
    sending = await begin(peer)
    door = await guest.next()
    stream = await sending  # its head comes while the call still runs
    assert stream.headers["content-type"] == "text/event-stream"
    door.set()
    [message] = await frames(stream)
    assert message["result"]["content"] == [{"type": "text", "text": "read"}]


@pytest.mark.requirement("gateway:cancel")
async def test_hanging_up_ends_a_modern_call(site: Site):
    guest = Doorman()
    site.world.caller.answers("read", guest)
    sending = await begin(await site.peer(modern=True), id="h")
    await guest.next()
    site.streams[-1].close()
    sending.cancel()
    await until(lambda: guest.inside == 0)
    assert site.world.ledger.last.status == "cancelled"


@pytest.mark.requirement("gateway:cancel")
async def test_hanging_up_does_not_end_a_legacy_call(site: Site):
    guest = Doorman()
    site.world.caller.answers("read", guest)
    peer = await site.peer(modern=False)
    sending = await begin(peer)
    door = await guest.next()
    site.streams[-1].close()
    sending.cancel()
    await peer.call("mcp__fs__write")  # what is sent later has been heard by now
    assert guest.inside == 1
    door.set()
    await until(lambda: site.world.ledger.last.tool_name == "read")
    assert site.world.ledger.last.status == "ok"


async def cancel(peer: Peer, id: Any) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
    assert (await peer.send("POST", note)).status == 202


@pytest.mark.requirement("gateway:cancel")
async def test_a_legacy_call_is_cancelled_by_its_session_and_no_other(site: Site):
    guest = Doorman()
    site.world.caller.answers("read", guest)
    alice, bob = await site.peer(modern=False), await site.peer(modern=False)
    again = await site.joined(Peer(site, alice.token))
    sending = await begin(alice, id=5)
    await guest.next()
    for stranger, id in [
        (bob, 5),
        (again, 5),
        (alice, "5"),
        (alice, 6),
        (alice, True),
        (alice, []),
    ]:
        await cancel(stranger, id)
    assert guest.inside == 1
    await cancel(alice, 5)
    await until(lambda: guest.inside == 0)
    async with asyncio.timeout(SOON_SECONDS):
        [message] = await frames(await sending)
    assert message["error"]["code"] == -32800
    assert site.world.ledger.last.status == "cancelled"
    assert (await alice.call(READ.replace("read", "write")))["result"]


async def test_deleting_a_session_ends_its_calls_and_no_others(site: Site):
    guest = Doorman()
    site.world.caller.answers("read", guest)
    alice = await site.peer(modern=False)
    again = await site.joined(Peer(site, alice.token))
    first, second = await begin(alice, id=5), await begin(again, id=5)
    await guest.next()
    door = await guest.next()
    assert (await alice.send("DELETE", None)).status == 204
    await until(lambda: guest.inside == 1)
    door.set()
    async with asyncio.timeout(SOON_SECONDS):
        await first
        assert "result" in (await frames(await second))[-1]


async def test_an_id_that_is_in_use_is_refused_within_a_session(site: Site):
    guest = Doorman()
    site.world.caller.answers("read", guest)
    peer = await site.peer(modern=False)
    sending = await begin(peer, id=5)
    door = await guest.next()
    _, [message] = await whole(peer, "mcp__fs__write", id=5)
    assert message["error"]["code"] == -32600
    door.set()
    assert "result" in (await frames(await sending))[-1]


@GENERATIONS
async def test_a_token_has_so_many_calls_under_way_and_no_more(
    site: Site, modern: bool, monkeypatch: pytest.MonkeyPatch
):
    site.gateway.calls = calls.Calls(max_per_token=1)
    guest = Doorman()
    site.world.caller.answers("read", guest)
    peer, other = await site.peer(modern=modern), await site.peer(modern=modern)
    sending = await begin(peer, id=1)
    door = await guest.next()
    stream, [message] = await whole(peer, "mcp__fs__write", id=2)
    assert (stream.status, message["error"]["data"]["code"]) == (429, "mcp_budget_exceeded")
    assert "result" in (await whole(other, "mcp__fs__write", id=2))[1][-1]
    door.set()
    await sending
    assert "result" in (await whole(peer, "mcp__fs__write", id=3))[1][-1]


@GENERATIONS
@pytest.mark.requirement("gateway:trace")
async def test_only_the_trace_of_a_callers_meta_goes_up(site: Site, modern: bool):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    peer = await site.peer(modern=modern)
    heard: list[Any] = []
    send = site.world.caller.send

    async def listening(call: Any) -> Json:
        heard.append(call.beside.trace)
        return await send(call)

    site.world.caller.send = listening
    await whole(peer, meta={"traceparent": trace, "tracestate": "a=b", "com.example/x": 1})
    await whole(peer, meta={"traceparent": "nonsense"}, id=2)
    assert heard == [{"traceparent": trace, "tracestate": "a=b"}, {}]


@pytest.mark.requirement("gateway:logs")
@GENERATIONS
async def test_logs_come_before_the_result_to_whoever_set_a_level(site: Site, modern: bool):
    async def logs(sent: Sent) -> Json:
        if (told := sent.beside.on_log) is not None:
            told(LogMessage("warning", {"left": 3}, "disk"))
            told(LogMessage("error", "full"))
        return text(str(sent.beside.log_level))

    site.world.caller.answers("read", logs)
    peer, other = await site.peer(modern=modern), await site.peer(modern=modern)
    wish = {META + "logLevel": "warning"} if modern else {}
    if not modern:
        await (await peer.request("logging/setLevel", level="warning")).body()
    *told, last = (await whole(peer, meta=wish))[1]
    assert [(one["method"], one["params"]) for one in told] == [
        ("notifications/message", {"level": "warning", "data": {"left": 3}, "logger": "disk"}),
        ("notifications/message", {"level": "error", "data": "full"}),
    ]
    assert last["result"]["content"][0]["text"] == "warning"
    [silent] = (await whole(other))[1]
    assert silent["result"]["content"][0]["text"] == "None"


@pytest.mark.requirement("gateway:approval")
@GENERATIONS
async def test_a_stream_waits_for_approval_by_itself_and_says_for_what(
    asking: tuple[Site, Approvals], modern: bool
):
    site, approvals = asking
    peer = await site.peer("usual", modern=modern)
    told = await (await begin(peer, DELETE, meta={"progressToken": "p"}))
    first = await told.next()
    question = await decided(approvals)
    assert first is not None
    assert f"waits for approval {question.id}" in first["params"]["message"]
    [done] = await frames(told)
    assert "isError" not in done["result"]
    sending = await begin(peer, DELETE, id=2)
    stream = await sending  # nobody asked for progress: a comment says it
    await stream.comment()
    await decided(approvals)
    assert "isError" not in (await frames(stream))[-1]["result"]


@pytest.mark.requirement("gateway:approval")
@GENERATIONS
@pytest.mark.parametrize(
    ("task", "accept", "waits"),
    [
        ("usual", "application/json", False),
        ("patient", "application/json", True),
        ("hasty", "application/json, text/event-stream", False),
    ],
)
async def test_a_task_says_how_long_its_calls_wait_for_approval(
    asking: tuple[Site, Approvals], modern: bool, task: str, accept: str, waits: bool
):
    site, approvals = asking
    peer = await site.peer(task, modern=modern)
    sending = await begin(peer, DELETE, Accept=accept)
    if waits:
        await decided(approvals)
    async with asyncio.timeout(SOON_SECONDS):
        [message] = await frames(await sending)
    said = message["result"].get("_meta", {}).get("bascule/error", {}).get("code")
    assert said == (None if waits else "mcp_approval_required")


@GENERATIONS
@pytest.mark.parametrize("streams", [False, True], ids=["json", "stream"])
@pytest.mark.requirement("gateway:revoked")
async def test_a_call_of_a_token_that_is_revoked_ends(site: Site, modern: bool, streams: bool):
    guest = Doorman()
    site.world.caller.answers("read", guest)
    peer = await site.peer(modern=modern)
    if not streams:
        peer.headers = {"Accept": "application/json"}
    sending = await begin(peer)
    await guest.next()
    stream = await sending if streams else None
    [record] = await site.tokens.records()
    await site.tokens.revoke(record.id)
    await site.sessions.sweep()
    await until(lambda: guest.inside == 0)
    async with asyncio.timeout(SOON_SECONDS):
        stream = stream or await sending
        [message] = await frames(stream)
    assert message["error"]["data"]["code"] == "unauthenticated"
    assert stream.status == (200 if streams else 401)
    assert (await peer.send("POST", {})).status == 401


@pytest.mark.parametrize(
    "capabilities",
    [
        {"x" * 5000: {}},
        {f"c{n}": {"y" * 50: {}} for n in range(500)},
        {"elicitation": {"form": {}}, "sampling": 5},
        [],
        None,
    ],
    ids=["long", "many", "usual", "a list", "null"],
)
async def test_a_session_opens_whatever_its_client_says_it_can(site: Site, capabilities: Any):
    token = (await site.tokens.mint("alice", "client", task_id="writer")).token
    peer = Peer(site, token)
    said: Json = {"protocolVersion": LEGACY[0], "capabilities": capabilities}
    answer = await peer.request("initialize", clientInfo={"name": "n" * 9999}, **said)
    assert answer.status == 200
    assert len(answer.headers["mcp-session-id"]) <= 2048


async def test_what_is_under_way_is_counted_for_metrics(site: Site):
    metrics = Metrics()
    metrics.gateway = site.gateway
    guest = Doorman()
    site.world.caller.answers("read", guest)
    peer = await site.peer(modern=True)
    stream = await peer.listening()
    sending = await begin(peer, id="x")
    door = await guest.next()
    said = metrics.render().decode()
    assert "mcp_gateway_streams 1.0" in said
    assert "mcp_gateway_calls 1.0" in said
    door.set()
    await sending
    stream.close()
    await until(lambda: site.gateway.open_streams == site.gateway.open_calls == 0)
