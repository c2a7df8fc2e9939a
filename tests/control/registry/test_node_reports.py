"""What is kept of nodes' reports: the last of each, read by others as it changes."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.control.registry.nodes import Heard, NodeReports
from bascule.control.registry.postgres_reports import PostgresReports
from bascule.control.registry.sqlite_reports import SqliteReports
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.status import NodeReport
from bascule.db.postgres import Postgres
from bascule.model.status import ServerStatus
from tests.control.registry.memory_reports import MemoryReports
from tests.postgres.databases import database


@asynccontextmanager
async def replica(dsn: str) -> AsyncGenerator[tuple[Postgres, PostgresReports], None]:
    postgres = await Postgres(dsn).open()
    try:
        yield postgres, await PostgresReports(postgres).open()
    finally:
        await postgres.close()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def reports(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[NodeReports, None]:
    if request.param == "memory":
        yield MemoryReports()
    elif request.param == "sqlite":
        store = await SqliteStore(tmp_path / "registry.db", synchronous="OFF").open()
        yield store.reports
        await store.close()
    else:
        async with database() as dsn, replica(dsn) as (_, kept):
            yield kept


def status(server_id: str, state: str = "connected", **fields: Any) -> ServerStatus:
    return ServerStatus(server_id=server_id, state=state, **fields)


def said(node: str, *servers: ServerStatus, at: float = 1.0, **fields: Any) -> NodeReport:
    return NodeReport(node=node, servers=servers, at=at, **fields)


Words = dict[tuple[str, str], str | None]


def words(heard: Heard) -> Words:
    return {(node, server): one and one.state for node, server, one in heard.words}


def is_news(reports: NodeReports, heard: Heard, nodes: dict[str, Any], said: Words) -> bool:
    """Say whether this is what changed.

    PostgreSQL may repeat more: transactions of other databases on its server are waited for too.
    """
    found = (heard.nodes, words(heard))
    if isinstance(reports, PostgresReports):
        return nodes.items() <= found[0].items() and said.items() <= found[1].items()
    return found == (nodes, said)


async def everything(reports: NodeReports) -> dict[str, set[ServerStatus]]:
    """Return what is said now, read from the beginning."""
    heard = await reports.heard(0)
    assert heard.whole
    known = [(node, one) for node, _, one in heard.words if one is not None]
    return {
        node: {one for said_by, one in known if said_by == node}
        for node, report in heard.nodes.items()
        if report is not None
    }


async def test_a_report_takes_the_place_of_the_one_before(reports: NodeReports):
    full = status("a", "down", last_error="no", tool_count=3, latency_ms=1.5, reconnects=2)
    await reports.report(said("n2", full, status("b"), revision=1))
    await reports.report(said("n1"))
    assert await everything(reports) == {"n1": set(), "n2": {full, status("b")}}
    await reports.report(said("n2", status("b"), revision=2, state="degraded", at=7.0))
    assert await everything(reports) == {"n1": set(), "n2": {status("b")}}
    node = (await reports.heard(0)).nodes["n2"]
    assert node == NodeReport(node="n2", revision=2, state="degraded", at=7.0)


@pytest.mark.requirement("registry:node-reason")
async def test_why_a_node_is_degraded_is_kept_until_it_is_not(reports: NodeReports):
    for at, reason in enumerate(["the registry is another store", None, "it is away"], 1):
        state = "ok" if reason is None else "degraded"
        await reports.report(said("n1", status("a"), state=state, reason=reason, at=at))
        node = (await reports.heard(0)).nodes["n1"]
        assert node == NodeReport(node="n1", state=state, reason=reason, at=at)


async def test_a_reader_hears_what_changed_and_nothing_else(reports: NodeReports):
    await reports.report(said("n1", status("a"), status("b"), status("c")))
    await reports.report(said("n2", status("a")))
    place = (await reports.heard(0)).place
    await reports.report(said("n1", status("a"), status("b", "down"), at=2.0))
    heard = await reports.heard(place)
    assert not heard.whole
    node = NodeReport(node="n1", at=2.0)
    assert is_news(reports, heard, {"n1": node}, {("n1", "b"): "down", ("n1", "c"): None})
    assert is_news(reports, await reports.heard(heard.place), {}, {})


async def test_a_node_that_repeats_itself_is_heard_by_its_time_alone(reports: NodeReports):
    await reports.report(said("n1", status("a"), status("b")))
    place = (await reports.heard(0)).place
    await reports.report(said("n1", status("b"), status("a"), at=16.0))
    heard = await reports.heard(place)
    assert is_news(reports, heard, {"n1": NodeReport(node="n1", at=16.0)}, {})


async def test_a_node_that_was_forgotten_is_heard_of_once(reports: NodeReports):
    await reports.report(said("n1", status("a")))
    await reports.report(said("n2"))
    place = (await reports.heard(0)).place
    await reports.forget_node("n1", 2.0)
    heard = await reports.heard(place)
    assert is_news(reports, heard, {"n1": None}, {("n1", "a"): None})
    assert set(await everything(reports)) == {"n2"}
    await reports.report(said("n1", status("a"), at=3.0))
    heard = await reports.heard(heard.place)
    back = {"n1": NodeReport(node="n1", at=3.0)}
    assert is_news(reports, heard, back, {("n1", "a"): "connected"})


async def test_what_was_said_last_before_a_time_is_dropped(reports: NodeReports):
    await reports.report(said("old", status("a"), at=1.0))
    await reports.report(said("mixed", status("a"), status("b"), at=1.0))
    await reports.report(said("mixed", status("b"), at=10.0))
    place = (await reports.heard(0)).place
    await reports.forget_before(5.0)
    assert await everything(reports) == {"mixed": {status("b")}}
    await reports.report(said("new", at=11.0))
    new = {"new": NodeReport(node="new", at=11.0)}
    assert is_news(reports, await reports.heard(place), new, {})


def notes(heard: Heard) -> list[tuple[float, list[str]]]:
    return sorted((at, [*nodes]) for at, nodes in heard.notes)


async def test_the_last_note_of_each_replica_is_heard_by_others(reports: NodeReports):
    await reports.note("one", ["a", "b"], 1.0)
    await reports.note("two", ["c"], 2.0)
    heard = await reports.heard(0)
    if isinstance(reports, SqliteReports):  # which no second process serves
        assert notes(heard) == []
        return
    assert notes(heard) == [(1.0, ["a", "b"]), (2.0, ["c"])]
    await reports.note("one", ["b"], 6.0)
    assert (6.0, ["b"]) in notes(await reports.heard(heard.place))
    await reports.forget_before(5.0)
    assert notes(await reports.heard(0)) == [(6.0, ["b"])]


async def test_two_replicas_on_one_database_hear_each_other():
    async with database() as dsn, replica(dsn) as (_, one), replica(dsn) as (_, other):
        place = (await other.heard(0)).place
        await one.report(said("n", status("a")))
        heard = await other.heard(place)
        assert words(heard) == {("n", "a"): "connected"}
        await other.report(said("n", status("a", "down"), at=2.0))
        assert words(await one.heard(place)) == {("n", "a"): "down"}


async def test_a_report_that_is_committed_late_is_not_missed():
    """A later transaction may end first: whoever read in between still hears of the earlier."""
    async with database() as dsn, replica(dsn) as (postgres, reports):
        slow = await postgres.connect()
        await slow.execute("BEGIN")
        await slow.execute("INSERT INTO node_reports VALUES ('slow', 1, 'ok', 1.0, '')")
        await reports.report(said("fast", status("a")))
        heard = await reports.heard(1)
        assert set(heard.nodes) == {"fast"}
        await slow.execute("COMMIT")
        assert "slow" in (await reports.heard(heard.place)).nodes
        await slow.close()


async def test_a_database_that_went_back_is_read_from_the_beginning():
    async with database() as dsn, replica(dsn) as (_, reports):
        await reports.report(said("n", status("a")))
        heard = await reports.heard(2**60)
        assert heard.whole
        assert set(heard.nodes) == {"n"}


class CountingCommit:
    """Commits for real, and counts the rows that were changed."""

    rows = 0

    def __call__(self, connection: sqlite3.Connection, /) -> None:
        self.rows = connection.total_changes
        connection.execute("COMMIT")


@pytest.mark.requirement("registry:many-records")
async def test_a_report_that_says_the_same_again_writes_one_row(tmp_path: Path):
    commit = CountingCommit()
    store = await SqliteStore(tmp_path / "r.db", synchronous="OFF", commit=commit).open()
    many = [status(f"s{n}") for n in range(50)]
    await store.reports.report(said("n", *many))
    before = commit.rows
    await store.reports.report(said("n", *many, at=2.0))
    assert commit.rows - before == 1
    before = commit.rows
    await store.reports.report(said("n", status("s3", "down"), *many[5:], at=3.0))
    assert commit.rows - before == 1 + 5  # the node's, that of s3, and those that it left out
    await store.close()


@pytest.mark.requirement("registry:many-records")
async def test_a_report_that_says_the_same_again_writes_one_row_of_postgresql():
    async with database() as dsn, replica(dsn) as (postgres, reports):
        many = [status(f"s{n}") for n in range(50)]
        await reports.report(said("n", *many))
        versions = "SELECT server_id, xmin::text, ctid::text, xmax::text FROM node_servers"
        before = {tuple(row) for row in await postgres.statement(versions)}
        await reports.report(said("n", *many, at=2.0))
        assert {tuple(row) for row in await postgres.statement(versions)} == before
        await reports.report(said("n", status("s3", "down"), *many[5:], at=3.0))
        after = {tuple(row) for row in await postgres.statement(versions)}
        assert {row[0] for row in after - before} == {f"s{n}" for n in range(5)}
