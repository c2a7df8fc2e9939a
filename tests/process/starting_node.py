"""A node that starts confined servers, as this user or as another; run as a program.

``python -m tests.process.starting_node MODE LEVEL COUNT WORD UID``: ``many`` starts and ends so
many servers and prints what there is before and after, ``one`` starts one and waits to be killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
from msgspec import convert

from bascule.model.sandbox import Level, Sandbox
from bascule.node.pool.process.plan import Confinement
from bascule.node.pool.process.spawn import Launch, ServerProcess
from bascule.node.pool.process.warden import Warden
from tests.flow.processes import traces
from tests.process.isolation_node import become
from tests.waits import until


def cgroups(word: str) -> list[str]:
    """Return the cgroups that carry a word in their names; those of others come and go."""
    folders = (
        Path(folder, name) for folder, names, _ in os.walk("/sys/fs/cgroup") for name in names
    )
    return [str(path) for path in folders if path.name.startswith(f"bascule-{word}")]


def launch(level: str, folder: Path, script: str) -> Launch:
    """Return how to start a shell inside."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    sandbox = Sandbox(level=convert(level, Level), required=level != "best", write=())
    env = {"HOME": str(home), "PATH": os.defpath}
    confinement = Confinement(sandbox, (str(home),), (), str(folder))
    return Launch(("/bin/sh", "-c", script), env, None, confinement)


def left_over(word: str, warden: Warden, folder: Path) -> dict[str, Any]:
    """Return what a confined server may leave behind."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    kept = {os.getpid(), *_ancestors()}
    return {
        "processes": [pid for pid in traces(word) if pid not in kept],
        "mounts": len(mounts),
        "cgroups": cgroups(warden._owner.prefix),
        "folders": sorted(path.name for path in folder.iterdir()),
        "files": psutil.Process().num_fds(),
    }


def _ancestors() -> list[int]:
    return [process.pid for process in psutil.Process().parents()]


async def many(level: str, count: int, word: str, folder: Path) -> dict[str, Any]:
    """Start and end servers, each with a child; return what is left before and after."""
    warden = Warden()
    try:
        order = launch(level, folder, f": {word}; sleep 1000 & echo up; wait")
        await _started_and_ended(warden, order)  # the trials, the warden, the watch
        before = left_over(word, warden, folder)
        for _ in range(count):
            await _started_and_ended(warden, order)
        return {"before": before, "after": left_over(word, warden, folder)}
    finally:
        await warden.close()


async def _started_and_ended(warden: Warden, order: Launch) -> None:
    server = await warden.spawn(order)
    await until(lambda: _said(server) == b"up\n")
    await server.end()
    for descriptor in (server.stdin_fd, server.stdout_fd, server.stderr_fd):
        os.close(descriptor)


def _said(server: ServerProcess) -> bytes:
    try:
        return os.read(server.stdout_fd, 65536)
    except BlockingIOError:
        return b""


async def one(level: str, word: str, folder: Path) -> None:
    """Start a server with a child that leaves its session, and wait to be killed."""
    warden = Warden()
    script = f": {word}; (setsid sleep 1000 &) ; echo up; sleep 1000; :"
    server = await warden.spawn(launch(level, folder, script))
    await until(lambda: _said(server) == b"up\n")  # bubblewrap is not done when it has started
    facts = {"owner": warden._owner.prefix, "node": os.getpid(), "warden": warden.pid}
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main() -> None:
    """Take another user, if one is named, and do what is asked."""
    mode, level, count, word, uid = sys.argv[1:6]
    if uid:
        become(int(uid))
        words = [sys.executable, "-m", "tests.process.starting_node", *sys.argv[1:5], ""]
        os.execve(sys.executable, words, {**os.environ, "HOME": "/"})  # noqa: S606 -- this again
    with tempfile.TemporaryDirectory(prefix=f"starting-{word}-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        tempfile.tempdir = name
        if mode == "many":
            found = asyncio.run(many(level, int(count), word, folder))
            sys.stdout.write(json.dumps(found))
        else:
            asyncio.run(one(level, word, folder))


if __name__ == "__main__":
    main()
