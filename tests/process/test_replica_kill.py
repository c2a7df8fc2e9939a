"""Replicas over one database that are killed: each approval is used at most once."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bascule.audit.export import rows_of_export
from bascule.audit.postgres_ledger import PostgresLedger
from bascule.db.postgres import Postgres
from tests.postgres.databases import database
from tests.process.approval_node import DEFINITIONS
from tests.process.ledger_node import KEY
from tests.process.nursery import nursery, worked
from tests.process.test_approval_kill import CALLS, EARLY, LATE, check
from tests.scale import scaled

KILLS = scaled(60)


async def moves(dsn: str, folders: list[Path]) -> list[dict[str, Any]]:
    """Take in what the dead left; return every step, of chains that are whole."""
    postgres, lines = await Postgres(dsn).open(), b""
    try:
        for folder in folders:
            ledger = await PostgresLedger(postgres, folder, key=KEY, node=folder.name).open()
            found = await asyncio.to_thread(ledger.verify, lambda _: None)
            lines = b"".join([lines async for lines in ledger.reader().export()])
            await ledger.close()
            assert found.problems == ()
            assert list((folder / "journal").iterdir()) == []
    finally:
        await postgres.close()
    events = [json.loads(row.event) for row in rows_of_export(lines.splitlines()) if row]
    return [event for event in events if event["event"] == "approval"]


@pytest.mark.timeout(3_600)
@pytest.mark.requirement("approval:replicas:once", "approval:survives-kill")
async def test_each_approval_runs_at_most_once_whichever_replica_is_killed(tmp_path: Path):
    rng = random.Random(20)
    counted = tmp_path / "counted"
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    said: list[str] = []
    async with database() as dsn, AsyncExitStack() as stack:
        both = [
            await stack.enter_async_context(nursery("approval_node", folder, counted, CALLS, dsn))
            for folder in folders
        ]
        for kill in range(KILLS // 2):
            lines = [f"{rng.choice(DEFINITIONS)} {kill} yes" for _ in both]
            after = [rng.randrange(LATE if rng.random() < 0.7 else EARLY) for _ in both]
            nodes = map(worked, both, lines, after)
            said += [word for words in await asyncio.gather(*nodes) for word in words]
        for definition in DEFINITIONS:
            last = await asyncio.gather(*(worked(one, f"{definition} last yes") for one in both))
            assert all("all" in words for words in last)
            said += [word for words in last for word in words]
        assert not [word for word in said if word.startswith("broken")]
        check(await moves(dsn, folders), said, counted)
