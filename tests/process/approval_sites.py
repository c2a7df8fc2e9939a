"""Where nodes race for approvals: two on one data directory, or two replicas on one PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from bascule.audit.export import rows_of_export
from bascule.audit.postgres_ledger import PostgresLedger
from bascule.audit.verification import verify
from bascule.db.postgres import Postgres
from tests.postgres.cluster import Cluster, own_cluster
from tests.process.ledger_node import KEY
from tests.process.nursery import nursery
from tests.process.test_ledger_kill import chain, closed_well
from tests.scale import SOAK

Kind = Literal["files", "replicas"]
Events = list[dict[str, Any]]


class Site(ABC):
    """Two nodes that are going to be killed, and what they leave."""

    #: How many calls there are under each of two definitions.
    calls: int
    #: Kills what both nodes stand on, and has it come back; None where that is a file.
    crash: Callable[[], Awaitable[None]] | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counted = folder / "counted"
        self.nodes: list[Process] = []

    @abstractmethod
    async def events(self) -> Events:
        """Take in what the dead left; return all events, of chains that are whole."""


class Files(Site):
    """Two nodes on one data directory."""

    calls = 1_000 if SOAK else 150

    async def events(self) -> Events:
        await closed_well(self.folder)
        assert verify(self.folder / "ledger.db").problems == ()
        return chain(self.folder)


class Replicas(Site):
    """Two replicas, each with a data directory, on a PostgreSQL that is killed as well."""

    calls = 300 if SOAK else 60

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        super().__init__(folder)
        self.homes = [folder / "one", folder / "other"]
        self.cluster = cluster
        self.crash = self._crash

    async def _crash(self) -> None:
        await asyncio.to_thread(self.cluster.kill)
        await asyncio.to_thread(self.cluster.start)

    async def events(self) -> Events:
        postgres, lines = await Postgres(self.cluster.dsn()).open(), b""
        try:
            for home in self.homes:
                ledger = await PostgresLedger(postgres, home, key=KEY, node=home.name).open()
                found = await asyncio.to_thread(ledger.verify, lambda _: None)
                lines = b"".join([lines async for lines in ledger.reader().export()])
                await ledger.close()
                assert found.problems == ()
                assert list((home / "journal").iterdir()) == []
        finally:
            await postgres.close()
        return [json.loads(row.event) for row in rows_of_export(lines.splitlines()) if row]


@asynccontextmanager
async def approval_site(kind: Kind, folder: Path) -> AsyncGenerator[Site]:
    """Start what makes the nodes of a kind of site."""
    async with AsyncExitStack() as stack:
        places: list[tuple[object, ...]]
        if kind == "files":
            site: Site = Files(folder)
            await closed_well(folder)
            places = [(folder, site.counted, site.calls)] * 2
        else:
            cluster = stack.enter_context(own_cluster())
            site = shared = Replicas(folder, cluster)
            for home in shared.homes:
                home.mkdir()
            dsn = cluster.dsn()
            places = [(home, site.counted, site.calls, dsn) for home in shared.homes]
        site.nodes = [
            await stack.enter_async_context(nursery("approval_node", *words)) for words in places
        ]
        yield site
