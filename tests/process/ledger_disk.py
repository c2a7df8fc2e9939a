"""A node whose ledger is on a disk that gets full: ``DATA COUNTED KEPT LIMIT``.

With a limit no file may have more bytes; without one a small file system is mounted on DATA, for
this process alone (start it under ``unshare -m``). It calls until everything is refused, makes
room, calls until everything goes on, and says what happened in one line of JSON. What is on the
disk at the end is copied to KEPT.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bascule import Bridge, Server, Session
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.model.server import ServerRecord
from bascule.testing.server import ScriptedServer, do
from tests.process.ledger_node import KEY
from tests.waits import until

SMALL = 900_000
OFTEN = 20


def counting_server(counted: Path) -> ServerRecord:
    count = do("ledger", path=str(counted))
    command, args = ScriptedServer(behaviours={"write": count, "read": count}).command
    return Server.stdio("counter", command, *args, effects={"read": ["read"]})


class Filling:
    """Calls on a disk that gets full, and what came of them."""

    def __init__(self, ledger: SqliteLedger, session: Session, counted: Path) -> None:
        self._ledger = ledger
        self._session = session
        self._counted = counted
        self._last = 0
        self.refusals: list[Any] = []

    async def call(self, tool: str) -> bool:
        self._last += 1
        arguments = {"text": f"{tool} {self._last}"}
        outcome = await self._session.call(f"mcp__counter__{tool}", arguments)
        if outcome.error is None:
            return True
        refusal = [outcome.error.code, (outcome.error.details or {}).get("reason")]
        if refusal not in self.refusals:
            self.refusals.append(refusal)
        return False

    async def until_refused(self, tool: str) -> int:
        """Call, and let the database follow, until a call is refused; return how many were not."""
        made = 0
        while await self.call(tool):
            made += 1
            if made % OFTEN == 0:
                await self._ledger.taken_in()
        return made

    def executions(self) -> int:
        return len(self._counted.read_bytes().splitlines())

    async def refused(self, *tools: str) -> bool:
        """Say whether many calls at once are all refused, and none of them left."""
        before = self.executions()
        went = await asyncio.gather(*(self.call(tool) for tool in tools for _ in range(OFTEN)))
        return not any(went) and self.executions() == before


async def until_full(data: Path, counted: Path, limit: int) -> dict[str, Any]:
    settings = LedgerSettings(reads_when_down=True)
    ledger = await SqliteLedger(data, key=KEY, settings=settings).open()
    async with (
        Bridge.open([counting_server(counted)], ledger=ledger) as bridge,
        bridge.session(server_ids=["counter"]) as session,
    ):
        await session.tools()
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, unlimited[1]))
        filling = Filling(ledger, session, counted)
        writes = await filling.until_refused("write")
        refused = await filling.refused("write")
        reads = await filling.until_refused("read")
        refused = refused and await filling.refused("read", "write")
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        else:
            mount(data, 100 * SMALL, "remount,")
        await until(lambda: filling.call("read"))
        await until(lambda: filling.call("write"))
        refusals = filling.refusals
    await ledger.close()
    return {"writes": writes, "reads": reads, "refused": refused, "refusals": refusals}


def mount(folder: Path, size: int, how: str = "") -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"{how}size={size}", "tmpfs", folder], check=True)


def main() -> None:
    data, counted, kept = map(Path, sys.argv[1:4])
    limit = int(sys.argv[4])
    if not limit:
        mount(data, SMALL)
    found = asyncio.run(until_full(data, counted, limit))
    shutil.copytree(data, kept)
    os.write(1, json.dumps(found).encode())


if __name__ == "__main__":
    main()
