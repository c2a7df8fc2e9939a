"""Connections that never come about cost nothing that stays: no descriptor, no process."""

from __future__ import annotations

import asyncio

import psutil
import pytest

from bascule.node.assembly import Bridge
from bascule.server import Server
from bascule.testing.server import ScriptedServer, do
from tests.children import children
from tests.flow.servers import PATIENT, record
from tests.scale import scaled

FAILURES: dict[str, ScriptedServer] = {
    "ends at once": ScriptedServer(at_start=["die"]),
    "ends on both questions": ScriptedServer(on={"server/discover": "die", "initialize": "die"}),
    "closes its output": ScriptedServer(at_start=["close_output"]),
    "answers in riddles": ScriptedServer(on={"server/discover": "nan", "initialize": "nan"}),
    "refuses": ScriptedServer(on={"server/discover": "rpc_error", "initialize": "rpc_error"}),
    "speaks another version": ScriptedServer(era="legacy", version="1999-01-01"),
    "leaves a child behind": ScriptedServer(at_start=[do("spawn_grandchild", then="die")]),
}
SILENT = ScriptedServer(on={"server/discover": "never", "initialize": "never"})


def descriptors() -> int:
    """Return how many descriptors this process holds."""
    return psutil.Process().num_fds()


def zombies() -> list[int]:
    """Return the dead that nobody has buried, among all that came of this process."""
    found = psutil.Process().children(recursive=True)
    return [each.pid for each in found if each.status() == psutil.STATUS_ZOMBIE]


@pytest.mark.timeout(300)
@pytest.mark.requirement("pool:failure-skips", "pool:health:last-error")
async def test_failed_handshakes_leave_no_descriptor_no_zombie_and_no_directory():
    records = [record(each, f"s{at}") for at, each in enumerate(FAILURES.values())]
    records.append(record(SILENT, "silent", budgets={"connect_timeout_ms": 100}))
    records.append(Server.stdio("missing", "/no/such/program"))
    names = [each.server_id for each in records]
    async with (
        Bridge.open(records, settings=PATIENT) as bridge,
        bridge.session(server_ids=names) as session,
    ):
        assert len(await session.tools()) == 0  # the warden and its socket are there from now on
        before, below = descriptors(), len(children())
        failures = 0
        while failures < scaled(500):
            async with asyncio.timeout(30):
                attempts = await asyncio.gather(
                    *(bridge.reconnect(name) for name in names), return_exceptions=True
                )
            assert all(getattr(each, "code", None) == "mcp_unavailable" for each in attempts)
            failures += len(attempts)
        assert descriptors() == before
        assert zombies() == []
        homes = bridge._pool._opener._homes
        assert homes is not None
        assert list(homes.path.iterdir()) == []
        assert len(children()) == below
        assert {status.state for status in bridge.statuses()} <= {"down", "parked"}
        assert all(status.last_error for status in bridge.statuses())
