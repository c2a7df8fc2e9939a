"""Turns that are parked: for one caller, given out once, bounded, and gone when they are used."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest
from msgspec.structs import replace

from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.parked_turns import (
    BOUNDS,
    Bounds,
    LedgerTurns,
    MemoryTurns,
    ParkedTurns,
    Place,
    TurnRefused,
    TurnTooLarge,
)
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.db.private_files import KeyUnusable
from bascule.testing.clock import FakeClock
from tests.audit.questions import shared_ledger
from tests.postgres.databases import database

PLACE = Place(id="turn-1", owner="alice", conversation="c" * 64)
KEY = bytes(32)
DAY = 86_400.0


class XorSealer:
    """Makes bytes unreadable, for one name only; that nobody breaks it is another test's."""

    def seal(self, name: str, plain: bytes) -> bytes:
        return name.encode() + b"\0" + bytes(byte ^ 0x5A for byte in plain)

    def unseal(self, name: str, sealed: bytes) -> bytes | None:
        found, _, rest = sealed.partition(b"\0")
        return bytes(byte ^ 0x5A for byte in rest) if found == name.encode() else None


class Sweeping(ParkedTurns, Protocol):
    async def sweep(self) -> None: ...


class Kind(Protocol):
    def __call__(self, bounds: Bounds = BOUNDS, grace: float = 0.0) -> Sweeping: ...


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@asynccontextmanager
async def ledger_in(folder: Path) -> AsyncGenerator[SqliteLedger, None]:
    ledger = await SqliteLedger(folder, key=KEY, settings=LedgerSettings()).open()
    try:
        yield ledger
    finally:
        await ledger.close()


@pytest.fixture(params=["memory", "ledger", "postgres"])
async def kind(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncGenerator[Kind, None]:
    if request.param == "memory":
        yield lambda bounds=BOUNDS, grace=0.0: MemoryTurns(clock, bounds=bounds, grace=grace)
        return
    async with AsyncExitStack() as stack:
        if request.param == "ledger":
            ledger = await stack.enter_async_context(ledger_in(tmp_path))
        else:
            dsn = await stack.enter_async_context(database())
            ledger = await stack.enter_async_context(shared_ledger(dsn, tmp_path))
        yield lambda bounds=BOUNDS, grace=0.0: LedgerTurns(
            ledger, XorSealer(), clock, bounds=bounds, grace=grace
        )


@pytest.fixture
def turns(kind: Kind) -> Sweeping:
    return kind()


async def refusal(turns: ParkedTurns, place: Place) -> str:
    with pytest.raises(TurnRefused) as refused:
        await turns.take(place)
    return refused.value.code


@pytest.fixture
def later(clock: FakeClock) -> float:
    return clock.now() + DAY


async def test_a_turn_is_taken_as_it_was_parked(turns: ParkedTurns, later: float):
    body = bytes(range(256))
    await turns.keep(PLACE, body, later)
    assert await turns.take(PLACE) == body


@pytest.mark.parametrize(
    ("other", "code"),
    [
        (replace(PLACE, id="turn-2"), "not_found"),
        (replace(PLACE, owner="bob"), "not_found"),
        (replace(PLACE, owner="bob", conversation="d" * 64), "not_found"),
        (replace(PLACE, conversation="d" * 64), "wrong_conversation"),
        (replace(PLACE, conversation=""), "wrong_conversation"),
    ],
)
@pytest.mark.parametrize("taken", [False, True])
async def test_nobody_else_gets_it_and_nothing_changes(
    turns: ParkedTurns, later: float, other: Place, code: str, taken: bool
):
    await turns.keep(PLACE, b"body", later)
    if taken:
        await turns.take(PLACE)
    found = await refusal(turns, other)
    assert found == code or (taken and other.owner == PLACE.owner and found == "in_use")
    if not taken:
        assert await turns.take(PLACE) == b"body"


async def test_of_many_who_come_at_once_one_gets_it(turns: ParkedTurns, later: float):
    await turns.keep(PLACE, b"body", later)
    came = await asyncio.gather(*(turns.take(PLACE) for _ in range(20)), return_exceptions=True)
    assert came.count(b"body") == 1
    others = [one for one in came if isinstance(one, TurnRefused)]
    assert {one.code for one in others} == {"in_use"}
    assert len(others) == 19


async def test_what_is_given_back_can_be_taken_again_as_it_is_now(turns: ParkedTurns, later: float):
    await turns.keep(PLACE, b"one", later)
    await turns.take(PLACE)
    await turns.keep(PLACE, b"two", later)
    assert await refusal(turns, PLACE) == "in_use"
    await turns.give_back(PLACE)
    assert await turns.take(PLACE) == b"two"


async def test_what_is_forgotten_is_gone(turns: ParkedTurns, later: float):
    await turns.keep(PLACE, b"body", later)
    await turns.take(PLACE)
    await turns.forget(PLACE)
    await turns.give_back(PLACE)
    assert await refusal(turns, PLACE) == "not_found"
    await turns.forget(PLACE)


async def test_who_hangs_up_while_it_is_taken_does_not_lock_it(
    turns: ParkedTurns, clock: FakeClock, later: float
):
    await turns.keep(PLACE, b"body", later)
    taking = asyncio.create_task(turns.take(PLACE))
    await clock.settle(turns=1)
    if not taking.done():
        taking.cancel()
        await asyncio.wait({taking})
        assert await turns.take(PLACE) == b"body"


@pytest.mark.requirement("chat:approval:bounded")
async def test_it_is_kept_as_long_as_a_late_yes_can_be_used(kind: Kind, clock: FakeClock):
    turns = kind(grace=900.0)
    await turns.keep(PLACE, b"body", clock.now() + 60)
    await clock.advance(959)
    await turns.sweep()
    assert await turns.take(PLACE) == b"body"
    await turns.give_back(PLACE)
    await clock.advance(1)
    assert await refusal(turns, PLACE) == "not_found"
    await turns.sweep()
    assert await refusal(turns, PLACE) == "not_found"


async def test_what_somebody_resumes_right_now_does_not_expire(turns: Sweeping, clock: FakeClock):
    await turns.keep(PLACE, b"one", clock.now() + 60)
    await turns.take(PLACE)
    await clock.advance(100)
    await turns.sweep()
    await turns.keep(PLACE, b"two", clock.now() + 60)
    await turns.give_back(PLACE)
    assert await turns.take(PLACE) == b"two"


def place(number: int, owner: str = "alice") -> Place:
    return replace(PLACE, id=f"turn-{number}", owner=owner)


async def found(turns: ParkedTurns, *places: Place) -> list[bool]:
    """Say which of these are still there."""
    there: list[bool] = []
    for one in places:
        try:
            await turns.take(one)
        except TurnRefused:
            there.append(False)
        else:
            await turns.give_back(one)
            there.append(True)
    return there


@pytest.mark.requirement("chat:approval:bounded")
async def test_the_oldest_of_an_owner_makes_room(kind: Kind, later: float):
    turns = kind(Bounds(turns_each=2))
    await turns.keep(place(9, "bob"), b"body", later)
    for number in range(4):
        await turns.keep(place(number), b"body", later)
    assert await found(turns, *map(place, range(4))) == [False, False, True, True]
    assert await found(turns, place(9, "bob")) == [True]


async def test_an_owner_has_so_many_bytes(kind: Kind, later: float):
    turns = kind(Bounds(bytes_each=1_000))
    for number in range(4):
        await turns.keep(place(number), bytes(300), later)
    kept = await found(turns, *map(place, range(4)))
    assert not kept[0]
    assert kept[3]
    with pytest.raises(TurnTooLarge):
        await turns.keep(place(5), bytes(1_001), later)
    assert await found(turns, *map(place, range(4))) == kept


async def test_all_together_have_so_many_bytes_and_turns(kind: Kind, later: float):
    for bounds in (Bounds(bytes=1_000), Bounds(turns=3)):
        turns = kind(bounds)
        who = [place(number, f"owner-{number}-{secrets.token_hex(4)}") for number in range(4)]
        for one in who:
            await turns.keep(one, bytes(300), later)
        kept = await found(turns, *who)
        assert (kept[0], kept[3]) == (False, True)
        for one in who:
            await turns.forget(one)


async def test_what_somebody_resumes_right_now_does_not_make_room(kind: Kind, later: float):
    turns = kind(Bounds(turns_each=2))
    await turns.keep(place(0), b"body", later)
    await turns.take(place(0))
    for number in (1, 2):
        await turns.keep(place(number), b"body", later)
    await turns.give_back(place(0))
    assert await found(turns, *map(place, range(3))) == [True, False, True]


# --- in the ledger's database


async def test_a_restart_finds_it_also_where_a_dead_process_had_taken_it(
    tmp_path: Path, clock: FakeClock, later: float
):
    async with ledger_in(tmp_path) as ledger:
        turns = LedgerTurns(ledger, XorSealer(), clock)
        await turns.keep(PLACE, b"body", later)
        await turns.take(PLACE)
    async with ledger_in(tmp_path) as ledger:
        assert await LedgerTurns(ledger, XorSealer(), clock).take(PLACE) == b"body"


async def test_another_living_process_is_waited_for(tmp_path: Path, clock: FakeClock, later: float):
    async with ledger_in(tmp_path) as one, ledger_in(tmp_path) as other:
        first = LedgerTurns(one, XorSealer(), clock)
        second = LedgerTurns(other, XorSealer(), clock)
        await first.keep(PLACE, b"body", later)
        await first.take(PLACE)
        assert await refusal(second, PLACE) == "in_use"
        await first.give_back(PLACE)
        assert await second.take(PLACE) == b"body"


@pytest.mark.requirement("chat:approval:bounded")
async def test_nothing_of_it_can_be_read_in_the_files_while_it_is_kept_and_after(
    tmp_path: Path, clock: FakeClock, later: float
):
    def files() -> bytes:
        return b"".join(path.read_bytes() for path in tmp_path.glob("ledger.db*"))

    sealer = XorSealer()
    async with ledger_in(tmp_path) as ledger:
        turns = LedgerTurns(ledger, sealer, clock)
        await turns.keep(PLACE, b"what alice said" * 100, later)
        sealed = sealer.seal("", b"what alice said")[1:]
        assert b"what alice said" not in files()
        assert sealed in files()
        await turns.forget(PLACE)
        await turns.sweep()
        assert sealed not in files()


async def test_a_turn_that_another_key_sealed_is_not_found(
    tmp_path: Path, clock: FakeClock, later: float
):
    class Other(XorSealer):
        def unseal(self, name: str, sealed: bytes) -> bytes | None:
            return None

    async with ledger_in(tmp_path) as ledger:
        await LedgerTurns(ledger, XorSealer(), clock).keep(PLACE, b"body", later)
        assert await refusal(LedgerTurns(ledger, Other(), clock), PLACE) == "not_found"


async def test_a_key_that_cannot_be_read_is_told_without_its_path(
    tmp_path: Path, clock: FakeClock, later: float, caplog: pytest.LogCaptureFixture
):
    class Keyless(XorSealer):
        def seal(self, name: str, plain: bytes) -> bytes:
            raise KeyUnusable(f"{tmp_path}/secrets.key: is not private")

        def unseal(self, name: str, sealed: bytes) -> bytes | None:
            raise KeyUnusable(f"{tmp_path}/secrets.key: is not private")

    async with ledger_in(tmp_path) as ledger:
        await LedgerTurns(ledger, XorSealer(), clock).keep(PLACE, b"1", later)
        turns = LedgerTurns(ledger, Keyless(), clock)
        for work in (turns.keep(PLACE, b"2", later), turns.take(PLACE)):
            with pytest.raises(LedgerUnavailable, match="cannot be written") as refused:
                await work
            assert str(tmp_path) not in str(refused.value)
        assert str(tmp_path) in caplog.text
        assert await LedgerTurns(ledger, XorSealer(), clock).take(PLACE) == b"1"


async def test_a_disk_that_takes_nothing_is_told_without_its_path(
    tmp_path: Path, clock: FakeClock, later: float
):
    async with ledger_in(tmp_path) as ledger:
        ledger.database.poisoned = f"{tmp_path}/ledger.db takes no more writes"
        with pytest.raises(LedgerUnavailable, match="cannot be written") as refused:
            await LedgerTurns(ledger, XorSealer(), clock).keep(PLACE, b"1", later)
        assert str(tmp_path) not in str(refused.value)
        ledger.database.poisoned = None
