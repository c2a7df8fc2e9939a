"""What is refused is counted and written down: calls, servers and whole sessions."""

from __future__ import annotations

import asyncio

import pytest

from bascule.audit.events import SessionRefusal
from bascule.audit.metrics import MAX_GUESSED
from bascule.errors import InvalidRecord, ServerUnavailable, SessionRefused
from tests.node.bridge.test_audit import counted
from tests.node.fakes import World, failed
from tests.policy.build import server

TOTAL, ERRORS = "mcp_tool_call_total", "mcp_tool_call_error_total"
DENIED = "mcp_policy_denied"


def refusals(world: World) -> list[SessionRefusal]:
    return [event for event in world.ledger.events if isinstance(event, SessionRefusal)]


@pytest.mark.requirement("observability:denied-calls")
@pytest.mark.parametrize("listed", [True, False])
async def test_a_denied_call_is_a_call_and_an_error(listed: bool):
    world = World(tasks={"job": {"enabled": True, "default_server_ids": ["fs"],
                                 "tool_denylist": ["delete"]}})  # fmt: skip
    session = world.session(task="job")
    if listed:
        await session.tools()
    failed(await session.call("mcp__fs__delete", {}), DENIED)
    fs = {"server_id": "fs", "tool": "delete"}
    assert counted(world, TOTAL, **fs) == 1
    assert counted(world, ERRORS, **fs, code=DENIED) == 1
    assert counted(world, "mcp_tool_call_latency_ms_count", **fs) == 0
    await session.tools()
    failed(await session.call("mcp__fs__delete", {}), DENIED)
    assert counted(world, TOTAL, **fs) == 2


@pytest.mark.requirement("observability:denied-calls")
async def test_a_call_of_a_server_that_never_listed_is_counted_too():
    world = World()
    world.caller.fails("fs", ServerUnavailable("no such program"))
    failed(await world.session().call("mcp__fs__read", {}), "mcp_unavailable")
    assert counted(world, TOTAL, server_id="fs", tool="read") == 1
    assert counted(world, ERRORS, server_id="fs", tool="read", code="mcp_unavailable") == 1


async def test_a_caller_who_leaves_before_its_tool_was_found_is_counted():
    world = World()
    world.caller.hold_listing("fs")
    call = asyncio.ensure_future(world.session().call("mcp__fs__read", {}))
    await asyncio.wait([call], timeout=0.01)
    call.cancel()
    await asyncio.wait([call])
    assert counted(world, ERRORS, server_id="fs", code="other") == 1


@pytest.mark.requirement("observability:denied-calls")
async def test_names_that_callers_make_up_do_not_become_series_without_end():
    denied = {"enabled": True, "default_server_ids": ["fs"], "tool_denylist": ["drop_*"]}
    world = World(tasks={"job": denied})
    session = world.session(task="job")
    for number in range(3 * MAX_GUESSED):  # nobody has listed the server's tools so far
        failed(await session.call(f"mcp__fs__drop_{number}", {}), DENIED)
    for number in range(3 * MAX_GUESSED):
        failed(await session.call(f"mcp__nobody{number}__x", {}), "mcp_invalid_arguments")
    for number in range(50):
        failed(await session.call(f"mcp__fs__listed_nowhere_{number}", {}), "mcp_invalid_arguments")
        failed(await session.call(f"mcp__fs__drop_nowhere_{number}", {}), DENIED)
    text = world.core.metrics.render().decode()
    assert "nobody" not in text
    assert "nowhere" not in text
    assert text.count('tool="drop_') == 2 * MAX_GUESSED
    assert counted(world, TOTAL) == 6 * MAX_GUESSED + 100
    assert counted(world, TOTAL, server_id="_other") == 3 * MAX_GUESSED
    assert counted(world, ERRORS, server_id="fs", code=DENIED) == 3 * MAX_GUESSED + 50
    assert counted(world, "mcp_denied_reason", server_id="fs", reason="task_denied") == (
        3 * MAX_GUESSED + 50
    )
    made_up = {"server_id": "_other", "reason": "unknown_tool"}
    assert counted(world, "mcp_denied_reason", **made_up) == 3 * MAX_GUESSED


@pytest.mark.requirement("observability:not-asked")
@pytest.mark.parametrize(
    ("task", "options"),
    [
        ({"default_server_ids": ["fs"], "allowed_server_ids": ["fs", "git", "off"]}, {}),
        ({"default_server_ids": ["fs", "git"]}, {"server_ids": ["fs"]}),
        ({"enabled": False, "default_server_ids": ["fs", "git"]}, {}),
        ({"default_server_ids": []}, {}),
    ],
)
async def test_servers_that_nobody_asked_for_are_not_denied(
    task: dict[str, object], options: dict[str, list[str]]
):
    world = World(
        server("fs"),
        server("git"),
        server("off", enabled=False),
        tasks={"job": {"enabled": True, **task}},
    )
    await world.session(task="job", **options).tools()
    assert counted(world, "mcp_denied_reason") == 0
    assert counted(world, "mcp_injection_total", status="denied") == 0


@pytest.mark.requirement("observability:not-asked")
async def test_servers_that_were_asked_for_are_denied():
    job = {"enabled": True, "default_server_ids": ["fs", "off", "gone"]}
    world = World(server("fs"), server("off", enabled=False), tasks={"job": job})
    world.session(task="job")
    assert counted(world, "mcp_denied_reason", server_id="off", reason="server_disabled") == 1
    assert counted(world, "mcp_denied_reason", server_id="_other", reason="unknown_server") == 1
    assert counted(world, "mcp_injection_total", server_id="off", status="denied") == 1


@pytest.mark.requirement("observability:session-refused", "audit:session-refused")
async def test_a_refused_session_leaves_an_event_and_a_metric():
    world = World(server("fs"), server("git"), tasks={
        "job": {"enabled": True, "default_server_ids": ["git"]}, "off": {"enabled": False},
    })  # fmt: skip
    with pytest.raises(SessionRefused):
        world.session("fs", task="job", caller="alice")
    [event] = refusals(world)
    assert (event.reason, event.server_id, event.task_id) == ("not_allowed", "fs", "job")
    assert (event.caller, event.session_id, event.revision) == ("alice", None, 1)
    assert "outside the servers its task allows" in event.message
    assert counted(world, "mcp_session_refused_total", reason="not_allowed") == 1


@pytest.mark.requirement("observability:session-refused")
async def test_a_session_of_a_task_that_is_not_there_is_a_refused_session():
    world = World()
    with pytest.raises(InvalidRecord):
        world.session("fs", task="nobody's", caller="alice")
    assert [event.reason for event in refusals(world)] == ["unknown_task"]
    assert counted(world, "mcp_session_refused_total", reason="unknown_task") == 1


@pytest.mark.requirement("observability:session-refused")
async def test_an_open_session_that_its_task_refuses_now_is_written_down_once():
    world = World(tasks={"job": {"enabled": True, "default_server_ids": ["fs"]}})
    session = world.session("fs", task="job")
    world.apply(tasks={"job": {"enabled": True, "default_server_ids": []}})
    for _ in range(3):
        failed(await session.call("mcp__fs__read", {}), DENIED)
    [event] = refusals(world)
    assert (event.session_id, event.reason) == (session.session_id, "not_allowed")
