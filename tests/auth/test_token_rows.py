"""Rows of tokens: sealed, so that whoever edits the file makes no administrator."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from bascule.auth.keys import hkdf_sha256
from bascule.auth.links import make_link
from bascule.auth.memory_token_store import MemoryTokenStore
from bascule.auth.server_key import KEY_NAME, server_key
from bascule.auth.token_record import TokenKeys, TokenRecord
from bascule.auth.token_request import TokenRequest
from bascule.auth.token_store import FILE_NAME, SEALED_NAME, SqliteTokenStore, open_tokens
from bascule.auth.tokens import Tokens
from bascule.db.errors import StoreUnavailable
from bascule.db.sqlite import APPLICATION_ID
from bascule.model.role import ROLES
from bascule.testing.clock import FakeClock
from tests.asgi.caller import KEY

pytestmark = pytest.mark.requirement("security:tokens:sealed")

FORM_1 = f"""
    CREATE TABLE tokens (
        place INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL, role TEXT NOT NULL, task_id TEXT,
        created_at REAL NOT NULL, expires_at REAL
    ) STRICT;
    PRAGMA user_version = 1;
    PRAGMA application_id = {APPLICATION_ID};
"""
#: What forms 3 and 4 added.
FORM_4_COLUMNS = ("grants", "process")
NEW_COLUMNS = ("acts_for_users", "made_by", "tasks", *FORM_4_COLUMNS)
OLD_TOKEN = "bsc_" + "o" * 43
INSERT = (
    "INSERT INTO tokens (digest, id, name, role, task_id, created_at) VALUES (?, ?, ?, ?, ?, 1)"
)


def execute(folder: Path, statement: str, values: Sequence[object] = ()) -> None:
    """Do what somebody with an editor for SQLite could do to the file."""
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        connection.execute(statement, values)


def form_1(folder: Path) -> None:
    """Write the file that the version before this one left, with one token."""
    key = server_key(folder / KEY_NAME)
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        connection.executescript(FORM_1)
        digest = hmac.digest(key, OLD_TOKEN.encode(), hashlib.sha256)
        connection.execute(INSERT, (digest, "tok-old", "old", "client", "t"))


FORM_2 = f"""
    CREATE TABLE tokens (
        place INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL, role TEXT NOT NULL, task_id TEXT,
        created_at REAL NOT NULL, expires_at REAL
    ) STRICT;
    ALTER TABLE tokens ADD COLUMN person TEXT;
    ALTER TABLE tokens ADD COLUMN seal BLOB NOT NULL DEFAULT x'';
    PRAGMA user_version = 2;
    PRAGMA application_id = {APPLICATION_ID};
"""


def form_2_seal(key: bytes, role: str, token_id: str, digest: bytes) -> bytes:
    """Seal a row as form 2 did, in its own words: JSON of eight values, floats and bytes in hex."""
    plain = [token_id, "old", role, None, None, (1.0).hex(), None, digest.hex()]
    sealing = hkdf_sha256(key, info=b"bascule/token-row")
    return hmac.digest(sealing, json.dumps(plain, separators=(",", ":")).encode(), hashlib.sha256)


def form_2(folder: Path, *, edit: str = "") -> dict[str, str]:
    """Write a file of form 2 with two tokens, one of which is edited; return them by id."""
    key, made = server_key(folder / KEY_NAME), {"tok-a": "a", "tok-b": "b"}
    tokens = {token_id: f"bsc_{letter * 43}" for token_id, letter in made.items()}
    keys = TokenKeys(key)
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        connection.executescript(FORM_2)
        for token_id, token in tokens.items():
            digest = keys.digest(token)
            seal = form_2_seal(key, "viewer", token_id, digest)
            connection.execute(
                "INSERT INTO tokens (digest, id, name, role, created_at, seal) "
                "VALUES (?, ?, 'old', 'viewer', 1, ?)",
                (digest, token_id, seal),
            )
        if edit:
            connection.execute(f"{edit} WHERE id = 'tok-b'")
    (folder / SEALED_NAME).touch()
    return tokens


async def role_of(tokens: Tokens, token: str) -> str | None:
    principal = await tokens.verify(token)
    return None if principal is None else principal.role


async def test_a_file_of_the_older_form_is_backed_up_and_its_tokens_go_on(tmp_path: Path):
    form_1(tmp_path)
    async with open_tokens(tmp_path) as tokens:
        assert await role_of(tokens, OLD_TOKEN) == "client"
        assert [(one.id, one.state) for one in await tokens.listing()] == [("tok-old", "valid")]
    copy = tmp_path / f"{FILE_NAME}.form-1"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT id FROM tokens").fetchall() == [("tok-old",)]


async def test_a_file_of_form_2_keeps_its_tokens_and_seals_what_is_new(tmp_path: Path):
    made = form_2(tmp_path)
    async with open_tokens(tmp_path) as tokens:
        assert [await role_of(tokens, token) for token in made.values()] == ["viewer"] * 2
        assert [one.state for one in await tokens.listing()] == ["valid"] * 2
        execute(tmp_path, """UPDATE tokens SET tasks = '["t"]' WHERE id = 'tok-a'""")
        assert [one.state for one in await tokens.listing()] == ["altered", "valid"]
    assert (tmp_path / f"{FILE_NAME}.form-2").exists()


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE tokens SET role = 'admin'",
        "UPDATE tokens SET person = 'boss'",
        "UPDATE tokens SET seal = x''",
        "UPDATE tokens SET seal = (SELECT seal FROM tokens WHERE id = 'tok-a')",
    ],
)
async def test_a_row_of_form_2_that_was_edited_stays_altered(tmp_path: Path, edit: str):
    made = form_2(tmp_path, edit=edit)
    async with open_tokens(tmp_path) as tokens:
        assert await role_of(tokens, made["tok-a"]) == "viewer"
        assert await tokens.verify(made["tok-b"]) is None
        states = {one.id: one.state for one in await tokens.listing()}
        assert states == {"tok-a": "valid", "tok-b": "altered"}
    async with open_tokens(tmp_path) as tokens:
        assert await tokens.verify(made["tok-b"]) is None, "a second start mends nothing"


async def test_a_row_is_not_stripped_of_its_limits_by_calling_the_file_form_2(tmp_path: Path):
    async with open_tokens(tmp_path) as tokens:
        token = (await tokens.mint("v", "viewer", tasks=["one"])).token
    for column in NEW_COLUMNS:
        execute(tmp_path, f"ALTER TABLE tokens DROP COLUMN {column}")
    execute(tmp_path, "PRAGMA user_version = 2")
    async with open_tokens(tmp_path) as tokens:
        assert await tokens.verify(token) is None
        assert [one.state for one in await tokens.listing()] == ["altered"]


async def test_a_file_of_form_3_keeps_its_tokens_as_they_are_sealed(tmp_path: Path):
    async with open_tokens(tmp_path) as tokens:
        token = (await tokens.mint("v", "viewer", tasks=["one"])).token
        before = await tokens.records()
    for column in FORM_4_COLUMNS:
        execute(tmp_path, f"ALTER TABLE tokens DROP COLUMN {column}")
    execute(tmp_path, "PRAGMA user_version = 3")
    async with open_tokens(tmp_path) as tokens:
        assert await role_of(tokens, token) == "viewer"
        assert await tokens.records() == before


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE tokens SET grants = 'admin' WHERE grants = 'viewer'",
        "UPDATE tokens SET role = 'viewer', grants = NULL WHERE grants = 'viewer'",
        "UPDATE tokens SET process = NULL",
    ],
)
async def test_no_edit_makes_more_of_a_link_or_a_page(tmp_path: Path, edit: str):
    viewer = TokenRequest(name="wall", role="viewer")
    async with open_tokens(tmp_path) as tokens:
        link = (await make_link(tokens, viewer, by="test")).token
        page = (await tokens.keep(replace(viewer, process=tokens.process), by="test")).token
        assert await role_of(tokens, page) == "viewer"
        execute(tmp_path, edit)
        roles = [await role_of(tokens, token) for token in (link, page)]
        codes = [await tokens.look_up(token) for token in (link, page)]
    altered = codes.index(None)
    assert (roles[altered], codes[altered]) == (None, None)


async def test_an_old_token_is_kept_under_its_new_digest_at_its_next_use(tmp_path: Path):
    form_1(tmp_path)
    async with open_tokens(tmp_path) as tokens:
        [before] = await tokens.records()
        assert await role_of(tokens, OLD_TOKEN) == "client"
        [after] = await tokens.records()
        keys = TokenKeys(server_key(tmp_path / KEY_NAME))
        assert before.digest == keys.old_digest(OLD_TOKEN)
        assert after == keys.sealed(replace(before, digest=keys.digest(OLD_TOKEN)))
        assert await role_of(tokens, OLD_TOKEN) == "client"
        assert await tokens.records() == (after,), "it is written once"


async def test_two_processes_that_keep_an_old_token_anew_do_no_harm(tmp_path: Path):
    form_1(tmp_path)
    async with open_tokens(tmp_path) as one, open_tokens(tmp_path) as other:
        asked = [role_of(tokens, OLD_TOKEN) for tokens in (one, other) * 5]
        assert await asyncio.gather(*asked) == ["client"] * 10
        assert len(await one.records()) == 1


async def test_two_processes_that_find_the_older_form_bring_it_forward_once(tmp_path: Path):
    form_1(tmp_path)
    keys = TokenKeys(server_key(tmp_path / KEY_NAME))
    stores = [SqliteTokenStore(tmp_path / FILE_NAME, keys) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    try:
        for store in stores:
            [record] = await store.records()
            assert keys.fits(record)
    finally:
        for store in stores:
            await store.close()


class Slow(MemoryTokenStore):
    """A store in which something happens before an old token is kept anew."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile = self.nothing

    async def nothing(self) -> None:
        pass

    async def replace(self, old: TokenRecord, new: TokenRecord) -> bool:
        await self.meanwhile()
        return await super().replace(old, new)


async def old_in_memory() -> tuple[Slow, TokenRecord]:
    keys, store = TokenKeys(KEY), Slow()
    record = TokenRecord(
        id="tok-old",
        name="old",
        role="viewer",
        task_id=None,
        created_at=1.0,
        expires_at=None,
        digest=keys.old_digest(OLD_TOKEN),
    )
    await store.add(keys.sealed(record))
    return store, record


async def test_an_old_token_that_is_revoked_while_it_is_kept_anew_stays_revoked():
    store, record = await old_in_memory()
    tokens = Tokens(store, KEY, FakeClock())

    async def revoke() -> None:
        await store.remove(record.id)

    store.meanwhile = revoke
    assert await tokens.verify(OLD_TOKEN) is None
    assert await store.records() == ()


async def test_an_old_token_counts_also_when_it_cannot_be_kept_anew():
    store, _ = await old_in_memory()
    tokens = Tokens(store, KEY, FakeClock())

    async def fail() -> None:
        raise StoreUnavailable("the disk is full")

    store.meanwhile = fail
    assert await role_of(tokens, OLD_TOKEN) == "viewer"
    store.meanwhile = store.nothing
    assert await role_of(Tokens(store, KEY, FakeClock()), OLD_TOKEN) == "viewer"
    [record] = await store.records()
    assert record.digest == TokenKeys(KEY).digest(OLD_TOKEN)


EDITS = {
    "another role": "UPDATE tokens SET role = 'admin'",
    "another task": "UPDATE tokens SET task_id = 'payroll'",
    "another name": "UPDATE tokens SET name = 'boss'",
    "another person": "UPDATE tokens SET person = 'boss'",
    "everybody's word": "UPDATE tokens SET acts_for_users = 1",
    "a word that is none": "UPDATE tokens SET acts_for_users = 2",
    "another maker": "UPDATE tokens SET made_by = 'boss'",
    "a limit": "UPDATE tokens SET tasks = '[]'",
    "a limit that is none": "UPDATE tokens SET tasks = '{'",
    "another id": "UPDATE tokens SET id = 'tok-other'",
    "a later end": "UPDATE tokens SET expires_at = expires_at + 1",
    "no end": "UPDATE tokens SET expires_at = NULL",
    "an end beyond all": "UPDATE tokens SET expires_at = 9e999",
    "another beginning": "UPDATE tokens SET created_at = 5",
    "no seal": "UPDATE tokens SET seal = x''",
    "a seal of its own": "UPDATE tokens SET seal = randomblob(32)",
}


@pytest.mark.parametrize("edit", EDITS)
async def test_an_edited_row_is_nobodys_token_and_is_said_to_be_altered(
    tmp_path: Path, edit: str, caplog: pytest.LogCaptureFixture
):
    async with open_tokens(tmp_path) as tokens:
        token = (await tokens.mint("n", "client", task_id="t", ttl_seconds=3600)).token
        assert await role_of(tokens, token) == "client"
        execute(tmp_path, EDITS[edit])
        with caplog.at_level(logging.WARNING):
            assert await tokens.verify(token) is None
            assert await tokens.verify(token) is None
            assert [one.state for one in await tokens.listing()] == ["altered"]
            assert await tokens.unaltered() == ()
    assert len(caplog.records) == 1
    assert "somebody edited" in caplog.text
    assert token not in caplog.text


async def test_digests_that_were_swapped_between_two_rows_open_nothing(tmp_path: Path):
    async with open_tokens(tmp_path) as tokens:
        admin, client = await tokens.mint("a", "admin"), await tokens.mint("v", "viewer")
        swaps = [(b"", admin), (admin.record.digest, client), (client.record.digest, admin)]
        for digest, row in swaps:
            execute(tmp_path, "UPDATE tokens SET digest = ? WHERE id = ?", (digest, row.record.id))
        assert await tokens.verify(admin.token) is None
        assert await tokens.verify(client.token) is None


async def test_a_row_that_was_inserted_or_copied_opens_nothing(tmp_path: Path):
    async with open_tokens(tmp_path) as tokens:
        mine = await tokens.mint("v", "viewer")
        execute(
            tmp_path,
            "INSERT INTO tokens (digest, id, name, role, created_at, seal) "
            "SELECT randomblob(32), 'tok-new', name, 'admin', created_at, seal FROM tokens",
        )
        assert [one.state for one in await tokens.listing()] == ["valid", "altered"]
        assert await role_of(tokens, mine.token) == "viewer"
        assert [record.id for record in await tokens.unaltered()] == [mine.record.id]


async def test_an_altered_row_can_be_revoked(tmp_path: Path):
    async with open_tokens(tmp_path) as tokens:
        minted = await tokens.mint("v", "viewer")
        execute(tmp_path, EDITS["another role"])
        assert await tokens.revoke(minted.record.id)
        assert await tokens.listing() == ()


@pytest.mark.parametrize("table", ["strict", "loose"])
async def test_a_file_that_says_it_is_an_old_one_gets_no_seals(tmp_path: Path, table: str):
    """Whoever can edit the file can also say that it has its older form."""
    async with open_tokens(tmp_path) as tokens:
        token = (await tokens.mint("v", "viewer")).token
    if table == "loose":
        for column in ("seal", "person", *NEW_COLUMNS):
            execute(tmp_path, f"ALTER TABLE tokens DROP COLUMN {column}")
    execute(tmp_path, "UPDATE tokens SET role = 'admin'")
    execute(tmp_path, "PRAGMA user_version = 1")
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(StoreUnavailable, match=rf"form 1 instead of 4.*remove .*{SEALED_NAME}"):
        async with open_tokens(tmp_path) as tokens:
            await tokens.verify(token)
    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert not (tmp_path / f"{FILE_NAME}.form-1").exists()


async def test_an_old_copy_is_taken_once_its_owner_says_so(tmp_path: Path):
    async with open_tokens(tmp_path):
        pass
    (tmp_path / FILE_NAME).unlink()
    form_1(tmp_path)
    with pytest.raises(StoreUnavailable, match="put back a newer copy"):
        async with open_tokens(tmp_path):
            pass
    (tmp_path / SEALED_NAME).unlink()
    async with open_tokens(tmp_path) as tokens:
        assert await role_of(tokens, OLD_TOKEN) == "client"
    assert (tmp_path / SEALED_NAME).exists()


async def test_odd_values_in_a_row_are_altered_and_no_accident(tmp_path: Path):
    """An editor may even make another table, whose columns take anything."""
    async with open_tokens(tmp_path) as tokens:
        token = (await tokens.mint("v", "viewer", ttl_seconds=60)).token
        execute(tmp_path, "CREATE TABLE loose AS SELECT * FROM tokens")
        execute(tmp_path, "DROP TABLE tokens")
        execute(tmp_path, "ALTER TABLE loose RENAME TO tokens")
        odd = ("tasks = 7", "tasks = x'5b5d'", "acts_for_users = 'yes'", "seal = NULL", "role = 7")
        for edit in (*odd, "expires_at = 'never'", "created_at = x'00'", "seal = 'x'"):
            execute(tmp_path, f"UPDATE tokens SET {edit}")  # noqa: S608 - as above
            assert await tokens.verify(token) is None
            assert [one.state for one in await tokens.listing()] == ["altered"]


async def test_under_another_key_nothing_counts_also_where_no_start_finds_it_out(tmp_path: Path):
    async with open_tokens(tmp_path) as tokens:
        token = (await tokens.mint("v", "viewer")).token
    (tmp_path / SEALED_NAME).write_bytes(b"")  # as an older version left it
    store = await SqliteTokenStore(tmp_path / FILE_NAME, TokenKeys(KEY)).open()
    try:
        others = Tokens(store, KEY, FakeClock())
        assert await others.verify(token) is None
        assert [one.state for one in await others.listing()] == ["altered"]
    finally:
        await store.close()


TEXTS = st.text(max_size=6)
TIMES = st.floats(allow_nan=False) | st.integers(-5, 5).map(float)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": TEXTS,
    "name": TEXTS,
    "role": st.sampled_from(ROLES),
    "task_id": st.none() | TEXTS,
    "person": st.none() | TEXTS,
    "created_at": TIMES,
    "expires_at": st.none() | TIMES,
    "digest": st.binary(max_size=4),
    "acts_for_users": st.booleans(),
    "made_by": st.none() | TEXTS,
    "tasks": st.none() | st.lists(TEXTS, max_size=3).map(tuple),
    "grants": st.none() | st.sampled_from([*ROLES, "confirm"]),
    "process": st.none() | TEXTS,
}


@given(data=st.data())
def test_no_field_of_a_sealed_record_can_be_another(data: st.DataObject):
    keys = TokenKeys(KEY)
    record = keys.sealed(TokenRecord(**{name: data.draw(field) for name, field in FIELDS.items()}))
    assert keys.fits(record)
    field = data.draw(st.sampled_from(sorted(FIELDS)))
    value = data.draw(FIELDS[field])
    assume(repr(value) != repr(getattr(record, field)))
    assert not keys.fits(replace(record, **{field: value}))


@given(data=st.data())
def test_no_two_records_have_the_same_seal(data: st.DataObject):
    keys = TokenKeys(KEY)
    one, other = (
        keys.sealed(TokenRecord(**{name: data.draw(field) for name, field in FIELDS.items()}))
        for _ in range(2)
    )
    assume(repr(one) != repr(other))
    assert one.seal != other.seal
    assert not keys.fits(replace(one, seal=other.seal))
