"""Whoever subscribes is told of changes, and can neither delay nor fail what caused them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from bascule import Bridge, Server, ServerRecord
from bascule.clock import SYSTEM_CLOCK
from bascule.model.snapshot import Snapshot
from bascule.model.status import Change
from bascule.node.changes import MOST_WAITING, Changes
from bascule.testing import ScriptedServer, do, tool

CHANGE = Change(kind="tools", server_id="a")


def scripted(server_id: str, server: ScriptedServer, **fields: Any) -> ServerRecord:
    command, args = server.command
    return Server.stdio(server_id, command, *args, **fields)


async def test_a_subscriber_is_told_in_a_later_turn_and_not_after_it_has_left():
    changes, seen = Changes(), list[Change]()
    leave = changes.subscribe(seen.append)
    changes.announce(CHANGE)
    assert seen == []
    await SYSTEM_CLOCK.sleep(0)
    assert seen == [CHANGE]
    leave()
    changes.announce(CHANGE)
    await SYSTEM_CLOCK.sleep(0)
    assert seen == [CHANGE]


async def test_a_subscriber_that_raises_is_logged_and_the_others_are_told(
    caplog: pytest.LogCaptureFixture,
):
    def broken(change: Change) -> None:
        raise RuntimeError("not ours")

    changes, seen = Changes(), list[Change]()
    changes.subscribe(broken)
    changes.subscribe(seen.append)
    with caplog.at_level(logging.ERROR, "bascule.changes"):
        changes.announce(CHANGE)
        await SYSTEM_CLOCK.sleep(0)
    assert seen == [CHANGE]
    assert "a subscriber failed" in caplog.text


async def test_no_more_than_so_many_changes_wait_and_the_newest_stay():
    changes, seen = Changes(), list[str]()
    changes.subscribe(lambda change: seen.append(change.server_id))
    for number in range(MOST_WAITING + 10):
        changes.announce(Change(kind="tools", server_id=str(number)))
    await SYSTEM_CLOCK.sleep(0)
    assert (len(seen), seen[-1]) == (MOST_WAITING, str(MOST_WAITING + 9))


async def test_a_bridge_tells_of_states_tools_and_records():
    server = ScriptedServer(
        behaviours={"grow": do("change_tools", tools=[tool("grow"), tool("fresh")])}
    )
    record = scripted("a", server)
    seen, news = list[Change](), asyncio.Event()

    def note(change: Change) -> None:
        seen.append(change)
        news.set()

    async def until(kind: str, count: int) -> None:
        while sum(change.kind == kind for change in seen) < count:
            news.clear()
            await news.wait()

    async with asyncio.timeout(20), Bridge.open([record]) as bridge:
        leave = bridge.subscribe(note)
        async with bridge.session(server_ids=["a"]) as session:
            assert len(await session.tools()) == 1
            await until("tools", 1)
            assert [(c.old, c.state) for c in seen if c.kind == "state"] == [
                ("disconnected", "connecting"),
                ("connecting", "connected"),
            ]
            assert (await session.call("a/grow", {})).ok
            await until("tools", 2)
            assert len(await session.tools()) == 2
        await bridge.apply(Snapshot(store_id="memory", revision=2, servers={}))
        await until("records", 1)
        assert seen[-1].state in (None, "disconnected")
        leave()


async def test_a_change_for_the_worse_has_its_reason_in_words_that_may_be_shown():
    seen = list[Change]()
    record = scripted("a", ScriptedServer(), env={"KEY": "${ENV:NOT_SET_ANYWHERE}"})
    async with Bridge.open([record], environ={}) as bridge:
        bridge.subscribe(seen.append)
        async with bridge.session(server_ids=["a"]) as session:
            assert await session.call("a/echo", {})
            await SYSTEM_CLOCK.sleep(0)
    [down] = [change for change in seen if change.state == "down"]
    assert down.reason == "env_missing"
    assert "NOT_SET_ANYWHERE" in (down.last_error or "")
