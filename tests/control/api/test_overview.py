"""The overview: figures for those who may read them, what needs attention, and the nodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bascule.audit.ledger import LedgerUnavailable
from bascule.control.api import attention
from bascule.control.registry.errors import NotAccepted
from bascule.control.registry.store import Author
from bascule.model.role import ROLES, Role
from bascule.wire.api.addresses import LIVE, NODES, OVERVIEW
from tests.control.api.observatory import Observatory, open_observatory
from tests.control.registry.build import BY, server


@pytest.fixture
async def room(tmp_path: Path) -> AsyncGenerator[Observatory]:
    async with open_observatory(tmp_path) as opened:
        yield opened


@pytest.mark.requirement("admin:overview:figures")
async def test_the_overview_has_the_window_by_second_server_and_tool(room: Observatory):
    room.metrics.tool("fs", "read").observe(None, 3.0, 10)
    room.figures.look()
    shown = await room.overview("viewer")
    assert (shown["now"], shown["window_seconds"]) == ("2027-01-15T08:00:00.000Z", 120)
    assert [second["calls"] for second in shown["figures"]] == [1]
    [fs] = shown["servers"]
    assert (fs["server_id"], fs["calls"], fs["tools"][0]["tool_name"]) == ("fs", 1, "read")


async def test_who_may_not_read_metrics_gets_no_figures(room: Observatory):
    room.metrics.tool("fs", "read").observe(None, 3.0, 10)
    room.figures.look()
    shown = await room.overview("approver")
    assert (shown["figures"], shown["servers"]) == ([], [])


@pytest.mark.requirement("admin:overview:attention")
@pytest.mark.parametrize(
    ("state", "code"),
    [("down", "server_down"), ("parked", "server_down"), ("degraded", "server_degraded")],
)
async def test_a_server_that_is_not_well_needs_attention(room: Observatory, state: str, code: str):
    await room.service.put("server", "fs", server("fs"), BY)
    await room.reported(state, "it exited with 1")
    [found] = (await room.overview("viewer"))["attention"]
    assert found == {
        "code": code,
        "subject": "fs",
        "message": f"fs is {state}: it exited with 1",
        "action": "test_server",
    }


@pytest.mark.requirement("admin:overview:attention")
async def test_nothing_needs_attention_where_all_is_well(room: Observatory):
    await room.service.put("server", "fs", server("fs"), BY)
    await room.reported("connected")
    assert await room.codes() == []


async def everything(room: Observatory) -> None:
    """Have something of everything that needs attention."""
    await room.service.put("server", "fs", server("fs"), BY)
    await room.reported("down", node="degraded")
    await room.question()
    far = {"server_id": "far", "transport": "http"}
    far |= {"http": {"url": "https://a.example", "auth_ref": "gh"}}
    with pytest.raises(NotAccepted):
        await room.service.put("server", "far", far, Author("otto", trusted=False))
    room.problems = ("fs.toml: transport is missing",)
    await room.tokens.first_start()
    room.store.words = "the disk is full"
    room.trouble.trouble = "the journal cannot be written: the disk is full"


_ALL = [
    "registry_unwritable",
    "ledger_unwritable",
    "node_not_following",
    "server_down",
    "approvals_pending",
    "proposals_waiting",
    "records_left_out",
    "setup_token",
]
_HIDDEN: dict[Role, set[str]] = {
    "admin": set(),
    "operator": {"proposals_waiting", "setup_token"},
    "viewer": {"proposals_waiting", "setup_token", "records_left_out"},
    "approver": {"proposals_waiting", "setup_token", "records_left_out", "node_not_following"},
}


@pytest.mark.requirement("admin:overview:attention")
@pytest.mark.parametrize("role", list(_HIDDEN))
async def test_everybody_is_told_what_they_may_read(room: Observatory, role: Role):
    await everything(room)
    assert await room.codes(role) == [code for code in _ALL if code not in _HIDDEN[role]]


@pytest.mark.requirement("admin:overview:attention")
async def test_each_has_words_and_the_one_thing_that_helps(room: Observatory):
    await everything(room)
    found = (await room.overview())["attention"]
    assert {one["subject"]: (one["message"], one["action"]) for one in found} == {
        "registry": ("the registry cannot be written to: the disk is full", "look_again"),
        "ledger": ("the journal cannot be written: the disk is full", "look_again"),
        "n1": (
            "node n1 does not follow the registry: it serves revision 1, the newest is 1",
            "open_nodes",
        ),
        "fs": ("fs is down", "test_server"),
        "approvals": ("1 call waits for somebody's decision", "open_approvals"),
        "proposals": ("1 change waits for an administrator", "open_proposals"),
        "files": ("fs.toml: transport is missing", "rescan"),
        "tok-setup": (
            "the setup token is still valid; the first administrator's token ends it",
            "make_token",
        ),
    }


async def test_pending_calls_of_other_tasks_are_not_counted(room: Observatory):
    await room.question(task_id="work")
    assert await room.codes("home-approver") == []
    await room.question(task_id="home", server="git")
    await room.question(task_id="home", server="fs")
    [found] = (await room.overview("home-approver"))["attention"]
    assert found["message"] == "2 calls wait for somebody's decision"


async def test_very_many_are_not_counted_to_the_last(
    room: Observatory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(attention, "MOST", 2)
    for number in range(3):
        await room.question(server=f"s{number}")
    [found] = (await room.overview())["attention"]
    assert found["message"] == "more than 2 calls wait for somebody's decision"


async def test_approvals_that_cannot_be_read_hide_nothing_else(room: Observatory):
    async def unreadable(_: object) -> None:
        raise LedgerUnavailable("approvals cannot be read now; see the log")

    room.approvals.listing = unreadable  # pyright: ignore[reportAttributeAccessIssue]
    await room.service.put("server", "fs", server("fs"), BY)
    await room.reported("down")
    assert await room.codes() == ["server_down", "ledger_unwritable"]


# --- nodes


@pytest.mark.requirement("admin:nodes")
async def test_nodes_are_listed_with_what_they_said_last(room: Observatory):
    await room.reported("connected")
    [node] = (await room.nodes("viewer")).json["nodes"]
    assert node == {
        "name": "n1",
        "state": "ok",
        "revision": 1,
        "version": "1.2",
        "last_seen": "2027-01-15T08:00:00.000Z",
        "servers": {"connected": 1},
        "doubled_at": None,
        "reason": None,
        "tasks": None,
        "labels": None,
    }


@pytest.mark.requirement("admin:nodes")
async def test_one_worker_of_a_node_is_shown_by_its_name(room: Observatory):
    await room.reported("connected", name="east/2")
    found = await room.get(f"{NODES}/east/2", "viewer")
    assert (found.status, found.json["node"]["name"]) == (200, "east/2")
    assert (await room.get(f"{NODES}/east", "viewer")).status == 404
    awaited = await room.get(f"{NODES}/east/assignment", "viewer")
    assert (awaited.status, awaited.json["node"]["name"]) == (200, "east")


@pytest.mark.requirement("admin:nodes")
async def test_a_node_that_has_not_reported_for_long_is_silent(room: Observatory):
    await room.reported("connected")
    await room.clock.advance(91)
    [node] = (await room.nodes()).json["nodes"]
    assert node["state"] == "silent"
    [found] = (await room.overview())["attention"]
    assert found["message"] == "node n1 has not reported since 2027-01-15T08:00:00.000Z"


async def test_a_node_whose_stream_has_ended_is_lost(room: Observatory):
    await room.reported("connected")
    standing = room.service.standing
    await standing.note(["n1"])
    standing.doubled["n1"] = room.clock.now()
    await room.clock.advance(16)
    [node] = (await room.nodes()).json["nodes"]
    assert (node["state"], node["doubled_at"]) == ("lost", "2027-01-15T08:00:00.000Z")
    [found] = (await room.overview())["attention"]
    assert found["message"] == "node n1 is lost: its stream was last open at " + node["last_seen"]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (OVERVIEW, {"admin", "operator", "viewer", "approver", "node"}),
        (NODES, {"admin", "operator", "viewer"}),
    ],
)
async def test_other_roles_are_refused(room: Observatory, path: str, allowed: set[str]):
    answers = {role: (await room.get(path, role)).status for role in ROLES}
    assert {role for role, status in answers.items() if status == 200} == allowed
    assert {answers[role] for role in ROLES if role not in allowed} == {403}


@pytest.mark.parametrize("path", [OVERVIEW, NODES, LIVE])
async def test_a_parameter_that_does_not_exist_is_refused(room: Observatory, path: str):
    answer = await room.get(f"{path}?window=5", "admin")
    assert (answer.status, answer.code) == (400, "invalid_request")
