"""cgroups of the second version: limits as files tell them, membership as the kernel does."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from bascule.node.pool.process.confinement import cgroups
from tests.waits import blocked_until, blocked_until_ended

LIMITS = ("memory.max", "memory.swap.max", "pids.max", "cgroup.procs")


class Tree:
    """A tree of folders that looks as a mounted cgroup2 does, of plain files.

    The kernel puts files into every new folder; here they are there before, by its name.
    """

    def __init__(self, folder: Path, own: str) -> None:
        self.root = folder / "mounted"
        self.own = self.root / own.lstrip("/")
        self.own.mkdir(parents=True)
        for here in {self.root, self.own, self.own.parent}:
            (here / "cgroup.controllers").write_text("cpu memory pids\n", encoding="ascii")
            (here / "cgroup.subtree_control").write_text("", encoding="ascii")
        mount = f"31 23 0:27 / {self.root} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
        self.mounts = folder / "mountinfo"
        self.mounts.write_text(f"22 1 8:1 / / rw - ext4 /dev/vda rw\n{mount}", encoding="utf-8")
        self.membership = folder / "cgroup"
        self.membership.write_text(f"0::{own}\n", encoding="utf-8")

    def prepare(self, parent: Path, mark: str, *files: str) -> Path:
        folder = parent / cgroups.name_of(mark)
        folder.mkdir()
        for name in files:
            (folder / name).write_text("", encoding="ascii")
        return folder


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Tree:
    made = Tree(tmp_path, getattr(request, "param", "/system.slice/bascule.service"))
    monkeypatch.setattr(cgroups, "_MOUNTS", str(made.mounts))
    monkeypatch.setattr(cgroups, "_OWN", str(made.membership))
    return made


def said(path: Path) -> str:
    return path.read_text(encoding="ascii")


def test_limits_of_both_kinds_are_kept_by_one_cgroup_below_our_own(tree: Tree):
    folder = tree.prepare(tree.own, "a-1", *LIMITS)
    assert cgroups.make("a-1", 1 << 30, 64) == [str(folder)]
    assert said(folder / "memory.max") == str(1 << 30)
    assert said(folder / "memory.swap.max") == "0"
    assert said(folder / "pids.max") == "64"
    assert cgroups.join([str(folder)], 4711)
    assert said(folder / "cgroup.procs") == "4711"


@pytest.mark.parametrize(
    ("before", "after"),
    [("cpu rdma pids", "+memory"), ("cpu io memory", "+pids"), ("memory pids", "memory pids")],
)
def test_a_controller_is_asked_for_where_it_does_not_count_yet(tree: Tree, before: str, after: str):
    tree.prepare(tree.own, "a-1", *LIMITS)
    counts, beside = (place / "cgroup.subtree_control" for place in (tree.own, tree.own.parent))
    counts.write_text(before, encoding="ascii")
    cgroups.make("a-1", 1 << 30, 64)
    assert said(counts).startswith(after)  # of what was written before, a file keeps the rest
    assert said(beside) == ""  # what is not ours is left alone


def test_where_ours_has_processes_in_it_the_cgroup_is_beside_it(tree: Tree):
    folder = tree.prepare(tree.own.parent, "a-1", *LIMITS)
    assert cgroups.make("a-1", 1 << 30, 64) == [str(folder)]
    assert not (tree.own / folder.name).exists()  # what was tried there is gone


def test_one_limit_alone_is_none(tree: Tree):
    tree.prepare(tree.own.parent, "a-1", "memory.max", "cgroup.procs")
    assert cgroups.make("a-1", 1 << 30, 64) == []


@pytest.mark.parametrize("tree", ["/"], indirect=True)
def test_in_a_container_there_is_nothing_beside_our_own(tree: Tree):
    outside = tree.prepare(tree.root.parent, "a-1", *LIMITS)
    assert cgroups.make("a-1", 1 << 30, 64) == []
    assert said(outside / "memory.max") == ""


def test_what_an_owner_left_is_removed_and_nothing_of_others(tree: Tree):
    ours, others = tree.prepare(tree.own, "a-1"), tree.prepare(tree.own, "b-1")
    beside = tree.prepare(tree.own.parent, "a-2")
    cgroups.remove_all("a-")
    assert not ours.exists()
    assert not beside.exists()
    assert others.exists()


# With the kernel's own: what needs no controller

STRAY = """
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", "import signal; signal.pause()"], {})
    os._exit(0)
os.wait()
signal.pause()
"""


def mounted() -> Path | None:
    """Return a cgroup2 that can be written to."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        point = Path(before.split()[4])
        if after.startswith("cgroup2 ") and os.access(point / "cgroup.procs", os.W_OK):
            return point
    return None


@pytest.fixture
def folder() -> Generator[str]:
    at = mounted()
    if at is None:
        pytest.skip("no cgroup2 that this user may write to")
    folder = at / cgroups.name_of(f"test-{secrets.token_hex(8)}")
    folder.mkdir()
    yield str(folder)
    cgroups.kill([str(folder)])
    blocked_until(lambda: not cgroups.members([str(folder)]))
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()


def test_a_cgroup_knows_and_kills_what_left_its_family(folder: str):
    server = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()\n" + STRAY],
                              stdin=subprocess.PIPE)  # fmt: skip
    assert cgroups.join([folder], server.pid)
    assert server.stdin is not None
    server.stdin.close()

    def both() -> set[int]:
        found = cgroups.members([folder])
        parents = {pid: Path(f"/proc/{pid}/environ").read_bytes() for pid in found}
        return found if len(found) == 2 and b"" in parents.values() else set()

    found = blocked_until(both)
    assert server.pid in found
    cgroups.remove([folder])
    assert Path(folder).exists()  # not while there are any
    cgroups.kill([folder])
    server.wait()
    for pid in found - {server.pid}:
        blocked_until_ended(pid)
    blocked_until(lambda: not cgroups.members([folder]))
    cgroups.remove([folder])
    assert not Path(folder).exists()
