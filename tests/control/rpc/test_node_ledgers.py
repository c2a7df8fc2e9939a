"""The ledgers of nodes over gRPC: taken once, row by row, listed and verified beside the own."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from bascule.audit.anchors import parsed
from bascule.audit.chain import GENESIS, Row, link
from bascule.audit.checkpoints import last_line
from bascule.audit.event_bytes import event_bytes
from bascule.audit.events import Act, LedgerCut, NodeLedger
from bascule.audit.findings import Verification
from bascule.audit.journaled_ledger import JournaledLedger
from bascule.audit.ledger_file import tip
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.received import MAX_EVENT_BYTES, MOST_ROWS, SentRows, receive
from bascule.audit.retention import Limits, cut, cut_received
from bascule.audit.sent_calls import SentCalls
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.client.ledger import RpcLedger
from bascule.client.rpc import RpcAccess, RpcSource
from bascule.clock import SYSTEM_CLOCK
from bascule.control.rpc.ledgers import LedgerRpc
from bascule.lifetime import cancelled
from bascule.model.role import Role
from bascule.node.ledger_sender import LedgerSender, NothingRefused, SenderSettings
from bascule.wire.api.audit import AuditEntry, AuditFilters
from bascule.wire.pb import node_pb2 as pb
from tests.audit.calls import Ended, Leaving, made
from tests.audit.ledgers import KEY, ledgers_of
from tests.control.rpc.counter import RpcCounter, open_counter
from tests.waits import until

STATUS = grpc.StatusCode
QUICK = SenderSettings(pause_seconds=0.01, backoff_seconds=0.01, anchor_seconds=0.05)
EVENT = b'{"event":"call","timestamp":1.5,"request_id":"r1"}'


class Site:
    """A control plane with a ledger, and the ledger of a node elsewhere."""

    def __init__(
        self,
        counter: RpcCounter,
        plane: JournaledLedger,
        node: SqliteLedger,
        source: RpcSource,
        calls: SentCalls,
    ) -> None:
        self.calls = calls
        self.counter = counter
        self.plane = plane
        self.node = node
        self.sender = LedgerSender(node, RpcLedger(source), settings=QUICK)

    async def call(self, *numbers: int) -> None:
        """Have the node write that calls left and ended."""
        for number in numbers:
            self.node.intent(Leaving(number))
            self.node.outcome(Ended(number))
        await self.node.taken_in()

    async def send(self) -> None:
        """Have the node send all that it has, signed."""
        await self.node.checkpoint()
        wanted = await self.node.reader().tip()
        async with sending(self.sender):
            await until(lambda: self._has(*wanted))

    async def _has(self, number: int, digest: bytes) -> bool:
        """Say whether the control plane has the node's rows up to one, and a line that signs it."""
        ledger = await self.node.database.read(self.node.tables.ledger_id)

        def look(statements: Any) -> bool:
            tables = self.plane.tables
            query = f"SELECT number FROM {tables.chains} WHERE id = ?"  # noqa: S608
            [chain] = statements.execute(query, (ledger,)).fetchone() or [None]
            if chain is None or tip(statements, tables.of(chain)) != (number, digest):
                return False
            signed = parsed(last_line(statements, tables.of(chain)) or b"")
            return signed is not None and signed.number == number

        return await self.plane.database.read(look)

    async def rows(self, sender: str | None = None) -> list[AuditEntry]:
        """Return what is listed, the oldest first."""
        await self.plane.taken_in()
        filters = AuditFilters(node=sender)
        page = await self.plane.reader().search(filters, None, 100)
        return [*page.entries][::-1]

    async def verified(self) -> Verification:
        await self.plane.checkpoint()
        return await asyncio.to_thread(self.plane.verify, lambda _: None)

    async def put_back(self, *events: bytes) -> None:
        """Have the control plane know rows that this ledger does not: it is an older copy then."""
        ledger = await self.node.database.read(self.node.tables.ledger_id)
        number, before = await self.node.reader().tip()
        rows = chain(*events, after=(number, before))
        await self.append(rows, ledger=ledger, before=before)

    async def append(self, rows: Sequence[Row], role: Role = "node", **more: Any) -> Any:
        return await self.counter.ask("Append", role, **fields(rows, **more))

    async def refused(self, rows: Sequence[Row], **more: Any) -> Any:
        return await self.counter.refusal("Append", "node", **fields(rows, **more))


@asynccontextmanager
async def sending(sender: LedgerSender) -> AsyncGenerator[None, None]:
    task = asyncio.create_task(sender.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def fields(rows: Sequence[Row], **more: Any) -> dict[str, Any]:
    sent = [
        pb.LedgerRow(
            number=row.number, journal=row.journal, place=row.place, event=row.event, hash=row.hash
        )
        for row in rows
    ]
    return {"ledger": "led-9", "before": GENESIS, "rows": sent, **more}


def chain(*events: bytes, after: tuple[int, bytes] = (0, GENESIS)) -> list[Row]:
    """Return events as rows of a chain."""
    number, before = after
    rows: list[Row] = []
    for event in events:
        number += 1
        before = link(before, number, 1, number, event)
        rows.append(Row(number, 1, number, event, before))
    return rows


@pytest.fixture(params=["sqlite", "postgres"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Site, None]:
    (tmp_path / "plane").mkdir()
    (tmp_path / "node").mkdir()
    async with ledgers_of(request.param) as ledgers:
        plane = await ledgers.open(tmp_path / "plane")
        node = await SqliteLedger(tmp_path / "node", key=KEY).open()
        calls = SentCalls(fresh_seconds=math.inf)
        rpc = LedgerRpc(plane, SYSTEM_CLOCK, plane.note, calls)
        try:
            async with open_counter(ledgers=rpc) as counter:
                access = RpcAccess(token=counter.given["node"])
                async with RpcSource(f"127.0.0.1:{counter.port}", access) as source:
                    yield Site(counter, plane, node, source, calls)
        finally:
            await node.close()
            await plane.close()


# --- taking


@pytest.mark.requirement("admin:overview:nodes")
async def test_a_call_is_counted_once_however_often_its_row_is_sent(site: Site):
    heard: list[str] = []
    site.calls.subscribe(lambda event: heard.append(event.request_id))
    rows = chain(*(event_bytes(Ended(n).event()) for n in (1, 2)))
    await site.append(rows[:1])
    await site.append(rows)
    await site.append(rows)
    other = chain(event_bytes(Ended(3).event()))
    await site.refused(other)  # it is not the row that was sent before
    assert heard == ["r1", "r2"]


@pytest.mark.requirement("registry:grpc:ledger")
async def test_the_rows_of_a_node_are_listed_and_verified_beside_the_own(site: Site):
    await site.plane.note(made(1))
    await site.call(1, 2)
    await site.send()
    found = await site.rows("node")
    assert [(one.event["request_id"], one.status) for one in found] == [("r1", "ok"), ("r2", "ok")]
    assert {one.node for one in found} == {"node"}
    everything = [(one.event["event"], one.node == "node") for one in await site.rows()]
    assert ("token_made", False) in everything
    assert everything.count(("call", True)) == 2
    [began] = [one.event for one in await site.rows() if one.event["event"] == "node_ledger"]
    assert (began["by"], began["action"], began["number"]) == ("node", "began", 1)
    verified = await site.verified()
    assert (verified.ok, verified.unprotected, verified.problems) == (True, 0, ())
    assert verified.rows == 4 + 2, "four of the node, and two that the control plane wrote"
    await site.call(3)
    await site.plane.note(made(2))
    await site.send()
    assert (await site.verified()).rows == 6 + 3
    assert [one.event["request_id"] for one in await site.rows("node")] == ["r1", "r2", "r3"]


async def test_what_is_noted_of_rows_is_not_lost_with_the_connection_that_brought_them(
    tmp_path: Path,
):
    begun, go, acts = asyncio.Event(), asyncio.Event(), list[Act]()

    async def note(act: Act) -> None:
        begun.set()
        await go.wait()
        acts.append(act)

    async with ledgers_of("sqlite") as ledgers:
        plane = await ledgers.open(tmp_path)
        try:
            async with open_counter(ledgers=LedgerRpc(plane, SYSTEM_CLOCK, note)) as counter:
                sent = fields(chain(EVENT))
                sending = asyncio.create_task(counter.ask("Append", "node", **sent))
                await begun.wait()
                await cancelled([sending])
                # An answer to what comes after: by then the port has heard of the hang-up.
                assert (await counter.ask("Append", "node", **sent)).number == 1
                go.set()
                await until(lambda: len(acts) == 1)
        finally:
            await plane.close()
    [began] = acts
    assert isinstance(began, NodeLedger)
    assert (began.by, began.action) == ("node", "began")


@pytest.mark.requirement("registry:grpc:ledger-once")
async def test_the_same_rows_again_are_acknowledged_and_not_taken_twice(site: Site):
    rows = chain(EVENT, EVENT, EVENT)
    for part in (rows[:2], rows[:2], rows, rows):
        answer = await site.append(part)
        assert (answer.number, answer.hash) == (part[-1].number, part[-1].hash) or len(part) == 2
    asked = await site.append([])
    assert (asked.number, asked.hash, asked.anchored) == (3, rows[-1].hash, 0)
    assert len(await site.rows("node")) == 3
    later = chain(EVENT, after=(3, rows[-1].hash))
    assert (await site.append(later, before=rows[-1].hash)).number == 4


@pytest.mark.requirement("registry:grpc:ledger-tampering")
async def test_other_rows_under_the_same_numbers_are_refused_and_shown(
    site: Site, caplog: pytest.LogCaptureFixture
):
    rows = chain(EVENT, EVENT)
    await site.append(rows)
    other = chain(EVENT.replace(b"r1", b"r2"), EVENT, EVENT)
    with caplog.at_level(logging.ERROR, "bascule.nodes"):
        for _ in range(2):
            refused = await site.refused(other)
            assert refused.status is STATUS.FAILED_PRECONDITION
            assert "row 1 is another than the one that was sent before" in refused.words
    [line] = caplog.messages
    assert "the ledger of node 'node' is not believed" in line
    noted = [one.event for one in await site.rows() if one.event["event"] == "node_ledger"]
    assert [(one["action"], one["number"]) for one in noted] == [("began", 1), ("refused", 1)]
    later = chain(EVENT, after=(2, other[1].hash))
    refused = await site.refused(later, before=other[1].hash)
    assert "row 2 is another than the one" in refused.words
    assert (await site.append([])).hash == rows[-1].hash
    assert (await site.verified()).ok


@pytest.mark.requirement("registry:grpc:ledger-tampering")
async def test_rows_that_do_not_follow_one_another_are_refused(site: Site):
    one, two, three = chain(EVENT, EVENT, EVENT)
    changed = msgspec.structs.replace(two, event=EVENT.replace(b"r1", b"r9"))
    for rows in ([one, three], [one, changed], [two, one]):
        refused = await site.refused(rows)
        assert refused.status is STATUS.FAILED_PRECONDITION
        assert "does not follow the row before it" in refused.words
    refused = await site.refused(chain(EVENT, after=(0, bytes(31) + b"x")), before=bytes(31) + b"x")
    assert "row 1 does not begin a chain" in refused.words
    assert (await site.append([])).number == 0
    assert await site.rows("node") == []


async def test_a_ledger_is_that_of_one_node(site: Site):
    rows = chain(EVENT)
    await site.append(rows)
    token = (await site.counter.tokens.mint("another", "node")).token
    site.counter.given["node"] = token
    refused = await site.refused(rows)
    assert "is that of another: each node needs a data directory of its own" in refused.words
    own = await site.plane.database.read(site.plane.tables.ledger_id)
    assert "is that of another" in (await site.refused(rows, ledger=own)).words
    assert (await site.append(rows, ledger="led-10")).number == 1


async def test_what_is_no_row_is_refused_with_its_field(site: Site):
    [row] = chain(EVENT)
    strange: dict[str, Sequence[Row]] = {
        "number": [msgspec.structs.replace(row, number=2**63)],
        "place": [msgspec.structs.replace(row, place=2**63)],
        "hash": [msgspec.structs.replace(row, hash=b"x")],
    }
    for field, rows in strange.items():
        refused = await site.refused(rows)
        assert refused.status is STATUS.INVALID_ARGUMENT
        assert "rows[0]" in refused.words
        assert field in refused.words
    for event in (
        b"{",
        b"[]",
        b"{}",
        b'{"event":"call","timestamp":"now"}',
        b'{"event":"call","timestamp":true}',
        b'{"event":"call","caller":7}',
        b'{"event":"' + b"x" * MAX_EVENT_BYTES + b'"}',
    ):
        assert "rows[0].event: must be an event" in (await site.refused(chain(event))).words
    many = await site.refused(chain(*[b'{"event":"x"}'] * (MOST_ROWS + 1)))
    assert "rows: at most" in many.words
    assert "ledger: must be the id" in (await site.refused([row], ledger="")).words
    assert "before: must be a hash" in (await site.refused([row], before=b"x")).words
    assert "anchors: must be signed" in (await site.refused([row], anchors=[b"{}"])).words
    assert await site.rows("node") == []


@pytest.mark.parametrize("role", ["admin", "operator", "approver", "viewer", "client"])
async def test_nobody_but_a_node_sends_a_ledger(role: Role):
    async with open_counter(ledgers=LedgerRpc(None, SYSTEM_CLOCK)) as counter:
        refused = await counter.refusal("Append", role, **fields(chain(EVENT)))
        assert refused.status is STATUS.PERMISSION_DENIED
        off = await counter.refusal("Append", "node", **fields(chain(EVENT)))
        assert "the ledger is off" in off.words


async def test_a_call_of_a_node_runs_until_it_ends_or_its_process_does(site: Site):
    site.node.intent(Leaving(1))
    await site.node.taken_in()
    await site.send()
    assert [one.status for one in await site.rows("node")] == ["running"]
    ledger = await site.node.database.read(site.node.tables.ledger_id)
    await site.append([], ledger=ledger, journal=99)
    assert [one.status for one in await site.rows("node")] == ["unknown"]


# --- a ledger that was put back, by its owner's word


def requests(entries: Sequence[AuditEntry]) -> list[Any]:
    return [one.event["request_id"] for one in entries if one.event["event"] == "call"]


@pytest.mark.requirement("registry:grpc:ledger-accepted")
async def test_a_ledger_that_was_put_back_goes_on_as_a_new_one_after_what_both_have(site: Site):
    await site.call(1)
    await site.send()
    before = await site.node.database.read(site.node.tables.ledger_id)
    number, _ = await site.node.reader().tip()
    await site.put_back(EVENT.replace(b"r1", b"r8"), EVENT.replace(b"r1", b"r9"))
    await site.call(2)
    async with sending(site.sender):
        refusal = await until(lambda: site.sender.refusal)
        await site.sender.begin_anew()
    assert site.sender.refusal is None
    await site.send()
    found = await site.rows("node")
    assert requests(found) == ["r1", "r8", "r9", "r2"], "what both have is there once"
    [accepted] = [one.event for one in found if one.event["event"] == "node_ledger"]
    assert (accepted["action"], accepted["ledger"]) == ("accepted", before)
    assert accepted["reason"] == refusal
    noted = [one.event for one in await site.rows() if one.event["event"] == "node_ledger"]
    began = [one for one in noted if one["action"] == "began"][-1]
    after = await site.node.database.read(site.node.tables.ledger_id)
    assert (began["ledger"], began["number"]) == (after, number + 1)
    assert began["reason"] == f"it goes on after row {number} of ledger {before}"
    assert after != before
    verified = await site.verified()
    assert (verified.problems, verified.unprotected) == ((), 2), "the put-back rows nobody signed"
    kept = await asyncio.to_thread(site.node.verify, lambda _: None)
    assert (kept.problems, kept.unprotected) == ((), 0)
    await site.call(3)
    await site.send()
    assert requests(await site.rows("node"))[-1] == "r3"


@pytest.mark.requirement("registry:grpc:ledger-accepted")
async def test_rows_of_an_earlier_ledger_are_acknowledged_and_not_taken_again(site: Site):
    rows = chain(EVENT, EVENT, EVENT)
    await site.append(rows)
    for part in (rows[:2], rows):
        answer = await site.append(part, ledger="led-10")
        assert (answer.number, answer.hash) == (part[-1].number, part[-1].hash)
    assert (await site.append([], ledger="led-10")).number == 0, "it has not begun"
    other = chain(EVENT.replace(b"r1", b"r2"), after=(2, rows[1].hash))
    answer = await site.append([*rows[:2], *other], ledger="led-10")
    assert (answer.number, answer.hash) == (3, other[0].hash)
    assert requests(await site.rows("node")) == ["r1", "r1", "r1", "r2"]
    assert (await site.verified()).problems == ()


async def test_rows_of_another_node_are_no_earlier_ones(site: Site):
    rows = chain(EVENT, EVENT)
    await site.append(rows)
    site.counter.given["node"] = (await site.counter.tokens.mint("another", "node")).token
    assert (await site.append(rows, ledger="led-10")).number == 2
    assert len(await site.rows("another")) == 2


async def test_a_ledger_that_is_taken_needs_nobodys_word(site: Site):
    before = await site.node.database.read(site.node.tables.ledger_id)
    with pytest.raises(NothingRefused, match="takes the rows of this node's ledger"):
        await site.sender.begin_anew()
    assert await site.node.database.read(site.node.tables.ledger_id) == before


async def test_the_lines_that_signed_the_ledger_before_are_kept_under_its_name(
    site: Site, tmp_path: Path
):
    file = tmp_path / "node" / "ledger.anchors"
    names: list[str] = []
    for number in (1, 2):
        await site.call(number)
        await site.node.checkpoint()
        lines = file.read_bytes()
        names.append(await site.node.begin_anew())
        aside = file.with_name(f"{file.name}.{names[-1]}")
        assert aside.read_bytes() == lines
        first = parsed(file.read_bytes().split(b"\n")[0])
        assert first is not None
        assert first.ledger_id == await site.node.database.read(site.node.tables.ledger_id)
    assert len({*names}) == 2


# --- what is kept of it


@pytest.mark.requirement("registry:grpc:ledger-tampering")
async def test_what_was_changed_here_of_a_node_is_found(site: Site):
    await site.call(1, 2, 3)
    await site.send()
    tables = site.plane.tables

    def change(statements: Any) -> None:
        body = EVENT.replace(b"r1", b"r8")
        query = f"UPDATE {tables.events} SET body = ? WHERE request_id = 'r2' AND event = 'call'"  # noqa: S608
        statements.execute(query, (body,))

    await site.plane.database.write(change)
    found = await site.verified()
    assert not found.ok
    ledger = await site.node.database.read(site.node.tables.ledger_id)
    assert all(problem.words.endswith(f"(chain {ledger} of node)") for problem in found.problems)
    assert "changed: its hash does not fit" in found.problems[0].words


@pytest.mark.requirement("registry:grpc:ledger")
async def test_rows_that_a_node_has_cut_off_are_not_waited_for(site: Site):
    await site.call(1, 2)
    await site.node.checkpoint()
    limits = Limits(max_days=1)
    now = SYSTEM_CLOCK.now() + 200_000
    own = site.node.tables
    done = await site.node.database.write(lambda s: cut(s, limits, now, "retention", own))
    assert done is not None
    await site.call(3)
    await site.send()
    assert [one.event["event"] for one in await site.rows("node")] == ["ledger_cut", "call"]
    assert (await site.verified()).problems == ()


async def test_the_oldest_rows_of_nodes_go_as_the_own_chain_says(site: Site):
    await site.call(1, 2)
    await site.send()
    await site.call(3)
    now, tables = SYSTEM_CLOCK.now() + 200_000, site.plane.tables
    limits = Limits(max_days=1)

    def work(statements: Any) -> LedgerCut | None:
        return cut_received(statements, limits, now, "retention", tables)

    done = await site.plane.database.write(work)
    assert done is not None
    assert (done.partial, done.first, done.last) == (True, 1, 4)
    assert await site.plane.database.write(work) is None
    await site.send()
    assert [one.event["request_id"] for one in await site.rows("node")] == ["r3"]
    assert (await site.verified()).problems == ()

    def forge(statements: Any) -> None:
        query = f"UPDATE {tables.chains} SET base_number = 3 WHERE base_number = 4"  # noqa: S608
        statements.execute(query)

    await site.plane.database.write(forge)
    assert not (await site.verified()).ok


async def test_a_node_removes_nothing_by_what_it_says(site: Site):
    own = await site.plane.database.read(site.plane.tables.ledger_id)
    said = LedgerCut(
        timestamp=1.5, by="x", reason="age", first=1, last=9, count=9, tip="00" * 32, chain=own
    )
    await site.plane.note(made(1))
    await site.append(chain(msgspec.json.encode(said)))
    found = await site.verified()
    assert (found.ok, found.rows) == (True, 3)


async def test_nothing_is_cut_that_the_control_plane_does_not_have(site: Site, tmp_path: Path):
    (tmp_path / "other").mkdir()
    settings = LedgerSettings(max_days=1)
    other = await SqliteLedger(tmp_path / "other", key=KEY, settings=settings).open()
    try:
        other.intent(Leaving(1))
        await other.checkpoint()
        other.awaited = 0
        limits, now = Limits(max_days=1), SYSTEM_CLOCK.now() + 200_000
        work = other._cut  # pyright: ignore[reportPrivateUsage] - what retention does every hour
        assert not await other.database.write(lambda s: work(s, limits, now))
        other.awaited = 1
        assert await other.database.write(lambda s: work(s, limits, now))
    finally:
        await other.close()


@pytest.mark.requirement("registry:grpc:ledger")
async def test_a_node_goes_on_at_another_replica(tmp_path: Path):
    rows = chain(EVENT, EVENT, EVENT)
    async with ledgers_of("postgres") as ledgers:
        opened: list[JournaledLedger] = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            opened.append(await ledgers.open(tmp_path / name))
        one, other = opened
        try:
            for number, plane in enumerate((one, other, one)):
                before = rows[number - 1].hash if number else GENESIS
                sent = SentRows(
                    node="node", ledger="led-9", before=before, rows=rows[number : number + 1]
                )
                work = partial(receive, own=plane.tables, sent=sent, now=5.0)
                assert (await plane.database.write(work)).reached.number == number + 1
                await plane.note(made(number))
            for plane in opened:
                await plane.checkpoint()
            found = await asyncio.to_thread(other.verify, lambda _: None)
            assert (found.problems, found.rows) == ((), 3 + 3)
        finally:
            for plane in opened:
                await plane.close()
