"""Who made and ended tokens is written before it is done, or nothing is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from bascule.audit.events import Act, TokenEnded, TokenMade
from bascule.audit.ledger import LedgerUnavailable, MemoryLedger
from bascule.auth.memory_token_store import MemoryTokenStore, TokenStore
from bascule.auth.token_record import TokenRecord
from bascule.auth.tokens import PROCESS, SETUP_ID, Tokens
from bascule.errors import InvalidRecord
from bascule.testing.clock import FakeClock
from tests.asgi.caller import KEY

pytestmark = pytest.mark.requirement("audit:token-events")


class Watched(MemoryTokenStore):
    """A store that knows how many acts were written when it was written to."""

    def __init__(self, ledger: MemoryLedger) -> None:
        super().__init__()
        self.ledger = ledger
        self.noted: list[int] = []

    async def add(self, record: TokenRecord) -> None:
        self.noted.append(len(self.ledger.events))
        await super().add(record)

    async def remove(self, token_id: str) -> bool:
        self.noted.append(len(self.ledger.events))
        return await super().remove(token_id)


async def refuse(act: Act) -> None:
    raise LedgerUnavailable(f"no room for {type(act).__name__}")


async def test_a_token_is_made_and_ended_after_that_was_written():
    clock, ledger = FakeClock(), MemoryLedger()
    store = Watched(ledger)
    tokens = Tokens(store, KEY, clock, note=ledger.note)
    minted = await tokens.mint("ci", "client", task_id="t", ttl_seconds=60, by="admin:setup")
    assert await tokens.revoke(minted.record.id, by="cli:root")
    assert store.noted == [1, 2]
    now = clock.now()
    assert list(ledger.events) == [
        TokenMade(
            timestamp=now,
            by="admin:setup",
            token_id=minted.record.id,
            name="ci",
            role="client",
            task_id="t",
            expires_at=now + 60,
        ),
        TokenEnded(timestamp=now, by="cli:root", token_id=minted.record.id),
    ]
    assert minted.token not in repr(ledger.events)


async def test_what_is_not_done_is_not_written(store: TokenStore):
    ledger = MemoryLedger()
    tokens = Tokens(store, KEY, FakeClock(), note=ledger.note)
    assert not await tokens.revoke("tok-none", by="cli:root")
    with pytest.raises(InvalidRecord):
        await tokens.mint("", "viewer", by="cli:root")
    assert not ledger.events


async def test_the_end_of_the_setup_token_is_written_too_and_once(
    tmp_path: Path, store: TokenStore
):
    ledger = MemoryLedger()
    file = tmp_path / "setup-token"
    tokens = Tokens(store, KEY, FakeClock(), setup_file=file, note=ledger.note)
    await tokens.first_start()
    for name in ("me", "other"):
        await tokens.mint(name, "admin", by="admin:setup")
    said = [
        (type(event), event.by, event.token_id)
        for event in ledger.events
        if isinstance(event, TokenMade | TokenEnded)
    ]
    assert said[0] == (TokenMade, PROCESS, SETUP_ID)
    assert [one for one in said if one[0] is TokenEnded] == [(TokenEnded, "admin:setup", SETUP_ID)]
    assert len(said) == 4


async def test_when_nothing_can_be_written_no_token_is_made_or_ended(
    tmp_path: Path, store: TokenStore
):
    file = tmp_path / "setup-token"
    tokens = Tokens(store, KEY, FakeClock(), setup_file=file)
    setup = await tokens.first_start()
    assert setup is not None
    kept = await tokens.mint("n", "viewer")
    before = await tokens.records()
    tokens.note = refuse
    with pytest.raises(LedgerUnavailable, match="TokenMade"):
        await tokens.mint("me", "admin")
    with pytest.raises(LedgerUnavailable, match="TokenEnded"):
        await tokens.revoke(kept.record.id)
    assert await tokens.records() == before
    assert await tokens.verify(setup) is not None
    assert file.exists()


async def test_when_the_end_of_the_setup_token_cannot_be_written_nothing_is_done(
    tmp_path: Path, store: TokenStore
):
    file = tmp_path / "setup-token"
    tokens = Tokens(store, KEY, FakeClock(), setup_file=file)
    await tokens.first_start()

    async def no_ends(act: Act) -> None:
        if isinstance(act, TokenEnded):
            await refuse(act)

    tokens.note = no_ends
    with pytest.raises(LedgerUnavailable):
        await tokens.mint("me", "admin")
    assert [record.id for record in await tokens.records()] == [SETUP_ID]
    assert file.exists()


async def test_the_first_start_makes_no_token_that_cannot_be_written_down(
    tmp_path: Path, store: TokenStore
):
    file = tmp_path / "setup-token"
    tokens = Tokens(store, KEY, FakeClock(), setup_file=file, note=refuse)
    with pytest.raises(LedgerUnavailable):
        await tokens.first_start()
    assert await tokens.records() == ()
    assert not file.exists()
