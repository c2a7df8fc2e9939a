"""One record as TOML, for whoever prefers that."""

from __future__ import annotations

import tomllib

import pytest

from bascule.model.kinds import COLLECTIONS, Kind
from bascule.model.role import Role
from tests.control.api.desk import ADMIN, PUBLIC, SERVERS, Desk
from tests.control.registry.build import PLAIN, server

TOML = {"Accept": "application/toml"}


def place_of(kind: Kind) -> str:
    many = f"{ADMIN}/{COLLECTIONS[kind]}"
    return many if kind == "platform" else f"{many}/{PLAIN[kind][0]}"


@pytest.mark.requirement("admin:toml")
@pytest.mark.parametrize("kind", PLAIN)
async def test_a_record_as_toml_can_be_put_back_and_changes_nothing(desk: Desk, kind: Kind):
    place = place_of(kind)
    written = await desk.ask("PUT", place, PLAIN[kind][1])
    answer = await desk.ask("GET", place, headers=TOML, role="viewer")
    assert answer.status == 200
    assert answer.header("content-type") == "application/toml"
    assert answer.header("vary") == "Authorization, Accept"
    assert answer.header("etag") == written.header("etag")
    record = tomllib.loads(answer.body.decode())
    assert not {"revision", "updated_at", "owner", "status"} & set(record)
    again = await desk.ask("PUT", f"{place}?strict=true", record)
    assert (again.status, again.json["changed"]) == (200, False)


@pytest.mark.requirement("admin:toml")
@pytest.mark.parametrize(
    ("role", "value"), [("viewer", "***"), ("admin", "***"), ("node", "s3cret")]
)
async def test_toml_hides_what_json_hides(desk: Desk, role: Role, value: str):
    stdio = {"command": "x", "env": {"TOKEN": "s3cret", "REF": "${ENV:HOME}"}}
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs", stdio=stdio))
    answer = await desk.ask("GET", f"{PUBLIC}/servers/fs", headers=TOML, role=role)
    record = tomllib.loads(answer.body.decode())
    assert record["stdio"]["env"] == {"TOKEN": value, "REF": "${ENV:HOME}"}


ACCEPT = {
    "application/toml": True,
    "Application/TOML; q=0.5, */*;q=0.1": True,
    "application/toml, */*": True,
    "application/toml;q=0.9, application/json": False,
    "application/json;q=0.2, application/toml;q=0.3": True,
    "application/toml, application/json": False,
    "application/toml;q=0": False,
    "application/toml;q=0.5, application/*": False,
    "*/*": False,
    "text/html, ,;;q=x": False,
}


@pytest.mark.parametrize("accept", ACCEPT)
async def test_the_preference_of_the_caller_counts(desk: Desk, accept: str):
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs"))
    answer = await desk.ask("GET", f"{SERVERS}/fs", headers={"Accept": accept})
    wanted = "application/toml" if ACCEPT[accept] else "application/json"
    assert answer.header("content-type") == wanted
