"""Links: a code opens one page, once, and what it opens ends by itself and with the process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Unpack

import pytest

from bascule.audit.events import TokenEnded, TokenMade
from bascule.audit.ledger import LedgerUnavailable, MemoryLedger
from bascule.auth.identity import Principal
from bascule.auth.links import (
    CONFIRM_SECONDS,
    LINK_SECONDS,
    PAGE_SECONDS,
    InvalidCode,
    Links,
    make_confirmation,
    make_link,
)
from bascule.auth.memory_token_store import TokenStore
from bascule.auth.page_uses import IDLE_SECONDS
from bascule.auth.token_request import TokenOptions, TokenRequest
from bascule.auth.token_store import SETUP_NAME, open_tokens
from bascule.auth.tokens import Tokens
from bascule.errors import InvalidRecord
from bascule.model.role import Role
from bascule.testing.clock import FakeClock
from tests.asgi.caller import KEY


class Office:
    """Links over tokens, with a clock that stands still."""

    def __init__(self, store: TokenStore) -> None:
        self.clock = FakeClock()
        self.ledger = MemoryLedger()
        self.store = store
        self.tokens = self.another_process()
        self.links = Links(self.tokens)

    def another_process(self) -> Tokens:
        return Tokens(self.store, KEY, self.clock, note=self.ledger.note)

    async def code(self, role: Role = "viewer", **options: Unpack[TokenOptions]) -> str:
        wanted = TokenRequest(name=role, role=role, **options)
        return (await make_link(self.tokens, wanted, by="cli:anna")).token

    async def page(self, role: Role = "viewer", **options: Unpack[TokenOptions]) -> str:
        return (await self.links.exchange(await self.code(role, **options))).token

    async def principal(self, token: str) -> Principal:
        found = await self.tokens.verify(token)
        assert found is not None
        return found

    async def refuses(self, code: str) -> str:
        with pytest.raises(InvalidCode) as refused:
            await self.links.exchange(code)
        return str(refused.value)


@pytest.fixture
def office(store: TokenStore) -> Office:
    return Office(store)


@pytest.mark.requirement("admin:login:once")
async def test_a_code_gives_a_token_of_its_role_person_and_task(office: Office):
    code = await office.code("client", task_id="t", person="ann")
    shown = await office.links.look(code)
    assert (shown.grants, shown.person, shown.task_id) == ("client", "ann", "t")
    page = await office.principal((await office.links.exchange(code)).token)
    assert (page.role, page.person, page.task_id) == ("client", "ann", "t")
    assert (page.page, page.name, page.made_by) == (True, "page of ann", "cli:anna")


async def test_a_code_is_no_token(office: Office):
    code = await office.code("admin")
    assert await office.tokens.verify(code) is None
    assert office.tokens.recall(code.encode()) is None
    await office.links.exchange(code)  # which it still is good for


@pytest.mark.requirement("admin:login:once")
@pytest.mark.parametrize("second", ["look", "exchange"])
async def test_a_code_that_comes_twice_is_refused_and_ends_what_it_gave(
    office: Office, second: str
):
    code, other = await office.code("admin"), await office.page("admin")
    page = (await office.links.exchange(code)).token
    assert await office.tokens.verify(page)
    with pytest.raises(InvalidCode):
        await getattr(office.links, second)(code)
    assert await office.tokens.verify(page) is None
    assert await office.tokens.verify(other), "nobody else's page ends"


@pytest.mark.requirement("admin:login:once")
async def test_of_many_who_use_a_code_at_once_nobody_keeps_a_page(office: Office):
    code = await office.code("admin")
    asked = (office.links.exchange(code) for _ in range(10))
    results = await asyncio.gather(*asked, return_exceptions=True)
    pages = [one for one in results if not isinstance(one, BaseException)]
    assert len(pages) == 1
    assert await office.tokens.verify(pages[0].token) is None


@pytest.mark.requirement("admin:login:one-answer")
async def test_used_expired_revoked_and_garbled_codes_are_refused_in_the_same_words(
    office: Office,
):
    used, revoked, late = [await office.code() for _ in range(3)]
    await office.links.exchange(used)
    record = await office.links.look(revoked)
    await office.tokens.revoke(record.id)
    await office.clock.advance(LINK_SECONDS)
    token = (await office.tokens.mint("a", "admin")).token
    confirming = (await make_confirmation(office.tokens, by="cli:anna")).token
    strange = ("", "x", "bsc_" + "A" * 43, "\ud800", "é" * 50_000, token, confirming)
    said = {await office.refuses(code) for code in (used, revoked, late, *strange)}
    assert len(said) == 1
    assert "bascule web" in said.pop()
    assert await office.tokens.verify(token), "a token is not used up by showing it as a code"


@pytest.mark.requirement("admin:login:ends")
async def test_a_page_ends_after_twelve_hours_however_busy(office: Office):
    page = await office.page()
    for _ in range(int(PAGE_SECONDS / 1_440) - 1):
        await office.clock.advance(1_440)
        assert await office.tokens.verify(page)
    await office.clock.advance(1_440)
    assert await office.tokens.verify(page) is None


@pytest.mark.requirement("admin:login:ends")
async def test_a_page_that_is_never_used_ends_half_an_hour_after_it_was_given(office: Office):
    page = await office.page()
    await office.clock.advance(IDLE_SECONDS)
    assert await office.tokens.verify(page) is None


@pytest.mark.requirement("admin:login:ends")
async def test_a_page_that_was_not_used_for_half_an_hour_has_ended_for_good(office: Office):
    page = await office.page()
    await office.clock.advance(IDLE_SECONDS - 1)
    assert office.tokens.recall(page.encode()) or await office.tokens.verify(page)
    await office.clock.advance(IDLE_SECONDS)
    [shown] = await office.tokens.listing()
    assert shown.state == "expired"
    assert await office.tokens.verify(page) is None
    office.clock.jump(-IDLE_SECONDS)
    assert await office.tokens.verify(page) is None, "a clock that is set back revives nothing"


@pytest.mark.requirement("admin:login:ends")
async def test_to_see_that_a_page_is_still_there_is_no_use_of_it(office: Office):
    page = await office.page()
    await office.principal(page)
    for _ in range(2):
        await office.clock.advance(IDLE_SECONDS / 2 - 1)
        assert await office.tokens.still(page) is not None
    await office.clock.advance(2)
    assert await office.tokens.still(page) is None
    assert await office.tokens.verify(page) is None


@pytest.mark.requirement("admin:login:ends")
async def test_a_page_ends_with_the_process_and_the_next_start_forgets_it(tmp_path: Path):
    clock = FakeClock()
    async with open_tokens(tmp_path, clock=clock) as tokens:
        await tokens.first_start()
        wanted = TokenRequest(name="admin", role="admin")
        code = (await make_link(tokens, wanted, by="cli:anna")).token
        page = (await Links(tokens).exchange(code)).token
        assert await tokens.verify(page)
    async with open_tokens(tmp_path, clock=clock) as tokens:
        assert await tokens.verify(page) is None
        assert [one.state for one in await tokens.listing()] == ["valid", "expired"]
        await tokens.first_start()
        assert [one.id for one in await tokens.listing()] == ["tok-setup"]
        with pytest.raises(InvalidCode):
            await Links(tokens).exchange(code)


async def test_neither_a_link_nor_a_page_of_an_administrator_ends_the_setup_token(tmp_path: Path):
    async with open_tokens(tmp_path) as tokens:
        await tokens.first_start()
        code = await make_link(tokens, TokenRequest(name="admin", role="admin"), by="test")
        await Links(tokens).exchange(code.token)
        assert "tok-setup" in {one.id for one in await tokens.listing()}
        assert (tmp_path / SETUP_NAME).exists()


@pytest.mark.requirement("admin:login:noted")
async def test_links_and_pages_are_noted_with_whose_link_it_was(office: Office):
    code = await office.code("operator", person="ann")
    await office.links.exchange(code)
    link, gone, page = office.ledger.events
    assert isinstance(link, TokenMade)
    assert (link.by, link.role, link.grants, link.person) == ("cli:anna", "link", "operator", "ann")
    assert isinstance(gone, TokenEnded)
    assert (gone.by, gone.token_id) == ("cli:anna", link.token_id)
    assert isinstance(page, TokenMade)
    assert (page.by, page.role, page.name, page.person) == (
        "cli:anna",
        "operator",
        "page of ann",
        "ann",
    )
    await office.refuses(code)
    ended = office.ledger.events[-1]
    assert isinstance(ended, TokenEnded)
    assert ended.token_id == page.token_id


async def test_what_cannot_be_noted_gives_no_page(office: Office):
    code = await office.code()

    async def full(act: object) -> None:
        raise LedgerUnavailable("the disk is full")

    office.tokens.note = full
    with pytest.raises(LedgerUnavailable):
        await office.links.exchange(code)
    assert [one.role for one in await office.tokens.listing()] == ["link"]


@pytest.mark.parametrize(
    ("role", "options", "problem"),
    [
        ("node", {}, "role: 'node' has no page"),
        ("client", {}, "task_id: is required"),
        ("admin", {"task_id": "t"}, "task_id: is for client tokens"),
        ("admin", {"person": "a b"}, "person: "),
    ],
)
async def test_a_link_is_made_only_for_a_token_that_could_be(
    office: Office, role: Role, options: TokenOptions, problem: str
):
    with pytest.raises(InvalidRecord, match=problem):
        await office.code(role, **options)
    assert await office.tokens.records() == ()


@pytest.mark.requirement("admin:confirm")
async def test_a_code_that_confirms_is_the_pages_that_shows_it_first(office: Office):
    one, other = [await office.principal(await office.page("admin")) for _ in range(2)]
    code = (await make_confirmation(office.tokens, by="cli:anna")).token
    asked = await asyncio.gather(*(office.links.confirms(code, one) for _ in range(5)))
    assert asked == [True] * 5
    assert not await office.links.confirms(code, other)
    await office.clock.advance(CONFIRM_SECONDS - 1)
    assert await office.links.confirms(code, one)
    await office.clock.advance(1)
    assert not await office.links.confirms(code, one)


@pytest.mark.requirement("admin:confirm")
async def test_only_a_fresh_code_made_to_confirm_does(office: Office):
    page_token = await office.page("admin")
    page = await office.principal(page_token)
    late = (await make_confirmation(office.tokens, by="cli:anna")).token
    await office.clock.advance(LINK_SECONDS)
    link = await office.code("admin")
    for code in (late, link, page_token, "", "bsc_" + "A" * 43):
        assert not await office.links.confirms(code, page)
    await office.links.exchange(link)  # showing it in the wrong place did not use it up
