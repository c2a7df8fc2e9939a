"""Nodes of other processes report over HTTP, each for itself."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.control.registry.standing import SILENT_SECONDS
from bascule.model.role import ROLES, Role
from bascule.wire.api.addresses import NODE_REPORT
from bascule.wire.api.nodes import MAX_SERVERS, MAX_TEXT
from tests.control.api.desk import SERVERS, Desk
from tests.control.registry.build import server

#: The name of the token of role node.
NAME = "node"


def report(*servers: dict[str, Any], node: str = NAME, **fields: Any) -> dict[str, Any]:
    return {"node": node, "state": "ok", "revision": 1, "servers": [*servers], **fields}


def word(server_id: str, state: str = "connected", **fields: Any) -> dict[str, Any]:
    return {"server_id": server_id, "state": state, **fields}


async def states(desk: Desk) -> dict[str, str]:
    listed = (await desk.ask("GET", SERVERS, role="viewer")).json["servers"]
    return {one["server_id"]: one["status"]["state"] for one in listed}


@pytest.mark.requirement("registry:node-reports")
async def test_what_a_node_reports_is_the_status_of_its_servers(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/fs", server("fs"))
    full = word(
        "fs",
        "degraded",
        trouble="slow",
        last_error="waits",
        tool_count=3,
        latency_ms=1.5,
        average_latency_ms=2,
        reconnects=4,
        starting=None,
        sandbox={"asked": "bwrap", "in_force": "landlock", "why": "no bwrap"},
    )
    answer = await desk.ask("POST", NODE_REPORT, report(full), role="node")
    assert (answer.status, answer.json) == (200, {"revision": 1})
    status = (await desk.ask("GET", f"{SERVERS}/fs", role="viewer")).json["status"]
    assert (status["state"], status["last_error"]) == ("degraded", "waits")
    assert status["nodes"] == {NAME: {**full, "health": "Degraded"}}
    [node] = desk.service.standing.nodes()
    assert (node.node, node.revision, node.state, node.at) == (NAME, 1, "ok", desk.clock.now())
    assert desk.service.view.revision == 1


async def test_a_report_replaces_the_one_before_and_silence_takes_its_say(desk: Desk):
    for one in ("a", "b"):
        await desk.ask("PUT", f"{SERVERS}/{one}", server(one))
    await desk.ask("POST", NODE_REPORT, report(word("a"), word("b")), role="node")
    assert await states(desk) == {"a": "connected", "b": "connected"}
    again = report(word("b", "parked"), state="degraded")
    await desk.ask("POST", NODE_REPORT, again, role="node")
    assert await states(desk) == {"a": "unknown", "b": "parked"}
    desk.clock.jump(SILENT_SECONDS + 1)
    assert await states(desk) == {"a": "unknown", "b": "unknown"}


async def test_a_node_that_says_goodbye_is_forgotten(desk: Desk):
    await desk.ask("POST", NODE_REPORT, report(word("a")), role="node")
    said = {"node": NAME, "state": "ended"}
    assert (await desk.ask("POST", NODE_REPORT, said, role="node")).status == 200
    assert desk.service.standing.nodes() == ()


@pytest.mark.requirement("registry:node-reports")
async def test_a_node_speaks_for_itself_alone(desk: Desk):
    answer = await desk.ask("POST", NODE_REPORT, report(node="another"), role="node")
    assert (answer.status, answer.code) == (403, "forbidden")
    assert answer.json["error"]["details"] == {"field": "node"}
    assert repr(NAME) in answer.json["error"]["message"]
    desk.service.standing.own.add(NAME)
    answer = await desk.ask("POST", NODE_REPORT, report(), role="node")
    assert (answer.status, answer.code) == (403, "forbidden")
    assert desk.service.standing.nodes() == ()


@pytest.mark.parametrize("role", [role for role in ROLES if role != "node"])
async def test_others_do_not_report(desk: Desk, role: Role):
    answer = await desk.ask("POST", NODE_REPORT, report(node=role), role=role)
    assert (answer.status, answer.code) == (403, "forbidden")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": (report(colour=1), "colour: unknown field"),
    "an unknown field of a server": (
        report(word("a", mood="fine")),
        "servers[0].mood: unknown field",
    ),
    "no state": ({"node": "node"}, "state: is required"),
    "an unknown state": (report(state="fine"), "state: 'fine' is not one of"),
    "an unknown state of a server": (
        report(word("a", "fine")),
        "servers[0].state: 'fine' is not",
    ),
    "an id that is none": (report(word("A")), "servers[0].server_id: "),
    "a negative count": (report(word("a", reconnects=-1)), "servers[0].reconnects: "),
    "an endless text": (
        report(word("a", last_error="x" * (MAX_TEXT + 1))),
        "servers[0].last_error: must be at most",
    ),
    "a server twice": (report(word("a"), word("a", "down")), "servers: 'a' is named more than"),
    "very many servers": (
        report(*(word(f"s{number}") for number in range(MAX_SERVERS + 1))),
        "servers",
    ),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_wrong_with_a_report_is_named(desk: Desk, case: str):
    body, said = WRONG[case]
    answer = await desk.ask("POST", NODE_REPORT, body, role="node")
    assert (answer.status, answer.code) == (422, "invalid_record")
    assert any(said in problem for problem in answer.json["error"]["details"]["problems"])
    assert desk.service.standing.nodes() == ()


async def test_a_report_that_is_too_large_is_not_read(desk: Desk):
    answer = await desk.ask("POST", NODE_REPORT, {"node": "x" * 1_100_000}, role="node")
    assert (answer.status, answer.code) == (413, "body_too_large")


async def test_what_would_repaint_a_terminal_is_shown_as_an_escape(desk: Desk):
    said = report(word("a", "down", last_error="\x1b[2Jgone"))
    await desk.ask("POST", NODE_REPORT, said, role="node")
    [node] = desk.service.standing.nodes()
    assert node.servers[0].last_error == "\\x1b[2Jgone"
