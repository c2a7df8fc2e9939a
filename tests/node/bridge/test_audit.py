"""What is written down of sessions, lists and calls, and what is counted."""

from __future__ import annotations

import errno
import hmac
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bascule.audit.events import CallEvent, LeavingCall, SessionRefusal
from bascule.audit.journal import Disk
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.search import LedgerReader
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.errors import (
    BudgetExceeded,
    DeadlineExceeded,
    InvalidRecord,
    OutcomeUnknown,
    ServerUnavailable,
)
from bascule.model.session import SessionRequest
from bascule.node.bridge.opening import Opening
from bascule.testing import FakeClock
from tests.node.fakes import DIGEST_KEY, TracingLedger, World, failed, succeeded, text
from tests.policy.build import server

JOB = {"enabled": True, "default_server_ids": ["fs", "gone"]}


def counted(world: World, name: str, **labels: str) -> float:
    """Read one figure from the text that Prometheus is shown."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(world.core.metrics.render().decode())
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


@pytest.mark.requirement("audit:session-opened", "observability:effective-servers")
async def test_opening_a_session_is_written_with_servers_and_decisions():
    clock = FakeClock()
    world = World(clock=clock, tasks={"job": JOB})
    session = world.session(task="job", caller="alice")
    [opened] = world.ledger.opened()
    assert opened.timestamp == clock.now()
    assert opened.session_id == session.session_id
    assert (opened.task_id, opened.caller, opened.revision) == ("job", "alice", 1)
    assert opened.mcp_effective_servers == ("fs",)
    assert {(line.server, line.reason) for line in opened.decisions} == {
        ("fs", "allowed"),
        ("gone", "unknown_server"),
    }
    await session.tools()
    [listed] = world.ledger.listings()
    assert listed.tool_count == 3
    assert (listed.task_id, listed.caller, listed.revision) == ("job", "alice", 1)
    assert listed.servers == {"fs": "ok"}


@pytest.mark.requirement("audit:call:fields", "audit:revision", "audit:unambiguous")
async def test_a_call_is_written_with_every_field():
    clock = FakeClock()
    world = World(clock=clock, tasks={"job": {"enabled": True, "default_server_ids": ["fs"]}})

    async def slow(_: object) -> dict[str, Any]:
        await clock.advance(0.25)
        return text("ünf")

    world.caller.answers("read", slow)
    session = world.session(task="job", caller="alice")
    outcome = succeeded(await session.call("mcp.fs.read", {"text": "abc"}))
    assert world.ledger.calls() == [
        CallEvent(
            timestamp=clock.now(),
            request_id=outcome.request_id,
            session_id=session.session_id,
            task_id="job",
            caller="alice",
            token_id=None,
            server_id="fs",
            tool_name="read",
            revision=1,
            status="ok",
            code=None,
            layer="session",
            reason="allowed",
            rule="",
            duration_ms=250.0,
            output_bytes=4,
            arguments={"text": "string(3)"},
            arguments_digest=hmac.digest(DIGEST_KEY, b'{"text":"abc"}', "sha256").hex(),
            approval_id=None,
        )
    ]


@pytest.mark.requirement("audit:denial", "audit:unambiguous")
async def test_a_denial_is_written_with_server_tool_and_reason():
    world = World(platform={"tool_denylist": ["fs/delete"]})
    session = world.session(caller="alice")
    outcome = failed(
        await session.call("mcp__fs__delete", {"text": "secret words"}), "mcp_policy_denied"
    )
    event = world.ledger.last
    assert (event.server_id, event.tool_name, event.status) == ("fs", "delete", "denied")
    assert (event.layer, event.reason) == ("platform", "platform_denied")
    assert "fs/delete" in event.rule
    assert event.code == "mcp_policy_denied"
    assert event.request_id == outcome.request_id
    assert event.caller == "alice"
    assert event.arguments == {"text": "string(12)"}
    assert event.arguments_digest is None


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (text("a"), "ok", None),
        (text("a", isError=True), "failed", "mcp_tool_error"),
        (DeadlineExceeded("late"), "failed", "mcp_timeout"),
        (OutcomeUnknown("lost"), "unknown", "mcp_outcome_unknown"),
        (ServerUnavailable("down"), "failed", "mcp_unavailable"),
    ],
)
async def test_each_way_a_call_ends_has_its_status(answer: Any, status: str, code: str | None):
    world = World()
    world.caller.answers("read", answer)
    await world.session().call("mcp__fs__read")
    assert (world.ledger.last.status, world.ledger.last.code) == (status, code)


@pytest.mark.requirement("audit:call:redacted")
@pytest.mark.parametrize(
    ("mode", "written"),
    [
        ("shape", {"text": "string(5)", "deep": {"Token": "string(3)", "n": "number"}}),
        ({"keys": ["token"]}, {"text": "hello", "deep": {"Token": "[redacted]", "n": 7}}),
    ],
)
async def test_arguments_are_written_as_the_record_says(mode: Any, written: Any):
    world = World(server("fs", hygiene={"redact": mode}))
    arguments = {"text": "hello", "deep": {"Token": "abc", "n": 7}}
    await world.session().call("mcp__fs__read", arguments)
    assert world.ledger.last.arguments == written


@pytest.mark.requirement("audit:call:redacted")
async def test_arguments_that_were_masked_are_written_masked():
    key = "AKIA" + "Q3ZK7WXN5PLM2RTV"
    world = World(server("fs", hygiene={"redact": {"keys": []}}))
    await world.session().call("mcp__fs__read", {"text": key})
    assert "[masked:" in world.ledger.last.arguments["text"]
    assert key not in repr(world.ledger.events)


async def test_arguments_that_are_no_object_are_not_written_at_all():
    world = World()
    arguments: Any = ["secret words"]
    await world.session().call("mcp__fs__read", arguments)
    assert world.ledger.last.arguments is None


@pytest.mark.requirement("observability:call-total", "observability:error-total")
async def test_calls_and_failures_are_counted_by_server_tool_and_code():
    world = World()
    session = world.session()
    succeeded(await session.call("mcp__fs__read"))
    world.caller.answers("write", DeadlineExceeded("late"))
    for _ in range(2):
        failed(await session.call("mcp__fs__write"), "mcp_timeout")
    assert counted(world, "mcp_tool_call_total", server_id="fs", tool="read") == 1
    assert counted(world, "mcp_tool_call_total", server_id="fs", tool="write") == 2
    assert counted(world, "mcp_tool_call_error_total", tool="write", code="mcp_timeout") == 2
    assert counted(world, "mcp_tool_call_error_total", tool="read") == 0


@pytest.mark.requirement("observability:latency", "observability:output-bytes")
async def test_durations_and_sizes_are_measured():
    clock = FakeClock()
    world = World(clock=clock)

    async def slow(_: object) -> dict[str, Any]:
        await clock.advance(0.03)
        return text("é" * 200)

    world.caller.answers("read", slow)
    succeeded(await world.session().call("mcp__fs__read"))
    assert counted(world, "mcp_tool_call_latency_ms_sum", tool="read") == pytest.approx(30)
    assert counted(world, "mcp_tool_call_output_bytes_sum", tool="read") == 400


@pytest.mark.requirement("observability:injection-total", "observability:denied-reason")
async def test_offered_lists_and_denials_are_counted():
    world = World(server("fs"), server("bad"), server("off", enabled=False))
    world.caller.fails("bad", ServerUnavailable("slow", reason="list_timeout"))
    session = world.session()
    await session.tools()
    assert counted(world, "mcp_injection_total", server_id="fs", status="success") == 1
    assert counted(world, "mcp_injection_total", server_id="bad", status="failed") == 1
    assert counted(world, "mcp_injection_total", server_id="off", status="denied") == 1
    assert counted(world, "mcp_denied_reason", server_id="off", reason="server_disabled") == 1
    assert counted(world, "mcp_denied_reason", server_id="bad", reason="list_timeout") == 1
    failed(await session.call("mcp__fs__nothing"), "mcp_invalid_arguments")
    assert counted(world, "mcp_denied_reason", server_id="fs", reason="unknown_tool") == 1


async def test_made_up_names_make_no_series_of_their_own():
    world = World()
    session = world.session("fs", *(f"made{number}" for number in range(20)))
    for number in range(20):
        await session.call(f"mcp__made{number}__up")
    shown = world.core.metrics.render().decode()
    assert "made0" not in shown
    assert counted(world, "mcp_denied_reason", reason="unknown_server") == 20
    assert counted(world, "mcp_denied_reason", reason="unknown_tool") == 20


@pytest.mark.parametrize("error", [LedgerUnavailable("the disk is full")])
async def test_a_call_that_cannot_be_written_down_does_not_leave_and_says_why(
    error: LedgerUnavailable,
):
    class Unwritable(TracingLedger):
        def intent(self, leaving: LeavingCall) -> None:
            raise error

    world = World(ledger=Unwritable)
    outcome = failed(await world.session().call("mcp__fs__write", {"text": "a"}), "mcp_unavailable")
    assert (outcome.error.message, outcome.error.retryable) == ("the disk is full", True)
    assert outcome.error.details == {"reason": "ledger_unavailable"}
    event = world.ledger.last
    assert (event.status, event.layer, event.reason) == ("failed", "node", "ledger_unavailable")
    assert "write" not in world.caller.trace
    assert world.caller.sent == []


async def test_a_token_whose_share_of_the_ledger_is_used_up_has_exceeded_a_budget():
    class Spent(TracingLedger):
        def intent(self, leaving: LeavingCall) -> None:
            raise BudgetExceeded("all of it", retry_after=7.0)

    world = World(ledger=Spent)
    outcome = failed(
        await world.session().call("mcp__fs__read", {"text": "a"}), "mcp_budget_exceeded"
    )
    assert (outcome.error.message, outcome.error.retry_after) == ("all of it", 7.0)
    assert world.caller.sent == []


async def test_a_session_refused_is_written_with_its_token_whenever_that_happens():
    world = World(tasks={"job": {"enabled": True, "allowed_server_ids": ["fs"]}})
    asked = SessionRequest(server_ids=("fs",))
    session = world.core.open_session(
        Opening(request=asked, task="job", caller="alice", token_id="tok-1")
    )
    world.apply(tasks={"job": {"enabled": True, "allowed_server_ids": ["other"]}})
    await session.call("mcp.fs.read", {"text": "a"})
    with pytest.raises(InvalidRecord):
        world.core.open_session(Opening(task="gone", caller="alice", token_id="tok-1"))
    refusals = [event for event in world.ledger.events if isinstance(event, SessionRefusal)]
    assert [(event.caller, event.token_id) for event in refusals] == [("alice", "tok-1")] * 2


async def test_a_call_whose_intent_is_written_ends_in_writing_however_much_was_refused(
    tmp_path: Path,
):
    class Dying(Disk):
        @staticmethod
        def flush(_: int) -> None:
            raise OSError(errno.EIO, "input/output error")

    settings = LedgerSettings(durability="power")
    ledger = await SqliteLedger(tmp_path, key=bytes(32), settings=settings, disk=Dying()).open()
    core = World().core
    core.ledger = ledger
    opening = Opening(request=SessionRequest(server_ids=("fs",)), token_id="tok-1")
    session = core.open_session(opening)
    for _ in range(150):
        await session.call("mcp.fs.nope", {})
    outcome = failed(await session.call("mcp.fs.read", {"text": "a"}), "mcp_unavailable")
    await ledger.taken_in()
    life = await LedgerReader(ledger.database, ledger.is_live).life(outcome.request_id)
    assert life is not None
    assert [entry.event["event"] for entry in life.entries] == ["call_intent", "call"]
    await ledger.close()
