"""Ledgers: the bounded one in memory, and JSON lines in a file."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from pathlib import Path

import msgspec
import pytest

from bascule.audit.events import CallEvent, CallIntent, ConnectionMoved, Event, SessionOpened
from bascule.audit.ledger import JsonLinesLedger, LedgerUnavailable, MemoryLedger
from bascule.model.decision import allow, deny
from bascule.node.assembly import Bridge
from bascule.node.bridge.core import BridgeCore
from tests.audit.calls import Ended, Leaving
from tests.node.fakes import World, failed, succeeded
from tests.waits import until


def opened(number: int, caller: str = "alice") -> SessionOpened:
    return SessionOpened(
        timestamp=1.5,
        session_id=f"s{number}",
        task_id=None,
        caller=caller,
        token_id=None,
        revision=number,
        mcp_effective_servers=("fs",),
        tool_count=None,
        decisions=(allow("fs", None), deny("git", None, "platform", "unknown_server")),
        warnings=(),
    )


def test_a_ledger_in_memory_keeps_the_last_events():
    ledger = MemoryLedger(limit=3)
    for number in range(5):
        ledger.session_opened(opened(number))
    kept = [event.session_id for event in ledger.events if isinstance(event, SessionOpened)]
    assert kept == ["s2", "s3", "s4"]
    assert ledger.calls() == []


def test_a_ledger_file_belongs_to_its_owner_alone(tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    before = os.umask(0)
    try:
        ledger = JsonLinesLedger(path)
    finally:
        os.umask(before)
    ledger.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_each_event_is_one_object_on_one_line_and_can_be_read_back(tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    ledger = JsonLinesLedger(path)
    events = [opened(1, "a\nb\u2028c é"), opened(2)]
    for event in events:
        ledger.session_opened(event)
    ledger.close()
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 2
    assert all(line.endswith(b"\n") for line in lines)
    assert [json.loads(line)["event"] for line in lines] == ["session_opened"] * 2
    assert json.loads(lines[0])["mcp_effective_servers"] == ["fs"]
    assert [msgspec.json.decode(line, type=Event) for line in lines] == events


def test_a_ledger_file_is_appended_to(tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    for number in range(3):
        ledger = JsonLinesLedger(path)
        ledger.session_opened(opened(number))
        ledger.close()
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["revision"] for line in lines] == [0, 1, 2]


@pytest.mark.requirement("audit:call:fields")
async def test_a_call_is_in_the_file_before_it_leaves_and_after_it_ends(tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    ledger = JsonLinesLedger(path)
    world = World()
    seen: list[str] = []

    async def look(_: object) -> dict[str, object]:
        seen.extend(json.loads(line)["event"] for line in path.read_bytes().splitlines())
        return {"content": []}

    world.caller.answers("read", look)
    core = BridgeCore(world.core.snapshot, world.caller, ledger)
    outcome = succeeded(await core.session(server_ids=["fs"]).call("mcp__fs__read", {"text": "a"}))
    ledger.close()
    assert seen == ["session_opened", "call_intent"]
    lines = path.read_bytes().splitlines()
    intent = msgspec.json.decode(lines[1], type=Event)
    call = msgspec.json.decode(lines[2], type=Event)
    assert len(lines) == 3
    assert isinstance(intent, CallIntent)
    assert isinstance(call, CallEvent)
    assert intent.request_id == call.request_id == outcome.request_id
    assert intent.arguments_digest == call.arguments_digest


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_of_connections_only_trouble_is_kept(tmp_path: Path, kind: str):
    path = tmp_path / "ledger.jsonl"
    memory, file = MemoryLedger(), JsonLinesLedger(path)
    for state, reason in (("connecting", ""), ("connected", ""), ("down", "env_missing")):
        event = ConnectionMoved(
            timestamp=1.5,
            server_id="fs",
            old_state="disconnected",
            state=state,
            reason=reason,
            last_error=None,
        )
        (memory if kind == "memory" else file).connection_moved(event)
    file.close()
    written = [msgspec.json.decode(line, type=Event) for line in path.read_bytes().splitlines()]
    [kept] = memory.events or written
    assert isinstance(kept, ConnectionMoved)
    assert (kept.state, kept.reason) == ("down", "env_missing")


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: len(path.read_bytes().splitlines()) for path in sorted(folder.iterdir())}


@pytest.mark.requirement("audit:file")
def test_a_full_file_is_moved_aside_and_only_so_many_are_kept(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    line = len(msgspec.json.encode(opened(0))) + 1
    ledger = JsonLinesLedger(path, max_bytes=3 * line, max_files=3)
    for number in range(10):
        ledger.session_opened(opened(number))
    ledger.close()
    assert sizes(tmp_path) == {"audit.jsonl": 1, "audit.jsonl.1": 3, "audit.jsonl.2": 3}
    kept = [tmp_path / name for name in ("audit.jsonl.2", "audit.jsonl.1", "audit.jsonl")]
    lines = [line for path in kept for line in path.read_bytes().splitlines()]
    assert [json.loads(line)["revision"] for line in lines] == [3, 4, 5, 6, 7, 8, 9]
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}


def test_a_file_goes_on_where_another_process_left_it(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    line = len(msgspec.json.encode(opened(0))) + 1
    for number in range(4):
        ledger = JsonLinesLedger(path, max_bytes=2 * line, max_files=2)
        ledger.session_opened(opened(number))
        ledger.close()
    assert sizes(tmp_path) == {"audit.jsonl": 2, "audit.jsonl.1": 2}


def test_one_file_alone_begins_anew_and_a_line_too_long_for_any_is_written(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    ledger = JsonLinesLedger(path, max_bytes=10, max_files=1)
    for number in range(3):
        ledger.session_opened(opened(number))
    ledger.close()
    assert sizes(tmp_path) == {"audit.jsonl": 1}
    assert json.loads(path.read_bytes())["revision"] == 2


def test_a_file_that_others_could_read_is_made_private(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    path.touch(0o644)
    JsonLinesLedger(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.requirement("audit:file")
async def test_a_call_does_not_leave_when_it_cannot_be_written_down(
    caplog: pytest.LogCaptureFixture,
):
    ledger = JsonLinesLedger("/dev/full")
    world = World()
    core = BridgeCore(world.core.snapshot, world.caller, ledger)
    session = core.session(server_ids=["fs"])
    failed(await session.call("mcp__fs__read", {"text": "a"}), "mcp_unavailable")
    ledger.close()
    assert not world.sent
    assert "the audit file cannot be written: No space left" in caplog.text


def written(path: Path) -> list[str]:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [f"{line['event']} {line.get('request_id', '')}".strip() for line in lines]


async def test_an_intent_is_written_at_once_and_what_came_of_calls_with_the_next_other_event(
    tmp_path: Path,
):
    path = tmp_path / "ledger.jsonl"
    ledger = JsonLinesLedger(path)
    ledger.intent(Leaving(1))
    ledger.outcome(Ended(1))
    assert written(path) == ["call_intent r1"]
    ledger.intent(Leaving(2))
    assert written(path) == ["call_intent r1", "call_intent r2"]
    ledger.outcome(Ended(2))
    ledger.session_opened(opened(3))
    assert written(path)[2:] == ["call r1", "call r2", "session_opened"]
    ledger.outcome(Ended(3))
    ledger.close()
    assert written(path)[5:] == ["call r3"]


async def test_an_outcome_that_nobody_asks_for_is_written_in_a_moment(tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    ledger = JsonLinesLedger(path)
    for number in range(3):  # an alarm that rang is set again
        ledger.outcome(Ended(number))
        await until(path.read_bytes)
        assert written(path)[-1] == f"call r{number}"
        path.write_bytes(b"")
    ledger.close()


async def test_a_file_has_an_intent_before_the_call_leaves_and_memory_when_somebody_reads(
    tmp_path: Path,
):
    path, leaving = tmp_path / "ledger.jsonl", Leaving(1)
    file, memory = JsonLinesLedger(path), MemoryLedger()
    memory.intent(leaving)
    assert not leaving.made
    file.intent(leaving)
    assert written(path) == ["call_intent r1"]
    assert list(memory.events) == [leaving.intent()]
    file.close()


def test_where_nobody_would_wake_a_ledger_it_writes_at_once(tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    ledger = JsonLinesLedger(path)

    async def leave() -> None:
        ledger.outcome(Ended(1))

    asyncio.run(leave())  # the loop that would have woken it is gone
    ledger.outcome(Ended(2))
    assert written(path) == ["call r1", "call r2"]
    ledger.close()


async def test_many_outcomes_do_not_wait_for_the_clock():
    ledger = MemoryLedger()
    first = Ended()
    ledger.outcome(first)
    for number in range(1000):
        ledger.outcome(Ended(number))
    assert first.made == 1
    assert len(ledger.calls()) == 1001
    assert first.made == 1


async def test_a_ledger_that_keeps_nothing_makes_no_events():
    ledger = MemoryLedger(limit=0)
    leaving = [Leaving(number) for number in range(1000)]
    ended = [Ended(number) for number in range(1000)]
    for one, other in zip(leaving, ended, strict=True):
        ledger.intent(one)
        ledger.outcome(other)
    assert not ledger.events
    assert not any(each.made for each in (*leaving, *ended))


async def test_a_reader_in_another_thread_takes_nothing_away():
    ledger = MemoryLedger(limit=100_000)
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            assert len(ledger.events) >= 0

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(20_000):
        ledger.intent(Leaving(number))
        ledger.outcome(Ended(number))
    over.set()
    await asyncio.to_thread(reader.join, 20)
    assert not reader.is_alive()
    assert [event.request_id for event in ledger.calls()] == [f"r{n}" for n in range(20_000)]
    assert len(ledger.events) == 40_000


@pytest.mark.requirement("call:every-exit-written")
async def test_closing_a_bridge_leaves_nothing_waiting(tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    ledger = JsonLinesLedger(path)
    async with Bridge.open([], ledger=ledger) as bridge:
        failed(await bridge.session(server_ids=[]).call("mcp__fs__read"), "mcp_invalid_arguments")
    assert [line.split()[0] for line in written(path)] == ["session_opened", "call"]
    ledger.close()


async def test_that_what_waits_cannot_be_written_is_said(caplog: pytest.LogCaptureFixture):
    ledger = JsonLinesLedger("/dev/full")
    ledger.outcome(Ended(1))
    with pytest.raises(LedgerUnavailable, match="No space left"):
        ledger.intent(Leaving(2))
    ledger.settle()
    assert "the audit file cannot be written" in caplog.text
    ledger.close()
