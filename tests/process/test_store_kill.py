"""What was acknowledged is there after a kill, a full disk or a disk that fails."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Generator
from pathlib import Path

import pytest

from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import Change, Head
from bascule.model.server import ServerRecord
from bascule.model.task import TaskRecord
from tests.process.nursery import ROOT, nursery
from tests.scale import scaled

SMALL = 400_000
MOST_ACKNOWLEDGED = 30


async def line(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(10):
        return (await process.stdout.readline()).decode().strip()


async def killed_writer(process: Process, after: int) -> dict[int, str]:
    """Let a writer write, kill it while it goes on, return what it said was acknowledged."""
    assert process.stdin is not None
    process.stdin.write(b"next\n")
    said: dict[int, str] = {}
    child = 0
    while (text := await line(process)) != "dead":
        first, _, rest = text.partition(" ")
        if first == "pid":
            child = int(rest)
        else:
            said[int(first)] = rest
        if child and len(said) >= after:
            os.kill(child, signal.SIGKILL)
            child, after = 0, sys.maxsize
    return said


async def found(path: Path) -> tuple[Head, dict[int, str]]:
    """Open what is left; check that it is whole, and return what each revision says."""
    store = await SqliteStore(path).open()
    try:
        head = await store.head()
        changes = await store.changes(head.floor, 10_000)
        assert [c.revision for c in changes] == list(range(head.floor + 1, head.revision + 1))
        assert await store.view(head.revision) == await store.view()
        return head, {change.revision: word_of(change) for change in changes}
    finally:
        await store.close()


def word_of(change: Change) -> str:
    """Return what both objects of a write say: one without the other would be half a write."""
    server, task = (entry.stored.record for entry in change.entries if entry.stored is not None)
    assert isinstance(server, ServerRecord)
    assert isinstance(task, TaskRecord)
    assert server.display_name == task.name
    return task.name


@pytest.mark.timeout(300)
@pytest.mark.requirement("registry:revision:durable")
async def test_no_acknowledged_write_is_lost_when_the_writer_is_killed(tmp_path: Path):
    path = tmp_path / "registry.db"
    rng = random.Random(5)
    newest = 0
    async with nursery("store_writer", "nursery", path) as process:
        for _ in range(scaled(200)):
            said = await killed_writer(process, after=rng.randrange(MOST_ACKNOWLEDGED))
            head, words = await found(path)
            assert head.revision >= max(said, default=0), "an acknowledged write is gone"
            assert head.revision >= newest, "the revision went back"
            kept = {revision: word for revision, word in said.items() if revision > head.floor}
            assert kept.items() <= words.items()
            newest = head.revision
    assert newest > scaled(200)


@pytest.fixture(params=["a full disk", "a disk that fails"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[tuple[Path, int], None, None]:
    """Yield a folder and the most bytes a file may have there; 0 where the disk itself is small."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(small)]
    full = request.param == "a full disk" and os.geteuid() == 0 and shutil.which("mount")
    if not full or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield small, SMALL
        return
    try:
        yield small, 0
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.requirement("registry:revision:durable")
async def test_a_disk_that_takes_no_more_is_said_and_never_acknowledged(
    disk: tuple[Path, int], tmp_path: Path
):
    folder, limit = disk
    done = await asyncio.to_thread(
        subprocess.run,
        [
            *(sys.executable, "-m", "tests.process.store_writer", "until-full"),
            *(str(folder / "registry.db"), str(limit)),
        ],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=25,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *lines, reads = done.stdout.splitlines()
    said = {int(a): b for a, b in (line.split(" ", 1) for line in lines if line[0].isdigit())}
    failures = [line for line in lines if line.startswith("failed")]
    assert len(failures) == 3
    assert all("takes no more writes" in failure for failure in failures)
    assert reads == f"reads {max(said)} 10"
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    head, words = await found(kept / "registry.db")
    assert said.items() <= words.items()
    assert head.revision - max(said) in (0, 1), "at most the one that failed may have arrived"
