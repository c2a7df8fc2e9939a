"""Temporary folders of processes that were killed are swept; those of the living are not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bascule.node.leftovers import OWNER_FILE, OwnedFolder, owned_folder, sweep
from bascule.node.pool.launch import PrivateHomes

OWNER = """
import sys
from bascule.node.leftovers import OwnedFolder
folder = OwnedFolder()
(folder.path / "home").mkdir()
(folder.path / "home" / "kept").mkdir(mode=0o500)
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    monkeypatch.setattr(tempfile, "tempdir", None)


def owner() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.requirement("process:leftovers")
def test_the_folder_of_a_killed_process_is_swept_and_that_of_a_living_one_is_kept():
    killed, left = owner()
    living, kept = owner()
    with killed, living:
        assert sweep() == []
        killed.kill()
        killed.wait(10)
        assert sweep() == [left]
        assert (left.exists(), kept.exists()) == (False, True)
        living.kill()
        living.wait(10)
        assert sweep() == [kept]


def test_what_others_keep_under_a_like_name_is_left_alone(place: Path):
    (place / "bascule-mine").mkdir()
    (place / "bascule-mine" / "thesis").touch()
    (place / "bascule-file").touch()
    outside = place / "other"
    outside.mkdir()
    (outside / OWNER_FILE).touch()
    (place / "bascule-link").symlink_to(outside)
    assert sweep() == []
    assert (outside / OWNER_FILE).exists()


def test_a_folder_is_private_and_goes_with_its_block():
    with owned_folder("trial-") as folder:
        assert folder.name.startswith("bascule-trial-")
        assert folder.stat().st_mode & 0o777 == 0o700
        assert sweep() == []
    assert not folder.exists()


def test_a_folder_that_nobody_holds_any_more_is_nobodys():
    folder = OwnedFolder()
    path = folder.path
    del folder
    assert sweep() == [path]


async def test_the_private_homes_of_servers_have_an_owner():
    async with PrivateHomes() as homes:
        assert (homes.path.parent / OWNER_FILE).exists()
        assert sweep() == []
        path = homes.path.parent
    assert not path.exists()


def test_the_owner_keeps_its_lock_to_itself():
    """A server that inherited it would keep the folder for as long as it runs."""
    folder = OwnedFolder()
    lock = (folder.path / OWNER_FILE).stat()
    held = [one for one in map(int, os.listdir("/dev/fd")) if _is(one, lock)]  # noqa: PTH208
    assert held
    assert not any(os.get_inheritable(one) for one in held)
    folder.close()


def _is(descriptor: int, seen: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), seen)
    except OSError:
        return False
