"""Calls of tools of the caller's own: written down and counted, though no server was asked."""

from __future__ import annotations

import hmac
from pathlib import Path

import pytest

from bascule import Bridge
from bascule.audit.events import CallEvent
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.model.session import SessionRequest
from bascule.node.bridge.core import BridgeCore
from bascule.node.bridge.opening import Opening
from bascule.testing import FakeClock
from tests.audit.test_sqlite_ledger import rows
from tests.loop.guest import broke, said
from tests.node.bridge.test_audit import counted
from tests.node.fakes import DIGEST_KEY, World

KEY = bytes(32)


@pytest.mark.requirement("hostcalls:own-tools:audit")
async def test_a_call_is_written_with_every_field_and_no_server():
    clock = FakeClock()
    world = World(clock=clock, tasks={"job": {"enabled": True, "default_server_ids": ["fs"]}})
    session = world.session(task="job", caller="alice")
    outcome = await session.note_own("count", {"text": "abc"}, said("ünf"), 0.25)
    assert world.ledger.calls() == [
        CallEvent(
            timestamp=clock.now(),
            request_id=outcome.request_id,
            session_id=session.session_id,
            task_id="job",
            caller="alice",
            token_id=None,
            server_id="",
            tool_name="count",
            revision=1,
            status="ok",
            code=None,
            layer="caller",
            reason="own_tool",
            rule="",
            duration_ms=250.0,
            output_bytes=4,
            arguments={"text": "string(3)"},
            arguments_digest=hmac.digest(DIGEST_KEY, b'{"text":"abc"}', "sha256").hex(),
            approval_id=None,
        )
    ]
    assert (outcome.text, outcome.revision) == ("ünf", 1)
    assert world.ledger.intents() == []


async def test_a_failure_is_written_with_its_code():
    world = World()
    outcome = await world.session().note_own("count", None, broke("no"), 0.0)
    event = world.ledger.last
    assert (event.status, event.code, event.request_id) == (
        "failed", "mcp_tool_error", outcome.request_id,
    )  # fmt: skip


async def test_no_secret_is_written_of_a_name_or_of_arguments():
    world = World()
    world.caller.hide("hunter2-hunter2")
    await world.session().note_own(
        "use-hunter2-hunter2", {"hunter2-hunter2": "hunter2-hunter2"}, said("ok"), 0.0
    )
    assert "hunter2" not in repr(world.ledger.last)


async def test_arguments_that_json_cannot_say_are_written_without_a_digest():
    world = World()
    await world.session().note_own("count", {"a": object()}, said("ok"), 0.0)
    assert (world.ledger.last.tool_name, world.ledger.last.arguments_digest) == ("count", None)


@pytest.mark.requirement("hostcalls:own-tools:metrics")
async def test_own_tools_are_counted_under_a_server_that_cannot_be():
    world = World()
    session = world.session()
    await session.note_own("count", {}, said("four"), 0.002)
    await session.note_own("count", {}, broke("no"), 0.002)
    own = {"server_id": "_own", "tool": "count"}
    assert counted(world, "mcp_tool_call_total", **own) == 2
    assert counted(world, "mcp_tool_call_error_total", code="mcp_tool_error", **own) == 1
    assert counted(world, "mcp_tool_call_output_bytes_sum", **own) == 4


@pytest.mark.requirement("hostcalls:own-tools:metrics")
async def test_names_that_callers_make_up_do_not_become_labels_without_end():
    world = World()
    session = world.session()
    for number in range(250):
        await session.note_own(f"tool-{number}", {}, said("ok"), 0.0)
    names = {tool for (server, tool), _ in world.core.metrics.tools() if server == "_own"}
    assert len(names) == 201
    assert counted(world, "mcp_tool_call_total", server_id="_own", tool="_other") == 50
    assert counted(world, "mcp_tool_call_total", server_id="_own") == 250


async def test_a_token_has_no_more_of_them_written_than_its_bytes(tmp_path: Path):
    clock, world = FakeClock(), World()
    settings = LedgerSettings(token_bytes_per_day=1024 * 1024)
    ledger = await SqliteLedger(tmp_path, key=KEY, settings=settings, clock=clock).open()
    core = BridgeCore(world.core.snapshot, world.caller, ledger, clock=clock)
    opening = Opening(request=SessionRequest(server_ids=("fs",)), token_id="tok-1")
    session = core.open_session(opening)
    large = {f"key-{number}-{'x' * 90}": 1 for number in range(100)}
    for _ in range(200):
        await session.note_own("count", large, said("ok"), 0.0)
        ledger.settle()
    await ledger.close()
    found = rows(tmp_path)
    written = [row for row in found if row["event"] == "call"]
    [further] = [row for row in found if row["event"] == "denials_counted"]
    assert 50 < len(written) < 150
    assert len(written) + further["count"] == 200


async def test_those_that_went_well_are_written_however_many_there_are(tmp_path: Path):
    clock, world = FakeClock(), World()
    ledger = await SqliteLedger(tmp_path, key=KEY, clock=clock).open()
    core = BridgeCore(world.core.snapshot, world.caller, ledger, clock=clock)
    opening = Opening(request=SessionRequest(server_ids=("fs",)), token_id="tok-1")
    session = core.open_session(opening)
    for _ in range(150):
        await session.note_own("count", {}, said("ok"), 0.0)
    await ledger.close()
    assert sum(row["event"] == "call" for row in rows(tmp_path)) == 150


def test_a_program_without_async_notes_them_too():
    with Bridge.blocking([]) as bridge, bridge.session() as session:
        outcome = session.note_own("count", {"a": 1}, said("ok"), 0.0)
    assert outcome.request_id == f"{session.session_id}-1"
