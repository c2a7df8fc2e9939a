"""``/api/v1/me/integrations``: what a task offers, and who left out what a person does not have."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.asgi.guard import GuardedApp
from bascule.model.role import Role
from tests.control.api.desk import ADMIN, Desk
from tests.control.api.test_effective import furnished
from tests.control.api.test_me import PersonsTokens

INTEGRATIONS = "/api/v1/me/integrations"


async def shown(desk: Desk, person: str | None = "bob", role: Role = "client") -> dict[str, Any]:
    app = desk.app
    desk.app = GuardedApp(app.routes, PersonsTokens(desk, person=person, task_id="review"))
    try:
        answer = await desk.ask("GET", INTEGRATIONS, role=role)
    finally:
        desk.app = app
    assert answer.status == 200, answer.json
    return answer.json


async def choose(desk: Desk, **record: Any) -> None:
    answer = await desk.ask("PUT", f"{ADMIN}/users/bob", {"user_id": "bob", **record})
    assert answer.status in (200, 201), answer.json


def standings(found: dict[str, Any]) -> dict[str, str]:
    named = {one["server_id"]: one["standing"] for one in found["integrations"]}
    for one in found["integrations"]:
        named |= {f"{one['server_id']}/{t['tool_name']}": t["standing"] for t in one["tools"]}
    return named


@pytest.mark.requirement("people:integrations")
async def test_a_person_sees_what_the_task_offers_and_nothing_else(desk: Desk):
    await furnished(desk)
    await choose(desk)
    found = await shown(desk)
    assert (found["person"], found["task"], found["refused"]) == ("bob", "review", None)
    # web is disabled, and the platform denies git/push: neither is told of
    assert standings(found) == {
        "fs": "on",
        "fs/read_a": "on",
        "fs/write_a": "on",
        "git": "on",
        "git/pull": "on",
    }
    fs, git = found["integrations"]
    assert (fs["starts_with"], git["starts_with"], git["display_name"]) == (True, False, "Git")
    assert [tool["effect"] for tool in fs["tools"]] == ["read", "write"]


@pytest.mark.requirement("people:integrations")
@pytest.mark.requirement("admin:web:own")
async def test_what_an_administrator_left_out_is_withheld_and_ones_own_choice_is_off(desk: Desk):
    await furnished(desk)
    own = {"enabled_server_ids": ["fs"], "tool_denylist": ["fs/read_a"]}
    await choose(desk, read_only=True, own=own)
    assert standings(await shown(desk)) == {
        "fs": "on",
        "fs/read_a": "off",
        "fs/write_a": "withheld",
        "git": "off",
        "git/pull": "withheld",
    }
    await choose(desk, enabled_server_ids=["git"], own={"enabled_server_ids": []})
    found = standings(await shown(desk))
    # of a server that is off, the tools say what is said of themselves
    assert (found["fs"], found["git"], found["git/pull"]) == ("withheld", "off", "on")


async def test_a_token_without_a_person_sees_the_tools_of_its_task(desk: Desk):
    await furnished(desk)
    found = await shown(desk, None)
    assert (found["person"], set(standings(found).values())) == (None, {"on"})


async def test_somebody_who_is_refused_is_told_why_and_has_nothing(desk: Desk):
    await furnished(desk)
    await choose(desk, enabled=False)
    found = await shown(desk)
    assert found["refused"]["reason"] == "user_disabled"
    assert set(standings(found).values()) == {"withheld"}
