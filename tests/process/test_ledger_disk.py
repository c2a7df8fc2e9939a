"""While the disk of the ledger is full no call leaves unwritten; with room everything goes on."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from bascule import Bridge
from bascule.audit.journal import Disk
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.db.sqlite import plain_commit
from bascule.testing import FakeClock
from tests.process.ledger_disk import Filling, counting_server
from tests.process.ledger_node import KEY
from tests.process.nursery import ROOT
from tests.process.test_ledger_kill import chain, digest
from tests.waits import until

LIMIT = 600_000


class BadDisk(Disk):
    """A disk, and a database on it, of which one thing fails while it is told to."""

    def __init__(self) -> None:
        self.fails = ""

    def _pass(self, what: str) -> None:
        if self.fails == what:
            raise OSError(errno.EIO, "input/output error")

    def write(self, file: int, data: bytes | bytearray) -> int:
        if self.fails == "half a write":
            return os.write(file, data[: len(data) // 2])
        self._pass("write")
        return os.write(file, data)

    def truncate(self, file: int, size: int) -> None:
        self._pass("write")
        os.ftruncate(file, size)

    def flush(self, file: int) -> None:
        self._pass("flush")
        os.fdatasync(file)

    def commit(self, connection: sqlite3.Connection, /) -> None:
        if self.fails == "commit":
            raise sqlite3.OperationalError("disk I/O error")
        plain_commit(connection)


@pytest.mark.requirement("audit:ledger:write-fails-closed")
@pytest.mark.parametrize("fault", ["write", "half a write", "flush", "commit"])
async def test_a_disk_that_fails_lets_no_call_leave_and_nothing_escapes(fault: str, tmp_path: Path):
    counted, disk, clock = tmp_path / "counted", BadDisk(), FakeClock()
    settings = LedgerSettings(durability="power" if fault == "flush" else "kill")
    ledger = await SqliteLedger(
        tmp_path, key=KEY, settings=settings, clock=clock, disk=disk, commit=disk.commit
    ).open()
    async with (
        Bridge.open([counting_server(counted)], ledger=ledger) as bridge,
        bridge.session(server_ids=["counter"]) as session,
    ):
        filling = Filling(ledger, session, counted)
        assert await filling.call("write")
        disk.fails = fault
        if fault == "commit":  # what was on its way when it failed may go
            await filling.until_refused("write")
        assert await filling.refused("write", "read")
        assert filling.refusals == [["mcp_unavailable", "ledger_unavailable"]]
        disk.fails = ""

        async def called() -> bool:
            await clock.advance(1)
            return await filling.call("write")

        await until(called)
    await ledger.close()
    executions = {digest(line) for line in counted.read_bytes().splitlines()}
    events = chain(tmp_path)
    intents = [e["arguments_digest"] for e in events if e["event"] == "call_intent"]
    assert executions <= set(intents)
    refused = {e["request_id"] for e in events if e.get("reason") == "ledger_unavailable"}
    assert len(refused) > 20, "what was refused is said, once that can be written"


@pytest.mark.timeout(120)
@pytest.mark.requirement("audit:ledger:write-fails-closed", "audit:ledger:read-goes-on")
@pytest.mark.parametrize("disk", ["a full disk", "files that may not grow"])
async def test_a_disk_without_room_lets_no_call_leave_unwritten_and_with_room_all_goes_on(
    disk: str, tmp_path: Path
):
    apart = [] if disk != "a full disk" else own_mounts()
    data, counted, kept = (tmp_path / name for name in ("data", "counted", "kept"))
    data.mkdir()
    command = [*apart, sys.executable, "-m", "tests.process.ledger_disk", data, counted, kept]
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, "0" if apart else str(LIMIT)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=110,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["refused"], "a call left that could not be written down"
    assert found["refusals"] == [["mcp_unavailable", "ledger_unavailable"]]
    assert found["writes"] > 100
    assert found["reads"] > 0 or apart, "the journal could still be written"
    events = chain(kept)
    intents = [e["arguments_digest"] for e in events if e["event"] == "call_intent"]
    executions = [digest(line) for line in counted.read_bytes().splitlines()]
    assert len(executions) == found["writes"] + found["reads"] + 2
    assert sorted(intents) == sorted(executions)
    assert list((kept / "journal").iterdir()) == []


def own_mounts() -> list[str]:
    """Return what gives a process file systems of its own; nothing where that is not allowed."""
    apart = ["unshare", "-m"]
    if os.geteuid() or not shutil.which("unshare") or not shutil.which("mount"):
        return []
    return apart if not subprocess.run([*apart, "true"], check=False).returncode else []
