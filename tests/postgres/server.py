"""The server of a run: started by whoever needs it first, ended when its last user is gone.

Users hold a shared lock on a file; whoever keeps the server waits for an exclusive one. A lock
dies with its process, so nothing outlives the run, however that ends.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.postgres.cluster import Cluster
from tests.waits import blocked_until

#: Nobody waits for a keeper: it ends after those who started it.
_keepers: list[subprocess.Popen[bytes]] = []
_USERS, _STARTING, _READY, _REFUSED = "users", "starting", "ready", "refused"


@functools.cache
def server_dsn() -> str:
    """Return the address of the run's server, started if need be."""
    given = os.environ.get("BASCULE_TEST_DSN")
    return given if given is not None else _joined(_folder())


def _folder() -> Path:
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    return Path(tempfile.gettempdir()) / f"bascule-pg-{run[:12]}"


def _joined(folder: Path) -> str:
    folder.mkdir(mode=0o700, exist_ok=True)
    users = os.open(folder / _USERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(users, fcntl.LOCK_SH)  # held for as long as this process lives
    starting = os.open(folder / _STARTING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(starting, fcntl.LOCK_EX)
    try:
        if not (folder / _READY).exists():
            _start(folder)
    finally:
        os.close(starting)
    return (folder / _READY).read_text(encoding="utf-8")


def _start(folder: Path) -> None:
    with (folder / "keeper").open("wb") as said:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.postgres.server", str(folder)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
    _keepers.append(keeper)
    blocked_until(lambda: (folder / _READY).exists() or (folder / _REFUSED).exists())
    if (folder / _REFUSED).exists():
        raise RuntimeError((folder / _REFUSED).read_text(encoding="utf-8"))


def _keep(folder: Path) -> None:
    """Serve until nobody uses the folder; then nothing of it is left."""
    cluster = Cluster(folder / "cluster")
    try:
        cluster.make().start()
    except Exception as error:
        (folder / _REFUSED).write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        raise
    written = folder / "ready.new"
    written.write_text(cluster.dsn(), encoding="utf-8")
    written.rename(folder / _READY)
    try:
        users = os.open(folder / _USERS, os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(users, fcntl.LOCK_EX)
    finally:
        (folder / _READY).unlink()
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
