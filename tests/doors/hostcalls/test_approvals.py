"""A guest's call that needs approval: asked first, then waited for and spent, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bascule.audit.approvals import MemoryStore
from tests.doors.asking import Counted, decided
from tests.doors.hostcalls.hosts import Hosts
from tests.doors.hostcalls.script import Script
from tests.node.fakes import text

SET_FLAGS = 1
ARGUMENTS = '{"text": "x"}'


@pytest.fixture
async def approvals() -> AsyncIterator[Counted]:
    approvals = Counted(MemoryStore())
    yield approvals
    await approvals.close()


@pytest.fixture(params=["here", "connected"])
async def hosts(request: pytest.FixtureRequest, approvals: Counted) -> AsyncIterator[Hosts]:
    hosts = Hosts(is_connected=request.param == "connected", approvals=approvals)
    hosts.caller.answers("delete", text("gone"))
    await hosts.start()
    yield hosts
    await hosts.end_server()


def asking(times: int) -> Script:
    script = Script()
    fd = script.open("fs")
    for _ in range(times):
        script.call(fd, "delete", ARGUMENTS)
    return script


@pytest.mark.requirement("hostcalls:approval")
async def test_the_same_call_again_waits_for_the_answer_and_spends_it_once(
    hosts: Hosts, approvals: Counted
):
    guest = asyncio.create_task(asking(3).run(**hosts.fields()))
    question = await decided(approvals)
    told = await guest
    first, second, third = (told.json(place) for place in (1, 2, 3))
    assert first["error"]["code"] == "mcp_approval_required"
    assert first["error"]["details"]["approval_id"] == question.id
    assert second["content"] == [{"type": "text", "text": "gone"}]
    assert third["error"]["code"] == "mcp_approval_required"
    assert third["error"]["details"]["approval_id"] != question.id
    assert len(hosts.caller.sent) == 1


async def test_a_call_that_was_denied_runs_nothing(hosts: Hosts, approvals: Counted):
    guest = asyncio.create_task(asking(2).run(**hosts.fields()))
    await decided(approvals, "deny", "not today")
    told = await guest
    assert told.json(2)["error"]["code"] == "mcp_approval_denied"
    assert "not today" in told.json(2)["error"]["message"]
    assert hosts.caller.sent == []


async def test_other_arguments_are_another_question(hosts: Hosts, approvals: Counted):
    script = Script()
    fd = script.open("fs")
    script.call(fd, "delete", ARGUMENTS)
    script.call(fd, "delete", '{"text": "y"}')
    told = await script.run(**hosts.fields())
    ids = {told.json(place)["error"]["details"]["approval_id"] for place in (1, 2)}
    assert len(ids) == 2
    assert approvals.waits == 0


async def test_a_handle_that_does_not_block_does_not_wait(hosts: Hosts, approvals: Counted):
    script = Script()
    fd = script.open("fs")
    script.control(fd, SET_FLAGS, '{"set": ["O_NONBLOCK"]}')
    script.call(fd, "delete", ARGUMENTS)
    script.call(fd, "delete", ARGUMENTS)
    told = await script.run(**hosts.fields())
    found = [told.json(place)["error"] for place in (2, 3)]
    assert {error["code"] for error in found} == {"mcp_approval_required"}
    assert len({error["details"]["approval_id"] for error in found}) == 1
    assert hosts.caller.sent == []
