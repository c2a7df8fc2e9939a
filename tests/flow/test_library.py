"""The library as an agent developer uses it, end to end, with the bundled demo server."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from bascule import (
    AskFunction,
    Bridge,
    InvalidRecord,
    JsonLinesLedger,
    MemoryLedger,
    NodeRules,
    Server,
    ServerRecord,
    SessionLimits,
    SessionRefused,
    ToolError,
)
from bascule.audit.events import CallEvent, CallIntent
from bascule.model.approval import ApprovalRequest
from bascule.model.call import Progress
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.testing import ScriptedServer, do
from tests.flow.servers import record

DEMO = (sys.executable, "-m", "bascule.demo.server")
NOTES = Server.stdio("notes", *DEMO, effects={"read": ["list_*", "read_*", "search_*"]})


def demo_directory(folder: Path) -> Path:
    """Write the demo's own record as a user would have it, with this Python."""
    shipped = files("bascule.demo").joinpath("records", "notes.toml").read_text(encoding="utf-8")
    assert 'command = "python3"' in shipped
    mine = shipped.replace('"python3"', json.dumps(sys.executable))
    (folder / "notes.toml").write_text(mine, encoding="utf-8")
    return folder


@pytest.mark.requirement(
    "bridge:open:records", "bridge:server:stdio", "bridge:outcome:fields", "bridge:explain"
)
async def test_the_example_of_the_design_works_as_it_is_written():
    notes = Server.stdio("notes", *DEMO, allow=["list_*", "read_*", "current_time"])
    async with Bridge.open([notes]) as bridge:  # noqa: SIM117 - as it is written
        async with bridge.session(server_ids=["notes"], caller="alice") as session:
            tools = await session.tools()
            assert tools.names == (
                "mcp__notes__current_time",
                "mcp__notes__list_notes",
                "mcp__notes__read_note",
            )
            assert tools.warnings == ()
            assert tools.openai()[2]["function"]["name"] == "mcp__notes__read_note"
            assert tools.anthropic()[2]["input_schema"]["required"] == ["name"]
            out = await session.call(
                "mcp__notes__read_note", {"name": "drawbridge"}, timeout=5, on_progress=print
            )
            assert out.ok
            assert out.structured["name"] == "drawbridge"
            assert json.loads(out.text) == out.structured == out.unwrap()
            assert out.content[0]["type"] == "text"
            assert (out.error, out.truncated, out.revision) == (None, None, tools.revision)
            assert out.request_id
            denied = session.explain("mcp__notes__delete_note")
            assert not denied.allowed
            assert "allowed_tools" in str(denied)


@pytest.mark.requirement("policy:python-defaults", "bridge:server:stdio")
def test_a_server_configured_in_code_allows_everything_and_says_so():
    assert isinstance(NOTES, ServerRecord)
    assert NOTES.allowed_tools == ("*",)
    assert Server.stdio("a", "b", allow=[]).allowed_tools == ()
    with pytest.raises(InvalidRecord, match="server_id"):
        Server.stdio("Not An Id", "b")


@pytest.mark.requirement("bridge:open:directory")
async def test_a_directory_of_records_governs_as_it_says(tmp_path: Path):
    questions: list[ApprovalRequest] = []

    def ask(question: ApprovalRequest) -> bool:
        questions.append(question)
        return question.arguments["name"] == "shopping"

    folder = demo_directory(tmp_path)
    async with Bridge.open(folder, approver=AskFunction(ask)) as bridge:
        session = bridge.session(server_ids=["notes"], caller="alice")
        kept = await session.call("mcp__notes__delete_note", {"name": "welcome"})
        gone = await session.call("mcp__notes__delete_note", {"name": "shopping"})
        left = await session.call("notes/list_notes")
    assert [question.arguments["name"] for question in questions] == ["welcome", "shopping"]
    assert kept.error is not None
    assert kept.error.code == "mcp_approval_denied"
    assert gone.ok
    names = [note["name"] for note in left.unwrap()["notes"]]
    assert "welcome" in names
    assert "shopping" not in names


@pytest.mark.requirement("bridge:open:directory")
def test_a_broken_record_is_named_before_anything_starts(tmp_path: Path):
    (tmp_path / "bad.toml").write_text('server_id = "x"\n', encoding="utf-8")
    with pytest.raises(InvalidRecord, match=r"bad\.toml"):
        Bridge.open(tmp_path)


@pytest.mark.requirement("bridge:open:records")
def test_records_that_claim_the_same_name_are_refused():
    with pytest.raises(InvalidRecord, match="given twice"):
        Bridge.open([NOTES, NOTES])
    other = Server.stdio("other", *DEMO, tool_namespace="mcp.notes")
    with pytest.raises(InvalidRecord, match="already the namespace"):
        Bridge.open([NOTES, other])


@pytest.mark.requirement("bridge:outcome:unwrap", "outcomes:tool-error")
async def test_a_tool_error_is_data_and_unwrap_makes_it_an_exception():
    async with Bridge.open([NOTES]) as bridge:
        session = bridge.session(server_ids=["notes"])
        out = await session.call("mcp__notes__read_note", {"name": "no such note"})
        assert not out.ok
        assert "there is no note" in out.text
        with pytest.raises(ToolError, match="there is no note") as raised:
            out.unwrap()
        assert (raised.value.code, raised.value.retryable) == ("mcp_tool_error", False)


@pytest.mark.requirement("outcomes:invalid-arguments")
async def test_arguments_are_checked_here_with_the_path_of_what_is_wrong():
    async with Bridge.open([NOTES]) as bridge:
        session = bridge.session(server_ids=["notes"])
        out = await session.call("mcp__notes__search_notes", {"query": "a", "limit": 1000})
    assert out.error is not None
    assert out.error.code == "mcp_invalid_arguments"
    assert "arguments.limit" in out.error.message


@pytest.mark.requirement("bridge:session:parameters", "bridge:session:refused")
async def test_a_task_bounds_its_sessions():
    task = TaskRecord(
        task_id="reader",
        mcp=TaskPolicy(
            enabled=True,
            default_server_ids=("notes",),
            allowed_server_ids=("notes",),
            read_only=True,
        ),
    )
    snapshot = Snapshot(revision=9, servers={"notes": NOTES}, tasks={"reader": task})
    async with Bridge.open(snapshot) as bridge:
        with pytest.raises(SessionRefused, match="'time'"):
            bridge.session(task="reader", server_ids=["time"])
        session = bridge.session(task="reader", limits=SessionLimits(max_total_tool_calls=1))
        assert (await session.tools()).revision == 9
        out = await session.call("mcp__notes__write_note", {"name": "a", "text": "b"})
        assert out.error is not None
        assert out.error.code == "mcp_policy_denied"
        assert (await session.call("mcp__notes__list_notes")).ok
        out = await session.call("mcp__notes__list_notes")
        assert out.error is not None
        assert out.error.code == "mcp_budget_exceeded"


@pytest.mark.requirement(
    "bridge:tools:never-fails",
    "references:missing-fails-alone",
    "references:env:missing-contributes-nothing",
)
async def test_a_server_that_cannot_start_is_a_warning_beside_one_that_can():
    broken = Server.stdio("broken", "no-such-program-anywhere")
    needy = Server.stdio("needy", *DEMO, env={"TOKEN": "${ENV:LIBRARY_TEST_NOT_SET}"})
    async with Bridge.open([NOTES, broken, needy]) as bridge:
        session = bridge.session(server_ids=["broken", "notes", "needy"])
        tools = await session.tools()
        assert {tool.server_id for tool in tools} == {"notes"}
        reasons = {line.server: line.reason for line in session.decisions if not line.allowed}
        assert reasons["needy"] == "env_missing"
        assert set(reasons) == {"broken", "needy"}
        assert any("LIBRARY_TEST_NOT_SET" in warning for warning in tools.warnings)
        assert (await session.call("mcp__notes__list_notes")).ok
        assert session.explain("needy").decision.reason == "env_missing"


@pytest.mark.requirement("policy:log:node-layer")
async def test_what_the_nodes_rules_refuse_says_so():
    async with Bridge.open([NOTES], rules=NodeRules(executables=())) as bridge:
        session = bridge.session(server_ids=["notes"])
        out = await session.call("mcp__notes__list_notes")
        assert out.error is not None
        assert (out.error.code, out.error.retryable) == ("mcp_unavailable", False)
        assert session.explain("mcp__notes__list_notes").decision.reason == "launch_denied"


@pytest.mark.requirement("references:never-written", "security:no-credentials-in-logs")
async def test_a_secret_the_server_was_given_is_neither_shown_nor_written(tmp_path: Path):
    secret = "correct-horse-battery-staple"
    server = record(
        ScriptedServer(
            behaviours={
                "env": "env",
                "oops": do("error", text=f"bad token {secret}"),
                "crash": do("rpc_error", message=f"failed with {secret}"),
            }
        ),
        "leaky",
        env={"API_TOKEN": "${ENV:TEST_TOKEN}"},
    )
    path = tmp_path / "ledger.jsonl"
    ledger = JsonLinesLedger(path)
    async with Bridge.open([server], environ={"TEST_TOKEN": secret}, ledger=ledger) as bridge:
        session = bridge.session(server_ids=["leaky"])
        outs = [await session.call(f"mcp__leaky__{tool}") for tool in ("env", "oops", "crash")]
        assert outs[0].structured["env"]["API_TOKEN"].startswith("[masked:")
        assert secret not in repr((outs, bridge.statuses(), session.decisions))
    ledger.close()
    written = path.read_text(encoding="utf-8")
    assert len(written.splitlines()) == 1 + 2 * len(outs)
    assert secret not in written


@pytest.mark.requirement("references:allowed-variables:python", "observability:connect-total")
async def test_a_record_may_read_any_variable_and_its_connection_is_counted():
    server = record(ScriptedServer(behaviours={"env": "env"}), "fs", env={"A": "${ENV:COLOUR}"})
    async with Bridge.open([server], environ={"COLOUR": "bluish-green"}) as bridge:
        for _ in range(2):
            out = await bridge.session(server_ids=["fs"]).call("mcp__fs__env")
            assert out.unwrap()["env"]["A"] == "bluish-green"
        shown = bridge.metrics.render().decode()
    assert 'mcp_server_connect_total{server_id="fs"} 1.0' in shown


@pytest.mark.requirement("call:progress:reported")
async def test_progress_of_a_real_server_is_told():
    heard: list[Progress] = []
    server = record(ScriptedServer(behaviours={"work": do("progress", count=3)}), "slow")
    async with Bridge.open([server]) as bridge:
        session = bridge.session(server_ids=["slow"])
        out = await session.call("mcp__slow__work", {"text": "done"}, on_progress=heard.append)
    assert out.text == "done"
    assert [(step.progress, step.total) for step in heard] == [(1, 3), (2, 3), (3, 3)]


async def test_a_server_moved_to_other_tools_is_followed_by_open_sessions():
    before = record(ScriptedServer(behaviours={"old": "echo"}), "fs")
    after = record(ScriptedServer(behaviours={"new": "echo"}), "fs")
    async with Bridge.open([before]) as bridge:
        session = bridge.session(server_ids=["fs"])
        assert (await session.tools()).names == ("mcp__fs__old",)
        bridge.snapshot = moved = Snapshot(revision=2, servers={"fs": after})
        session.explain("fs")  # a session may look between the snapshot and the connections
        await bridge.apply(moved)
        async with asyncio.timeout(10):
            assert (await session.call("mcp__fs__new", {"text": "a"})).ok
        out = await session.call("mcp__fs__old")
        assert out.error is not None
        assert out.error.code == "mcp_invalid_arguments"


@pytest.mark.requirement("audit:unambiguous")
async def test_a_ledger_in_memory_has_the_story_of_a_session():
    ledger = MemoryLedger()
    async with Bridge.open([NOTES], ledger=ledger) as bridge:
        session = bridge.session(server_ids=["notes"])
        await session.tools()
        await session.call("mcp__notes__list_notes")
        await session.call("mcp__notes__no_such_tool")
    kinds = [type(event).__name__ for event in ledger.events]
    assert kinds == ["SessionOpened", "ToolsListed", "CallIntent", "CallEvent", "CallEvent"]
    intent, done, denied = list(ledger.events)[2:]
    assert isinstance(intent, CallIntent)
    assert isinstance(done, CallEvent)
    assert isinstance(denied, CallEvent)
    assert (done.server_id, done.tool_name, done.status) == ("notes", "list_notes", "ok")
    assert denied.reason == "unknown_tool"


@pytest.mark.requirement("bridge:blocking")
def test_the_same_without_async():
    with (
        Bridge.blocking([NOTES]) as bridge,
        bridge.session(server_ids=["notes"], caller="alice") as session,
    ):
        assert "mcp__notes__list_notes" in session.tools().names
        assert session.call("mcp__notes__read_note", {"name": "welcome"}).ok
        assert session.explain("mcp__notes__list_notes").allowed


async def test_a_bridge_serves_without_async_with_too():
    bridge = Bridge.open([Server.stdio("notes", sys.executable, "-m", "bascule.demo.server")])
    try:
        session = bridge.session(server_ids=["notes"])
        assert (await session.call("mcp__notes__list_notes")).ok
    finally:
        await bridge.close()


@pytest.mark.requirement("bridge:session:no-servers")
async def test_a_session_that_can_have_no_tools_is_warned_about(caplog: pytest.LogCaptureFixture):
    async with Bridge.open([NOTES]) as bridge:
        bridge.session(server_ids=["notes"])
        bridge.session(server_ids=[])
        assert caplog.messages == []
        bridge.session(server_ids=["nots"])
        bridge.session()
    misspelt, without = caplog.messages
    assert misspelt == "there is no server 'nots'; did you mean 'notes'?"
    assert without == "a session without server_ids and task has no tools; known: notes"


@pytest.mark.requirement("bridge:open:directory")
def test_a_path_that_is_not_there_is_named_whole(tmp_path: Path):
    with pytest.raises(InvalidRecord, match="there is no file or directory") as raised:
        Bridge.open(tmp_path / "mcp.d")
    assert str(tmp_path / "mcp.d") in str(raised.value)
