"""Secrets for tests: records that use them, and a store that notes in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bascule.audit.events import SecretChanged
from bascule.audit.ledger import MemoryLedger
from bascule.control.envelope import OuterKey
from bascule.control.secrets import Secrets, open_secrets
from bascule.model.backend import BackendRecord
from bascule.model.secret_use import server_use
from bascule.model.server import Http, ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.testing.clock import FakeClock

BY = "ada"
#: Text that stands in no other place, and has every kind of character.
VALUE = 'c4nary/Kd+vQ 9\u00e9w"x3 tail'


def server(server_id: str = "github", host: str = "a.example.com") -> ServerRecord:
    http = Http(url=f"https://{host}/mcp", auth_ref="secret://token")
    return ServerRecord(server_id=server_id, transport="streamable_http", http=http)


def backend(name: str = "main") -> BackendRecord:
    return BackendRecord(name=name, base_url="https://b.example.com/v1", key_ref="token")


USE = server_use(server())
RECORDS = Snapshot(
    servers={"github": server(), "plain": server("plain")}, backends={"main": backend()}
)


@asynccontextmanager
async def opened(
    folder: Path,
    *,
    key: OuterKey | None = None,
    ledger: MemoryLedger | None = None,
    records: Callable[[], Snapshot] = Snapshot,
    clock: FakeClock | None = None,
) -> AsyncGenerator[Secrets, None]:
    note = (ledger or MemoryLedger()).note
    clock = clock or FakeClock()
    async with open_secrets(folder, key=key, note=note, records=records, clock=clock) as secrets:
        yield secrets


def acts(ledger: MemoryLedger) -> list[tuple[str, str, str, int | None, str | None]]:
    """What was noted of secrets, in order."""
    found = [event for event in ledger.events if isinstance(event, SecretChanged)]
    return [(e.action, e.name, e.by, e.version, e.server_id) for e in found]


def contents(folder: Path) -> dict[str, bytes]:
    """What the files of a folder hold."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
