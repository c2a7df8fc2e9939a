"""Approvals on a disk: which file it is, what a commit holds, and what can be read in it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path

import msgspec
import pytest

from bascule.audit.approval_rows import ApprovalFilter
from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.approval_steps import ApprovalRefused
from bascule.audit.approvals import Approvals, LedgerStore
from bascule.audit.events import ApprovalMoved
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.audit.verification import verify
from bascule.db.sqlite import plain_commit
from bascule.testing.clock import FakeClock
from tests.audit.questions import (
    KEY,
    KeySealer,
    approved,
    asked,
    claim,
    kept,
    opened_ledger,
    request,
    says,
)
from tests.waits import until

SETTINGS = ApprovalSettings(decide_seconds=100, claim_seconds=50, max_pending=3)
PLAIN = "a sentence nobody else may read"


# --- which file it is


def put_back(copy: Path, ledger: Path) -> None:
    """Restore a copy into the file that is there."""
    shutil.copyfile(copy, ledger)
    remove_logs(ledger)


def put_another(copy: Path, ledger: Path) -> None:
    """Restore a copy as another file."""
    shutil.copyfile(copy, copy.with_name("another"))
    copy.with_name("another").replace(ledger)
    remove_logs(ledger)


def remove_logs(ledger: Path) -> None:
    for end in ("-wal", "-shm"):
        ledger.with_name(ledger.name + end).unlink(missing_ok=True)
    ledger.with_name("ledger.anchors").unlink(missing_ok=True)


def write_over(copy: Path, data: Path) -> None:
    """Restore a whole data directory into the files that are there, with the times they had."""
    shutil.copytree(copy, data, dirs_exist_ok=True)


def unpack(copy: Path, data: Path) -> None:
    """Restore a whole data directory as an archive is unpacked: each file anew, in its place."""
    for source in (path for path in copy.rglob("*") if path.is_file()):
        target = data / source.relative_to(copy)
        target.unlink(missing_ok=True)  # the new one may well be given its number
        shutil.copy2(source, target)


@pytest.mark.parametrize("restore", [write_over, unpack])
@pytest.mark.requirement("approval:epoch")
async def test_a_restored_data_directory_voids_what_was_not_claimed(
    tmp_path: Path, restore: Callable[[Path, Path], None]
):
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    async with kept(data) as approvals:
        given = await approved(approvals, request())
    shutil.copytree(data, copy)
    async with kept(data) as approvals:
        assert await claim(approvals, given)
    restore(copy, data)
    async with kept(data) as approvals:
        with pytest.raises(ApprovalRefused):
            await claim(approvals, given)


@pytest.mark.parametrize("restore", [put_back, put_another])
@pytest.mark.requirement("approval:epoch")
async def test_a_restored_ledger_voids_what_was_not_claimed(
    tmp_path: Path, restore: Callable[[Path, Path], None]
):
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    async with kept(data) as approvals:
        question, given = (
            await asked(approvals, request("a")),
            await approved(approvals, request("b")),
        )
    shutil.copyfile(data / "ledger.db", copy)
    async with kept(data) as approvals:
        assert await claim(approvals, given)
    restore(copy, data / "ledger.db")
    async with kept(data) as approvals:
        for one in (question, given):
            found = await approvals.get(one.id)
            assert found is not None
            assert found.state == "void"
            assert "restored" in found.reason
            assert await approvals.shown(one.id) is None
        with pytest.raises(ApprovalRefused):
            await claim(approvals, given)
    assert verify(data / "ledger.db").problems == ()


@pytest.mark.requirement("approval:epoch")
async def test_a_copied_data_directory_has_no_open_approvals_and_the_first_one_keeps_its(
    tmp_path: Path,
):
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    async with kept(data) as approvals:
        given = await approved(approvals, request())
    shutil.copytree(data, copy)
    async with kept(copy) as copied:
        with pytest.raises(ApprovalRefused):
            await claim(copied, given)
    async with kept(data) as approvals:
        assert await claim(approvals, given)


async def test_a_restart_voids_nothing_and_neither_do_processes_that_start_together(
    tmp_path: Path,
):
    await (await SqliteLedger(tmp_path, key=KEY).open()).close()
    async with AsyncExitStack() as stack:
        opened = await asyncio.gather(
            *(stack.enter_async_context(kept(tmp_path)) for _ in range(4))
        )
        given = [
            await approved(approvals, request(f"t{number}"))
            for number, approvals in enumerate(opened)
        ]
    for one in given:
        async with kept(tmp_path) as approvals:
            assert await claim(approvals, one, f"c-{one.id}")


# --- what a disk does


class Commits:
    """Counts commits, and fails them while it is told to."""

    def __init__(self) -> None:
        self.count = 0
        self.fails = False

    def __call__(self, connection: sqlite3.Connection, /) -> None:
        if self.fails:
            raise sqlite3.OperationalError("disk I/O error")
        self.count += 1
        plain_commit(connection)


async def test_claims_that_come_together_share_commits(tmp_path: Path):
    commits = Commits()
    many = 40
    settings = ApprovalSettings(max_pending=many)
    async with kept(tmp_path, settings, commit=commits) as approvals:
        given = [await approved(approvals, request(f"t{number}")) for number in range(many)]
        before = commits.count
        claims = (claim(approvals, one, f"c-{one.id}") for one in given)
        assert await asyncio.gather(*claims) == [True] * many
        assert commits.count - before <= many / 4


@pytest.mark.requirement("approval:fails-closed")
async def test_where_nothing_can_be_written_nothing_is_asked_decided_or_claimed_nor_lost(
    tmp_path: Path,
):
    clock, commits = FakeClock(), Commits()
    async with opened_ledger(tmp_path, clock=clock, commit=commits) as ledger:
        store = await LedgerStore(ledger, KeySealer(), clock).open()
        approvals = Approvals(store, clock=clock)
        question, given = (
            await asked(approvals, request("a")),
            await approved(approvals, request("b")),
        )
        await ledger.checkpoint()  # nothing is left to be done that would find out by itself
        commits.fails = True
        with pytest.raises(LedgerUnavailable) as refused:
            await claim(approvals, given)
        assert "disk I/O error" in str(refused.value)
        assert str(tmp_path) not in str(refused.value), "callers are told no path"
        with pytest.raises(LedgerUnavailable):
            await approvals.decide(question.id, says("approve", question))
        with pytest.raises(LedgerUnavailable):
            await approvals.ask(request("c"), None)
        found = await approvals.listing(ApprovalFilter())
        assert sorted(one.state for one in found) == ["approved", "pending"]
        commits.fails = False

        async def taken() -> bool:
            await clock.advance(1)
            try:
                return await claim(approvals, given)
            except LedgerUnavailable:
                return False

        assert await until(taken), "nobody looked whether the disk has room again"
        await approvals.decide(question.id, says("approve", question))
        store.close()
    assert verify(tmp_path / "ledger.db").problems == ()


@pytest.mark.requirement("audit:ledger:one-transaction")
async def test_no_commit_ever_has_a_claim_without_its_intent(tmp_path: Path):
    seen: list[list[str]] = []
    given: list[str] = []

    def commit(connection: sqlite3.Connection, /) -> None:
        plain_commit(connection)  # whoever is killed now leaves what another connection finds
        seen.extend(rows_about(tmp_path, id) for id in given)

    async with kept(tmp_path, commit=commit) as approvals:
        one = await approved(approvals, request())
        given.append(one.id)
        assert await claim(approvals, one)
    before = ["approval pending", "approval approved"]
    claimed = [*before, "approval claimed", "call_intent c1"]
    assert claimed in seen
    assert all(found in (before, claimed) for found in seen)


@pytest.mark.requirement("audit:ledger:one-transaction")
async def test_a_commit_that_fails_takes_the_claim_and_its_intent_with_it(tmp_path: Path):
    commits = Commits()
    async with kept(tmp_path, clock=FakeClock(), commit=commits) as approvals:
        given = await approved(approvals, request())
        commits.fails = True
        with pytest.raises(LedgerUnavailable):
            await claim(approvals, given)
        assert rows_about(tmp_path, given.id) == ["approval pending", "approval approved"]
        commits.fails = False


def rows_about(folder: Path, approval_id: str) -> list[str]:
    with closing(sqlite3.connect(folder / "ledger.db")) as connection:
        query = "SELECT event, request_id, body FROM events WHERE approval_id = ? ORDER BY number"
        found = connection.execute(query, (approval_id,)).fetchall()
    return [
        f"{event} {msgspec.json.decode(body, type=ApprovalMoved).state}"
        if event == "approval"
        else f"{event} {request_id}"
        for event, request_id, body in found
    ]


@pytest.mark.requirement("approval:sealed")
async def test_arguments_are_never_on_disk_as_they_are_and_what_was_sealed_goes_with_the_end(
    tmp_path: Path,
):
    clock = FakeClock()
    async with kept(tmp_path, clock=clock) as approvals:
        given = await approved(approvals, request(PLAIN))
        shown = await approvals.shown(given.id)
        assert shown is not None
        assert PLAIN.encode() in shown.arguments
        sealed = sealed_of(tmp_path, given.id)
        assert any(sealed in data for data in files(tmp_path))
        assert not any(PLAIN.encode() in data for data in files(tmp_path))
        await claim(approvals, given)
        await approvals.sweep()
        assert not any(sealed in data for data in files(tmp_path))
    assert not any(PLAIN.encode() in data for data in files(tmp_path))


def sealed_of(folder: Path, id: str) -> bytes:
    with closing(sqlite3.connect(folder / "ledger.db")) as connection:
        query = "SELECT sealed FROM approval_contents WHERE id = ?"
        [sealed] = connection.execute(query, (id,)).fetchone()
    return sealed


def files(folder: Path) -> list[bytes]:
    """Return every byte of a data directory: the database, its log, the journal."""
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


async def test_what_was_sealed_for_one_approval_is_not_shown_for_another(tmp_path: Path):
    async with kept(tmp_path) as approvals:
        one, other = [await asked(approvals, request(text)) for text in "ab"]
        sealed = sealed_of(tmp_path, one.id)
        with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection, connection:
            query = "UPDATE approval_contents SET sealed = ? WHERE id = ?"
            connection.execute(query, (sealed, other.id))
        assert await approvals.shown(one.id) is not None
        assert await approvals.shown(other.id) is None
