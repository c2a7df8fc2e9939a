"""Tokens on disk: what is kept, for whom, and what another process sees of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from bascule.auth.server_key import KEY_NAME, VARIABLE
from bascule.auth.token_record import TokenKeys
from bascule.auth.token_store import (
    FILE_NAME,
    SEALED_NAME,
    SETUP_NAME,
    SqliteTokenStore,
    open_tokens,
)
from bascule.db.errors import StoreUnavailable
from bascule.db.private_files import KeyUnusable, write_private
from bascule.testing.clock import FakeClock
from tests.asgi.caller import KEY
from tests.control.keeping_secrets import contents


async def test_a_token_is_still_known_after_a_restart(tmp_path: Path):
    async with open_tokens(tmp_path) as tokens:
        minted = await tokens.mint("laptop", "client", task_id="reader")
    async with open_tokens(tmp_path) as tokens:
        principal = await tokens.verify(minted.token)
        assert principal is not None
        assert (principal.name, principal.role, principal.task_id) == ("laptop", "client", "reader")
        assert await tokens.records() == (minted.record,)


async def test_the_files_are_private_and_hold_no_token(tmp_path: Path):
    folder = tmp_path / "data"
    async with open_tokens(folder) as tokens:
        token = (await tokens.mint("ci", "viewer")).token
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in (FILE_NAME, KEY_NAME):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert not any(token.encode() in file.read_bytes() for file in folder.iterdir())


async def test_a_token_that_another_process_revoked_is_refused_at_its_next_use(tmp_path: Path):
    async with open_tokens(tmp_path) as server, open_tokens(tmp_path) as command_line:
        minted = await command_line.mint("laptop", "operator")
        assert await server.verify(minted.token) is not None
        assert await command_line.revoke(minted.record.id)
        assert await server.verify(minted.token) is None
        assert not await command_line.revoke(minted.record.id)


async def test_a_remembered_token_is_refused_once_another_process_revoked_it(tmp_path: Path):
    async with open_tokens(tmp_path) as server, open_tokens(tmp_path) as command_line:
        minted = await command_line.mint("laptop", "operator")
        for name in (FILE_NAME, f"{FILE_NAME}-wal"):
            os.utime(tmp_path / name, (1_700_000_000, 1_700_000_000))  # long since settled
        assert await server.verify(minted.token) is not None
        assert await server.verify(minted.token) is not None
        remembered = await server.records()
        assert await server.records() is remembered
        assert await command_line.revoke(minted.record.id)
        assert await server.verify(minted.token) is None
        assert minted.record.id not in {record.id for record in await server.records()}


async def test_a_token_expires_by_the_clock(tmp_path: Path):
    clock = FakeClock()
    async with open_tokens(tmp_path, clock=clock) as tokens:
        minted = await tokens.mint("ci", "viewer", ttl_seconds=60)
        assert await tokens.verify(minted.token) is not None
        clock.jump(61)
        assert await tokens.verify(minted.token) is None


@pytest.mark.requirement("security:server-key:other")
@pytest.mark.parametrize("lost", ["replaced", "missing", "older"])
async def test_a_key_that_is_not_the_tokens_is_found_out_at_the_start(tmp_path: Path, lost: str):
    async with open_tokens(tmp_path) as tokens:
        minted = await tokens.mint("ci", "viewer")
    key = (tmp_path / KEY_NAME).read_bytes()
    (tmp_path / KEY_NAME).unlink()
    if lost == "older":
        (tmp_path / SEALED_NAME).write_bytes(b"")  # it did not say which key it was
    if lost == "replaced":
        write_private(tmp_path / KEY_NAME, KEY)
    before = contents(tmp_path).keys()
    with pytest.raises(KeyUnusable, match=rf"{FILE_NAME}.*put it back.*{VARIABLE}"):
        async with open_tokens(tmp_path):
            pass
    assert contents(tmp_path).keys() == before, "and none is made instead"
    write_private(tmp_path / KEY_NAME, key)
    async with open_tokens(tmp_path) as tokens:
        assert await tokens.verify(minted.token) is not None


async def test_without_its_tokens_a_server_may_have_another_key(tmp_path: Path):
    async with open_tokens(tmp_path) as tokens:
        await tokens.mint("ci", "viewer")
    for name in (FILE_NAME, KEY_NAME):
        (tmp_path / name).unlink()
    for _ in range(2):
        async with open_tokens(tmp_path) as tokens:
            assert await tokens.records() == ()


async def test_a_key_that_is_given_is_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(VARIABLE, KEY.hex())
    for _ in range(2):
        async with open_tokens(tmp_path) as tokens:
            await tokens.mint("ci", "viewer")
    assert not any(KEY in content for content in contents(tmp_path).values())
    monkeypatch.setenv(VARIABLE, "00" * 32)
    with pytest.raises(KeyUnusable, match=FILE_NAME):
        async with open_tokens(tmp_path):
            pass


async def test_a_key_that_others_may_read_is_not_used(tmp_path: Path):
    async with open_tokens(tmp_path):
        pass
    (tmp_path / KEY_NAME).chmod(0o644)
    with pytest.raises(KeyUnusable):
        async with open_tokens(tmp_path):
            pass


async def test_the_setup_token_is_made_once(tmp_path: Path):
    async with open_tokens(tmp_path) as tokens:
        first = await tokens.first_start()
    async with open_tokens(tmp_path) as tokens:
        assert first is not None
        assert await tokens.first_start() is None
        assert (tmp_path / SETUP_NAME).read_text(encoding="utf-8").strip() == first


async def test_a_token_made_on_the_command_line_ends_the_setup_token_at_the_server(tmp_path: Path):
    async with open_tokens(tmp_path) as server, open_tokens(tmp_path) as command_line:
        setup = await server.first_start()
        assert setup is not None
        assert await server.verify(setup) is not None
        await command_line.mint("me", "admin")
        assert await server.verify(setup) is None
    assert not (tmp_path / SETUP_NAME).exists()


async def test_a_damaged_file_is_refused_with_its_name(tmp_path: Path):
    (tmp_path / FILE_NAME).write_bytes(b"not a database" * 100)
    with pytest.raises(StoreUnavailable, match=FILE_NAME):
        await SqliteTokenStore(tmp_path / FILE_NAME, TokenKeys(KEY)).open()


async def test_a_folder_that_everybody_may_write_to_is_refused(tmp_path: Path):
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o1777)
    with pytest.raises(KeyUnusable, match="everybody may write"):
        async with open_tokens(folder):
            pass
    async with open_tokens(folder / "inside"):
        assert [file.name for file in folder.iterdir()] == ["inside"]
