"""``Bridge.connect`` with a token that acts for users: each session says for whom it is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bascule import Bridge
from bascule.asgi.serve import Serving
from bascule.client.http import ApiError
from bascule.errors import InvalidRecord
from bascule.node.connected_bridge import ConnectedBridge
from tests.doors.door import Door
from tests.node.fakes import cut, failed, succeeded, text

READ = "mcp__fs__read"


class Scene:
    """A door that is served."""

    def __init__(self, door: Door, url: str) -> None:
        self.door = door
        self.url = url

    async def connect(self, *, acts: bool, person: str | None = None) -> ConnectedBridge:
        minted = await self.door.tokens.mint(
            "gateway", "client", task_id="open", acts_for_users=acts, person=person
        )
        return Bridge.connect(self.url, token=minted.token)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    door = Door()
    async with Serving(door.app) as serving:
        yield Scene(door, serving.url)


@pytest.mark.requirement("security:people:acting", "security:people:apart")
async def test_each_session_is_for_its_person_and_reads_no_output_of_another(scene: Scene):
    scene.door.world.caller.answers("read", text("x" * 100))
    async with (
        await scene.connect(acts=True) as bridge,
        bridge.session(person="alice") as alice,
        bridge.session(person="bob") as bob,
    ):
        long = cut(await alice.call(READ, max_output_bytes=20)).truncated
        succeeded(await bob.call(READ))
        assert long is not None
        assert await alice.output(str(long.handle), 0, 3) == "xxx"
        with pytest.raises(KeyError):
            await bob.output(str(long.handle))
        assert [tool.name for tool in await bob.tools()]
    calls = scene.door.world.ledger.calls()
    assert [(call.caller, call.person) for call in calls] == [
        ("gateway", "alice"),
        ("gateway", "bob"),
    ]
    assert len({call.session_id for call in calls}) == 2


@pytest.mark.requirement("security:people:acting")
async def test_a_session_for_nobody_is_refused_and_the_header_is_named(scene: Scene):
    async with await scene.connect(acts=True) as bridge:
        outcome = failed(await bridge.session().call(READ), "mcp_invalid_arguments")
        assert "X-Bascule-User" in outcome.error.message
        with pytest.raises(ApiError, match="X-Bascule-User"):
            await bridge.session().tools()
    assert scene.door.world.sent == []


@pytest.mark.requirement("security:people:header")
@pytest.mark.parametrize("person", [None, "alice"])
async def test_a_token_that_may_not_name_people_is_refused_when_it_does(
    scene: Scene, person: str | None
):
    async with await scene.connect(acts=False, person=person) as bridge:
        outcome = failed(await bridge.session(person="alice").call(READ), "mcp_policy_denied")
        assert (outcome.error.details or {})["code"] == "person_refused"
        if person is None:  # a person's own token may need their record besides
            succeeded(await bridge.session().call(READ))


@pytest.mark.parametrize("person", ["", "a b", "alice\r\nX-Bascule-Enabled: true", "a" * 129])
async def test_a_name_that_is_none_is_refused_before_it_is_sent(scene: Scene, person: str):
    async with await scene.connect(acts=True) as bridge:
        with pytest.raises(InvalidRecord, match="person: "):
            await bridge.session(person=person).tools()
