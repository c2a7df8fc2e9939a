"""What is proposed and refused is gone."""

from __future__ import annotations

import pytest

from tests.control.api.desk import ADMIN, SERVERS, Desk

WANTED = {
    "server_id": "fs",
    "transport": "http",
    "http": {"url": "https://example.org/mcp", "auth_ref": "secret://token"},
}


@pytest.mark.requirement("admin:proposals:refuse")
async def test_a_refused_proposal_is_forgotten_and_nothing_is_written(desk: Desk):
    await desk.ask("POST", SERVERS, WANTED, role="operator")
    [waits] = (await desk.ask("GET", f"{ADMIN}/proposals")).json["proposals"]
    refuse = f"{SERVERS}/fs/refuse"

    operator = await desk.ask("POST", refuse, role="operator")
    another = await desk.ask("POST", f"{refuse}?proposal=0000000000000000")
    done = await desk.ask("POST", f"{refuse}?proposal={waits['proposal']}")
    again = await desk.ask("POST", refuse)

    assert [one.status for one in (operator, another, done, again)] == [403, 404, 200, 404]
    assert done.json == {"kind": "server", "id": "fs"}
    assert (await desk.ask("GET", f"{ADMIN}/proposals")).json == {"proposals": []}
    assert desk.service.view.revision == 0
