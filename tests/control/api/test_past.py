"""History, differences, the way back, and many records at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bascule.model.sandbox import Sandbox
from tests.control.api.desk import ADMIN, SERVERS, Desk
from tests.control.registry.build import server

CLIENT = {"mcpServers": {"GitHub": {"command": "gh", "args": ["mcp"], "env": {"T": "${env:X}"}}}}


async def three(desk: Desk) -> None:
    await desk.ask("PUT", f"{SERVERS}/a", server("a"))
    await desk.ask("PUT", f"{SERVERS}/b", server("b"))
    await desk.ask("DELETE", f"{SERVERS}/a")


async def test_history_is_paged_from_the_newest(desk: Desk):
    await three(desk)
    first = (await desk.ask("GET", f"{ADMIN}/history?limit=2", role="viewer")).json
    second = (await desk.ask("GET", f"{ADMIN}/history?before={first['next_before']}")).json

    assert [change["revision"] for change in first["changes"]] == [3, 2]
    assert [change["revision"] for change in second["changes"]] == [1]
    assert first["changes"][0]["deletes"] == [{"kind": "server", "id": "a"}]
    assert first["changes"][1]["upserts"] == [{"kind": "server", "id": "b"}]
    assert first["changes"][0]["actor"] == "admin"
    assert second["next_before"] is None


@pytest.mark.requirement("registry:history:one-record")
async def test_history_of_one_record_leaves_out_the_others(desk: Desk):
    await three(desk)
    found = (await desk.ask("GET", f"{ADMIN}/history?kind=server&id=a", role="viewer")).json
    assert [change["revision"] for change in found["changes"]] == [3, 1]
    page = (await desk.ask("GET", f"{ADMIN}/history?kind=server&id=b&limit=1")).json
    assert (page["changes"], page["next_before"]) == ([], 3), "a page may have none of it"
    for half in ("kind=server", "id=a", "kind=sever&id=a"):
        assert (await desk.ask("GET", f"{ADMIN}/history?{half}")).status == 400


async def test_two_revisions_are_compared_in_records_and_access(desk: Desk):
    await three(desk)
    task = {"task_id": "t", "mcp": {"enabled": True, "default_server_ids": ["b"]}}
    await desk.ask("PUT", f"{ADMIN}/tasks/t", task)

    between = (await desk.ask("GET", f"{ADMIN}/diff?from=1&to=3")).json
    to_now = (await desk.ask("GET", f"{ADMIN}/diff?from=3")).json

    assert between["changes"] == [
        {"kind": "server", "added": ["b"], "changed": [], "removed": ["a"]}
    ]
    assert (between["from"], between["to"], to_now["to"]) == (1, 3, 4)
    [access] = to_now["access"]["tasks"]
    assert (access["task"], access["default"]["servers_gained"]) == ("t", ["b"])
    assert "+ task t" in to_now["text"]


async def test_rollback_is_a_new_revision(desk: Desk):
    await three(desk)
    answer = await desk.ask("POST", f"{ADMIN}/rollback", {"revision": 1, "note": "b was wrong"})

    assert (answer.status, answer.json["revision"]) == (200, 4)
    assert set(desk.service.snapshot().servers) == {"a"}
    [newest] = (await desk.ask("GET", f"{ADMIN}/history?limit=1")).json["changes"]
    assert newest["note"] == "b was wrong"


async def test_rollback_of_some_records_leaves_the_others(desk: Desk):
    await three(desk)
    only = [{"kind": "server", "id": "a"}]
    await desk.ask("POST", f"{ADMIN}/rollback", {"revision": 1, "only": only})
    assert set(desk.service.snapshot().servers) == {"a", "b"}


MOVED = {"command": "npx", "args": ["-y", "server-github"]}
FIELDS = ["stdio.command", "stdio.args", "stdio.env.T"]
BODIES: dict[str, tuple[Any, list[str]]] = {
    "a list": ([server("x"), server("y")], ["x", "y"]),
    "a collection": ({"servers": [server("x")], "tasks": [{"task_id": "t"}]}, ["x"]),
    "a list beside its mode": ({"mode": "upsert", "records": [server("x")]}, ["x"]),
    "a client's file": (CLIENT, ["github"]),
    "a client's file beside its mode": ({"mode": "upsert", **CLIENT}, ["github"]),
    "a client's file as records": ({"mode": "upsert", "records": CLIENT}, ["github"]),
    "VS Code's form": ({"servers": {"fs": {"command": "x"}}, "inputs": []}, ["fs"]),
    "one record": (server("x"), ["x"]),
}


@pytest.mark.requirement("admin:servers:import")
@pytest.mark.parametrize("form", BODIES)
@pytest.mark.parametrize("place", [f"{ADMIN}/import", f"{SERVERS}/import"])
async def test_an_import_is_one_revision_whatever_its_form(desk: Desk, place: str, form: str):
    body, names = BODIES[form]
    answer = await desk.ask("POST", place, body)

    assert (answer.status, answer.json["revision"], answer.json["mode"]) == (200, 1, "upsert")
    assert sorted(desk.service.snapshot().servers) == names
    assert answer.json["diff"]["changes"][0]["added"] == names


async def test_a_preview_says_what_would_change_and_writes_nothing(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/a", server("a"))
    body = [server("a", tags=["new"]), server("b")]
    answer = await desk.ask("POST", f"{SERVERS}/import?mode=preview", body)

    [change] = answer.json["diff"]["changes"]
    assert (change["added"], change["changed"]) == (["b"], ["a"])
    assert desk.service.view.revision == 1


async def test_a_replacement_removes_the_others(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/a", server("a"))
    await desk.ask("POST", f"{SERVERS}/import?mode=replace", [server("b")])
    assert set(desk.service.snapshot().servers) == {"b"}


@pytest.mark.requirement("registry:import:keeps-policy", "registry:import:changed-fields")
async def test_a_clients_file_that_is_imported_again_takes_no_policy_away(desk: Desk):
    first = await desk.ask("POST", f"{ADMIN}/import", {**CLIENT, "mode": "upsert"})
    assert "github: no tool is allowed yet; set allowed_tools" in first.json["warnings"]
    await desk.ask("PATCH", f"{SERVERS}/github", {"allowed_tools": ["get_*"], "tags": ["t"]})
    body = {"mode": "upsert", "allow": ["*"], "records": {"mcpServers": {"github": MOVED}}}
    tried = await desk.ask("POST", f"{ADMIN}/import?mode=preview", body["records"])
    again = await desk.ask("POST", f"{ADMIN}/import", body)

    assert again.json["diff"]["fields"] == tried.json["diff"]["fields"]
    assert [one["field"] for one in again.json["diff"]["fields"]] == FIELDS
    assert not any("no tool is allowed" in warning for warning in again.json["warnings"])
    record = desk.service.snapshot().servers["github"]
    assert (record.allowed_tools, record.tags) == (("get_*",), ("t",))


async def test_a_new_server_of_a_clients_file_may_use_what_is_allowed_beside_it(desk: Desk):
    await desk.ask("POST", f"{ADMIN}/import", {"allow": ["get_*"], "records": CLIENT})
    assert desk.service.snapshot().servers["github"].allowed_tools == ("get_*",)
    for wrong in ({"allow": ["*"], "records": [server("a")]}, {"allow": "*", "records": CLIENT}):
        assert (await desk.ask("POST", f"{ADMIN}/import", wrong)).status in (400, 422)


@pytest.mark.parametrize(("query", "tags"), [("", ("t",)), ("?whole=true", ())])
async def test_records_of_our_own_set_what_they_name_or_are_meant_whole(
    desk: Desk, query: str, tags: tuple[str, ...]
):
    await desk.ask("PUT", f"{SERVERS}/a", server("a", tags=["t"]))
    body = [server("a", allowed_tools=["x"])]
    await desk.ask("POST", f"{ADMIN}/import{query}", body)
    record = desk.service.snapshot().servers["a"]
    assert (record.allowed_tools, record.tags) == (("x",), tags)


@pytest.mark.requirement("admin:servers:import")
async def test_one_bad_record_keeps_all_of_an_import_out(desk: Desk):
    body = [server("a"), server("b", transport="pigeon"), {"server_id": "C"}]
    answer = await desk.ask("POST", f"{SERVERS}/import", body)

    assert (answer.status, answer.code) == (422, "invalid_record")
    problems = answer.json["error"]["details"]["problems"]
    assert any(problem.startswith("server[1].transport") for problem in problems)
    assert any(problem.startswith("server[2].server_id") for problem in problems)
    assert desk.service.view.revision == 0


TEXTS = {
    "JSON": '// mine\n{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"},}}',
    "TOML": """[[servers]]
server_id = "a"
transport = "stdio"
stdio.command = "a"
[[servers]]
server_id = "b"
transport = "stdio"
stdio.command = "b"
""",
}


@pytest.mark.requirement("admin:import:text")
@pytest.mark.parametrize("form", TEXTS)
async def test_a_text_is_imported_as_it_stands_or_what_is_picked_of_it(desk: Desk, form: str):
    body = {"text": TEXTS[form], "mode": "preview"}
    preview = await desk.ask("POST", f"{SERVERS}/import", body)
    assert preview.json["diff"]["changes"][0]["added"] == ["a", "b"]
    picked = {"text": TEXTS[form], "only": [{"kind": "server", "id": "b"}]}
    written = await desk.ask("POST", f"{SERVERS}/import", picked)
    assert written.json["diff"]["changes"][0]["added"] == ["b"]
    assert set(desk.service.snapshot().servers) == {"b"}


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"text": '{"mcpServers": {\n"a": }}'}, "line 2"),
        ({"text": "[[servers]]\nserver_id ="}, "line 2"),
        ({"only": [{"kind": "task", "id": "a"}]}, "only: the text has no task 'a'"),
        ({"only": [{"kind": "server", "id": "a"}], "mode": "replace"}, "only: is not for mode"),
        ({"onyl": []}, "onyl: unknown field; did you mean 'only'?"),
    ],
)
async def test_a_text_that_cannot_be_imported_says_where_and_changes_nothing(
    desk: Desk, more: dict[str, object], problem: str
):
    answer = await desk.ask("POST", f"{ADMIN}/import", {"text": TEXTS["TOML"], **more})
    assert answer.status in (400, 422)
    assert problem in json.dumps(answer.json)
    assert desk.service.view.revision == 0


PLACES = {"command": "files", "args": ["--root=/srv/data", "/srv/more", "plain"]}


def _imported(mode: str, **more: object) -> dict[str, object]:
    remote = {"url": "https://a.example/mcp"}
    servers = {"files": PLACES, "plain": {"command": "x"}, "far": remote}
    return {"text": json.dumps({"mcpServers": servers}), "mode": mode, **more}


@pytest.mark.requirement("admin:import:sandboxes")
async def test_a_preview_says_the_sandbox_of_new_local_servers_and_what_their_arguments_name(
    desk: Desk,
):
    await desk.ask("PUT", f"{SERVERS}/plain", server("plain"))
    preview = await desk.ask("POST", f"{SERVERS}/import", _imported("preview"))
    [found] = preview.json["servers"]
    assert found == {"server_id": "files", "sandbox": {}, "places": ["/srv/data", "/srv/more"]}
    assert any("/srv/data is not granted" in one for one in preview.json["warnings"])


@pytest.mark.requirement("admin:import:sandboxes")
async def test_a_sandbox_that_is_said_beside_a_text_is_written_in_the_same_revision(desk: Desk):
    chosen = {"files": {"write": [".", "/srv/data"]}, "plain": {"level": "limits"}}
    preview = await desk.ask("POST", f"{SERVERS}/import", _imported("preview", sandboxes=chosen))
    said = "\n".join(preview.json["warnings"])
    assert ("/srv/data is not granted" in said, "/srv/more is not granted" in said) == (False, True)
    written = await desk.ask("POST", f"{SERVERS}/import", _imported("upsert", sandboxes=chosen))
    assert (written.json["revision"], written.json["servers"]) == (1, [])
    servers = desk.service.snapshot().servers
    assert servers["files"].sandbox == Sandbox(write=(".", "/srv/data"))
    assert servers["plain"].sandbox == Sandbox(level="limits")


@pytest.mark.requirement("admin:import:sandboxes")
async def test_a_record_of_a_text_gets_the_sandbox_that_is_said_beside_it(desk: Desk):
    body = {"text": TEXTS["TOML"], "sandboxes": {"b": {"level": "limits"}}}
    await desk.ask("POST", f"{ADMIN}/import", body)
    servers = desk.service.snapshot().servers
    assert (servers["a"].sandbox, servers["b"].sandbox) == (None, Sandbox(level="limits"))


@pytest.mark.parametrize(
    ("sandboxes", "problem"),
    [
        ({"far": {"level": "limits"}}, "sandboxes.far: the text has no local server 'far'"),
        ({"old": {"level": "limits"}}, "sandboxes.old: the text has no local server 'old'"),
        ({"plain": {"level": "limits"}}, "sandboxes.plain: the server exists"),
        ({"files": {"level": "jail"}}, "sandboxes.files.level"),
        ({"files": {"lvel": "best"}}, "sandboxes.files.lvel"),
        ({"files": {"write": ["data"]}}, "sandboxes.files.write[0]"),
        ({"files": {"hosts": ["a.example"]}}, "sandbox.hosts"),
    ],
)
async def test_a_sandbox_beside_a_text_that_fits_no_new_server_is_refused(
    desk: Desk, sandboxes: dict[str, object], problem: str
):
    await desk.ask("PUT", f"{SERVERS}/plain", server("plain"))
    body = _imported("upsert", sandboxes=sandboxes)
    answer = await desk.ask("POST", f"{SERVERS}/import", body)
    assert answer.status in (400, 422)
    assert problem in json.dumps(answer.json)
    assert desk.service.view.revision == 1


@pytest.mark.requirement("registry:diff:fields")
async def test_history_says_what_was_new_and_which_fields_changed(desk: Desk):
    await three(desk)
    await desk.ask("PUT", f"{SERVERS}/b", server("b", allowed_tools=["read_*"]))
    newest, gone, added, _ = (await desk.ask("GET", f"{ADMIN}/history")).json["changes"]
    assert newest["created"] == []
    [field] = newest["fields"]
    assert (field["id"], field["field"], field["new"]) == ("b", "allowed_tools", ["read_*"])
    assert (gone["created"], gone["fields"]) == ([], [])
    assert (added["created"], added["fields"]) == ([{"kind": "server", "id": "b"}], [])


async def test_an_administrator_announces_which_store_this_one_replaces(desk: Desk):
    for role in ("operator", "approver", "node", "client"):
        answer = await desk.ask("POST", f"{ADMIN}/announce", {"succeeds": "abc"}, role=role)
        assert answer.status == 403, role
    answer = await desk.ask("POST", f"{ADMIN}/announce", {"succeeds": "abc"})
    assert answer.status == 200
    page = (await desk.ask("GET", f"{ADMIN}/history")).json
    assert answer.json == {
        "store_id": page["store_id"],
        "revision": page["revision"],
        "predecessor": "abc",
    }
    assert page["predecessor"] == "abc"
    assert (await desk.ask("GET", "/api/v1/mcp/snapshot")).json["predecessor"] == "abc"
    own = await desk.ask("POST", f"{ADMIN}/announce", {"succeeds": page["store_id"]})
    assert (own.status, own.json["predecessor"]) == (200, page["store_id"])
    assert own.json["store_id"] != page["store_id"], "another copy is another store"
    bad = await desk.ask("POST", f"{ADMIN}/announce", {"succeeds": "a-b"})
    assert (bad.status, bad.code) == (422, "invalid_record")
