"""What servers say about their use: known from their lists, harmless, and never very long."""

from __future__ import annotations

import pytest

from bascule.errors import ServerUnavailable
from bascule.node.bridge.definitions import MAX_INSTRUCTIONS
from tests.node.fakes import World
from tests.policy.build import server

SECRET = "hunter2-but-longer"
pytestmark = pytest.mark.requirement("bridge:instructions")


def world(**said: str | None) -> World:
    made = World(*(server(name) for name in said))
    for record in made.records:
        made.caller.offers(record, "read", instructions=said[record.server_id])
    return made


async def test_instructions_are_known_by_server_once_it_has_listed_and_nobody_is_asked():
    made = world(fs="Read before you write.", git=None, db="Ask first.")
    session = made.session("fs", "git")
    assert session.instructions() == {}
    await session.tools()
    asked = len(made.caller.listed)
    assert session.instructions() == {"fs": "Read before you write."}
    assert len(made.caller.listed) == asked


async def test_what_a_session_may_not_use_any_more_tells_it_nothing():
    made = world(fs="Read.", git="Commit.")
    session = made.session()
    await session.tools()
    made.apply(*(server(name, enabled=name != "git") for name in ("fs", "git")))
    assert session.instructions() == {"fs": "Read."}


async def test_a_server_that_is_down_has_none():
    made = world(fs="Read.")
    made.caller.fails("fs", ServerUnavailable("down"))
    session = made.session()
    await session.tools()
    assert session.instructions() == {}


async def test_instructions_are_harmless_and_without_credentials():
    made = world(fs=f"Use\u202e {SECRET}\x1b[2J.")
    made.caller.hide(SECRET)
    session = made.session()
    await session.tools()
    [said] = session.instructions().values()
    assert said == "Use [masked:known-value]\\x1b[2J."


async def test_a_value_that_becomes_known_later_is_masked_from_then_on():
    made = world(fs=f"Use {SECRET}.")
    session = made.session()
    await session.tools()
    assert session.instructions() == {"fs": f"Use {SECRET}."}
    made.caller.hide(SECRET)
    assert session.instructions() == {"fs": "Use [masked:known-value]."}


@pytest.mark.parametrize("letter", ["a", "é", "\x7f"])
@pytest.mark.parametrize("length", [8191, 8192, 8193, 1_000_000])
async def test_long_instructions_are_cut_and_say_so(letter: str, length: int):
    made = world(fs=letter * length)
    session = made.session()
    await session.tools()
    [said] = session.instructions().values()
    assert len(said.encode()) <= MAX_INSTRUCTIONS
    whole = said == letter * length
    assert whole == (letter == "a" and length <= MAX_INSTRUCTIONS)
    assert whole or said.endswith(" […]")


@pytest.mark.parametrize("at", range(8170, 8200, 3))
async def test_no_half_of_a_credential_is_left_where_they_are_cut(at: int):
    made = world(fs="a" * at + SECRET + " and more" * 100)
    made.caller.hide(SECRET)
    session = made.session()
    await session.tools()
    [said] = session.instructions().values()
    assert SECRET[:4] not in said
