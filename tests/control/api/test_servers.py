"""Server records over HTTP: what is shown, what a write leaves, and what conditions hold back."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from bascule.control.api.node_port import Told
from bascule.control.registry.status import NodeReport
from bascule.control.registry.store import Author, Write
from bascule.model.role import Role
from bascule.model.sandbox import Sandbox
from bascule.model.server import ServerRecord
from bascule.model.status import ServerStatus, State
from bascule.wire.api.trials import ToolPreview, Trial
from tests.control.api.desk import ADMIN, PUBLIC, SERVERS, Desk, open_desk
from tests.control.registry.build import server, write


class Node:
    """A node that has one tool everywhere, and remembers the drafts that it tried."""

    def __init__(self) -> None:
        self.drafts: list[ServerRecord] = []

    async def test(self, server_id: str, tell: Told) -> Trial:
        del tell
        return Trial(ok=True, duration_ms=1.5, protocol="2025-06-18", tool_count=1, tools=("read",))

    async def try_out(self, record: ServerRecord, tell: Told) -> Trial:
        self.drafts.append(record)
        return await self.test(record.server_id, tell)

    async def preview(self, server_id: str) -> tuple[ToolPreview, ...]:
        name = f"mcp__{server_id}__read"
        return (ToolPreview(tool="read", name=name, allowed=True, layer="server", reason="ok"),)


@pytest.mark.requirement("admin:public:list", "admin:servers:list", "registry:status")
@pytest.mark.parametrize("place", [f"{PUBLIC}/servers", SERVERS])
async def test_a_list_shows_records_with_status_and_when_they_changed(desk: Desk, place: str):
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs"))
    status = ServerStatus(server_id="fs", state="down", last_error="exited", tool_count=3)
    await desk.service.standing.report(
        NodeReport(node="n1", servers=(status,), at=desk.clock.now())
    )

    answer = await desk.ask("GET", place, role="viewer")

    assert answer.status == 200
    assert set(answer.json) == {"store_id", "revision", "mark", "servers", "next_cursor"}
    found = answer.json["store_id"], answer.json["revision"], answer.json["mark"]
    assert found == (desk.service.view.store_id, 1, desk.service.view.mark)
    assert answer.header("etag") == f'"{desk.service.view.position}"'
    [shown] = answer.json["servers"]
    assert shown["server_id"] == "fs"
    stdio = {"command": "true", "args": [], "env": {}, "env_from": [], "home": "kept"}
    assert shown["stdio"] == stdio
    assert shown["updated_at"] == "2027-01-15T08:00:00.000Z"
    assert shown["status"]["state"] == "down"
    assert shown["status"]["last_error"] == "exited"
    assert shown["status"]["tool_count"] == 3
    assert shown["status"]["latency_ms"] is None
    assert list(shown["status"]["nodes"]) == ["n1"]


@pytest.mark.requirement("pool:states:seed-words")
@pytest.mark.parametrize("place", [f"{PUBLIC}/servers", SERVERS])
async def test_every_state_is_shown_as_connected_degraded_or_down(desk: Desk, place: str):
    words: dict[State, str] = dict.fromkeys(get_args(State), "Down")
    words |= {"connected": "Connected", "degraded": "Degraded", "reconnecting": "Degraded"}
    for state in words:
        await desk.ask("PUT", f"{SERVERS}/{state}", server(state))
    said = tuple(ServerStatus(server_id=state, state=state) for state in words)
    await desk.service.standing.report(NodeReport(node="n1", servers=said, at=desk.clock.now()))

    answer = await desk.ask("GET", place, role="viewer")

    shown = {one["server_id"]: one["status"] for one in answer.json["servers"]}
    assert {name: status["state"] for name, status in shown.items()} == {s: s for s in words}
    assert {name: status["health"] for name, status in shown.items()} == words
    assert {name: one["nodes"]["n1"]["health"] for name, one in shown.items()} == words


@pytest.mark.requirement("admin:public:get", "admin:servers:get")
@pytest.mark.parametrize("place", [f"{PUBLIC}/servers", SERVERS])
async def test_one_record_is_shown_or_not_found(desk: Desk, place: str):
    await desk.ask("POST", SERVERS, server("fs", tags=["a"]))

    found = await desk.ask("GET", f"{place}/fs", role="viewer")
    missing = await desk.ask("GET", f"{place}/nope", role="viewer")

    assert (found.status, found.json["tags"], found.json["revision"]) == (200, ["a"], 1)
    assert found.json["status"]["state"] == "unknown"
    assert (missing.status, missing.code) == (404, "not_found")
    assert missing.json["error"]["details"] == {"kind": "server", "id": "nope"}


@pytest.mark.parametrize("role", ["viewer", "node"])
async def test_what_every_reader_looks_for_is_shown_at_its_default_too(desk: Desk, role: Role):
    written = await desk.ask("PUT", f"{SERVERS}/fs", server("fs", allowed_tools=[]))
    read = await desk.ask("GET", f"{PUBLIC}/servers/fs", role=role)
    defaults = {"display_name": "", "enabled": True, "tags": [], "allowed_tools": []}
    for shown in (written.json["server"], read.json):
        assert {name: shown[name] for name in defaults} == defaults
    assert (await desk.ask("PUT", f"{SERVERS}/fs", read.json)).json["revision"] == 1


@pytest.mark.requirement("admin:defaults")
@pytest.mark.parametrize("prefix", [PUBLIC, ADMIN])
async def test_fields_left_at_their_defaults_are_shown_unless_nobody_wants_them(
    desk: Desk, prefix: str
):
    given = server(
        "fs", budgets={"tool_timeout_ms": 500}, stdio={"command": "x", "env": {"A": "s"}}
    )
    written = await desk.ask("PUT", f"{SERVERS}/fs", given)
    one = await desk.ask("GET", f"{prefix}/servers/fs", role="viewer")
    many = await desk.ask("GET", f"{prefix}/servers", role="viewer")

    for shown in (written.json["server"], one.json, many.json["servers"][0]):
        assert shown["budgets"]["tool_timeout_ms"] == 500
        assert shown["budgets"]["max_tool_output_bytes"] == 65_536
        assert shown["budgets"]["max_media_bytes"] == 4_194_304
        assert shown["hygiene"] == {"leaks": "mask", "redact": "shape", "output_schema": "warn"}
        assert shown["approval_policy"] == {"default": "never", "per_tool": {}, "rules": []}
        assert (shown["sharing"], shown["prewarm"]) == ("shared", False)
        assert shown["stdio"]["env"] == {"A": "***"}
        assert "http" not in shown
    bare = await desk.ask("GET", f"{prefix}/servers/fs?defaults=false", role="viewer")
    listed = await desk.ask("GET", f"{prefix}/servers?defaults=false", role="viewer")
    for shown in (bare.json, listed.json["servers"][0]):
        assert shown["budgets"] == {"tool_timeout_ms": 500}
        assert "hygiene" not in shown
    assert bare.header("etag") == one.header("etag")
    assert (await desk.ask("GET", f"{prefix}/servers?defaults=perhaps")).status == 400


@pytest.mark.requirement("admin:defaults")
async def test_what_was_read_with_defaults_is_written_back_as_it_was(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs"))
    read = (await desk.ask("GET", f"{SERVERS}/fs")).json
    assert (await desk.ask("PUT", f"{SERVERS}/fs", read)).json["revision"] == 1
    changed = {**read, "budgets": {**read["budgets"], "max_concurrency": 2}}
    assert (await desk.ask("PUT", f"{SERVERS}/fs", changed)).json["revision"] == 2
    bare = (await desk.ask("GET", f"{SERVERS}/fs?defaults=false")).json
    assert bare["budgets"] == {"max_concurrency": 2}
    assert "effects" not in bare


async def test_a_merge_patch_may_come_under_its_own_media_type(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs"))
    kind = {"Content-Type": "application/merge-patch+json"}
    merged = await desk.ask("PATCH", f"{SERVERS}/fs", {"enabled": False}, headers=kind)
    replaced = await desk.ask("PUT", f"{SERVERS}/fs", server("fs"), headers=kind)
    assert (merged.status, merged.json["server"]["enabled"]) == (200, False)
    assert replaced.status == 415


@pytest.mark.requirement("admin:servers:create")
async def test_post_creates_once(desk: Desk):
    first = await desk.ask("POST", SERVERS, server("fs"))
    again = await desk.ask("POST", SERVERS, server("fs", tags=["other"]))

    assert first.status == 201
    assert first.header("location") == f"{SERVERS}/fs"
    assert first.header("etag") == '"1"'
    assert (first.json["revision"], first.json["server"]["server_id"]) == (1, "fs")
    assert (again.status, again.code) == (409, "already_exists")
    assert again.json["error"]["details"]["current_revision"] == 1
    assert desk.service.view.revision == 1


@pytest.mark.requirement("admin:servers:replace")
async def test_put_replaces_the_whole_record(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs", tags=["old"]))
    answer = await desk.ask("PUT", f"{SERVERS}/fs", server("fs", display_name="Files"))

    assert answer.status == 200
    assert answer.header("etag") == '"2"'
    assert answer.json["revision"] == 2
    assert answer.json["server"]["display_name"] == "Files"
    assert answer.json["server"]["tags"] == []


async def test_what_was_read_can_be_put_back_and_changes_nothing(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs", stdio={"command": "x", "env": {"A": "s"}}))
    shown = (await desk.ask("GET", f"{SERVERS}/fs")).json
    answer = await desk.ask("PUT", f"{SERVERS}/fs?strict=true", shown)

    assert (answer.status, answer.json["revision"], answer.json["warnings"]) == (200, 1, [])
    assert desk.service.snapshot().servers["fs"].stdio.env == {"A": "s"}  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.requirement("admin:servers:patch")
async def test_patch_merges_and_drops_nothing_it_did_not_name(desk: Desk):
    env = {"TOKEN": "s3cret", "MODE": "fast"}
    await desk.ask(
        "PUT", f"{SERVERS}/fs", server("fs", tags=["a"], stdio={"command": "x", "env": env})
    )
    answer = await desk.ask(
        "PATCH", f"{SERVERS}/fs", {"tags": None, "stdio": {"env": {"MODE": "slow"}}}
    )

    assert answer.status == 200
    record = desk.service.snapshot().servers["fs"]
    assert record.stdio is not None
    assert record.stdio.env == {"TOKEN": "s3cret", "MODE": "slow"}
    assert record.tags == ()
    assert record.allowed_tools == ("*",)


@pytest.mark.requirement("admin:servers:delete")
async def test_delete_deletes_once(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs"))
    gone = await desk.ask("DELETE", f"{SERVERS}/fs")
    again = await desk.ask("DELETE", f"{SERVERS}/fs")

    assert (gone.status, gone.json) == (200, {"revision": 2, "deleted": "fs"})
    assert (again.status, again.code) == (404, "not_found")
    assert desk.service.snapshot().servers == {}


CONDITIONS: dict[str, tuple[str, dict[str, str], int]] = {
    "the revision it has": ("PUT", {"If-Match": '"2"'}, 200),
    "one of several": ("PUT", {"If-Match": '"1", "2"'}, 200),
    "any that is there": ("PUT", {"If-Match": "*"}, 200),
    "a stale revision": ("PUT", {"If-Match": '"1"'}, 412),
    "stale revisions": ("PUT", {"If-Match": '"1", "7"'}, 412),
    "a tag that is no revision": ("PUT", {"If-Match": '"x"'}, 412),
    "a weak tag": ("PUT", {"If-Match": 'W/"2"'}, 412),
    "a tag without quotes": ("PUT", {"If-Match": "2"}, 400),
    "create only": ("PUT", {"If-None-Match": "*"}, 412),
    "not this state": ("PUT", {"If-None-Match": '"2"'}, 412),
    "not another state": ("PUT", {"If-None-Match": '"1"'}, 200),
    "both": ("PUT", {"If-None-Match": "*", "If-Match": '"2"'}, 412),
    "a stale patch": ("PATCH", {"If-Match": '"1"'}, 412),
    "a fresh patch": ("PATCH", {"If-Match": '"2"'}, 200),
    "a stale deletion": ("DELETE", {"If-Match": '"1"'}, 412),
    "a fresh deletion": ("DELETE", {"If-Match": '"2"'}, 200),
}


@pytest.mark.requirement("admin:etag")
@pytest.mark.parametrize("condition", CONDITIONS)
async def test_a_condition_that_does_not_hold_changes_nothing(desk: Desk, condition: str):
    method, headers, status = CONDITIONS[condition]
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs"))
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs", tags=["two"]))
    body = b"" if method == "DELETE" else json.dumps(server("fs", tags=["three"])).encode()

    answer = await desk.ask(method, f"{SERVERS}/fs", headers=headers, raw=body)

    assert answer.status == status
    assert desk.service.view.revision == (3 if status == 200 else 2)
    if status == 412:
        assert answer.code == "conflict"


@pytest.mark.requirement("admin:etag")
async def test_what_is_not_there_can_only_be_created_without_if_match(desk: Desk):
    stale = await desk.ask("PUT", f"{SERVERS}/fs", server("fs"), headers={"If-Match": '"4"'})
    anything = await desk.ask("PUT", f"{SERVERS}/fs", server("fs"), headers={"If-Match": "*"})
    new = await desk.ask("PUT", f"{SERVERS}/fs", server("fs"), headers={"If-None-Match": "*"})

    assert (stale.status, anything.status, new.status) == (412, 412, 201)
    assert stale.json["error"]["details"]["current_revision"] == 0
    assert new.header("location") == f"{SERVERS}/fs"


@pytest.mark.requirement("admin:etag")
@pytest.mark.parametrize("place", [SERVERS, f"{SERVERS}/fs", f"{PUBLIC}/servers"])
async def test_who_has_the_state_already_gets_304(desk: Desk, place: str):
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs"))
    etag = (await desk.ask("GET", place)).header("etag") or ""
    unchanged = await desk.ask("GET", place, headers={"If-None-Match": etag})
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs", tags=["new"]))
    changed = await desk.ask("GET", place, headers={"If-None-Match": etag})

    assert (unchanged.status, unchanged.body, unchanged.header("etag")) == (304, b"", etag)
    assert changed.status == 200
    assert changed.header("etag") != etag


async def test_pages_follow_the_order_of_ids_and_survive_a_deletion(desk: Desk):
    for name in ("b", "d", "a", "c"):
        await desk.ask("POST", SERVERS, server(name))
    first = (await desk.ask("GET", f"{SERVERS}?limit=2")).json
    await desk.ask("DELETE", f"{SERVERS}/b")
    second = (await desk.ask("GET", f"{SERVERS}?limit=2&cursor={first['next_cursor']}")).json

    assert [s["server_id"] for s in first["servers"]] == ["a", "b"]
    assert [s["server_id"] for s in second["servers"]] == ["c", "d"]
    assert second["next_cursor"] is None


@pytest.mark.requirement("registry:read-only-nodes")
async def test_a_node_reads_literals_and_writes_nothing(desk: Desk):
    env = {"TOKEN": "s3cret", "REF": "${ENV:HOME}"}
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs", stdio={"command": "x", "env": env}))

    for place, one in ((f"{PUBLIC}/servers", False), (f"{PUBLIC}/servers/fs", True)):
        seen = {
            role: answer if one else answer["servers"][0]
            for role in ("admin", "viewer", "node")
            for answer in [(await desk.ask("GET", place, role=role)).json]
        }
        masked = {"TOKEN": "***", "REF": "${ENV:HOME}"}
        assert seen["admin"]["stdio"]["env"] == seen["viewer"]["stdio"]["env"] == masked
        assert seen["node"]["stdio"]["env"] == env
    for method in ("PUT", "PATCH", "DELETE"):
        refused = await desk.ask(method, f"{SERVERS}/fs", server("fs"), role="node")
        assert (refused.status, refused.code) == (403, "forbidden")
    assert desk.service.view.revision == 1


async def test_the_answer_to_a_write_masks_literals_too(desk: Desk):
    env = {"TOKEN": "s3cret"}
    body = server("fs", stdio={"command": "x", "env": env})
    answers = [
        await desk.ask("POST", SERVERS, body),
        await desk.ask("PUT", f"{SERVERS}/fs", body),
        await desk.ask("PATCH", f"{SERVERS}/fs", {"tags": ["a"]}),
    ]
    assert [a.json["server"]["stdio"]["env"] for a in answers] == [{"TOKEN": "***"}] * 3
    assert all(b"s3cret" not in answer.body for answer in answers)


async def test_a_record_of_a_file_is_read_only_until_it_is_adopted(desk: Desk):
    made = write("fs", owner="a.toml")
    await desk.service._store.write([made], Author("files"))
    await desk.service.catch_up()
    refused = await desk.ask("PATCH", f"{SERVERS}/fs", {"tags": ["x"]})
    adopted = await desk.ask("POST", f"{SERVERS}/fs/adopt")
    patched = await desk.ask("PATCH", f"{SERVERS}/fs", {"tags": ["x"]})

    assert isinstance(made, Write)
    assert (refused.status, refused.code) == (409, "owned_by_file")
    assert refused.json["error"]["details"]["owned"][0]["owner"] == "a.toml"
    assert (adopted.status, adopted.json["server"]["owner"], patched.status) == (200, None, 200)


async def test_a_trial_is_the_nodes_short_summary():
    async with open_desk(Node()) as desk:
        await desk.ask("PUT", f"{SERVERS}/fs", server("fs"))
        answer = await desk.ask("POST", f"{SERVERS}/fs/test")
        unknown = await desk.ask("POST", f"{SERVERS}/nope/test")

        assert answer.status == 200
        assert answer.json == {
            "ok": True,
            "duration_ms": 1.5,
            "protocol": "2025-06-18",
            "tool_count": 1,
            "tools": ["read"],
            "error": None,
            "steps": [],
            "stderr": [],
            "missed": [],
        }
        assert unknown.status == 404


@pytest.mark.requirement("admin:import:sandboxes")
async def test_one_server_of_a_text_is_tried_as_its_import_would_write_it():
    entries = {"One": {"command": "a"}, "Two": {"command": "b", "env": {"KEY": "v"}}}
    text = json.dumps({"mcpServers": entries})
    async with open_desk(node := Node()) as desk:
        for more in ({}, {"sandbox": {"level": "limits"}}):
            body = {"text": text, "server_id": "two", **more}
            assert (await desk.ask("POST", f"{SERVERS}/test", body)).json["ok"]
        unknown = await desk.ask("POST", f"{SERVERS}/test", {"text": text, "server_id": "three"})
        strange = await desk.ask("POST", f"{SERVERS}/test", {"text": text, "id": "two"})
        assert desk.service.view.revision == 0
    tried = [(one.server_id, one.sharing, one.sandbox) for one in node.drafts]
    assert tried == [("two", "task", Sandbox()), ("two", "task", Sandbox(level="limits"))]
    assert node.drafts[0].stdio is not None
    assert node.drafts[0].stdio.env == {"KEY": "v"}
    assert "the text has no server 'three'" in json.dumps(unknown.json)
    assert strange.status in (400, 422)


async def test_the_preview_shows_names_and_decisions():
    async with open_desk(Node()) as desk:
        await desk.ask("PUT", f"{SERVERS}/fs", server("fs"))
        answer = await desk.ask("GET", f"{SERVERS}/fs/tools", role="operator")

        assert answer.json["server_id"] == "fs"
        [tool] = answer.json["tools"]
        assert (tool["name"], tool["allowed"], tool["layer"]) == ("mcp__fs__read", True, "server")


async def test_without_a_node_trials_say_so(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs"))
    for method, place in (("POST", "test"), ("GET", "tools")):
        answer = await desk.ask(method, f"{SERVERS}/fs/{place}")
        assert (answer.status, answer.code) == (503, "no_node")


async def test_a_server_may_be_called_like_an_endpoint(desk: Desk):
    created = await desk.ask("PUT", f"{SERVERS}/import", server("import"))
    shown = await desk.ask("GET", f"{ADMIN}/servers/import")
    assert (created.status, shown.json["server_id"]) == (201, "import")
