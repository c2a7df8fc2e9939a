"""Runs the official conformance suite against ``bascule up`` in front of ``fixture_server.py``.

The suite speaks to the address of the one server, through a relay that adds a token. Run as a
program it prints what every scenario gives in each place: ``python -m
tests.conformance.server_runner`` (``--write`` renews ``server_checks.txt`` and
``server_later.txt``; ``--direct`` leaves Bascule out, to try the fixture itself).
"""

from __future__ import annotations

import asyncio
import fcntl
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from tests.conformance import suite
from tests.conformance.relay import relaying
from tests.conformance.suite import HERE, REVISIONS, Report, Scenario, required, unscored
from tests.flow.up_process import Up, serving

#: How the fixture is reached: over stdio, or over HTTP in one of the generations.
Place = Literal["stdio", "modern", "legacy"]
PLACES: tuple[Place, ...] = ("stdio", "modern", "legacy")
FIXTURE = str(HERE / "fixture_server.py")
CHECKS = HERE / "server_checks.txt"
LATER = HERE / "server_later.txt"
SECONDS = 20.0


@dataclass(frozen=True)
class Survey:
    """What the runs of the suite in one place wrote into a folder."""

    folder: Path

    def report(self, scenario: Scenario) -> Report:
        """Read what a scenario gave, and how Bascule ended after all of them."""
        results = self.folder / scenario.revision
        return Report(
            (self.folder / "end").read_text("utf-8"),
            suite.read_checks(results, f"server-{scenario.name}"),
            suite.read_result(results, f"server-{scenario.name}", "checks.json"),
        )


def survey(place: Place, folder: Path, *, direct: bool = False) -> Survey:
    """Play all scenarios in a place, unless another process has played them into the folder."""
    mine = folder / place
    mine.mkdir(parents=True, exist_ok=True)
    with (mine / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (mine / "end").exists():
            (mine / "end").write_text("could not be played", "utf-8")  # once is enough
            suite.install()
            code = asyncio.run((_play_directly if direct else _play)(place, mine))
            (mine / "end").write_text(f"exited with code {code}", "utf-8")
    return Survey(mine)


def scenarios() -> list[Scenario]:
    """Return every scenario that the suite has for servers, required or not."""
    return [
        Scenario(revision, name)
        for revision in REVISIONS
        for name in (*required("server", revision), *unscored("server", revision))
    ]


async def _play(place: Place, folder: Path) -> int:
    """Play both revisions against one process; return what that one exits with."""
    async with (
        _fixture(place) as record,
        serving(folder / "data", "--empty") as up,
        _draining(up, folder / "log"),
    ):
        token = await _admit(up, record)
        async with relaying(up.url, token) as url:
            await _run_suite(f"{url}/mcp/servers/fixture", folder)
        return await up.end()


async def _run_suite(url: str, folder: Path) -> None:
    for revision in REVISIONS:
        with (folder / f"{revision}.output").open("wb") as output:
            words = ("server", "--url", url)
            await asyncio.to_thread(suite.run, revision, words, folder / revision, output)


async def _admit(up: Up, record: Mapping[str, Any]) -> str:
    """Register the fixture, and a task that may use all of it; return a token of the task."""
    fixture = {"server_id": "fixture", "allowed_tools": ["*"], **record}
    task = {"task_id": "suite", "mcp": {"enabled": True, "default_server_ids": ["fixture"]}}
    for path, body in (("servers/fixture", fixture), ("tasks/suite", task)):
        status, answer = await up.ask("PUT", f"/admin/api/mcp/{path}", token=up.admin, body=body)
        assert status in {200, 201}, answer
    return await up.token("suite")


@asynccontextmanager
async def _fixture(place: Place) -> AsyncGenerator[dict[str, Any]]:
    """Give the part of a record that says how to reach the fixture; one over HTTP is started."""
    if place == "stdio":
        stdio = {"command": sys.executable, "args": [FIXTURE, place]}
        yield {"transport": "stdio", "sharing": "session", "stdio": stdio}
        return
    async with _http_fixture(place) as url:
        yield {"transport": "streamable_http", "http": {"url": url}}


@asynccontextmanager
async def _http_fixture(place: Place) -> AsyncGenerator[str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", FIXTURE, place), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS):
            url = await process.stdout.readline()
        assert url, "the fixture did not start"
        yield url.decode().strip()
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def _draining(up: Up, log: Path) -> AsyncGenerator[None]:
    """Write down what the process says for as long as it says something."""
    assert up.process.stdout is not None
    assert up.process.stderr is not None
    async with AsyncExitStack() as stack:
        for stream in (up.process.stdout, up.process.stderr):
            task = asyncio.create_task(_write_down(stream, log))
            stack.callback(task.cancel)
        yield


async def _write_down(stream: asyncio.StreamReader, log: Path) -> None:
    with log.open("ab") as file:
        while some := await stream.read(65_536):
            file.write(some)


async def _play_directly(place: Place, folder: Path) -> int:
    async with _http_fixture(place) as url:
        await _run_suite(url, folder)
    return 0


def passes(reports: Sequence[Report]) -> bool:
    """Say whether a scenario passes in every place, with at least one check."""
    return not any(report.shortfall(1) for report in reports)


def gave(reports: Sequence[Report]) -> str:
    """Say what a scenario gave, for every place if they differ."""
    return " or ".join(sorted({report.counts for report in reports}))


def _renew(found: Mapping[Scenario, Sequence[Report]]) -> None:
    """Hold what passes in every place, and name the others with what they gave."""
    held = {scenario: reports for scenario, reports in found.items() if passes(reports)}
    least = {scenario: min(one.passed for one in reports) for scenario, reports in held.items()}
    suite.write_table(CHECKS, least)
    others = {
        scenario: gave(reports) for scenario, reports in found.items() if scenario not in held
    }
    suite.write_table(LATER, others)


def main() -> int:
    """Print what every scenario gives in every place; with ``--write``, renew the tables."""
    with TemporaryDirectory(prefix="conformance-") as name:
        direct = "--direct" in sys.argv
        places = PLACES[1:] if direct else PLACES
        surveys = {place: survey(place, Path(name), direct=direct) for place in places}
        found = {
            scenario: [surveys[place].report(scenario) for place in places]
            for scenario in scenarios()
        }
    for scenario, reports in found.items():
        sys.stdout.write(f"{scenario}: {' | '.join(map(str, reports))}\n")
    if "--write" in sys.argv:
        _renew(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
