"""The ledger of a node on its way up: in parts, after what is there, and whenever that can be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bascule.audit.chain import GENESIS, Row
from bascule.audit.received import Reached, SentRows
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.client.http import ApiError, Unreachable
from bascule.errors import BasculeError
from bascule.node import ledger_sender
from bascule.node.ledger_sender import LedgerSender, SenderSettings
from tests.audit.calls import Leaving
from tests.audit.ledgers import KEY
from tests.waits import until

QUICK = SenderSettings(
    pause_seconds=0.01, idle_seconds=0.05, anchor_seconds=0.02, backoff_seconds=0.001
)


class Port:
    """A control plane that takes rows, or does not (``away``); ``said`` is what it was sent."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.lines: list[bytes] = []
        self.away: BasculeError | None = None
        self.loses_answer = False
        self.said: list[SentRows] = []

    async def append(self, sent: SentRows) -> Reached:
        self.said.append(sent)
        if self.away is not None:
            raise self.away
        new = [row for row in sent.rows if row.number > len(self.rows)]
        if new:
            assert new[0].number == len(self.rows) + 1
        self.rows += new
        self.lines += [line for line in sent.anchors if line not in self.lines]
        if self.loses_answer:
            self.loses_answer = False
            raise Unreachable("the answer is lost")
        last = self.rows[-1].hash if self.rows else GENESIS
        return Reached(len(self.rows), last, len(self.rows) if self.lines else 0)


@asynccontextmanager
async def ledger_in(folder: Path) -> AsyncGenerator[SqliteLedger, None]:
    ledger = await SqliteLedger(folder, key=KEY).open()
    try:
        yield ledger
    finally:
        await ledger.close()


@asynccontextmanager
async def sending(ledger: SqliteLedger, port: Port) -> AsyncGenerator[LedgerSender, None]:
    sender = LedgerSender(ledger, port, settings=QUICK)
    task = asyncio.create_task(sender.run())
    try:
        yield sender
    finally:
        task.cancel()
        await asyncio.wait([task])


async def call(ledger: SqliteLedger, *numbers: int) -> None:
    for number in numbers:
        ledger.intent(Leaving(number))
    await ledger.taken_in()


@pytest.mark.requirement("audit:ledger:sent")
async def test_rows_are_sent_in_parts_and_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ledger_sender, "MOST_ROWS", 3)
    port = Port()
    async with ledger_in(tmp_path) as ledger:
        await call(ledger, *range(10))
        async with sending(ledger, port):
            await until(lambda: len(port.rows) == 10)
            await call(ledger, 10, 11)
            await until(lambda: ledger.awaited == 12)
        assert [row.number for row in port.rows] == [*range(1, 13)]
        sizes = [len(sent.rows) for sent in port.said if sent.rows]
        assert (max(sizes), sum(sizes)) == (3, 12)


@pytest.mark.requirement("audit:ledger:sent")
async def test_bytes_of_one_part_are_bounded_and_a_large_row_goes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ledger_sender, "MOST_BYTES", 1)
    port = Port()
    async with ledger_in(tmp_path) as ledger:
        await call(ledger, 1, 2, 3)
        async with sending(ledger, port):
            await until(lambda: len(port.rows) == 3)
    assert {len(sent.rows) for sent in port.said if sent.rows} == {1}


@pytest.mark.requirement("audit:ledger:sent")
async def test_a_control_plane_that_is_away_stops_no_call_and_gets_everything_later(
    tmp_path: Path,
):
    port = Port()
    port.away = Unreachable("gone")
    async with ledger_in(tmp_path) as ledger, sending(ledger, port) as sender:
        for number in range(20):
            ledger.intent(Leaving(number))  # it raises where a call may not leave
        await until(lambda: len(port.said) > 3)
        assert (port.rows, ledger.trouble, sender.refusal) == ([], None, None)
        port.away = None
        await until(lambda: len(port.rows) == 20)
        port.loses_answer = True
        await call(ledger, 20)
        await until(lambda: len(port.rows) == 21)
        await call(ledger, 21)
        await until(lambda: len(port.rows) == 22)
    assert [row.number for row in port.rows] == [*range(1, 23)]


async def test_a_node_that_starts_again_goes_on_after_what_is_there(tmp_path: Path):
    port = Port()
    async with ledger_in(tmp_path) as ledger, sending(ledger, port):
        await call(ledger, 1, 2)
        await until(lambda: len(port.rows) == 2)
    port.said.clear()
    async with ledger_in(tmp_path) as ledger, sending(ledger, port):
        await call(ledger, 3)
        await until(lambda: len(port.rows) == 3)
    first, *_, last = [sent for sent in port.said if sent.rows or sent is port.said[0]]
    assert first.rows == ()
    assert [row.number for row in last.rows] == [3]
    assert last.before == port.rows[1].hash
    assert last.process > 1, "another process has another journal"


async def test_lines_that_sign_the_rows_follow_them(tmp_path: Path):
    port = Port()
    async with ledger_in(tmp_path) as ledger, sending(ledger, port):
        await call(ledger, 1)
        await until(lambda: len(port.rows) == 1)
        line = await ledger.checkpoint()
        await until(lambda: port.lines == [line])
        renewed = await ledger.checkpoint(new_key=True)
        await until(lambda: len(port.lines) == 3 and port.lines[-1] == renewed)


@pytest.mark.requirement("audit:ledger:sent")
async def test_a_control_plane_with_other_rows_is_named_and_shown_the_own(tmp_path: Path):
    port = Port()
    async with ledger_in(tmp_path) as ledger:
        await call(ledger, 1)
        port.rows = [Row(1, 0, 0, b"{}", bytes(32))]
        async with sending(ledger, port) as sender:
            await until(lambda: sender.refusal)
            assert "the control plane has another row 1 of this ledger" in str(sender.refusal)
        assert all(len(sent.rows) == 1 for sent in port.said if sent.rows), "its own, to be seen"


async def test_what_the_control_plane_refuses_is_said_until_it_takes_it(tmp_path: Path):
    port = Port()
    port.away = ApiError(0, "wrong_state", "row 1 is another")
    async with ledger_in(tmp_path) as ledger, sending(ledger, port) as sender:
        await call(ledger, 1)
        words = await until(lambda: sender.refusal) or ""
        assert "row 1 is another; " in words
        assert "`bascule node accept --ledger` on the node's machine" in words
        assert ledger.awaited is None, "nobody waits for them, so they may be cut one day"
        port.away = None
        await until(lambda: sender.refusal is None and len(port.rows) == 1)


async def test_a_quiet_node_says_now_and_then_that_it_lives(tmp_path: Path):
    port = Port()
    async with ledger_in(tmp_path) as ledger, sending(ledger, port):
        await until(lambda: len(port.said) > 3)
        assert {len(sent.rows) for sent in port.said} == {0}
        assert {sent.process for sent in port.said} == {1}
