"""Servers that do what no server should: the right caller gets a code, and the next call works."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.model.call import Progress
from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from bascule.testing.server import MALFORMED_TOOLS, ScriptedServer, do, tool
from tests.flow.processes import traces, vanished
from tests.flow.servers import (
    PATIENT,
    SHORT,
    any_fault,
    code_of,
    lines_of,
    misbehave,
    record,
    works,
    works_soon,
)
from tests.waits import SOON_SECONDS

ROOT = Path(__file__).resolve().parents[2]
MEBIBYTE = 1 << 20

#: Answers that cannot be read, but whose id can: their own call fails at once.
UNREADABLE: dict[str, Mapping[str, Any] | str] = {
    "cut_json": "cut_json",
    "trailing_text": "trailing_text",
    "bad_utf8": "bad_utf8",
    "lone_surrogate": "lone_surrogate",
    "duplicate_keys": "duplicate_keys",
    "nan": "nan",
    "infinity": "infinity",
    "deep": do("deep", depth=200_000),
    "huge_line": do("huge_line", bytes=12_000_000),
    "result_and_error": "result_and_error",
    "neither_result_nor_error": "neither_result_nor_error",
    "result_not_an_object": "result_not_an_object",
    "error_not_an_object": "error_not_an_object",
    "no_version": "no_version",
    "unknown_result_type": "unknown_result_type",
}
#: Answers to nobody: the call they should have been for ends at its deadline.
TO_NOBODY = [
    "never", "not_json", "not_an_object", "wrong_id", "foreign_id", "string_id", "float_id",
    "list_id", "null_id", "no_id",
]  # fmt: skip
#: Odd, but the answer is there.
HARMLESS: dict[str, Mapping[str, Any] | str] = {
    "duplicate_reply": "duplicate_reply",
    "carriage_return": "carriage_return",
    "blank_lines": "blank_lines",
    "batch": "batch",
    "noise": do("noise", text="Listening on stdin, press Ctrl-C to stop", times=500),
    "noise_like_json": do("noise", text='{"level": "info", "id": 1, "msg": "started"}', times=50),
    "unknown_block": "unknown_block",
    "unknown_fields": "unknown_fields",
}
#: Faults of some size, met by a node whose memory is looked at, and what their caller gets.
LARGE = {
    "a line of 100 MB": (do("huge_line", bytes=100_000_000), "mcp_tool_error"),
    "no newline ever": (do("no_newline", bytes=10_000_000_000), "mcp_outcome_unknown"),
    "200k levels": (do("deep", depth=200_000), "mcp_tool_error"),
    "20 MB of stderr": (do("stderr", bytes=20_000_000), "ok"),
    "100k notifications": (do("flood", count=100_000), "ok"),
    "100k changes": (do("flood", count=100_000, method="notifications/tools/list_changed"), "ok"),
    "100k unknown notifications": (do("flood", count=100_000, method="vendor/tick"), "ok"),
}


@asynccontextmanager
async def session_on(server: ScriptedServer, **fields: Any) -> AsyncGenerator[Session, None]:
    """Open a bridge over one server, and a session on it."""
    async with (
        Bridge.open([record(server, **fields)], settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        yield session


# Answers


@pytest.mark.requirement(
    "call:bad-frame:own-call",
    "wire:duplicate-keys",
    "wire:nan",
    "wire:depth",
    "wire:invalid-utf8",
    "wire:frame-cap",
)
@pytest.mark.parametrize("fault", UNREADABLE)
async def test_an_unreadable_answer_fails_its_own_call_and_no_other(
    fault: str, session: Session, tmp_path: Path
):
    gate = tmp_path / "gate"
    patient = asyncio.create_task(
        session.call("mcp__bad__fault", {"do": do("gate", path=str(gate)), "text": "mine"})
    )
    await works(session)  # so the patient call has been sent as well
    outcome = await misbehave(session, UNREADABLE[fault], timeout=None)
    assert code_of(outcome) == "mcp_tool_error"
    assert not outcome.content
    await works(session)
    assert not patient.done()
    gate.touch()
    async with asyncio.timeout(10):
        assert (await patient).text == "mine"


@pytest.mark.requirement("call:bad-frame:connection")
async def test_an_unreadable_answer_without_an_id_fails_every_call_of_the_connection_once(
    session: Session, tmp_path: Path
):
    waiting = [
        asyncio.create_task(session.call("mcp__bad__fault", {"do": "never", "text": str(number)}))
        for number in range(3)
    ]
    await works(session)
    frame = do("raw", frame='{"jsonrpc":"2.0","result":{"content":[NaN]}}')
    outcomes = [await misbehave(session, frame, timeout=None), *await asyncio.gather(*waiting)]
    codes = {code_of(outcome) for outcome in outcomes}
    assert codes <= {"mcp_tool_error", "mcp_outcome_unknown"}  # at once, not at the deadline
    await works(session)


@pytest.mark.requirement("call:deadline", "outcomes:timeout")
@pytest.mark.parametrize("fault", TO_NOBODY)
async def test_an_answer_to_nobody_leaves_its_call_to_the_deadline(fault: str, session: Session):
    assert code_of(await misbehave(session, fault)) == "mcp_timeout"
    await works(session)


@pytest.mark.requirement("call:deadline", "outcomes:timeout", "budgets:server:timeout")
async def test_the_records_own_timeout_ends_a_call_without_an_answer():
    async with session_on(any_fault(), budgets={"tool_timeout_ms": 300}) as session:
        assert code_of(await misbehave(session, "never", timeout=None)) == "mcp_timeout"
        await works(session)


@pytest.mark.requirement("transport:stdio:noise")
@pytest.mark.parametrize("fault", HARMLESS)
async def test_an_oddity_around_an_answer_does_not_lose_it(fault: str, session: Session):
    outcome = await misbehave(session, HARMLESS[fault], timeout=None)
    assert outcome.ok, outcome.error
    assert outcome.text == "hello"
    await works(session)


async def test_content_that_is_no_list_is_an_error_and_not_an_empty_success(session: Session):
    outcome = await misbehave(session, "content_not_a_list", timeout=None)
    assert code_of(outcome) == "mcp_tool_error"
    await works(session)


async def test_an_unknown_block_and_unknown_fields_are_kept_as_they_came(session: Session):
    odd = await misbehave(session, "unknown_block", timeout=None)
    assert odd.content == (
        {"type": "text", "text": "hello"},
        {"type": "hologram", "depth": 3, "data": "AAAA"},
    )
    fields = await misbehave(session, "unknown_fields", timeout=None)
    assert fields.content == ({"type": "text", "text": "hello", "vendorBlock": [1]},)


async def test_a_late_answer_harms_nobody(session: Session, tmp_path: Path):
    late = do("sleep_until_cancelled", path=str(tmp_path / "told"), then=do("echo", text="late"))
    for _ in range(5):
        assert code_of(await misbehave(session, late, timeout=0.05)) == "mcp_timeout"
        await works(session)
    assert lines_of(tmp_path / "told") == ["cancelled"] * 5


@pytest.mark.requirement("wire:server-requests-refused")
async def test_a_request_that_was_not_offered_is_refused(session: Session):
    outcome = await misbehave(session, "server_request", timeout=None)
    assert json.loads(outcome.text)["error"]["code"] == -32601
    await works(session)


@pytest.mark.requirement("call:progress:never-cap", "call:progress:reported")
async def test_progress_for_ever_does_not_move_the_deadline(session: Session):
    heard: list[Progress] = []
    outcome = await misbehave(session, do("progress"), idle_timeout=0.2, on_progress=heard.append)
    assert code_of(outcome) == "mcp_timeout"
    assert heard
    await works(session)


@pytest.mark.requirement("call:progress:extends-idle")
async def test_progress_keeps_a_call_alive_that_silence_would_end(session: Session):
    silent = await misbehave(session, "never", timeout=None, idle_timeout=0.1)
    assert code_of(silent) == "mcp_timeout"
    heard: list[Progress] = []
    busy = asyncio.create_task(
        misbehave(session, do("progress"), timeout=1.0, idle_timeout=0.5, on_progress=heard.append)
    )
    assert code_of(await busy) == "mcp_timeout"
    assert "in time" in getattr((await busy).error, "message", "")  # the deadline, not the silence
    await works(session)


# The process


@pytest.mark.requirement("outcomes:unknown", "pool:restart-on-disconnect")
@pytest.mark.parametrize(
    "end", [do("die"), do("die", signal="KILL"), do("die", code=0), "close_output"]
)
async def test_a_death_in_the_middle_of_a_call_is_an_unknown_outcome(
    end: dict[str, Any] | str, session: Session
):
    assert code_of(await misbehave(session, end, timeout=None)) == "mcp_outcome_unknown"
    await works(session)


@pytest.mark.requirement("call:deadline")
async def test_a_server_that_stops_reading_is_started_again(session: Session):
    assert code_of(await misbehave(session, "stop_reading")) == "mcp_timeout"
    await works_soon(session)


@pytest.mark.requirement("call:deadline")
async def test_a_call_that_cannot_even_be_written_ends_at_its_deadline(tmp_path: Path):
    starts = tmp_path / "starts"
    async with session_on(any_fault(starts=starts)) as session:
        await works(session)
        assert code_of(await misbehave(session, "stop_reading", timeout=0.05)) == "mcp_timeout"
        large = {"text": "x" * 300_000}
        calls = [session.call("mcp__bad__echo", large, timeout=SHORT) for _ in range(4)]
        async with asyncio.timeout(10):
            outcomes = await asyncio.gather(*calls)
        assert {code_of(outcome) for outcome in outcomes} <= {"mcp_timeout", "mcp_unavailable"}
        await works_soon(session)


@pytest.mark.requirement("wire:generation:quick-fallback", "wire:generations")
@pytest.mark.parametrize("on_probe", ["die", "never", "not_json", "cut_json", "close_output"])
async def test_a_server_that_cannot_take_the_probe_still_connects(on_probe: str):
    server = any_fault(era="legacy", on={"server/discover": on_probe})
    async with session_on(server) as session:
        assert len(await session.tools()) == 2
        await works(session)


@pytest.mark.requirement("wire:generations", "transport:stdio")
@pytest.mark.parametrize("era", ["modern", "legacy", "dual"])
async def test_servers_of_every_generation_are_listed_and_called(era: Any):
    async with session_on(any_fault(era=era)) as session:
        assert (await session.tools()).names == ("mcp__bad__echo", "mcp__bad__fault")
        await works(session)


UNKNOWN = {"supported": ["2031-01-01", "2032-01-01"], "requested": "x"}
STRANGERS = [
    any_fault(era="legacy", version="2031-01-01"),
    any_fault(
        era="legacy",
        on={"initialize": do("rpc_error", code=-32602, message="no such version", data=UNKNOWN)},
    ),
    any_fault(
        on={"server/discover": do("rpc_error", code=-32022, message="no", data=UNKNOWN)},
    ),
    any_fault(
        on={"server/discover": do("fixed", bare=True, result={"supportedVersions": ["2031-01-01"]})}
    ),
]


@pytest.mark.requirement("wire:generation:offered")
@pytest.mark.parametrize("server", STRANGERS)
async def test_a_server_of_an_unknown_generation_says_which_it_offered(server: ScriptedServer):
    async with session_on(server) as session:
        async with asyncio.timeout(10):
            tools = await session.tools()
        assert len(tools) == 0
        (warning,) = tools.warnings
        assert "the server offers protocol 2031-01-01" in warning
        assert "Bascule speaks 2026-07-28, 2025-11-25" in warning


@pytest.mark.requirement("pool:failure-skips", "transport:stdio:stderr", "outcomes:unavailable")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_death_during_the_handshake_is_told_with_what_the_server_said(era: Any):
    last_words = do("stderr", text="no licence found", then="die")
    server = any_fault(era=era, on={"server/discover": last_words, "initialize": last_words})
    async with session_on(server) as session:
        async with asyncio.timeout(10):
            tools = await session.tools()
        assert len(tools) == 0
        assert len(tools.warnings) == 1
        assert tools.warnings[0].startswith("bad: unavailable: ")
        assert "no licence found" in tools.warnings[0]
        outcome = await session.call("mcp__bad__echo", {"text": "hello"})
        assert code_of(outcome) == "mcp_unavailable"


@pytest.mark.requirement("pool:connect-timeout", "catalogue:failure-alone")
async def test_a_handshake_without_an_answer_ends_in_time():
    server = any_fault(on={"server/discover": "never", "initialize": "never"})
    async with session_on(server, budgets={"connect_timeout_ms": 500}) as session:
        async with asyncio.timeout(10):
            tools = await session.tools()
        assert len(tools) == 0
        assert "no connection within 0.5 s" in tools.warnings[0]


@pytest.mark.requirement(
    "process:ignores-sigterm", "process:killed-on-disconnect", "process:deterministic-close"
)
async def test_a_server_deaf_to_every_request_to_stop_is_gone_after_the_close():
    word = secrets.token_hex(8)
    server = any_fault(name=word, ignore_sigterm=True, ignore_eof=True)
    async with session_on(server) as session:
        assert (await misbehave(session, "spawn_grandchild", timeout=None)).ok
        assert len(traces(word)) == 2
        closing = session.core
        assert isinstance(closing, Bridge)
        async with asyncio.timeout(SOON_SECONDS):
            await closing.close()
        assert traces(word) == []
    await vanished(word)


# Lists


@pytest.mark.requirement("wire:page-cap")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_of_a_list_without_an_end_the_first_pages_are_kept_with_a_warning(
    era: Any, tmp_path: Path
):
    listed = [tool("echo"), tool("fault"), *(tool(f"tool_{number}") for number in range(98))]
    server = any_fault(tools=listed, page_size=1, era=era)
    async with session_on(server.saved_to(tmp_path / "script")) as session:
        async with asyncio.timeout(10):
            tools = await session.tools()
        assert len(tools) == 64
        (warning,) = tools.warnings
        assert "more than 64 pages" in warning
        await works(session)


@pytest.mark.requirement("catalogue:failure-alone")
@pytest.mark.parametrize(("pagination", "words"), [("cycle", "circles")])
async def test_a_list_in_circles_is_given_up(pagination: Any, words: str):
    async with session_on(any_fault(pagination=pagination)) as session:
        async with asyncio.timeout(10):
            tools = await session.tools()
        assert len(tools) == 0
        assert len(tools.warnings) == 1
        assert tools.warnings[0].startswith("bad: unavailable: ")
        assert words in tools.warnings[0]
        assert code_of(await session.call("mcp__bad__echo", {"text": "x"})) == "mcp_unavailable"


@pytest.mark.requirement("catalogue:list-timeout")
async def test_a_list_that_does_not_come_fails_its_own_server_and_no_other(tmp_path: Path):
    gate = tmp_path / "gate"
    silent = any_fault(on={"tools/list": "never"})
    listed = do("fixed", result={"tools": [tool("echo")]})
    slow = any_fault(on={"tools/list": do("gate", path=str(gate), then=listed)})
    bad = record(silent, budgets={"list_timeout_ms": 300})
    good = record(slow, server_id="good")
    async with (
        Bridge.open([bad, good], settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as alone,
        bridge.session(server_ids=["bad", "good"]) as session,
        asyncio.timeout(20),
    ):
        # The list of the other takes longer than this budget allows, within its own.
        listing = asyncio.ensure_future(session.tools())
        late = await alone.tools()
        assert (len(late), len(late.warnings)) == (0, 1)
        assert late.warnings[0].startswith("bad: list_timeout: ")
        assert not listing.done()
        gate.touch()
        tools = await listing
        assert set(tools.names) == {"mcp__good__echo"}
        assert [warning.partition(": ")[0] for warning in tools.warnings] == ["bad"]
        assert (await session.call("mcp__good__echo", {"text": "x"})).ok
        assert code_of(await session.call("mcp__bad__echo", {"text": "x"})) == "mcp_unavailable"


@pytest.mark.requirement("call:remote-ref")
async def test_malformed_tools_are_left_out_with_a_warning_and_the_others_work():
    listed = [tool("echo"), *MALFORMED_TOOLS.values(), tool("fault"), tool("echo")]
    async with session_on(any_fault(tools=listed)) as session:
        tools = await session.tools()
        assert {"mcp__bad__echo", "mcp__bad__fault"} <= set(tools.names)
        assert not {f"mcp__bad__{name}" for name in UNUSABLE} & set(tools.names)
        assert any("quarantined: a second tool" in warning for warning in tools.warnings)
        for name in UNUSABLE - {"no_name", "name_is_a_number", "not_an_object"}:
            assert any(name in warning for warning in tools.warnings), name
        await works(session)
        outcome = await session.call("mcp__bad__no_schema", {})
        assert code_of(outcome) == "mcp_invalid_arguments"


UNUSABLE = frozenset({
    "no_schema", "null_schema", "schema_of_wrong_type", "remote_ref", "schema_is_text", "no_name",
    "name_is_a_number", "not_an_object",
})  # fmt: skip


@pytest.mark.requirement("wire:tool-cap")
async def test_tools_beyond_the_cap_are_left_out_and_counted(tmp_path: Path):
    server = any_fault(tools=[tool("echo"), *(tool(f"tool_{number}") for number in range(600))])
    async with session_on(server.saved_to(tmp_path / "script")) as session:
        tools = await session.tools()
        assert len(tools) == 512
        assert "more than 512 tools" in tools.warnings[0]
        await works(session)


@pytest.mark.requirement("wire:description-cap")
async def test_a_description_beyond_all_measure_is_cut(tmp_path: Path):
    server = any_fault(tools=[tool("echo", description="d" * 1_000_000)])
    async with session_on(server.saved_to(tmp_path / "script")) as session:
        (only,) = await session.tools()
        assert len(only.description) < 20_000
        await works(session)


# Size


@pytest.mark.requirement("wire:frame-cap", "transport:stdio:stderr")
@pytest.mark.parametrize("fault", LARGE)
async def test_a_fault_of_any_size_costs_little_memory(fault: str):
    step, code = LARGE[fault]
    words = ["-m", "tests.flow.memory_node", json.dumps(step)]
    node = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(25):
            said, _ = await node.communicate()
    finally:
        if node.returncode is None:
            node.kill()
            await node.wait()
    assert node.returncode == 0
    facts = json.loads(said)
    assert facts["code"] == code
    assert facts["grown"] < 64 * MEBIBYTE
