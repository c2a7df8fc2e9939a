"""A process is started for a record of the registry, and for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from bascule import Bridge, Server
from bascule.testing import ScriptedServer


@pytest.mark.requirement("transport:spawn-governed")
async def test_no_process_is_started_but_for_a_registered_record(tmp_path: Path):
    starts = tmp_path / "starts"
    command, args = ScriptedServer(behaviours={"echo": "echo"}, starts=str(starts)).command
    async with Bridge.open([Server.stdio("known", command, *args)]) as bridge:
        session = bridge.session(server_ids=["known", "other"])
        for name in ("mcp__other__echo", f"mcp__{command}__echo", "mcp.other.echo"):
            outcome = await session.call(name, {"text": "x"})
            assert outcome.error is not None
            assert outcome.error.code == "mcp_invalid_arguments"
            assert (outcome.error.details or {})["reason"] == "unknown_tool"
        assert not starts.exists()
        assert (await session.call("mcp__known__echo", {"text": "x"})).ok
        assert len(starts.read_text(encoding="utf-8").splitlines()) == 1
