"""The sessions of a guest: never wider than what whoever runs it opened, and nothing started."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bascule.doors.hostcalls import handles
from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.host import Host
from bascule.doors.hostcalls.sessions import GuestSessions
from bascule.model.session import SessionLimits, SessionRequest
from bascule.node.bridge.opening import Opening
from tests.doors.hostcalls.hosts import TASKS, Hosts, hosts
from tests.doors.hostcalls.script import Script
from tests.doors.hostcalls.talks import AUTO, Talk
from tests.loop.fakes import FakeUpstream, asks, call, says
from tests.node.fakes import Doorman, text

__all__ = ["hosts"]


async def errno_of(work: Any) -> Errno | None:
    try:
        await work
    except Fault as fault:
        return Errno(fault.errno)
    return None


@pytest.mark.parametrize(
    ("task", "request_", "expected"),
    [
        ("writer", SessionRequest(), None),
        ("writer", SessionRequest(server_ids=("fs",)), None),
        ("writer", SessionRequest(server_ids=("spare",)), None),
        ("writer", SessionRequest(server_ids=("fs", "other")), Errno.EACCES),
        ("writer", SessionRequest(server_ids=("nosuch",)), Errno.EACCES),
        ("off", SessionRequest(enabled=True), Errno.EACCES),
        ("off", SessionRequest(), None),
    ],
)
async def test_a_session_is_refused_at_once_where_it_asks_for_more(
    hosts: Hosts, task: str, request_: SessionRequest, expected: Errno | None
):
    assert await errno_of(GuestSessions(hosts(task)).open(request_)) == expected
    assert hosts.caller.listed == []


@pytest.mark.parametrize(
    ("task", "server_id", "expected"),
    [
        ("writer", "fs", None),
        ("writer", "spare", None),
        ("writer", "other", Errno.EACCES),
        ("writer", "nosuch", Errno.ENOENT),
        ("writer", "fs/read", Errno.ENOENT),
        ("writer", "mcp__fs__read", Errno.ENOENT),
        ("writer", "", Errno.ENOENT),
        ("off", "fs", Errno.EACCES),
        ("off", "nosuch", Errno.EACCES),
    ],
)
async def test_a_server_may_be_opened_if_the_task_allows_it(
    hosts: Hosts, task: str, server_id: str, expected: Errno | None
):
    assert await errno_of(GuestSessions(hosts(task)).open_server(server_id)) == expected
    assert hosts.caller.listed == []


@pytest.mark.parametrize(
    "opening",
    [SessionRequest(server_ids=("fs",)), SessionRequest(enabled=False)],
    ids=["one server", "no MCP"],
)
async def test_what_whoever_runs_it_narrowed_stays_narrow(hosts: Hosts, opening: SessionRequest):
    host = hosts("writer", request=opening)
    wider = SessionRequest(enabled=True, server_ids=("fs", "spare"))
    assert await errno_of(GuestSessions(host).open(wider)) == Errno.EACCES
    assert await errno_of(GuestSessions(host).open_server("spare")) == Errno.EACCES


async def test_both_narrowings_count_for_tools(hosts: Hosts):
    host = hosts("writer", request=SessionRequest(tool_allowlist=("read", "write")))
    session = await GuestSessions(host).open(SessionRequest(tool_denylist=("write",)))
    assert [tool.name for tool in await session.tools()] == ["read"]


@pytest.mark.requirement("hostcalls:task-required")
async def test_without_a_task_no_server_can_be_named(hosts: Hosts):
    host = Host(listener=print, bridge=hosts.local, opening=Opening())
    named = SessionRequest(server_ids=("fs",))
    assert await errno_of(GuestSessions(host).open(named)) == Errno.EACCES
    assert await errno_of(GuestSessions(host).open_server("fs")) == Errno.EACCES


async def test_without_a_bridge_mcp_is_off():
    host = Host(listener=print)
    assert await errno_of(GuestSessions(host).open(SessionRequest())) == Errno.EACCES
    assert await errno_of(GuestSessions(host).open_server("fs")) == Errno.EACCES


async def test_a_server_elsewhere_that_does_not_answer_is_not_connected():
    hosts = Hosts(is_connected=True)
    await hosts.start()
    host = hosts("writer")
    await hosts.end_server()
    assert await errno_of(GuestSessions(host).open(SessionRequest())) == Errno.ENOTCONN


@pytest.mark.requirement("hostcalls:task-budgets")
async def test_a_conversation_spends_no_more_than_its_task_has(hosts: Hosts):
    talk = Talk()
    session = talk.create(max_iterations=100, max_total_tool_calls=100)
    talk.say(session, "read on")
    talk.receive(talk.send(session, AUTO))
    hosts.caller.answers("read", text("plain"))
    asking = (asks(call("mcp__fs__read", {"line": line})) for line in range(4))
    upstream = FakeUpstream(*asking, says("so far"))
    talked = await talk.run(upstream, **hosts.fields("thrifty"))
    budgets = talked.body["bascule"]["budgets"]
    assert (budgets["iterations"]["limit"], budgets["tool_calls"]["limit"]) == (3, 2)
    assert len(hosts.caller.sent) == 2
    assert upstream.asked[1]["messages"][-1]["content"] == "plain"


async def test_what_whoever_runs_it_allows_lowers_a_task_s_budgets(hosts: Hosts):
    talk = Talk()
    session = talk.create()
    talk.say(session, "hello")
    talk.receive(talk.send(session))
    given = hosts.fields("thrifty", budget=SessionLimits(max_iterations=2))
    budgets = (await talk.run(FakeUpstream(says("hi")), **given)).body["bascule"]["budgets"]
    assert (budgets["iterations"]["limit"], budgets["tool_calls"]["limit"]) == (2, 2)


async def test_one_session_looks_for_a_guest_and_follows_the_registry(hosts: Hosts):
    sessions = GuestSessions(hosts("writer"))
    await sessions.open_server("spare")
    assert await errno_of(sessions.open_server("other")) == Errno.EACCES
    writer = {**TASKS["writer"], "allowed_server_ids": ["fs", "other"]}
    hosts.world.apply(tasks={**TASKS, "writer": writer})
    assert await errno_of(sessions.open_server("spare")) == Errno.EACCES
    assert await errno_of(sessions.open(SessionRequest(server_ids=("spare",)))) == Errno.EACCES
    assert [one["server_id"] for one in await sessions.servers()] == ["fs", "other"]
    await sessions.open_server("other")
    hosts.world.apply(tasks={**TASKS, "writer": {**writer, "enabled": False}})
    assert await errno_of(sessions.open_server("other")) == Errno.EACCES
    looking = [one for one in hosts.world.ledger.opened() if one.mcp_effective_servers == ()]
    assert len(looking) == 1


async def test_what_a_guest_leaves_open_is_closed_wherever_it_ends():
    hosts, doorman, script = Hosts(is_connected=False), Doorman(), Script()
    hosts.caller.answers("read", doorman)
    script.open("spare")
    script.call(script.open("fs"), "read")
    guest = asyncio.create_task(script.run(**hosts.fields()))
    await doorman.next()
    guest.cancel()
    await asyncio.gather(guest, return_exceptions=True)
    opened = {one.session_id for one in hosts.world.ledger.opened()}
    assert set(hosts.caller.released) == opened
    assert len(opened) == 3  # one of them only looks


async def test_a_server_for_which_no_handle_is_left_is_closed_at_once(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(handles, "MOST_OPEN", 1)
    hosts, doorman, script = Hosts(is_connected=False), Doorman(), Script()
    hosts.caller.answers("read", doorman)
    fd = script.open("fs")
    full = [script.open("fs"), script.open("spare")]
    script.call(fd, "read")
    guest = asyncio.create_task(script.run(**hosts.fields()))
    held = await doorman.next()
    assert len(hosts.caller.released) == len(full)
    held.set()
    assert (await guest).answers[1:3] == [-Errno.EMFILE] * 2
