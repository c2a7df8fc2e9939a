"""Where secrets and their key are kept: private files, refused if they are not what they were."""

from __future__ import annotations

import asyncio
import base64
import os
import select
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from bascule.audit.ledger import MemoryLedger
from bascule.auth.key_text import KEY_BYTES
from bascule.control.envelope import OuterKey, new_key
from bascule.control.secret_keys import (
    KEY_NAME,
    VARIABLE,
    KeyFile,
    Keys,
    key_of_descriptor,
    key_of_environment,
)
from bascule.control.secret_store import FILE_NAME, SqliteSecretStore
from bascule.control.secrets import Secrets
from bascule.db.errors import StoreUnavailable
from bascule.db.private_files import KeyUnusable
from bascule.db.sqlite import APPLICATION_ID, plain_commit
from bascule.errors import SecretUnbound, SecretUnreadable
from bascule.model.secret_use import server_use
from tests.control.keeping_secrets import (
    BY,
    USE,
    VALUE,
    Files,
    House,
    contents,
    opened,
    server,
)
from tests.scale import scaled

ROOT = Path(__file__).resolve().parents[2]
KEY = bytes(range(KEY_BYTES))


@pytest.fixture
async def kept(tmp_path: Path) -> Path:
    """A data directory with a secret in its files."""
    async with opened(tmp_path) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])
    return tmp_path


@pytest.fixture
async def kept_there(tmp_path: Path, house: House) -> Path:
    """A data directory whose secret is wherever secrets are kept."""
    async with house.opened(tmp_path) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])
    return tmp_path


async def value(folder: Path, key: OuterKey | None = None, house: House | None = None) -> str:
    async with (house or Files()).opened(folder, key=key) as secrets:
        return await secrets.secret("token", USE)


# --- the key's file


@pytest.mark.requirement("security:secrets:store")
async def test_the_first_secret_makes_a_private_key_and_a_private_store(tmp_path: Path):
    folder = tmp_path / "data"
    async with opened(folder) as secrets:
        assert not (folder / KEY_NAME).exists()
        await secrets.set("token", VALUE, by=BY)
        for name in (FILE_NAME, KEY_NAME):
            assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len((folder / KEY_NAME).read_bytes()) == KEY_BYTES


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def replace_it(path: Path) -> None:
    path.write_bytes(os.urandom(KEY_BYTES))


def link_it(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


#: What happens to the key file, and what the refusal says besides its path.
SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "is missing"),
    "wrong": (replace_it, "is not the key"),
    "short": (shorten, "has 32 bytes"),
    "long": (lengthen, "has 32 bytes"),
    "readable by others": (lambda path: path.chmod(0o640), "run chmod 600"),
    "a passphrase": (lambda path: path.write_bytes(b"x" * KEY_BYTES), "openssl rand"),
    "a link": (link_it, "cannot be read"),
}


@pytest.mark.parametrize("case", SPOILT)
async def test_a_start_without_its_key_fails_names_the_file_and_changes_nothing(
    kept_there: Path, case: str, house: House
):
    spoil, words = SPOILT[case]
    spoil(kept_there / KEY_NAME)
    before = contents(kept_there)
    with pytest.raises(KeyUnusable) as caught:
        await value(kept_there, house=house)
    assert words in str(caught.value)
    assert str(kept_there / KEY_NAME) in str(caught.value)
    assert contents(kept_there) == before


async def test_a_bad_key_file_is_refused_before_there_is_a_secret(tmp_path: Path, house: House):
    (tmp_path / KEY_NAME).write_bytes(b"short")
    (tmp_path / KEY_NAME).chmod(0o600)
    with pytest.raises(KeyUnusable, match="has 32 bytes"):
        async with house.opened(tmp_path):
            pass


async def test_a_lost_key_is_no_matter_once_there_is_no_secret(kept_there: Path, house: House):
    async with house.opened(kept_there) as secrets:
        await secrets.remove("token", by=BY)
    (kept_there / KEY_NAME).unlink()
    async with house.opened(kept_there) as secrets:
        assert await secrets.set("token", "another-value", by=BY, bind=[USE]) == 2
        assert await secrets.secret("token", USE) == "another-value"


async def test_a_folder_that_everybody_may_write_to_is_refused(kept_there: Path, house: House):
    os.chmod(kept_there, 0o777)  # noqa: PTH101, S103 - the very thing that is refused
    with pytest.raises(KeyUnusable, match="everybody may write"):
        await value(kept_there, house=house)


def test_an_open_key_file_is_remarked_on(tmp_path: Path):
    file = KeyFile(tmp_path / KEY_NAME)
    assert file.remark() is None
    file.made()
    assert file.remark() is None
    file.path.chmod(0o644)
    assert f"chmod 600 {file.path}" in (file.remark() or "")


# --- keys that are given


@pytest.mark.parametrize(
    "text",
    [
        KEY.hex(),
        KEY.hex().upper(),
        base64.b64encode(KEY).decode(),
        base64.urlsafe_b64encode(b"\xff" * KEY_BYTES).decode(),
        base64.urlsafe_b64encode(KEY).decode().rstrip("="),
    ],
)
def test_a_key_in_the_environment_is_read_and_taken_out_of_it(text: str):
    environ = {VARIABLE: text, "PATH": "/bin"}
    key = key_of_environment(environ)
    assert key is not None
    assert key.raw in (KEY, b"\xff" * KEY_BYTES)
    assert environ == {"PATH": "/bin"}
    assert key_of_environment(environ) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "correct horse battery staple", "x" * KEY_BYTES, "x" * 43, "z" * 64),
        *(KEY.hex()[:-2], KEY.hex() + "00", base64.b64encode(KEY[:-1]).decode(), KEY.hex() + "\n"),
    ],
)
def test_anything_but_32_encoded_bytes_is_refused_and_not_repeated(text: str):
    environ = {VARIABLE: text}
    with pytest.raises(KeyUnusable) as caught:
        key_of_environment(environ)
    assert environ == {}
    assert VARIABLE in str(caught.value)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize("given", [KEY, KEY.hex().encode() + b"\n", base64.b64encode(KEY) + b"\n"])
def test_a_key_from_a_descriptor_is_read_and_the_descriptor_closed(given: bytes):
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(given)
    assert key_of_descriptor(reading).raw == KEY
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)


@pytest.mark.parametrize(
    "given", [b"", b"correct horse", b"x" * KEY_BYTES, KEY + b"\n", b"x" * 999]
)
def test_a_bad_key_from_a_descriptor_is_refused_and_not_repeated(given: bytes):
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(given)
    with pytest.raises(KeyUnusable) as caught:
        key_of_descriptor(reading)
    assert f"--secrets-key-fd {reading}: " in str(caught.value)
    assert not given or given.decode("latin-1") not in str(caught.value)


def test_a_descriptor_that_is_not_open_or_standard_is_refused():
    free = os.dup(0)
    os.close(free)
    with pytest.raises(KeyUnusable, match="Bad file descriptor"):
        key_of_descriptor(free)
    with pytest.raises(KeyUnusable, match="3 or more"):
        key_of_descriptor(0)
    os.fstat(0)
    with closing(select.epoll()) as loops:
        with pytest.raises(KeyUnusable, match="file or a pipe"):
            key_of_descriptor(loops.fileno())
        os.fstat(loops.fileno())


async def test_a_key_that_is_given_is_written_nowhere(tmp_path: Path, house: House):
    key = new_key()
    async with house.opened(tmp_path, key=key) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])
    assert await value(tmp_path, key, house=house) == VALUE
    assert not (tmp_path / KEY_NAME).exists()
    assert not any(key.raw in content for content in contents(tmp_path).values())
    with pytest.raises(KeyUnusable, match="is not the one of"):
        await value(tmp_path, new_key(), house=house)


# --- another key


@pytest.mark.parametrize("owned", [False, True], ids=["file", "given"])
async def test_a_new_key_opens_everything_and_the_old_one_nothing(
    tmp_path: Path, owned: bool, house: House
):
    old = new_key() if owned else None
    new = new_key() if owned else None
    async with house.opened(tmp_path, key=old) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])
        sealed = await column(tmp_path, "sealed", house)
        before = (tmp_path / KEY_NAME).read_bytes() if not owned else b""
        await secrets.rekey(new, by=BY)
        assert await secrets.secret("token", USE) == VALUE
        assert await column(tmp_path, "sealed", house) == sealed
    assert await value(tmp_path, new, house) == VALUE
    if owned:
        before = old.raw if old else b""
    else:
        assert (tmp_path / KEY_NAME).read_bytes() != before
    with pytest.raises(KeyUnusable):
        await value(tmp_path, OuterKey(before), house)
    assert not any(name.startswith(f"{KEY_NAME}.") for name in contents(tmp_path))


async def column(folder: Path, name: str, house: House | None = None) -> list[bytes]:
    query = f"SELECT {name} FROM {{secrets}}"  # noqa: S608 - a constant
    return [row[0] for row in await (house or Files()).say(folder, query)]


async def test_what_the_old_key_wrapped_is_in_no_file_any_more(kept: Path):
    [wrapped] = await column(kept, "wrapped")
    async with opened(kept) as secrets:
        await secrets.rekey(by=BY)
        assert not any(wrapped in content for content in contents(kept).values())


async def test_a_removed_secret_is_overwritten_in_its_file(kept: Path):
    [sealed] = await column(kept, "sealed")
    assert sealed in contents(kept)[FILE_NAME]
    async with opened(kept) as secrets:
        await secrets.remove("token", by=BY)
    assert not any(sealed in content for content in contents(kept).values())


async def test_processes_that_make_the_store_at_once_all_open_it(tmp_path: Path, house: House):
    async with AsyncExitStack() as stack:
        entering = [stack.enter_async_context(house.opened(tmp_path)) for _ in range(8)]
        for secrets in await asyncio.gather(*entering):
            assert await secrets.listing() == ()


async def test_a_key_of_ones_own_takes_the_place_of_the_file(kept_there: Path, house: House):
    key = new_key()
    async with house.opened(kept_there) as secrets:
        await secrets.rekey(key, by=BY)
        assert await secrets.secret("token", USE) == VALUE
    assert not (kept_there / KEY_NAME).exists()
    assert await value(kept_there, key, house=house) == VALUE


async def test_a_given_key_is_not_changed_for_one_in_a_file_unasked(tmp_path: Path, house: House):
    key = new_key()
    async with house.opened(tmp_path, key=key) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])
        with pytest.raises(KeyUnusable, match="--new-key-fd"):
            await secrets.rekey(by=BY)
    assert await value(tmp_path, key, house=house) == VALUE


async def test_a_process_goes_on_after_another_changed_the_key(kept: Path):
    async with opened(kept) as serving, opened(kept) as command_line:
        assert await serving.secret("token", USE) == VALUE
        await command_line.rekey(by=BY)
        assert await serving.secret("token", USE) == VALUE
        await serving.set("other", "another-value", by=BY)
        await serving.rekey(by=BY)
        assert await command_line.get("other", by=BY) == "another-value"
        await command_line.rekey(new_key(), by=BY)
        with pytest.raises(SecretUnreadable, match="is missing"):
            await serving.secret("token", USE)


async def test_a_change_of_keys_that_is_cut_off_anywhere_leaves_a_store_that_opens(tmp_path: Path):
    folder, images = tmp_path / "data", tmp_path / "images"

    def photograph(name: str) -> None:
        shutil.copytree(folder, images / f"{len(list(images.iterdir())):02} {name}")

    def commit(connection: sqlite3.Connection, /) -> None:
        photograph("before a commit")
        plain_commit(connection)
        photograph("after a commit")

    for path in (folder, images):
        path.mkdir(mode=0o700)
    store = await SqliteSecretStore(folder / FILE_NAME, commit=commit).open()
    try:
        keys = Keys(KeyFile(folder / KEY_NAME))
        secrets = Secrets(store, keys, note=MemoryLedger().note)
        await secrets.set("token", VALUE, by=BY, bind=[USE])
        shutil.rmtree(images)
        images.mkdir()
        await secrets.rekey(by=BY)
        await secrets.rekey(by=BY)
    finally:
        await store.close()
    taken = sorted(images.iterdir())
    assert len(taken) == 8
    assert any(len([*image.glob(f"{KEY_NAME}*")]) == 2 for image in taken)
    for image in taken:
        assert await value(image) == VALUE
        async with opened(image) as secrets:
            await secrets.set("other", VALUE, by=BY)
        assert [*image.glob(f"{KEY_NAME}.*")] == []


_REKEY = """
import asyncio, sys
from pathlib import Path
from tests.control.keeping_secrets import Files, Shared

async def main():
    async with eval(sys.argv[2]).opened(Path(sys.argv[1])) as secrets:
        while True:
            await secrets.rekey(by="x")
            print(flush=True)

asyncio.run(main())
"""


async def test_a_kill_while_keys_are_changed_loses_nothing(kept_there: Path, house: House):
    for number in range(scaled(30)):
        await asyncio.to_thread(kill_after, kept_there, 1 + number % 7, house)
        assert await value(kept_there, house=house) == VALUE


def kill_after(folder: Path, changes: int, house: House) -> None:
    """Let a process change the key again and again, and kill it while it does."""
    words = [sys.executable, "-c", _REKEY, str(folder), house.words()]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            for _ in range(changes):
                assert process.stdout.readline()
        finally:
            process.kill()
            process.wait(20)


# --- rows and files that are not what they were


async def test_a_binding_that_somebody_wrote_into_the_store_binds_nothing(
    kept_there: Path, house: House
):
    thief = server_use(server("github", host="thief.example.com"))
    await house.say(kept_there, "UPDATE {bindings} SET digest = ?", thief.digest)
    async with house.opened(kept_there) as secrets:
        for use in (USE, thief):
            with pytest.raises(SecretUnbound):
                await secrets.secret("token", use)
        await secrets.rekey(by=BY)
        with pytest.raises(SecretUnbound):
            await secrets.secret("token", thief)


SWAP = "UPDATE {secrets} SET wrapped = ?, sealed = ?"


async def test_a_row_of_another_store_does_not_open(kept_there: Path, tmp_path: Path, house: House):
    folder = tmp_path / "other"
    folder.mkdir(mode=0o700)
    shutil.copy(kept_there / KEY_NAME, folder / KEY_NAME)
    async with house.another() as other:
        async with other.opened(folder) as secrets:
            await secrets.set("token", "another-value", by=BY)
        [envelope] = await other.say(folder, "SELECT wrapped, sealed FROM {secrets}")
    await house.say(kept_there, SWAP, *envelope)
    with pytest.raises(SecretUnreadable, match="bascule secrets set token"):
        await value(kept_there, house=house)


async def test_a_row_of_another_name_does_not_open(kept_there: Path, house: House):
    async with house.opened(kept_there) as secrets:
        await secrets.set("other", "another-value", by=BY)
    query = "SELECT wrapped, sealed FROM {secrets} WHERE name = 'other'"
    [envelope] = await house.say(kept_there, query)
    await house.say(kept_there, f"{SWAP} WHERE name = 'token'", *envelope)
    with pytest.raises(SecretUnreadable, match="bascule secrets set token"):
        await value(kept_there, house=house)


async def test_a_row_from_before_the_key_was_changed_does_not_open(kept_there: Path, house: House):
    [wrapped] = await column(kept_there, "wrapped", house)
    async with house.opened(kept_there) as secrets:
        await secrets.rekey(by=BY)
    await house.say(kept_there, "UPDATE {secrets} SET wrapped = ?", wrapped)
    with pytest.raises(SecretUnreadable):
        await value(kept_there, house=house)
    await house.say(kept_there, "UPDATE {head} SET epoch = epoch - 1")
    with pytest.raises((SecretUnreadable, SecretUnbound)):
        await value(kept_there, house=house)


async def test_a_row_that_does_not_open_stops_a_change_of_keys_which_changes_nothing(
    kept_there: Path, house: House
):
    async with house.opened(kept_there) as secrets:
        await secrets.set("other", VALUE, by=BY)
    await house.say(kept_there, "UPDATE {secrets} SET wrapped = ? WHERE name = 'other'", b"\0")
    async with house.opened(kept_there) as secrets:
        with pytest.raises(SecretUnreadable, match="'other'"):
            await secrets.rekey(by=BY)
        assert await secrets.secret("token", USE) == VALUE
    assert await value(kept_there, house=house) == VALUE


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE theirs (a)")


def foreign_by_id(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA application_id = 7")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 99")


def garbage(path: Path) -> None:
    path.write_bytes(b"not a database, " * 512)


#: What stands in the store's place, and what the refusal says.
STRANGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "another program's tables": (foreign, "another program's"),
    "another program's id": (foreign_by_id, "another program's"),
    "a newer form": (newer, "newer"),
    "no database": (garbage, "not a database"),
}


@pytest.mark.parametrize("case", STRANGE)
async def test_a_foreign_damaged_or_newer_file_is_refused_and_not_touched(
    tmp_path: Path, case: str
):
    make, words = STRANGE[case]
    path = tmp_path / FILE_NAME
    make(path)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=words) as caught:
        await value(tmp_path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert [*contents(tmp_path)] == [FILE_NAME]


async def test_a_damaged_store_is_refused_and_not_touched(kept: Path):
    path = kept / FILE_NAME
    content = bytearray(path.read_bytes())
    content[4096 : 4096 + 200] = os.urandom(200)
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable, match=r"damaged|malformed"):
        await value(kept)
    assert path.read_bytes() == content
