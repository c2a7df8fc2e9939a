"""Tokens: minted once, kept as digests, ended by time or by hand."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bascule.auth import tokens as tokens_module
from bascule.auth.memory_token_store import MemoryTokenStore, TokenStore
from bascule.auth.tokens import PREFIX, SETUP_ID, Tokens
from bascule.errors import InvalidRecord
from bascule.testing.clock import FakeClock
from tests.asgi.caller import KEY


def made(
    store: TokenStore, clock: FakeClock | None = None, setup_file: Path | None = None
) -> Tokens:
    return Tokens(store, KEY, clock or FakeClock(), setup_file=setup_file)


async def test_a_token_is_random_and_known_by_its_prefix(store: TokenStore):
    tokens = made(store)
    minted = {(await tokens.mint("n", "viewer")).token for _ in range(20)}
    assert len(minted) == 20
    assert all(re.fullmatch(r"bsc_[A-Za-z0-9_-]{43}", token) for token in minted)


@pytest.mark.requirement("security:auth:client-task")
async def test_a_token_says_whose_it_is_and_which_task_it_is_bound_to(store: TokenStore):
    tokens = made(store)
    minted = await tokens.mint("crawler", "client", task_id="nightly")
    principal = await tokens.verify(minted.token)
    assert principal is not None
    assert (principal.name, principal.role, principal.task_id) == ("crawler", "client", "nightly")
    assert principal.token_id == minted.record.id


@pytest.mark.requirement("security:tokens:digest")
async def test_nothing_that_is_kept_holds_the_token_or_a_digest_made_without_the_key(
    store: TokenStore,
):
    tokens = made(store)
    token = (await tokens.mint("n", "admin")).token
    [record] = await store.records()
    kept = msgspec.json.encode(record)
    assert token.removeprefix("bsc_").encode() not in kept
    assert len(record.digest) == 32
    other_key = Tokens(store, b"x" * 32, FakeClock())
    assert await other_key.verify(token) is None


@pytest.mark.requirement("security:tokens:digest")
async def test_a_kept_digest_is_no_token(store: TokenStore):
    tokens = made(store)
    await tokens.mint("n", "admin")
    [record] = await store.records()
    assert await tokens.verify(record.digest.hex()) is None
    assert await tokens.verify("bsc_" + record.digest.hex()[:43]) is None


async def test_a_record_is_plain_values_and_comes_back_from_them(store: TokenStore):
    tokens = made(store)
    await tokens.mint("n", "client", task_id="t", ttl_seconds=60)
    [record] = await store.records()
    plain = msgspec.to_builtins(record, builtin_types=(bytes,))
    assert msgspec.convert(plain, type(record), builtin_types=(bytes,)) == record


async def test_a_token_ends_at_its_time(store: TokenStore):
    clock = FakeClock()
    tokens = made(store, clock)
    token = (await tokens.mint("n", "viewer", ttl_seconds=60)).token
    await clock.advance(59)
    assert await tokens.verify(token) is not None
    await clock.advance(1)
    assert await tokens.verify(token) is None


async def test_a_revoked_token_ends_at_once_and_alone(store: TokenStore):
    tokens = made(store)
    ended, kept = await tokens.mint("a", "viewer"), await tokens.mint("b", "viewer")
    assert await tokens.revoke(ended.record.id)
    assert not await tokens.revoke(ended.record.id)
    assert await tokens.verify(ended.token) is None
    assert await tokens.verify(kept.token) is not None
    assert [record.name for record in await tokens.records()] == ["b"]


UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "client without a task": ({"role": "client"}, "task_id: is required"),
    "client with an empty task": ({"role": "client", "task_id": ""}, "task_id: is required"),
    "admin with a task": ({"role": "admin", "task_id": "t"}, "task_id: is for client tokens"),
    "no such role": ({"role": "root"}, "role: 'root' is not one of"),
    "no name": ({"role": "admin", "name": ""}, "name: must be 1 to 128"),
    "a name of two lines": ({"role": "admin", "name": "a\nb"}, "name: must be 1 to 128"),
    "a long name": ({"role": "admin", "name": "a" * 129}, "name: must be 1 to 128"),
    "no time": ({"role": "admin", "ttl_seconds": 0}, "ttl_seconds: must be"),
    "for ever by number": ({"role": "admin", "ttl_seconds": float("inf")}, "ttl_seconds: must be"),
    "not a number": ({"role": "admin", "ttl_seconds": float("nan")}, "ttl_seconds: must be"),
    "longer than dates go": ({"role": "admin", "ttl_seconds": 1e300}, "ttl_seconds: must be"),
    "a task of two lines": ({"role": "client", "task_id": "a\nb"}, "task_id: must be 1 to 128"),
}


@pytest.mark.parametrize("case", UNFIT)
@pytest.mark.requirement("security:auth:client-task")
async def test_an_unfit_token_is_not_minted(case: str, store: TokenStore):
    given, message = dict(UNFIT[case][0]), UNFIT[case][1]
    tokens = made(store)
    with pytest.raises(InvalidRecord, match=message):
        await tokens.mint(given.pop("name", "n"), **given)
    assert await store.records() == ()


async def test_the_first_start_leaves_a_token_that_only_the_owner_can_read(
    tmp_path: Path, store: TokenStore
):
    path = tmp_path / "data" / "setup-token"
    tokens = made(store, setup_file=path)
    token = await tokens.first_start()
    assert token is not None
    assert path.read_text(encoding="ascii") == token + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    principal = await tokens.verify(token)
    assert principal is not None
    assert principal.role == "admin"
    assert [entry.name for entry in path.parent.iterdir()] == ["setup-token"]


async def test_the_second_start_makes_no_token_and_tells_none(tmp_path: Path, store: TokenStore):
    path = tmp_path / "setup-token"
    tokens = made(store, setup_file=path)
    first = await tokens.first_start()
    assert await tokens.first_start() is None
    assert len(await store.records()) == 1
    assert path.read_text(encoding="ascii").strip() == first


async def test_a_file_left_by_a_start_that_died_is_replaced_and_a_link_is_not_followed(
    tmp_path: Path, store: TokenStore
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("theirs", encoding="ascii")
    path = tmp_path / "setup-token"
    path.symlink_to(elsewhere)
    tokens = made(store, setup_file=path)
    token = await tokens.first_start()
    assert path.read_text(encoding="ascii").strip() == token
    assert not path.is_symlink()
    assert elsewhere.read_text(encoding="ascii") == "theirs"


async def test_the_first_administrators_token_ends_the_setup_token_and_no_other_does(
    tmp_path: Path, store: TokenStore
):
    path = tmp_path / "setup-token"
    tokens = made(store, setup_file=path)
    setup = await tokens.first_start()
    assert setup is not None
    await tokens.mint("laptop", "client", task_id="t")
    await tokens.mint("desk", "operator")
    assert await tokens.verify(setup) is not None
    assert path.exists()
    own = await tokens.mint("me", "admin")
    assert await tokens.verify(setup) is None
    assert not path.exists()
    assert await tokens.first_start() is None, "what was set up once is not set up again"
    other = await tokens.mint("other", "admin")
    assert await tokens.verify(own.token) is not None
    assert await tokens.verify(other.token) is not None


async def test_a_revoked_setup_token_takes_its_file_along(tmp_path: Path, store: TokenStore):
    path = tmp_path / "setup-token"
    tokens = made(store, setup_file=path)
    setup = await tokens.first_start()
    assert setup is not None
    assert await tokens.revoke(SETUP_ID)
    assert await tokens.verify(setup) is None
    assert not path.exists()


async def test_a_file_whose_token_was_ended_is_gone_after_the_next_start(
    tmp_path: Path, store: TokenStore
):
    path = tmp_path / "setup-token"
    tokens = made(store, setup_file=path)
    await tokens.first_start()
    await tokens.mint("laptop", "client", task_id="t")
    await store.remove(SETUP_ID)  # and then the process died
    assert await tokens.first_start() is None
    assert not path.exists()


async def test_without_any_token_left_the_next_start_sets_up_anew(
    tmp_path: Path, store: TokenStore
):
    tokens = made(store, setup_file=tmp_path / "setup-token")
    first = await tokens.first_start()
    await tokens.revoke(SETUP_ID)
    second = await tokens.first_start()
    assert second is not None
    assert second != first
    assert len(await store.records()) == 1


def test_a_short_key_makes_no_tokens():
    with pytest.raises(ValueError, match="at least 32"):
        Tokens(MemoryTokenStore(), b"short", FakeClock())


async def test_what_is_remembered_of_a_token_ends_with_it(certain_store: TokenStore):
    clock = FakeClock()
    tokens = made(certain_store, clock)
    short, kept = await tokens.mint("a", "viewer", ttl_seconds=60), await tokens.mint("b", "viewer")
    assert tokens.recall(short.token.encode()) is None
    for minted in (short, kept):
        assert tokens.recall(minted.token.encode()) is None
        assert await tokens.verify(minted.token) == tokens.recall(minted.token.encode()) is not None
    clock.jump(60)
    assert tokens.recall(short.token.encode()) is None
    assert await tokens.verify(short.token) is None
    assert tokens.recall(kept.token.encode()) is not None
    assert await tokens.revoke(kept.record.id)
    assert tokens.recall(kept.token.encode()) is None


async def test_nothing_is_remembered_of_a_token_that_is_nobodys(certain_store: TokenStore):
    tokens = made(certain_store)
    token = (await tokens.mint("n", "viewer")).token
    other = PREFIX + token.removeprefix(PREFIX)[::-1]
    for _ in range(2):
        assert await tokens.verify(other) is None
        assert tokens.recall(other.encode()) is None
    assert await certain_store.records() != ()


async def test_as_many_tokens_are_remembered_as_may_be_and_the_rest_is_asked_for_again(
    certain_store: TokenStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tokens_module, "MAX_KNOWN", 32)
    tokens = made(certain_store)
    minted = [(await tokens.mint(str(n), "viewer")).token for n in range(33)]
    for token in minted:
        assert await tokens.verify(token) is not None
    assert sum(tokens.recall(token.encode()) is not None for token in minted) <= 32
    assert tokens.recall(minted[-1].encode()) is not None
    assert await tokens.verify(minted[0]) is not None
