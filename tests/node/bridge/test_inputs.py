"""Who may be asked in the middle of a call: a session that brings a handler, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bascule.errors import SessionRefused
from bascule.node.bridge.opening import Opening
from bascule.node.sharing import Belonging
from tests.node.fakes import World


class Nobody:
    """A handler that offers something and is never asked."""

    capabilities: Mapping[str, Any] = {"elicitation": {}}

    async def provide(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise AssertionError(method, params)


async def test_a_session_with_a_handler_offers_it_and_takes_it_back_at_its_end():
    world, handler = World(), Nobody()
    async with world.session(inputs=handler) as session:
        assert world.caller.offered == {session.session_id: handler}
    assert world.caller.released == [session.session_id]


async def test_a_session_without_a_handler_offers_nothing():
    world = World()
    async with world.session():
        assert not world.caller.offered


@pytest.mark.requirement("pool:sharing:user")
def test_who_uses_a_session_is_its_person_and_where_there_is_none_its_token_or_caller():
    assert Opening(person="a", token_id="t", caller="c").user == "person:a"
    assert Opening(token_id="t", caller="c").user == "token:t"
    assert Opening(caller="c").user == "caller:c"
    assert Opening().user == ""


@pytest.mark.requirement("pool:sharing:task", "pool:sharing:user")
async def test_a_session_of_a_task_says_whose_it_is_and_one_of_a_program_does_not():
    world = World(tasks={"job": {"enabled": True, "default_server_ids": ["fs"]}})
    async with world.session("fs", task="job", caller="agent") as session:
        assert world.caller.introduced[session.session_id] == Belonging("job", "caller:agent")
    async with world.session("fs", caller="agent") as session:
        assert session.session_id not in world.caller.introduced


async def test_a_session_that_is_refused_offers_nothing():
    world = World(tasks={"job": {"enabled": True, "allowed_server_ids": ["other"]}})
    with pytest.raises(SessionRefused):
        world.session("fs", task="job", inputs=Nobody())
    assert not world.caller.offered
