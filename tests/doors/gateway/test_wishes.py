"""What callers wish beside a result: to hear of logs and waits, in the way they hear of things."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from bascule.doors.gateway import reply as reply_module
from bascule.doors.gateway.reply import MAX_WAITING, Reply
from bascule.doors.gateway.wishes import Teller
from bascule.model.approval import Waiting
from bascule.model.call import LogMessage, Progress
from bascule.wire.era import LEGACY, META, MODERN
from tests.doors.gateway.stream_site import Json, Peer, Site, serving
from tests.doors.gateway.test_calls import GENERATIONS, READ, begin, steps, whole
from tests.node.fakes import Doorman, Sent, text

LOG_LEVEL = META + "logLevel"


@pytest.fixture
async def site() -> AsyncGenerator[Site, None]:
    async with serving(Site()) as found:
        yield found


async def logging(sent: Sent) -> Json:
    """Answer, and log on the way if anybody hears of it."""
    if sent.beside.on_log is not None:
        sent.beside.on_log(LogMessage("warning", {"free": 1}, "disk"))
        sent.beside.on_log(LogMessage("error", "full"))
    return text(f"from {sent.beside.log_level} on")


async def called(peer: Peer, level: str | None) -> list[Json]:
    """Call a tool that logs, with a wish for logs or without."""
    if peer.modern or level is None:
        return (await whole(peer, READ, {LOG_LEVEL: level} if level else {}))[1]
    assert (await (await peer.request("logging/setLevel", level=level)).body())["result"] == {}
    return (await whole(peer))[1]


@GENERATIONS
async def test_what_a_server_logs_is_told_before_the_result(site: Site, modern: bool):
    site.world.caller.answers("read", logging)
    *told, last = await called(await site.peer(modern=modern), "info")
    assert [(one["method"], one["params"]) for one in told] == [
        ("notifications/message", {"level": "warning", "data": {"free": 1}, "logger": "disk"}),
        ("notifications/message", {"level": "error", "data": "full"}),
    ]
    assert last["result"]["content"][0]["text"] == "from info on"


@GENERATIONS
async def test_no_logs_are_told_to_whoever_asked_for_none_or_takes_no_stream(
    site: Site, modern: bool
):
    site.world.caller.answers("read", logging)
    peer = await site.peer(modern=modern)
    [message] = await called(peer, None)
    assert message["result"]["content"][0]["text"] == "from None on"
    peer.headers = {"Accept": "application/json"}
    [message] = await called(peer, "info")
    assert message["result"]["content"][0]["text"] == "from None on"


@GENERATIONS
async def test_a_level_that_there_is_not_is_refused_with_those_there_are(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    if modern:
        [message] = (await whole(peer, READ, {LOG_LEVEL: "loud"}))[1]
    else:
        message = await (await peer.request("logging/setLevel", level="loud")).body()
    assert message["error"]["code"] == -32602
    assert "debug, info, notice" in message["error"]["message"]


async def test_a_refused_call_has_its_status_also_where_news_were_asked_for(site: Site):
    peer = await site.peer(modern=True)
    stream, [message] = await whole(peer, "mcp__fs__nothing", {"progressToken": 1})
    assert (stream.status, stream.headers["content-type"]) == (400, "application/json")
    assert message["error"]["code"] == -32602


async def test_progress_has_no_words_in_the_version_that_knows_none(site: Site):
    site.world.caller.answers("read", steps(1))
    peer = await site.peer(modern=False, version=LEGACY[-1])
    told, _ = (await whole(peer, READ, {"progressToken": 1}))[1]
    assert told["params"] == {"progressToken": 1, "progress": 1, "total": 10}


class Reader:
    """Takes what a reply sends."""

    def __init__(self) -> None:
        self.body = b""

    async def send(self, message: Any) -> None:
        self.body += message.get("body", b"")


@pytest.mark.parametrize(
    ("token", "level", "way"),
    [
        ("t", "info", b'"method":"notifications/progress","params":{"progressToken":"t"'),
        (None, "info", b'"method":"notifications/message","params":{"level":"notice"'),
        (None, None, b": waits for approval appr_1 (open until "),
    ],
)
async def test_that_a_call_waits_for_approval_is_told_in_the_way_its_caller_hears_of(
    token: Any, level: Any, way: bytes
):
    reader = Reader()
    reply = Reply({"type": "http"}, reader.send, streams=True, wanted=False)
    teller = Teller(reply, token, level, MODERN)
    teller.waits(Waiting("appr_1", 1e9))
    teller.progress(Progress(0))  # the wait was a step: the protocol has none that stays
    await reply.finish(b"{}")
    assert way in reader.body
    assert reader.body.count(b"appr_1") == 1
    assert reader.body.endswith(b"event: message\ndata: {}\n\n")


async def test_an_answer_that_nobody_reads_any_more_is_not_written():
    reader = Reader()
    reply = Reply({"type": "http"}, reader.send, streams=True, wanted=True)
    reply.watch(0)
    reply.abandon()
    reply.tell(b"{}")
    assert (reader.body, reply.over) == (b"", True)


async def test_a_slow_reader_misses_steps_in_between_and_never_the_result():
    reader, free = Reader(), asyncio.Event()

    async def send(message: Any) -> None:
        await free.wait()
        await reader.send(message)

    reply = Reply({"type": "http"}, send, streams=True, wanted=True)
    for number in range(5 * MAX_WAITING):
        reply.tell(b"%d" % number)
    finishing = asyncio.create_task(reply.finish(b"result"))
    await asyncio.wait([finishing], timeout=0)
    free.set()
    await finishing
    told = [one.removeprefix(b"event: message\ndata: ") for one in reader.body.split(b"\n\n")[:-1]]
    assert told[-1] == b"result"
    steps_told = [int(one) for one in told[:-1]]
    assert steps_told == list(range(5 * MAX_WAITING - len(steps_told), 5 * MAX_WAITING))
    assert 0 < len(steps_told) <= MAX_WAITING


@GENERATIONS
async def test_a_stream_in_which_nothing_is_told_shows_that_it_lives(
    site: Site, modern: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reply_module, "KEEP_ALIVE_SECONDS", 0.01)
    guest = Doorman()
    site.world.caller.answers("read", guest)
    peer = await site.peer(modern=modern)
    sending = await begin(peer)
    door = await guest.next()
    stream = await sending
    for _ in range(3):
        await stream.comment()
    door.set()
    assert (await stream.next() or {})["result"]["content"][0]["text"] == "read"
