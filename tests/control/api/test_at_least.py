"""A read that may not be older than a revision: the replica catches up, or says that it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bascule.control.api import fresh
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import Change
from bascule.db.errors import StoreUnavailable
from bascule.wire.api.addresses import ADMIN, INTEGRATIONS, ME, PUBLIC, SNAPSHOT, TOOLS
from tests.control.api.desk import SERVERS, Desk, open_desk
from tests.control.registry.build import BY, write
from tests.control.registry.memory_store import MemoryStore

READS = (
    SERVERS,
    f"{SERVERS}/fs",
    f"{PUBLIC}/servers",
    f"{PUBLIC}/servers/fs",
    SNAPSHOT,
    f"{ADMIN}/platform",
    f"{ADMIN}/tasks",
    f"{ADMIN}/history",
    f"{ADMIN}/history?limit=1",
    f"{ADMIN}/diff?from=0",
    f"{ADMIN}/proposals",
    TOOLS,
    ME,
    INTEGRATIONS,
)


def asking(path: str, revision: object) -> str:
    return f"{path}{'&' if '?' in path else '?'}at_least={revision}"


class Behind(SqliteStore):
    """A store whose other process writes unheard; it can be away, or hang."""

    away = False
    hangs = False

    async def changes(self, since: int, limit: int = 256) -> tuple[Change, ...]:
        if self.away:
            raise StoreUnavailable("the database is away")
        if self.hangs:
            await asyncio.Event().wait()
        return await super().changes(since, limit)


class Replica:
    """A replica that has not heard yet what another wrote."""

    def __init__(self, desk: Desk, store: Behind, other: SqliteStore) -> None:
        self.desk, self.store, self.other = desk, store, other


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncGenerator[Replica, None]:
    path = tmp_path / "registry.db"
    store = await Behind(path, synchronous="OFF").open()
    other = await SqliteStore(path, synchronous="OFF").open()
    async with open_desk(store=store) as desk:
        await other.write([write("fs")], BY)
        assert desk.service.view.revision == 0
        yield Replica(desk, store, other)
        await other.close()


@pytest.mark.requirement("registry:at-least")
@pytest.mark.parametrize("path", READS)
async def test_a_replica_that_is_behind_catches_up_first(replica: Replica, path: str):
    answer = await replica.desk.ask("GET", asking(path, 1))
    assert answer.status == 200, answer.body
    assert replica.desk.service.view.revision == 1


@pytest.mark.requirement("registry:at-least")
@pytest.mark.parametrize("path", READS)
async def test_a_replica_that_cannot_says_when_to_ask_again(replica: Replica, path: str):
    replica.store.away = True
    answer = await replica.desk.ask("GET", asking(path, 1))
    assert (answer.status, answer.code) == (503, "store_unavailable")
    assert "retry-after" in [key.lower() for key, _ in answer.headers]
    message = answer.json["error"]["message"]
    assert "revision 0, and 1 is not here yet: the database is away" in message


async def test_a_replica_that_has_it_asks_nobody(replica: Replica):
    await replica.desk.service.catch_up()
    replica.store.away = True
    listed = await replica.desk.ask("GET", asking(SERVERS, 1))
    assert [one["server_id"] for one in listed.json["servers"]] == ["fs"]


async def test_a_revision_that_nobody_has_made_does_not_come(replica: Replica):
    answer = await replica.desk.ask("GET", asking(SERVERS, 7))
    assert (answer.status, answer.code) == (503, "store_unavailable")
    assert answer.json["error"]["details"]["revision"] == 1


async def test_catching_up_ends_in_time(replica: Replica, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fresh, "CATCH_UP_SECONDS", 0.01)
    replica.store.hangs = True
    answer = await replica.desk.ask("GET", asking(SERVERS, 1))
    assert (answer.status, answer.code) == (503, "store_unavailable")
    assert "did not catch up within" in answer.json["error"]["message"]


@pytest.mark.parametrize("given", ["", "soon", "-1", "1&at_least=1"])
async def test_what_is_no_revision_is_refused(desk: Desk, given: str):
    answer = await desk.ask("GET", asking(SERVERS, given))
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.json["error"]["details"] == {"parameter": "at_least"}


async def test_other_parameters_are_read_as_ever():
    async with open_desk(store=MemoryStore()) as desk:
        await desk.service.import_records(
            [
                ("server", {"server_id": one, "transport": "stdio", "stdio": {"command": "x"}})
                for one in ("a", "b")
            ],
            "upsert",
            BY,
        )
        page = await desk.ask("GET", f"{SERVERS}?limit=1&at_least=1&defaults=false")
        assert [one["server_id"] for one in page.json["servers"]] == ["a"]
        assert "tags" not in page.json["servers"][0]
        wrong = await desk.ask("GET", f"{ADMIN}/history?at_least=1&limt=1")
        assert "did you mean 'limit'?" in wrong.json["error"]["message"]
        written = await desk.ask("PUT", f"{SERVERS}/a?at_least=1", {})
        assert (written.status, written.code) == (400, "invalid_request")
