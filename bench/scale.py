"""Ten thousand records: what a start costs, what waiting costs, and whether health is late."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

from bascule.clock import SYSTEM_CLOCK
from bench.table import Row, at_most

NAME = "scale"
RECORDS = 10_000
IMPORTED = 15_000
SETTLE_SECONDS = 5.0
IDLE_SECONDS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


def run() -> list[Row]:
    """Start a process over a folder of records, twice, and let it wait."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        _write_records(place / "records")
        with _up(place) as first:
            started = first.cpu()
        with _up(place) as second:
            again = second.cpu()
            late = second.worst_health(SETTLE_SECONDS)
            before = second.cpu()
            Event().wait(IDLE_SECONDS)  # nobody asks anything: that is what is measured
            idle = 100 * (second.cpu() - before) / IDLE_SECONDS
        with _up(place / "other", records=place / "records") as third:
            previewed, late_then = third.preview(IMPORTED)
    return [
        at_most(f"CPU to start with {RECORDS} records, the first time", started, "s", 3),
        at_most("the same with a registry that has them", again, "s", 3),
        at_most(f"CPU while idle, over {IDLE_SECONDS:.0f} s", idle, "% of a core", 1),
        at_most("/healthz after the start, the latest answer", late, "ms", 250),
        Row(f"import preview of {IMPORTED} more", previewed, "s"),
        at_most("/healthz meanwhile, the latest answer", late_then, "ms", 500),
    ]


def _write_records(folder: Path) -> None:
    folder.mkdir()
    for number in range(RECORDS):
        text = (
            f'server_id = "server{number}"\ntransport = "stdio"\n'
            'allowed_tools = ["read_*", "search_*"]\n'
            '[stdio]\ncommand = "true"\nenv = { TOKEN = "secret://token" }\n'
        )
        (folder / f"server{number}.toml").write_text(text, encoding="utf-8")


class _Up:
    """A process that serves."""

    def __init__(self, process: subprocess.Popen[str], url: str, token: str) -> None:
        self._pid = process.pid
        self._url = url
        self._token = token

    def cpu(self) -> float:
        """Return how many seconds of CPU it has used."""
        text = Path(f"/proc/{self._pid}/stat").read_text(encoding="utf-8")
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def worst_health(self, seconds: float) -> float:
        """Ask for health all the while; return the longest wait in milliseconds."""
        until = SYSTEM_CLOCK.monotonic() + seconds
        worst = 0.0
        while SYSTEM_CLOCK.monotonic() < until:
            worst = max(worst, self._health())
        return worst

    def preview(self, count: int) -> tuple[float, float]:
        """Preview an import; return how long that took, and the longest wait for health."""
        records = [
            {"server_id": f"more{n}", "transport": "stdio", "stdio": {"command": "x"}}
            for n in range(count)
        ]
        request = urllib.request.Request(  # noqa: S310 - our own
            f"{self._url}/admin/api/mcp/import?mode=preview",
            data=json.dumps(records, separators=(",", ":")).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        began = SYSTEM_CLOCK.monotonic()
        importing = Thread(target=_answer, args=(request,))
        importing.start()
        worst = 0.0
        while importing.is_alive():
            worst = max(worst, self._health())
        return SYSTEM_CLOCK.monotonic() - began, worst

    def _health(self) -> float:
        began = SYSTEM_CLOCK.monotonic()
        _answer(urllib.request.Request(f"{self._url}/healthz"))  # noqa: S310 - our own
        return (SYSTEM_CLOCK.monotonic() - began) * 1e3


@contextmanager
def _up(place: Path, records: Path | None = None) -> Generator[_Up]:
    words = ["up", "--json", "--port", "0", "--data-dir", str(place / "data")]
    words += ["--registry-dir", str(records or place / "records")]
    command = [sys.executable, "-m", "bascule", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = next(line for line in process.stdout if '"serving"' in line)
            serving = json.loads(said)
            yield _Up(process, serving["url"], serving["setup_token"] or "")
        finally:
            process.terminate()


def _answer(request: urllib.request.Request) -> None:
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own
        answer.read()
