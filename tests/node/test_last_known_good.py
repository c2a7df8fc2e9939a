"""What a node keeps on its disk: written with care, opened by nobody else, never half taken."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bascule import Server
from bascule.auth.token_record import TokenRecord
from bascule.model.kinds import CLASSES, KINDS, Kind, record_key
from bascule.model.snapshot import Snapshot, SnapshotChange
from bascule.node.sync.last_known_good import (
    CONFIRM_SECONDS,
    FAILED_SECONDS,
    FILE_NAME,
    Knowledge,
    LastKnownGood,
    SetAside,
)
from bascule.testing.clock import FakeClock
from bascule.wire.records import decode
from tests.laws import record_strategies as records
from tests.scale import scaled
from tests.waits import until

TOKEN = "bsc_" + "n" * 43
DAY = 86_400.0
LITERAL = "a literal value that only the seal keeps"
NOTES = Server.stdio("notes", "notes", env={"KEY": LITERAL})
CLIENT = TokenRecord(
    id="tok-1",
    name="agent",
    role="client",
    task_id="writing",
    created_at=1.0,
    expires_at=None,
    digest=b"d" * 32,
    tasks=("a",),
)
KNOWN = Knowledge(
    snapshot=Snapshot(store_id="a", revision=9, mark="m9", servers={"notes": NOTES}),
    tokens=(CLIENT,),
    keys={"token-digest": b"k" * 32, "cursor": b"c" * 32},
    confirmed_at=1_800_000_000.0,
)


def file_in(folder: Path, node: str = "east", token: str = TOKEN) -> LastKnownGood:
    return LastKnownGood(folder / FILE_NAME, node, token)


async def kept(folder: Path, knowledge: Knowledge = KNOWN) -> Path:
    file = file_in(folder)
    file.keep(knowledge)
    await file.close()
    return folder / FILE_NAME


@asynccontextmanager
async def keeping(
    folder: Path, clock: FakeClock
) -> AsyncGenerator[tuple[LastKnownGood, Callable[[], int]], None]:
    """Yield a file, and what says which revision is on the disk."""
    file = LastKnownGood(folder / FILE_NAME, "east", TOKEN, clock=clock)

    def revision() -> int:
        found = file_in(folder).load()
        return found.snapshot.revision if isinstance(found, Knowledge) else 0

    try:
        yield file, revision
    finally:
        await file.close()


def at(revision: int) -> Knowledge:
    return replace(KNOWN, snapshot=replace(KNOWN.snapshot, revision=revision))


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


# --- what is kept


async def test_what_is_kept_is_loaded_and_only_its_owner_may_read_it(tmp_path: Path):
    path = await kept(tmp_path / "data")
    assert file_in(tmp_path / "data").load() == KNOWN
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(path.parent) == [FILE_NAME]


def test_a_node_that_kept_nothing_knows_nothing(tmp_path: Path):
    assert file_in(tmp_path).load() is None
    assert file_in(tmp_path / "not" / "there").load() is None


_OF_KIND: dict[Kind, st.SearchStrategy[records.Plain]] = {
    "server": records.SERVERS | records.REMOTES,
    "task": records.TASKS,
    "profile": records.PROFILES,
    "platform": records.PLATFORMS,
    "backend": records.BACKENDS,
    "user": records.USERS,
}


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    found = {}
    for kind in KINDS:
        for plain in draw(st.lists(_OF_KIND[kind], max_size=1)):
            record = decode(CLASSES[kind], plain)[0]
            found[kind, record_key(kind, record)] = record
    place = draw(st.tuples(st.text(max_size=8), st.integers(0, 2**60), st.text(max_size=8)))
    change = SnapshotChange(place[0], place[1], found, place[2])
    return Snapshot(store_id=place[0], predecessor=draw(st.text(max_size=4))).after(change)


tokens = st.builds(
    TokenRecord,
    id=st.text(max_size=5),
    name=st.text(max_size=5),
    role=st.sampled_from(["client", "viewer"]),
    task_id=st.none() | st.text(max_size=5),
    person=st.none() | st.text(max_size=5),
    created_at=st.floats(0, 1e10),
    expires_at=st.none() | st.floats(0, 1e10),
    digest=st.binary(max_size=32),
    acts_for_users=st.booleans(),
    tasks=st.none() | st.lists(st.text(max_size=3)).map(tuple),
    grants=st.none(),
)
known_things = st.builds(
    Knowledge,
    snapshot=snapshots(),
    tokens=st.lists(tokens, max_size=3).map(tuple),
    keys=st.dictionaries(st.sampled_from(["token-digest", "cursor"]), st.binary(max_size=32)),
    confirmed_at=st.floats(0, 1e10),
)


@settings(max_examples=scaled(500), deadline=None)
@given(known_things)
def test_whatever_is_kept_is_loaded_the_same(knowledge: Knowledge):
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(kept(Path(folder), knowledge))
        assert file_in(Path(folder)).load() == knowledge


@pytest.mark.requirement("sync:persisted:sealed")
@settings(max_examples=scaled(2_000), deadline=None)
@given(st.data())
def test_a_file_with_any_byte_changed_is_refused(data: st.DataObject):
    with tempfile.TemporaryDirectory() as folder:
        path = asyncio.run(kept(Path(folder)))
        content = bytearray(path.read_bytes())
        index = data.draw(st.integers(0, len(content) - 1))
        content[index] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        found = file_in(Path(folder)).load()
        assert isinstance(found, SetAside)
        assert found.path.read_bytes() == content
        assert not path.exists()


# --- what is not taken


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def newer(path: Path) -> None:
    line, _, rest = path.read_bytes().partition(b"\n")
    head = {**json.loads(line), "format": 2, "more": [1]}
    path.write_bytes(json.dumps(head).encode() + b"\n" + rest)


def pointing(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def not_text(path: Path) -> None:
    path.write_bytes(b'{"format":1,"node":"\xff\xfe"}\n')


def no_file(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.requirement("sync:persisted:set-aside")
@pytest.mark.parametrize("spoil", [cut, newer, pointing, empty, not_text, no_file, pipe])
async def test_a_file_that_cannot_be_taken_is_set_aside_and_named(
    spoil: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = await kept(tmp_path)
    spoil(path)
    with caplog.at_level(logging.WARNING, "bascule.sync"):
        found = file_in(tmp_path).load()
    assert isinstance(found, SetAside)
    assert found.path == tmp_path / (FILE_NAME + ".set-aside")
    assert found.path.name in names(tmp_path)
    assert str(found.path) in caplog.text
    assert found.reason in caplog.text
    assert file_in(tmp_path).load() is None, "it is found once"


async def test_a_newer_file_is_called_newer(tmp_path: Path):
    newer(await kept(tmp_path))
    found = file_in(tmp_path).load()
    assert isinstance(found, SetAside)
    assert found.reason == "it has format 2, of a newer Bascule; this one knows 1"


@pytest.mark.requirement("sync:persisted:set-aside")
@pytest.mark.requirement("sync:persisted:sealed")
async def test_another_node_or_another_token_does_not_open_it(tmp_path: Path):
    await kept(tmp_path)
    found = file_in(tmp_path, node="west").load()
    assert isinstance(found, SetAside)
    assert found.reason == "it is of node 'east', and this is 'west'"
    await kept(tmp_path)
    found = file_in(tmp_path, token="bsc_" + "m" * 43).load()
    assert isinstance(found, SetAside)
    assert "does not open" in found.reason


async def test_a_line_of_another_file_does_not_fit_what_is_sealed(tmp_path: Path):
    path = await kept(tmp_path)
    line, _, sealed = path.read_bytes().partition(b"\n")
    later = json.dumps({**json.loads(line), "revision": 99}, separators=(",", ":"))
    path.write_bytes(later.encode() + b"\n" + sealed)
    assert isinstance(file_in(tmp_path).load(), SetAside)


async def test_two_files_of_the_same_have_nothing_in_common_that_is_sealed(tmp_path: Path):
    first, second = await kept(tmp_path / "a"), await kept(tmp_path / "b")
    lines = [path.read_bytes().partition(b"\n") for path in (first, second)]
    salts = [json.loads(line)["salt"] for line, _, _ in lines]
    assert salts[0] != salts[1]
    assert lines[0][2] != lines[1][2]


@pytest.mark.requirement("sync:persisted:sealed")
async def test_nothing_but_the_place_can_be_read_without_the_token(tmp_path: Path):
    path = await kept(tmp_path)
    content = path.read_bytes()
    for hidden in (LITERAL, "notes", "tok-1", "writing", TOKEN):
        assert hidden.encode() not in content
    head = json.loads(content.partition(b"\n")[0])
    assert head.pop("salt")
    assert head == {"format": 1, "node": "east", "store_id": "a", "revision": 9, "mark": "m9"}


async def test_what_killed_writers_left_is_swept_at_the_next_write(tmp_path: Path):
    (tmp_path / f".{FILE_NAME}.0a1b2c3d").write_bytes(b"half")
    (tmp_path / "other").write_bytes(b"")
    await kept(tmp_path)
    assert sorted(names(tmp_path)) == [FILE_NAME, "other"]


# --- when it is written


async def test_it_is_written_at_most_once_a_second_and_the_newest_counts(tmp_path: Path):
    clock = FakeClock()
    async with keeping(tmp_path, clock) as (file, revision):
        file.keep(at(1))
        await until(lambda: revision() == 1)
        for number in range(2, 6):
            file.keep(at(number))
        await clock.asleep()
        await clock.advance(0.9)
        assert revision() == 1
        await clock.advance(0.1)
        await until(lambda: revision() == 5)


async def test_what_waits_is_written_at_the_end(tmp_path: Path):
    async with keeping(tmp_path, FakeClock()) as (file, revision):
        file.keep(at(1))
        await until(lambda: revision() == 1)
        file.keep(at(2))
    assert revision() == 2


async def test_that_nothing_changed_is_written_now_and_then(tmp_path: Path):
    clock = FakeClock()

    def confirmed() -> float:
        found = file_in(tmp_path).load()
        return found.confirmed_at if isinstance(found, Knowledge) else 0.0

    async with keeping(tmp_path, clock) as (file, _):
        file.keep(replace(KNOWN, confirmed_at=1.0))
        await until(lambda: confirmed() == 1.0)
        file.keep(replace(KNOWN, confirmed_at=2.0))
        await clock.asleep()
        await clock.advance(CONFIRM_SECONDS / 2)
        assert confirmed() == 1.0
        file.keep(replace(KNOWN, confirmed_at=3.0))
        await clock.advance(CONFIRM_SECONDS / 2)
        await until(lambda: confirmed() == 3.0)
        file.keep(replace(KNOWN, confirmed_at=4.0))
    assert confirmed() == 4.0


async def test_a_disk_that_takes_nothing_is_said_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    clock, folder = FakeClock(), tmp_path / "data"
    folder.write_bytes(b"not a folder")
    async with keeping(folder, clock) as (file, revision):
        file.keep(at(1))
        await until(lambda: file.problem)
        await clock.asleep()
        await clock.advance(FAILED_SECONDS)
        await clock.asleep()
        folder.unlink()
        await clock.advance(FAILED_SECONDS)
        await until(lambda: revision() == 1)
        await until(lambda: file.problem is None)
    assert caplog.text.count("cannot be written") == 1


# --- how long it counts


def test_knowledge_is_stale_from_its_limit_on():
    confirmed = KNOWN.confirmed_at
    assert not KNOWN.is_stale(confirmed, DAY)
    assert not KNOWN.is_stale(confirmed + DAY - 1, DAY)
    assert KNOWN.is_stale(confirmed + DAY, DAY)


def test_knowledge_from_the_future_is_trusted_no_longer_than_the_past():
    assert not KNOWN.is_stale(KNOWN.confirmed_at - 60, DAY)
    assert KNOWN.is_stale(KNOWN.confirmed_at - DAY, DAY)


def test_up_does_without_it():
    script = (
        "import sys, bascule.cli.main, bascule.cli.up, bascule.app.up;"
        "assert 'bascule.node.sync.follower' in sys.modules;"
        "assert 'bascule.node.sync.last_known_good' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
