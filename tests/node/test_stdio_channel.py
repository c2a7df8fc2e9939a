"""The stdio channel against a real process that misbehaves in every way we know of.

Each case says who is told what, that the others are unharmed, and that the next call works.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tracemalloc
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from bascule.errors import (
    DeadlineExceeded,
    MalformedReply,
    NotDelivered,
    OutcomeUnknown,
    RemoteError,
)
from bascule.model.call import LogMessage, Progress
from bascule.node.pool.process.plain import PlainSpawner
from bascule.node.pool.process.spawn import Launch
from bascule.node.pool.transport.channel import Events
from bascule.node.pool.transport.lines import LineReader
from bascule.node.pool.transport.stdio import StdioChannel, StdioLimits
from bascule.node.pool.transport.taps import MOST_LOGS, LogTap, Tap
from bascule.testing import ScriptedServer, do
from bascule.wire.era import call_params, modern_meta, with_members
from bascule.wire.strict_json import dumps

SERVER = ScriptedServer(behaviours={"echo": "echo", "any": "asked"}, era="modern")


@pytest.fixture(scope="module", params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Every case on both loops: they differ in just what this module leans on."""
    return "asyncio", {"use_uvloop": request.param}


@contextlib.asynccontextmanager
async def opened(
    server: ScriptedServer = SERVER,
    *,
    events: Events | None = None,
    limits: StdioLimits | None = None,
) -> AsyncGenerator[StdioChannel]:
    command, args = server.command
    spawner = PlainSpawner()
    try:
        process = await spawner.spawn(Launch((command, *args), {}))
        channel = StdioChannel(process, events or Events(), limits)
        try:
            async with asyncio.timeout(20):
                yield channel
        finally:
            await channel.close()
    finally:
        await spawner.close()


def within(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def ask(
    channel: StdioChannel,
    step: Any = "echo",
    *,
    text: str = "hi",
    seconds: float = 10,
    tap: Tap | None = None,
) -> str:
    """Call the tool that does as it is asked, and give back its text."""
    meta = with_members(modern_meta(), {} if tap is None else {"progressToken": tap.token})
    params = call_params("any", dumps({"do": step, "text": text}), b"", meta)
    result: Any = await channel.request(
        "tools/call", params, deadline=within(seconds), name="any", tap=tap
    )
    return result["content"][0]["text"]


async def started(task: asyncio.Task[Any], channel: StdioChannel, in_flight: int = 1) -> None:
    """Let a call that was begun reach the table of calls."""
    while channel.in_flight < in_flight and not task.done():
        await asyncio.wait({task}, timeout=0.001)


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


# -- answers that cannot be used ------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        "cut_json",
        "trailing_text",
        "bad_utf8",
        "lone_surrogate",
        "duplicate_keys",
        "nan",
        "infinity",
        "deep",
        "result_and_error",
        "neither_result_nor_error",
        "error_not_an_object",
        "no_version",
    ],
)
async def test_an_unreadable_answer_fails_its_own_call_only(fault: str, tmp_path: Path):
    gate = tmp_path / "gate"
    async with opened() as channel:
        sibling = asyncio.create_task(ask(channel, do("gate", path=str(gate)), text="sibling"))
        await started(sibling, channel)
        with pytest.raises(MalformedReply):
            await ask(channel, fault)
        gate.touch()
        assert await sibling == "sibling"
        assert await ask(channel) == "hi"
        assert channel.counters.broken == 1


async def test_an_answer_that_may_be_anybodys_fails_all_calls_once(tmp_path: Path):
    frame = '{"result":{"n":NaN},"jsonrpc":"2.0"}'
    async with opened() as channel:
        sibling = asyncio.create_task(ask(channel, "never"))
        await started(sibling, channel)
        for call in (ask(channel, do("raw", frame=frame)), sibling):
            with pytest.raises(OutcomeUnknown, match="anybody"):
                await call
        assert await ask(channel) == "hi"


@pytest.mark.parametrize(
    "fault",
    [
        "not_json",
        "not_an_object",
        "wrong_id",
        "foreign_id",
        "string_id",
        "float_id",
        "list_id",
        "null_id",
        "no_id",
    ],
)
async def test_an_answer_for_nobody_is_dropped_and_the_right_one_still_counts(fault: str):
    async with opened() as channel:
        assert await ask(channel, do(fault, then="echo")) == "hi"
        assert channel.counters.noise + channel.counters.foreign == 1
        with pytest.raises(DeadlineExceeded):
            await ask(channel, fault, seconds=0.1)
        assert await ask(channel) == "hi"


@pytest.mark.parametrize("form", ["batch", "carriage_return", "blank_lines"])
async def test_odd_but_readable_forms_are_read(form: str):
    async with opened() as channel:
        assert await ask(channel, form) == "hi"
        assert channel.counters.noise == 0


async def test_the_second_of_two_answers_harms_nobody():
    async with opened() as channel:
        assert await ask(channel, "duplicate_reply", text="first") == "first"
        assert await ask(channel, text="second") == "second"
        assert channel.counters.late == 1


async def test_a_json_rpc_error_reaches_its_caller_whole():
    async with opened() as channel:
        with pytest.raises(RemoteError) as caught:
            await ask(channel, do("rpc_error", code=-32050, message="no", data={"a": 1}))
        assert (caught.value.rpc_code, caught.value.message, caught.value.data) == (
            -32050,
            "no",
            {"a": 1},
        )


async def test_an_error_without_an_id_is_for_the_only_call_there_is():
    frame = '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}'
    async with opened() as channel:
        with pytest.raises(RemoteError, match="what"):
            await ask(channel, do("raw", frame=frame))


# -- size and noise -------------------------------------------------------------------------


async def test_a_line_of_100_megabytes_fails_its_call_and_the_next_one_works(tmp_path: Path):
    gate = tmp_path / "gate"
    async with opened(limits=StdioLimits(overlong_seconds=15)) as channel:
        sibling = asyncio.create_task(ask(channel, do("gate", path=str(gate)), text="sibling"))
        await started(sibling, channel)
        with pytest.raises(MalformedReply, match="cap"):
            await ask(channel, do("huge_line", bytes=100_000_000))
        gate.touch()
        assert await sibling == "sibling"
        assert await ask(channel) == "hi"


async def test_a_line_just_over_the_cap_fails_and_one_just_under_is_read():
    async with opened(limits=StdioLimits(frame_bytes=10_000)) as channel:
        with pytest.raises(MalformedReply):
            await ask(channel, do("big", bytes=10_000))
        assert len(await ask(channel, do("big", bytes=9_000))) == 9_000


async def test_a_long_line_of_noise_is_skipped():
    async with opened(limits=StdioLimits(frame_bytes=200_000)) as channel:
        assert await ask(channel, do("noise", text="n" * 90, times=10)) == "hi"
        assert await ask(channel, do("noise", text="n" * 60_000)) == "hi"
        assert channel.counters.noise == 11


async def test_a_line_without_end_costs_the_connection():
    reasons: list[str] = []
    limits = StdioLimits(overlong_seconds=0.1)
    async with opened(events=Events(on_closed=reasons.append), limits=limits) as channel:
        with pytest.raises(OutcomeUnknown, match="without end"):
            await ask(channel, do("no_newline", bytes=400_000_000))
        assert reasons == ["a line without end"]
        assert not channel.alive
        with pytest.raises(NotDelivered):
            await ask(channel)


def test_splitting_lines_keeps_no_more_than_the_cap():
    reader, chunk = LineReader(1_000_000), b"x" * 65536
    tracemalloc.start()
    heads = 0
    for _ in range(1600):
        assert reader.feed(chunk) == []
        heads += reader.overlong is not None
        reader.overlong = None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert heads == 1
    assert peak < 3_000_000
    assert reader.feed(b"\nnext\nrest") == [b"next"]
    assert reader.feed(b" of it\n") == [b"rest of it"]


def test_lines_are_split_wherever_the_chunks_end():
    text = b"one\n\ntwo\r\nthree and more\nfour\n"
    for size in range(1, len(text) + 1):
        reader = LineReader(100)
        chunks = [text[start : start + size] for start in range(0, len(text), size)]
        lines = [line for chunk in chunks for line in reader.feed(chunk)]
        assert lines == text.split(b"\n")[:-1]


async def test_twenty_megabytes_of_stderr_are_drained_and_the_last_lines_kept():
    async with opened() as channel:
        step = do("stderr", bytes=20_000_000, then=do("stderr", text="the last words"))
        assert await ask(channel, step) == "hi"
        while channel.stderr_bytes < 20_000_015:
            assert await ask(channel) == "hi"
        lines = channel.diagnosis().splitlines()
        assert lines[-1] == "the last words"
        assert len(lines) == 20


async def test_what_is_said_aside_is_kept_to_few_bytes_whatever_they_are():
    async with opened(limits=StdioLimits(stderr_lines=2, stderr_bytes=10)) as channel:
        await ask(channel, do("stderr", text="x" * 100 + "\ny\nz"))
        while channel.stderr_bytes < 105:
            await ask(channel)
        assert channel.diagnosis() == "y\nz"
        await ask(channel, do("stderr", text="é" * 1000 + " é"))
        while channel.stderr_bytes < 2109:
            await ask(channel)
        assert channel.diagnosis() == " é"  # half a word may be half a credential


# -- floods ---------------------------------------------------------------------------------


async def test_a_hundred_thousand_notifications_pause_the_reading_and_nothing_else():
    async with opened() as flooded, opened() as other:
        calls = floods = 0
        while calls <= 3 * floods or not floods:  # a busy machine may not run the other at first
            assert floods < 4, "a flood holds up the calls of another server"
            flood = asyncio.create_task(ask(flooded, do("flood", count=100_000), seconds=30))
            while not flood.done():
                assert await ask(other) == "hi"
                calls += 1
            assert await flood == "hi"
            floods += 1
        assert flooded.counters.unheard + flooded.counters.notices == floods * 100_000
        assert flooded.counters.pauses > 0
        assert other.counters.pauses == 0


@pytest.mark.parametrize("method", ["notifications/message", "notifications/anything"])
async def test_a_burst_beside_an_idle_loop_is_read_without_a_pause(method: str):
    held: list[float] = []
    async with opened(events=Events(on_pause=held.append)) as channel:
        assert await ask(channel) == "hi"
        assert await ask(channel, do("flood", count=100_000, method=method), seconds=15) == "hi"
        assert sum(held) < 0.5  # by the channel's own account: a busy machine may look like a user


async def test_a_timeout_says_when_a_flood_delayed_the_answer():
    held: list[float] = []
    events, limits = Events(on_pause=held.append), StdioLimits(allowance=4)
    async with opened(events=events, limits=limits) as flooded, opened() as other:
        assert await ask(flooded) == "hi"
        flood = do("flood", count=100_000, method="notifications/anything")
        late = asyncio.create_task(ask(flooded, flood, seconds=0.5))
        while not late.done():
            assert await ask(other) == "hi"
        with pytest.raises(DeadlineExceeded, match="the server floods, and was not read for"):
            await late
        assert held


async def test_notifications_that_matter_are_heard_even_in_a_flood():
    heard: list[str] = []
    events = Events(on_notification=lambda method, _params: heard.append(method))
    async with opened(events=events) as channel:
        changed = "notifications/tools/list_changed"
        step = do("flood", count=5_000, then=do("flood", count=3, method=changed))
        assert await ask(channel, step) == "hi"
        assert heard.count(changed) == 3


async def test_a_flood_of_logs_is_read_while_somebody_listens_and_no_longer():
    heard: list[LogMessage] = []
    events, tap = Events(), LogTap(heard.append, "info")
    async with opened(events=events) as channel:
        events.logs.listeners.add(tap)
        assert await ask(channel, do("flood", count=100_000), seconds=30) == "hi"
        assert len(heard) == MOST_LOGS
        assert not events.logs.listeners
        assert channel.counters.notices < channel.counters.unheard


async def test_few_but_long_notifications_pause_the_reading_too():
    async with opened() as channel:
        long = {"level": "info", "data": "x" * 40_000}
        method = "notifications/anything"
        assert await ask(channel, do("flood", count=60, method=method, params=long)) == "hi"
        assert channel.counters.pauses > 0


async def test_a_listener_that_raises_harms_no_caller():
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, what: raised.append(what))

    def listener(method: str, params: Any) -> None:
        raise LookupError(method)

    async with opened(events=Events(on_notification=listener)) as channel:
        assert await ask(channel, do("flood", count=2, method="vendor/tick")) == "hi"
        assert [type(what["exception"]) for what in raised] == [LookupError, LookupError]
    asyncio.get_running_loop().set_exception_handler(None)


async def test_progress_is_heard_in_order_and_ends_with_the_call():
    heard: list[Progress] = []
    async with opened() as channel:
        assert await ask(channel, do("progress", count=3), tap=Tap(7, heard.append))
        assert heard == [Progress(1, 3), Progress(2, 3), Progress(3, 3)]
        stray = {"progressToken": 7, "progress": 9}
        flood = do("flood", count=1, method="notifications/progress", params=stray)
        assert await ask(channel, flood) == "hi"
        assert len(heard) == 3


async def test_progress_for_ever_does_not_move_the_deadline():
    heard: list[Progress] = []
    async with opened() as channel:
        with pytest.raises(DeadlineExceeded):
            await ask(channel, "progress", seconds=0.3, tap=Tap(1, heard.append))
        assert heard
        assert await ask(channel) == "hi"


# -- silence, death, cancellation -----------------------------------------------------------


async def test_a_call_that_is_never_answered_ends_by_its_deadline_and_is_cancelled(tmp_path: Path):
    note = tmp_path / "note"
    async with opened() as channel:
        with pytest.raises(DeadlineExceeded):
            await ask(channel, do("sleep_until_cancelled", path=str(note)), seconds=0.1)
        assert await ask(channel) == "hi"
        assert note.read_text(encoding="utf-8") == "cancelled\n"
        assert channel.in_flight == 0


async def test_deadlines_of_many_calls_are_kept_apart():
    async with opened() as channel:
        late = asyncio.create_task(ask(channel, "never", seconds=1.0))
        await started(late, channel)
        with pytest.raises(DeadlineExceeded):
            await ask(channel, "never", seconds=0.05)
        assert channel.in_flight == 1
        with pytest.raises(DeadlineExceeded):
            await late


async def test_cancelling_the_caller_cancels_the_call_and_a_late_answer_harms_nobody(
    tmp_path: Path,
):
    note = tmp_path / "note"
    step = do("sleep_until_cancelled", path=str(note), then="echo")
    async with opened() as channel:
        task = asyncio.create_task(ask(channel, step, text="late"))
        await started(task, channel)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert channel.in_flight == 0
        assert await ask(channel, text="next") == "next"
        assert note.read_text(encoding="utf-8") == "cancelled\n"
        assert channel.counters.late == 1


async def test_the_handshake_is_never_cancelled(tmp_path: Path):
    journal = tmp_path / "journal"
    server = ScriptedServer(on={"server/discover": "never"}, journal=journal)
    async with opened(server) as channel:
        with pytest.raises(DeadlineExceeded):
            await channel.request("server/discover", b"{}", deadline=within(0.05))
        await channel.request("ping", b"{}", deadline=within(10))
        lines = journal.read_text(encoding="utf-8").splitlines()
        methods = [json.loads(line)["method"] for line in lines]
        assert methods == ["server/discover", "ping"]


async def test_a_request_without_time_is_not_sent(tmp_path: Path):
    journal = tmp_path / "journal"
    async with opened(ScriptedServer(journal=journal)) as channel:
        with pytest.raises(DeadlineExceeded):
            await channel.request("ping", b"{}", deadline=within(0))
        await channel.request("ping", b"{}", deadline=within(10))
        assert len(journal.read_text(encoding="utf-8").splitlines()) == 1


@pytest.mark.parametrize("death", [do("die", code=3), do("die", signal="KILL"), "close_output"])
async def test_death_tells_every_caller_at_once_that_the_outcome_is_unknown(death: Any):
    reasons: list[str] = []
    async with opened(events=Events(on_closed=reasons.append)) as channel:
        sibling = asyncio.create_task(ask(channel, "never"))
        await started(sibling, channel)
        for call in (ask(channel, death), sibling):
            with pytest.raises(OutcomeUnknown):
                await call
        assert len(reasons) == 1
        with pytest.raises(NotDelivered):
            await ask(channel)


async def test_death_is_seen_even_when_a_grandchild_holds_the_pipes():
    async with opened() as channel:
        step = do("spawn_grandchild", hold_pipes=True, then=do("die", code=4))
        with pytest.raises(OutcomeUnknown, match="status 4"):
            await ask(channel, step)


async def test_an_answer_written_before_death_is_delivered():
    async with opened() as channel:
        step = do("carriage_return", then=do("die", code=0))
        assert await ask(channel, step) == "hi"


async def test_a_server_that_stops_reading_times_out_what_left_and_gives_back_what_did_not():
    async with opened() as channel:
        assert await ask(channel, do("stop_reading", then="echo")) == "hi"
        stuck = asyncio.create_task(ask(channel, text="x" * 500_000, seconds=0.3))
        await started(stuck, channel)
        with pytest.raises(NotDelivered, match="does not read"):
            await ask(channel, seconds=0.2)
        with pytest.raises(DeadlineExceeded):
            await stuck
        assert channel.in_flight == 0


async def test_large_arguments_of_one_caller_take_no_room_from_another(tmp_path: Path):
    gate = tmp_path / "gate"
    slow = ScriptedServer(
        behaviours={"any": "asked"}, era="modern", at_start=[do("gate", path=str(gate))]
    )
    async with opened(slow, limits=StdioLimits(waiting_bytes=1_000_000)) as channel:
        large = [asyncio.create_task(ask(channel, text="x" * 900_000)) for _ in range(4)]
        await started(large[0], channel, 4)
        small = asyncio.create_task(ask(channel, text="small"))
        await started(small, channel, 5)
        for task in large[1:]:
            task.cancel()
        gate.touch()
        assert await small == "small"
        assert len(await large[0]) == 900_000


async def test_what_nobody_waits_for_is_dropped_when_a_server_does_not_read():
    async with opened(limits=StdioLimits(waiting_bytes=1_000_000)) as channel:
        assert await ask(channel, do("stop_reading", then="echo")) == "hi"
        for _ in range(100):
            channel.notify("notifications/note", dumps({"text": "x" * 100_000}))
        assert channel.waiting_bytes <= 1_200_000


async def test_a_cancelled_call_that_never_left_is_never_sent(tmp_path: Path):
    gate, journal = tmp_path / "gate", tmp_path / "journal"
    server = ScriptedServer(
        behaviours={"any": "asked"},
        era="modern",
        journal=journal,
        at_start=[do("gate", path=str(gate))],
    )
    async with opened(server) as channel:
        large = asyncio.create_task(ask(channel, text="x" * 300_000))
        await started(large, channel)
        queued = asyncio.create_task(ask(channel, text="unwanted"))
        await started(queued, channel, 2)
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        gate.touch()
        assert len(await large) == 300_000
        assert await ask(channel) == "hi"
        assert "unwanted" not in journal.read_text(encoding="utf-8")


async def test_many_calls_at_once_each_get_their_own_answer():
    async with opened() as channel:
        texts = [f"{number} " * (number * 20) for number in range(200)]
        assert await asyncio.gather(*(ask(channel, text=text) for text in texts)) == texts


# -- what the server asks -------------------------------------------------------------------


async def test_a_request_that_was_not_offered_is_refused():
    async with opened() as channel:
        answer = json.loads(await ask(channel, do("server_request")))
        assert answer["error"]["code"] == -32601
        assert channel.counters.refused == 1


async def test_ping_is_answered():
    async with opened() as channel:
        answer = json.loads(await ask(channel, do("server_request", method="ping")))
        assert answer["result"] == {}


async def test_an_offered_request_is_answered_by_its_handler():
    async def roots(method: str, params: Any) -> Any:
        if method != "roots/list":
            raise RemoteError(-32601, "no such method")
        return {"method": method, "params": params}

    async with opened(events=Events(on_request=roots)) as channel:
        step = do("server_request", method="roots/list", params={"a": 1})
        answer = json.loads(await ask(channel, step))
        assert answer["result"] == {"method": "roots/list", "params": {"a": 1}}
        assert json.loads(await ask(channel, do("server_request")))["error"]["code"] == -32601


# -- the end --------------------------------------------------------------------------------


async def test_closing_fails_what_is_in_flight_and_leaves_no_descriptor():
    before = open_descriptors()
    reasons: list[str] = []
    async with opened(events=Events(on_closed=reasons.append)) as channel:
        call = asyncio.create_task(ask(channel, "never"))
        await started(call, channel)
        await channel.close()
        with pytest.raises(OutcomeUnknown, match="closed"):
            await call
        await channel.close()
    assert reasons == []
    assert open_descriptors() == before


async def test_a_line_break_cannot_be_smuggled_into_a_frame():
    async with opened() as channel:
        with pytest.raises(ValueError, match="line break"):
            await channel.request("ping", b'{\n"id":1}', deadline=within(5))
        assert channel.in_flight == 0
        assert await ask(channel) == "hi"
