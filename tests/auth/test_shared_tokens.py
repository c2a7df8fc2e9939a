"""Tokens of several replicas on one PostgreSQL: one key, one setup token, and ends for all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bascule.audit.events import TokenMade
from bascule.audit.ledger import MemoryLedger
from bascule.auth import postgres_token_store
from bascule.auth.following import POLL_SECONDS
from bascule.auth.links import (
    CONFIRM_SECONDS,
    InvalidCode,
    Links,
    make_confirmation,
    make_link,
)
from bascule.auth.page_uses import IDLE_SECONDS
from bascule.auth.postgres_token_store import PostgresTokenStore, open_shared_tokens
from bascule.auth.server_key import KEY_NAME, VARIABLE
from bascule.auth.token_record import TokenKeys
from bascule.auth.token_request import TokenRequest
from bascule.auth.token_store import SETUP_NAME
from bascule.auth.tokens import SETUP_ID, Tokens
from bascule.db.private_files import KeyUnusable
from bascule.testing.clock import FakeClock
from tests.asgi.caller import KEY
from tests.auth.replicas import reached, replica
from tests.postgres.databases import database
from tests.waits import until

OTHER = bytes(range(32))
#: How long a token may be taken that another replica has revoked.
REVOKED_SECONDS = 2.5


@pytest.fixture
async def dsn() -> AsyncGenerator[str, None]:
    async with database() as address:
        yield address


async def fetched(dsn: str, query: str) -> object:
    async with reached(dsn) as postgres:
        return await postgres.read(lambda connection: connection.fetchval(query))


async def role_of(tokens: Tokens, token: str) -> str | None:
    principal = await tokens.verify(token)
    return None if principal is None else principal.role


@pytest.mark.requirement("security:tokens:replicas")
async def test_a_token_of_one_replica_is_good_at_every_other_at_once(dsn: str, tmp_path: Path):
    async with replica(dsn, tmp_path / "a") as one, replica(dsn, tmp_path / "b") as other:
        minted = await one.mint("ci", "approver", person="ann", tasks=["t", "u"], ttl_seconds=60)
        found = await other.verify(minted.token)
        assert found is not None
        assert (found.role, found.person, found.tasks) == ("approver", "ann", ("t", "u"))
        assert await other.records() == (minted.record,)


@pytest.mark.requirement("security:tokens:replicas")
@pytest.mark.parametrize("hears", [True, False], ids=["by the bell", "by looking"])
async def test_a_token_that_is_revoked_at_one_replica_is_refused_by_every_other(
    dsn: str, tmp_path: Path, hears: bool
):
    """The clock of the other replica stands still: without the bell it looks when that goes on."""
    deaf, clock = f"{dsn}_that_is_not_there", FakeClock()
    async with (
        replica(dsn, tmp_path / "a", clock=clock) as one,
        reached(dsn, listen_dsn=dsn if hears else deaf) as postgres,
        open_shared_tokens(postgres, tmp_path / "a", clock=clock) as other,
    ):
        ended, kept = await one.mint("a", "viewer"), await one.mint("b", "operator")
        for tokens in (one, other):
            assert await role_of(tokens, ended.token) == "viewer"
        assert await one.revoke(ended.record.id)
        assert await role_of(one, ended.token) is None
        if not hears:
            assert await role_of(other, ended.token) == "viewer"
            await clock.advance(POLL_SECONDS)
        await until(lambda: _refused(other, ended.token))
        assert await role_of(other, kept.token) == "operator"
        assert other.recall(ended.token.encode()) is None
        assert not await other.revoke(ended.record.id)
        assert [record.name for record in await other.records()] == ["b"]


def test_a_replica_looks_half_a_second_before_a_revoked_token_has_to_be_refused():
    assert POLL_SECONDS + 0.5 <= REVOKED_SECONDS


async def _refused(tokens: Tokens, token: str) -> bool:
    return await tokens.verify(token) is None


async def test_a_replica_that_follows_nobody_still_sees_what_it_is_asked_for(
    dsn: str, tmp_path: Path
):
    async with (
        replica(dsn, tmp_path / "a") as one,
        replica(dsn, tmp_path / "b", follow=False) as command,
    ):
        minted = await command.mint("ci", "viewer")
        assert await role_of(one, minted.token) == "viewer"
        later = await one.mint("later", "operator")
        assert await role_of(command, later.token) == "operator"


async def test_an_expired_token_ends_at_every_replica_by_its_own_clock(dsn: str, tmp_path: Path):
    clock = FakeClock()
    async with (
        replica(dsn, tmp_path / "a", clock=clock) as one,
        replica(dsn, tmp_path / "b", clock=clock) as other,
    ):
        minted = await one.mint("ci", "viewer", ttl_seconds=60)
        for tokens in (one, other):
            assert await role_of(tokens, minted.token) == "viewer"
        clock.jump(60)
        for tokens in (one, other):
            assert await role_of(tokens, minted.token) is None


async def test_a_use_writes_nothing(dsn: str, tmp_path: Path):
    query = """SELECT string_agg(row::text, ' ') FROM (
        SELECT xmin, ctid, 'head' FROM bascule_token_head
        UNION ALL SELECT xmin, ctid, id FROM bascule_tokens
        UNION ALL SELECT xmin, ctid, mark::text FROM bascule_outcomes) AS row"""
    async with replica(dsn, tmp_path / "a") as one, replica(dsn, tmp_path / "b") as other:
        minted = await one.mint("ci", "viewer")
        assert await role_of(other, minted.token) == "viewer"
        before = await fetched(dsn, query)
        for tokens in (one, other) * 50:
            assert await role_of(tokens, minted.token) == "viewer"
        assert await fetched(dsn, query) == before


async def test_a_token_that_is_kept_anew_at_one_replica_is_so_for_all(dsn: str, tmp_path: Path):
    token, keys = "bsc_" + "o" * 43, TokenKeys(KEY)
    async with replica(dsn, tmp_path / "a") as one, replica(dsn, tmp_path / "b") as other:
        record = (await one.mint("old", "viewer")).record
        old = keys.sealed(replace(record, id="tok-old", digest=keys.old_digest(token)))
        async with reached(dsn) as postgres:
            await (await PostgresTokenStore(postgres).open()).add(old)
        roles = await asyncio.gather(*(role_of(tokens, token) for tokens in (one, other) * 5))
        assert roles == ["viewer"] * 10
        renewed = keys.sealed(replace(old, digest=keys.digest(token)))
        for tokens in (one, other):
            await until(lambda tokens=tokens: _has(tokens, renewed.digest))


async def _has(tokens: Tokens, digest: bytes) -> bool:
    return digest in {record.digest for record in await tokens.records()}


# --- the setup token


@pytest.mark.requirement("security:tokens:setup-once")
async def test_replicas_that_start_at_once_make_one_setup_token(dsn: str, tmp_path: Path):
    ledger = MemoryLedger()
    folders = [tmp_path / str(number) for number in range(3)]
    async with (
        replica(dsn, folders[0], note=ledger.note) as a,
        replica(dsn, folders[1], note=ledger.note) as b,
        replica(dsn, folders[2], note=ledger.note) as c,
    ):
        made = await asyncio.gather(*(tokens.first_start() for tokens in (a, b, c)))
        [shown] = [token for token in made if token is not None]
        assert [role for tokens in (a, b, c) if (role := await role_of(tokens, shown))] == (
            ["admin"] * 3
        )
        files = [folder / SETUP_NAME for folder in folders]
        winner = made.index(shown)
        assert [file.exists() for file in files] == [number == winner for number in range(3)]
        assert [type(event) for event in ledger.events] == [TokenMade]
        loser = (a, b, c)[winner - 1]
        await loser.mint("me", "admin")
        assert await role_of(loser, shown) is None
        await until(lambda: not files[winner].exists())
        assert await loser.first_start() is None


async def test_a_setup_file_of_another_life_goes_at_the_start(dsn: str, tmp_path: Path):
    async with replica(dsn, tmp_path / "a") as one, replica(dsn, tmp_path / "b") as other:
        assert await one.first_start() is not None
        (tmp_path / "b" / SETUP_NAME).write_text("bsc_" + "x" * 43, encoding="ascii")
        assert await other.first_start() is None
        assert not (tmp_path / "b" / SETUP_NAME).exists()
        assert (tmp_path / "a" / SETUP_NAME).exists()


# --- the key


@pytest.mark.requirement("security:server-key:replicas")
async def test_a_replica_with_another_key_or_none_does_not_start(dsn: str, tmp_path: Path):
    async with replica(dsn, tmp_path / "a", key=None) as one:
        minted = await one.mint("ci", "viewer")
    key = (tmp_path / "a" / KEY_NAME).read_bytes()
    for name, given in (("other", OTHER), ("none", None)):
        with pytest.raises(KeyUnusable, match=rf"copy the {KEY_NAME}.*{VARIABLE}") as caught:
            async with replica(dsn, tmp_path / name, key=given):
                pass
        assert "PostgreSQL at" in str(caught.value)
        assert key.hex() not in str(caught.value)
    assert not (tmp_path / "none" / KEY_NAME).exists(), "and none is made that would not do"
    async with replica(dsn, tmp_path / "b", key=key) as other:
        assert await role_of(other, minted.token) == "viewer"


@pytest.mark.requirement("security:server-key:replicas")
async def test_the_database_has_the_fingerprint_of_the_key_and_nothing_else_of_it(
    dsn: str, tmp_path: Path
):
    async with replica(dsn, tmp_path / "a") as tokens:
        minted = await tokens.mint("ci", "viewer")
    whole = await fetched(
        dsn,
        "SELECT (SELECT string_agg(t::text, '') FROM bascule_tokens AS t)"
        " || (SELECT string_agg(h::text, '') FROM bascule_token_head AS h)",
    )
    assert isinstance(whole, str)
    assert TokenKeys(KEY).fingerprint in whole
    for secret in (KEY.hex(), KEY.decode("latin-1"), minted.token, minted.token[4:]):
        assert secret not in whole


async def test_of_replicas_that_begin_with_keys_of_their_own_one_goes_on(dsn: str, tmp_path: Path):
    async def begun(name: str) -> str | None:
        try:
            async with replica(dsn, tmp_path / name, key=None):
                return name
        except KeyUnusable:
            return None

    went_on = [name for name in await asyncio.gather(*map(begun, "abcd")) if name]
    assert len(went_on) == 1
    kept = [name for name in "abcd" if (tmp_path / name / KEY_NAME).exists()]
    assert kept == went_on


async def test_a_key_that_is_given_needs_no_file(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(VARIABLE, KEY.hex())
    async with replica(dsn, tmp_path / "a", key=None) as one:
        minted = await one.mint("ci", "viewer")
    async with replica(dsn, tmp_path / "b", key=None) as other:
        assert await role_of(other, minted.token) == "viewer"
    assert not (tmp_path / "a" / KEY_NAME).exists()


# --- a database that is not what it was


async def test_what_ended_long_ago_is_forgotten_and_who_was_away_reads_all(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with reached(dsn) as postgres:
        away = await PostgresTokenStore(postgres).open()
        async with replica(dsn, tmp_path / "a") as tokens:
            minted = [(await tokens.mint(str(n), "viewer")).record for n in range(4)]
            await away.catch_up()
            for record in minted[:3]:
                await tokens.revoke(record.id)
        jump = "UPDATE bascule_token_head SET revision = $1"
        await postgres.statement(jump, 3 * postgres_token_store.KEPT_ENDS)
        async with replica(dsn, tmp_path / "a") as tokens:
            assert await tokens.records() == (minted[3],)
        assert await fetched(dsn, "SELECT count(*) FROM bascule_tokens") == 1
        await away.catch_up()
        assert await away.records() == (minted[3],)


@pytest.mark.parametrize(
    ("emptying", "revision"),
    [("TRUNCATE bascule_tokens", 99), ("DELETE FROM bascule_tokens", 1)],
    ids=["written past", "older"],
)
async def test_an_older_copy_in_its_place_is_read_anew(
    dsn: str, tmp_path: Path, emptying: str, revision: int
):
    async with replica(dsn, tmp_path / "a") as tokens:
        kept = await tokens.mint("kept", "viewer")
        async with reached(dsn) as postgres:
            await postgres.statement("CREATE TABLE copy AS TABLE bascule_tokens")
            lost = await tokens.mint("lost", "admin")
            await postgres.statement(emptying)
            await postgres.statement("INSERT INTO bascule_tokens SELECT * FROM copy")
            await postgres.statement("UPDATE bascule_token_head SET revision = $1", revision)
        await until(lambda: _only(tokens, kept.record.id))
        assert await role_of(tokens, lost.token) is None
        assert await role_of(tokens, kept.token) == "viewer"


async def _only(tokens: Tokens, token_id: str) -> bool:
    return [record.id for record in await tokens.records()] == [token_id]


async def test_a_row_that_somebody_edited_is_nobodys_token(dsn: str, tmp_path: Path):
    async with replica(dsn, tmp_path / "a") as tokens:
        minted = await tokens.mint("n", "client", task_id="t")
    async with reached(dsn) as postgres:
        await postgres.statement("UPDATE bascule_tokens SET role = 'admin', task_id = NULL")
        async with open_shared_tokens(postgres, tmp_path / "a") as tokens:
            assert await tokens.verify(minted.token) is None
            assert [one.state for one in await tokens.listing()] == ["altered"]
            assert await tokens.revoke(minted.record.id)
            assert SETUP_ID not in {record.id for record in await tokens.records()}


# --- links and pages


async def linked(tokens: Tokens) -> str:
    wanted = TokenRequest(name="admin", role="admin")
    return (await make_link(tokens, wanted, by="cli:anna")).token


@pytest.mark.requirement("admin:login:replicas")
async def test_a_page_is_open_at_every_replica_and_outlives_each(dsn: str, tmp_path: Path):
    async with replica(dsn, tmp_path / "a") as one:
        async with replica(dsn, tmp_path / "b") as other:
            page = (await Links(other).exchange(await linked(one))).token
            for tokens in (one, other):
                assert await role_of(tokens, page) == "admin"
        async with replica(dsn, tmp_path / "b") as again:
            await again.first_start()
            assert await role_of(again, page) == "admin"
        assert await role_of(one, page) == "admin"


@pytest.mark.requirement("admin:login:replicas")
async def test_a_code_that_comes_to_two_replicas_ends_what_it_gave(dsn: str, tmp_path: Path):
    async with replica(dsn, tmp_path / "a") as one, replica(dsn, tmp_path / "b") as other:
        code = await linked(one)
        page = (await Links(one).exchange(code)).token
        assert await role_of(other, page) == "admin"
        with pytest.raises(InvalidCode):
            await Links(other).exchange(code)
        await until(lambda: _refused(one, page))
        code = await linked(one)
        asked = [Links(tokens).exchange(code) for tokens in (one, other) * 3]
        given = await asyncio.gather(*asked, return_exceptions=True)
        [minted] = [one for one in given if not isinstance(one, BaseException)]
        for tokens in (one, other):
            await until(lambda tokens=tokens: _refused(tokens, minted.token))


@pytest.mark.requirement("admin:login:replicas")
async def test_a_page_that_is_idle_everywhere_has_ended_and_one_in_use_anywhere_has_not(
    dsn: str, tmp_path: Path
):
    clock = FakeClock()
    query = "SELECT max(used_at) FROM bascule_tokens"
    async with (
        replica(dsn, tmp_path / "a", clock=clock) as one,
        replica(dsn, tmp_path / "b", clock=clock) as other,
    ):
        page = (await Links(one).exchange(await linked(one))).token
        for _ in range(3):
            clock.jump(IDLE_SECONDS - 100)
            assert await role_of(other, page) == "admin"
            now = clock.now()
            await clock.advance(POLL_SECONDS)
            await until(lambda now=now: _is(dsn, query, now))
        assert await role_of(one, page) == "admin", "it was used elsewhere all the time"
        assert "valid" in {shown.state for shown in await one.listing()}
        clock.jump(IDLE_SECONDS)
        for tokens in (one, other):
            assert await role_of(tokens, page) is None
    async with replica(dsn, tmp_path / "c", clock=clock) as stranger:
        assert await role_of(stranger, page) is None, "nor is it revived where nobody knew it"


async def _is(dsn: str, query: str, value: object) -> bool:
    return await fetched(dsn, query) == value


@pytest.mark.requirement("admin:login:replicas")
async def test_a_code_that_confirms_does_so_at_every_replica_for_one_page(dsn: str, tmp_path: Path):
    clock = FakeClock()
    async with (
        replica(dsn, tmp_path / "a", clock=clock) as one,
        replica(dsn, tmp_path / "b", clock=clock) as other,
    ):
        pages = [(await Links(one).exchange(await linked(one))).token for _ in range(2)]
        mine, theirs = [await one.verify(page) for page in pages]
        assert mine is not None
        assert theirs is not None
        code = (await make_confirmation(one, by="cli:anna")).token
        shown = [Links(tokens).confirms(code, mine) for tokens in (one, other) * 3]
        assert await asyncio.gather(*shown) == [True] * 6
        for tokens in (one, other):
            assert not await Links(tokens).confirms(code, theirs)
        clock.jump(CONFIRM_SECONDS)
        for tokens in (one, other):
            assert not await Links(tokens).confirms(code, mine)
