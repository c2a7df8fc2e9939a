"""A session keeps what it listed while nothing changes; nobody can tell it from a new list."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.errors import ServerUnavailable
from bascule.loop.offer import make_offer
from bascule.node.bridge.session import Session
from bascule.node.bridge.toolset import ToolSet
from tests.loop.fakes import chat
from tests.node.fakes import World, definition
from tests.policy.build import server

SECRET = "plain-but-secret"
GIT = server("git")
TELLING = definition("tell", description=f"Uses {SECRET}.")
CHANGES: dict[str, Callable[[World], None]] = {
    "nothing": lambda world: None,
    "other tools": lambda world: world.caller.offers(world.records[0], "read", TELLING),
    "the same tools": lambda world: world.caller.offers(world.records[0], "read"),
    "a warning": lambda world: world.caller.offers(world.records[0], "read", warnings=["odd"]),
    "a failure": lambda world: world.caller.fails("fs", ServerUnavailable("it is down")),
    "a value to hide": lambda world: world.caller.hide(SECRET),
    "nothing to hide": lambda world: world.caller.hide(),
    "a revision": lambda world: world.apply(),
    "a server less": lambda world: world.apply(GIT),
    "a veto": lambda world: world.apply(server("fs", denied_tools=["read"]), GIT),
}


def shown(tools: ToolSet) -> object:
    """Return everything that a set of tools says."""
    return tools.openai(), tools.names, tools.revision, tools.warnings, dict(tools.unlisted)


@given(st.lists(st.sampled_from(sorted(CHANGES)), max_size=8))
async def test_an_old_session_shows_what_a_new_one_does_whatever_changes(changes: list[str]):
    world = World(server("fs"), GIT)
    old = world.session()
    for change in changes:
        CHANGES[change](world)
        new = world.session()
        assert shown(await old.tools()) == shown(await new.tools())
        assert await told(old) == await told(new)


async def told(session: Session) -> object:
    """Return what a model is told, and what the ledger is."""
    offer = await make_offer(chat(), session)
    written = session.core.ledger.events[-1]  # pyright: ignore[reportAttributeAccessIssue]
    return offer, written.servers, written.tool_count, written.warnings


async def test_a_list_that_stands_is_given_again_and_written_down_each_time():
    world = World()
    session = world.session()
    first = await session.tools()
    assert await session.tools() is first
    assert len(world.ledger.listings()) == 2
    assert world.caller.listed == ["fs", "fs"]


@pytest.mark.parametrize("change", sorted(CHANGES.keys() - {"nothing", "the same tools"}))
async def test_a_change_of_anything_that_is_shown_makes_a_new_set(change: str):
    world = World(server("fs"), GIT)
    world.caller.offers(world.records[0], "read", TELLING, warnings=["strange"])
    world.caller.hide("nothing of theirs")
    session = world.session()
    first = await session.tools()
    CHANGES[change](world)
    assert await session.tools() is not first


async def test_a_server_that_must_be_asked_is_asked_though_others_are_up_to_date():
    world = World(server("fs"), GIT)
    gate = world.caller.hold_listing("git")
    gate.set()
    session = world.session()
    await session.tools()
    world.caller.fails("git", ServerUnavailable("it is down"))
    tools = await session.tools()
    assert {tool.server_id for tool in tools} == {"fs"}
    assert "git" in tools.unlisted
