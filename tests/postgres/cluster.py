"""A cluster in a folder, its server started and ended by whoever made it."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.postgres.binaries import as_whom, command, own
from tests.waits import blocked_until

_SECONDS = 60.0
_LOG_BYTES = 16 << 20
#: What a server for tests needs not do, and how little it takes.
_SETTINGS: Mapping[str, str] = {
    "fsync": "off",  # a killed process loses nothing by it; a killed machine is not tried here
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "autovacuum_naptime": "60s",
    "jit": "off",
    "max_wal_size": "256MB",
    "log_min_messages": "warning",
}


class Cluster:
    """One server: a folder with its data and its socket."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "log"
        self._settings = {**_SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def dsn(self, database: str = "postgres") -> str:
        """Return the address of one of its databases."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def make(self) -> Cluster:
        """Make its files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        own(self.folder)
        words = ("-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        subprocess.run(
            command("initdb", *words, "--locale=C", "--no-instructions"),
            check=True,
            capture_output=True,
            timeout=_SECONDS,
            **as_whom(),
        )
        return self

    def start(self) -> Cluster:
        """Start its server; return when it takes connections."""
        chosen = [word for pair in self._settings.items() for word in ("-c", "=".join(pair))]
        words = ("-D", str(self.data), "-k", str(self.folder), "-c", "listen_addresses=", *chosen)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command("postgres", *words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **as_whom(),
            )
        blocked_until(self._answers)
        return self

    def _answers(self) -> bool:
        ready = subprocess.run(
            command("pg_isready", "-q", "-h", str(self.folder), "-U", "postgres"),
            check=False,
            timeout=_SECONDS,
        )
        if ready.returncode != 0 and self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"PostgreSQL has ended: {self.log.read_text(encoding='utf-8')}")
        return ready.returncode == 0

    def kill(self) -> None:
        """Kill the server as a lost machine would: nothing is said to anybody."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server at once, in order."""
        self._end(signal.SIGINT)

    def pause(self) -> None:
        """Have every process of the server hang."""
        for pid in self._family():
            os.kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        for pid in self._family():
            os.kill(pid, signal.SIGCONT)

    def fill_disk(self) -> None:
        """Have the system refuse every byte of a file beyond the size of the server's log."""
        self._limit_files(_LOG_BYTES)

    def empty_disk(self) -> None:
        """Let its files grow again."""
        self._limit_files(None)

    def _limit_files(self, most: int | None) -> None:
        for pid in self._family():
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if most is None else most, hard))

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        family = self._family()
        self._process.send_signal(how)
        try:
            self._process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_SECONDS)
        if how is signal.SIGKILL:  # its children notice by themselves, only later
            for pid in family[1:]:
                _kill(pid)
        blocked_until(lambda: not any(_lives(pid) for pid in family))
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        self._process = None

    def _family(self) -> list[int]:
        if self._process is None:
            return []
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return [pid, *map(int, children.split())]


@contextmanager
def own_cluster(settings: Mapping[str, str] | None = None) -> Generator[Cluster, None, None]:
    """Run a server of one's own, in a folder whose name is short enough for a socket's."""
    folder = Path(tempfile.mkdtemp(prefix="bascule-pg-"))
    cluster = Cluster(folder, settings)
    try:
        yield cluster.make().start()
    finally:
        cluster.kill()
        shutil.rmtree(folder)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
