"""The whole registry in one answer: of one revision, for readers, with secrets for nodes alone."""

from __future__ import annotations

import pytest

from bascule.model.role import ROLES, Role
from tests.control.api.desk import ADMIN, PUBLIC, SERVERS, Desk
from tests.control.registry.build import server

SNAPSHOT = f"{PUBLIC}/snapshot"
SECRET = server("fs", stdio={"command": "fs", "env": {"TOKEN": "a literal secret"}})


async def test_every_kind_is_there_at_one_revision(desk: Desk):
    body = {"servers": [SECRET], "tasks": [{"task_id": "t"}], "profiles": [{"name": "p"}]}
    body["users"] = [{"user_id": "u"}]
    await desk.ask("POST", f"{ADMIN}/import", body)
    await desk.ask("PUT", f"{ADMIN}/backends/b", {"base_url": "https://example.org/v1"})
    found = await desk.ask("GET", SNAPSHOT, role="viewer")
    assert found.json["store_id"] == desk.service.view.store_id
    assert found.json["revision"] == 2
    ids = {"servers": "server_id", "tasks": "task_id", "profiles": "name", "backends": "name"}
    ids["users"] = "user_id"
    shown = {kind: [record[key] for record in found.json[kind]] for kind, key in ids.items()}
    assert shown == {
        "servers": ["fs"],
        "tasks": ["t"],
        "profiles": ["p"],
        "backends": ["b"],
        "users": ["u"],
    }
    assert found.json["platform"]["tool_denylist"] == []


async def test_a_snapshot_that_is_known_is_not_sent_again(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/fs", SECRET)
    first = await desk.ask("GET", SNAPSHOT, role="node")
    view = desk.service.view
    etag = first.header("etag") or ""
    assert etag == f'"{view.store_id}-1-{view.mark}"'
    assert (first.json["mark"], first.json["predecessor"]) == (view.mark, "")
    unmarked = f'"{view.store_id}-1"'
    tags = [{"If-None-Match": tag} for tag in (etag, unmarked)]
    same = [await desk.ask("GET", SNAPSHOT, role="node", headers=tag) for tag in tags]
    assert [answer.status for answer in same] == [304, 304]
    await desk.ask("DELETE", f"{SERVERS}/fs")
    later = [await desk.ask("GET", SNAPSHOT, role="node", headers=tag) for tag in tags]
    assert [(one.status, one.json["servers"], one.json["follows"]) for one in later] == [
        (200, [], True)
    ] * 2


@pytest.mark.requirement("registry:position")
async def test_a_reader_is_told_that_what_it_has_is_of_another_history(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/fs", SECRET)
    await desk.ask("DELETE", f"{SERVERS}/fs")
    store_id, mark = desk.service.view.store_id, desk.service.view.mark
    told: dict[str, bool] = {}
    for known in (f"{store_id}-1-{mark}", f"{store_id}-3-{mark}", f"another-1-{mark}", "7"):
        answer = await desk.ask(
            "GET", SNAPSHOT, role="node", headers={"If-None-Match": f'"{known}"'}
        )
        told[known.replace(store_id, "it").replace(mark, "m")] = answer.json["follows"]
    assert told == {"it-1-m": False, "it-3-m": False, "another-1-m": False, "7": False}


@pytest.mark.requirement("admin:public:watch")
@pytest.mark.parametrize("role", ROLES)
async def test_only_nodes_see_literal_values_in_the_snapshot_and_in_the_watch(
    desk: Desk, role: Role
):
    await desk.ask("PUT", f"{SERVERS}/fs", SECRET)
    found = await desk.ask("GET", SNAPSHOT, role=role)
    if role == "client":
        assert (found.status, found.code) == (403, "forbidden")
        return
    expected = {"TOKEN": "a literal secret" if role == "node" else "***"}
    assert found.json["servers"][0]["stdio"]["env"] == expected
    async with desk.stream(f"{PUBLIC}/watch?since=0&include=objects", role=role) as stream:
        event = await stream.next()
    assert (b"a literal secret" in event.data) == (role == "node")


async def test_a_parameter_that_is_not_known_is_refused(desk: Desk):
    answer = await desk.ask("GET", f"{SNAPSHOT}?revision=3", role="viewer")
    assert (answer.status, answer.code) == (400, "invalid_request")
