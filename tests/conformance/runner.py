"""Runs the official conformance suite against ``client.py``, once for a revision of the protocol.

Run as a program it prints what every required scenario gives: ``python -m
tests.conformance.runner`` (``--write`` renews ``checks.txt``).
"""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conformance import suite
from tests.conformance.suite import HERE, REVISIONS, ROOT, Report, Scenario, required

#: The suite starts all clients at once and they take turns: this ends one that hangs.
CLIENT_SECONDS = 90


@dataclass(frozen=True)
class Survey:
    """What one run of the suite wrote into a folder: its exit, and a report of each scenario."""

    folder: Path

    @property
    def exit_code(self) -> int:
        """What the suite itself says: 0 if no check of a required scenario failed."""
        return int((self.folder / "exit").read_text("utf-8"))

    @property
    def output(self) -> str:
        """What the suite printed."""
        return (self.folder / "output").read_text("utf-8", "replace")

    def report(self, name: str) -> Report:
        """Read how a scenario ended."""
        ended = self.folder / "ended" / name
        code = ended.read_text("utf-8") if ended.exists() else None
        results = self.folder / "results"
        return Report(
            "did not end" if code is None else f"exited with code {code}",
            suite.read_checks(results, name),
            suite.read_result(results, name, "stderr.txt"),
        )


def survey(revision: str, folder: Path) -> Survey:
    """Play every scenario of a revision, unless another process has played it into the folder."""
    mine = folder / revision
    (mine / "ended").mkdir(parents=True, exist_ok=True)
    with (mine / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (mine / "exit").exists():
            suite.install()
            with _clients(mine) as command, (mine / "output").open("wb") as output:
                timeout = str(CLIENT_SECONDS * 1000)
                words = ("client", "--command", command, "--timeout", timeout)
                code = suite.run(revision, words, mine / "results", output)
            (mine / "exit").write_text(str(code), "utf-8")
    return Survey(mine)


@contextmanager
def _clients(folder: Path) -> Generator[str]:
    """Have clients forked from one process that has loaded everything; yield what runs one."""
    address = str(folder / "clients")
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.fork_server", address, folder / "ended"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline(), "the process of the clients did not start"
        yield shlex.join([sys.executable, "-I", "-S", str(HERE / "fork_client.py"), address])
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.communicate()


def _everything(folder: Path) -> dict[Scenario, Report]:
    found: dict[Scenario, Report] = {}
    for revision in REVISIONS:
        played = survey(revision, folder)
        for name in required("client", revision):
            found[Scenario(revision, name)] = played.report(name)
    return found


def main() -> int:
    """Print what every required scenario gives; with ``--write``, renew the table of checks."""
    with TemporaryDirectory(prefix="conformance-") as folder:
        found = _everything(Path(folder))
    sys.stdout.writelines(f"{scenario}: {report}\n" for scenario, report in found.items())
    if "--write" in sys.argv:
        counts = {scenario: report.passed for scenario, report in found.items()}
        suite.write_table(HERE / "checks.txt", counts)
    return 0 if all(report.clean for report in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
