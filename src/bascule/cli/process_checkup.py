"""``bascule doctor`` without records: how the data directory and the process that serves it are.

It writes nothing and needs no token, so it also works when the disk is full.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, to_builtins

from bascule.app.settings import Settings
from bascule.audit.anchors import Anchor, parsed
from bascule.audit.checkpoints import last_line
from bascule.audit.journal import FOLDER
from bascule.audit.ledger_file import ANCHORS_NAME, FILE_NAME, file_tables, tip
from bascule.audit.search import LedgerFile
from bascule.cli.command import run_async, show, shown
from bascule.cli.command_line import typed
from bascule.cli.configuration import read_settings
from bascule.cli.endpoint import Endpoint, NotServing, owner_headers, proven_url
from bascule.cli.parser import EXIT_FAILED
from bascule.cli.table import paint
from bascule.client.http import ApiClient, ApiError, Unreachable
from bascule.clock import SYSTEM_CLOCK, rfc3339, seconds_of
from bascule.control.secret_keys import KEY_NAME, KeyFile
from bascule.db.errors import StoreUnavailable
from bascule.node.assembly import Bridge
from bascule.wire.api.health import UNWELL_SERVERS, Health

_SECONDS = 5.0
#: Less free space than this is worth a word.
LITTLE_BYTES = 256 * 1024 * 1024
#: While rows come, an anchor is at most 10 seconds old.
_LATE_SECONDS = 60.0


class LedgerCheckup(Struct, frozen=True, kw_only=True):
    """How a ledger is: its last row, the last row that is anchored, and what is not in it yet."""

    rows: int
    anchored: int
    anchored_at: str | None
    #: When the first row came that no anchor covers.
    waiting_since: str | None
    anchor_file: str
    #: What the journals take on disk.
    journal_bytes: int


class ProcessCheckup(Struct, frozen=True, kw_only=True):
    """How a data directory and its process are; what could not be learnt is None."""

    data_dir: str
    free_bytes: int
    url: str | None = None
    health: Health | None = None
    ledger: LedgerCheckup | None = None
    #: Why each level of isolation does not work here, the best first; empty for one that does.
    isolation: dict[str, str] = {}
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Say whether nothing is wrong."""
        return not self.problems


def process_doctor(arguments: argparse.Namespace) -> int:
    """Look at the data directory and its process, and print what was found."""
    settings = read_settings(arguments, without=("registry_dir",))
    data = Path(settings.data_dir)
    if not data.is_dir():
        raise NotServing(f"{data} does not exist; it is made by: {typed('up', arguments)}")
    found = run_async(_examine(arguments, settings, data))
    problems = (paint(f"problem: {shown(words)}", "red") for words in found.problems)
    plain = {"ok": found.ok, **to_builtins(found)}
    show(arguments, plain, *_lines(found), *problems, warnings=found.warnings)
    return 0 if found.ok else EXIT_FAILED


async def _examine(arguments: argparse.Namespace, settings: Settings, data: Path) -> ProcessCheckup:
    problems: list[str] = []
    url, health = await _asked(settings, data, problems)
    ledger = await _ledger(settings, data, problems)
    free = shutil.disk_usage(data).free
    isolation = await _isolation()
    if health is not None:
        problems += _degraded(arguments, health, problems)
    return ProcessCheckup(
        data_dir=str(data),
        free_bytes=free,
        url=url,
        health=health,
        ledger=ledger,
        isolation=isolation,
        problems=tuple(problems),
        warnings=(*_warnings(settings, data, free, ledger), *isolation_warnings(isolation)),
    )


async def _isolation() -> dict[str, str]:
    """Try how well a server can be isolated on this machine."""
    async with Bridge.open([]) as bridge:
        return {**await bridge.isolation()}


def isolation_warnings(isolation: Mapping[str, str]) -> Iterator[str]:
    """Say what servers can read where no level works that keeps files from them."""
    works = _best(isolation)
    if works is None or works == "limits":
        reasons = "; ".join(f"{level}: {why}" for level, why in isolation.items() if why)
        yield f"local servers can read what this user can, Bascule's keys among it: {reasons}"


def _best(isolation: Mapping[str, str]) -> str | None:
    return next((level for level, why in isolation.items() if not why), None)


def _degraded(arguments: argparse.Namespace, health: Health, told: Sequence[str]) -> Iterator[str]:
    """Yield why a process is degraded, but for what it was told to be unready for."""
    for code, words in health.reasons.items():
        if code == UNWELL_SERVERS:
            yield f"{words}: {typed('servers status', arguments)}"
        elif not any(words in one for one in told):
            yield f"the process is degraded: {words}"


async def _asked(
    settings: Settings, data: Path, problems: list[str]
) -> tuple[str | None, Health | None]:
    """Ask the process, if one serves, whether it is ready, and as its owner how it is."""
    try:
        url = await proven_url(settings)
        there = Endpoint(url, "", tls_ca=settings.server.tls_certificate, insecure=True)
        async with there.api() as api:
            problems += await _unready(api)
            shown = owner_headers(data, url)
            return url, await api.ask(Health, "GET", "/healthz", headers=shown, seconds=_SECONDS)
    except (NotServing, ApiError, Unreachable) as error:
        problems.append(str(error))
    return None, None


async def _unready(api: ApiClient) -> list[str]:
    try:
        await api.request("GET", "/readyz", seconds=_SECONDS)
    except ApiError as error:
        return [f"the process is not ready: {error}"]
    return []


async def _ledger(settings: Settings, data: Path, problems: list[str]) -> LedgerCheckup | None:
    """Return how the ledger is, as its file says."""
    path = data / FILE_NAME
    if not (settings.ledger.enabled and path.exists()):
        return None
    try:
        file = LedgerFile(path)
        try:
            rows, anchor, waiting = await file.read(_state)
        finally:
            file.close()
    except StoreUnavailable as error:
        problems.append(str(error))
        return None
    journals = (file for file in (data / FOLDER).glob("*") if file.is_file())
    return LedgerCheckup(
        rows=rows,
        anchored=0 if anchor is None else anchor.number,
        anchored_at=None if anchor is None else rfc3339(anchor.made_at),
        waiting_since=rfc3339(waiting),
        anchor_file=str(settings.ledger.anchor_file or data / ANCHORS_NAME),
        journal_bytes=sum(file.stat().st_size for file in journals),
    )


def _state(connection: sqlite3.Connection) -> tuple[int, Anchor | None, float | None]:
    """Return the last row, the last anchor, and when the first row came that has none."""
    tables = file_tables(connection)
    line = last_line(connection, tables)
    anchor = None if line is None else parsed(line)
    first = connection.execute(
        f"SELECT timestamp FROM events WHERE {tables.mine} AND {tables.number} > ?"  # noqa: S608 - constants
        f" ORDER BY {tables.number} LIMIT 1",
        (0 if anchor is None else anchor.number,),
    ).fetchone()
    return tip(connection, tables)[0], anchor, None if first is None else first[0]


def _warnings(
    settings: Settings, data: Path, free: int, ledger: LedgerCheckup | None
) -> Iterator[str]:
    """Yield what is not wrong yet, or weaker than it could be."""
    if free < LITTLE_BYTES:
        yield f"only {size_text(free)} are free on the disk of {data}: calls stop when it is full"
    key = KeyFile(data / KEY_NAME).remark()
    if key is not None:
        yield key
    if not settings.ledger.enabled:
        yield "ledger.enabled is false: nothing of what happens is kept"
    if ledger is not None:
        yield from _anchor_warnings(ledger, data)


def _anchor_warnings(ledger: LedgerCheckup, data: Path) -> Iterator[str]:
    if (_age(ledger.waiting_since) or 0) > _LATE_SECONDS:
        yield f"{ledger.rows - ledger.anchored} rows of the ledger have no anchor yet; see the log"
    if Path(ledger.anchor_file).absolute().is_relative_to(data.absolute()):
        yield (
            "the anchors are beside the ledger, so only accidents are found: set "
            "ledger.anchor_file to another disk or owner (docs/audit.md, Verifying)"
        )


def _lines(found: ProcessCheckup) -> Iterator[str]:
    yield f"data     {found.data_dir}, {size_text(found.free_bytes)} free"
    yield f"process  {'none serves it' if found.url is None else f'serves at {found.url}'}"
    if found.health is not None:
        states = ", ".join(f"{count} {state}" for state, count in found.health.servers.items())
        yield f"servers  {states or 'none'}"
    better = [level for level, why in found.isolation.items() if why]
    without = f" ({', '.join(better)}: not here)" if better else ""
    yield f"sandbox  {_best(found.isolation) or 'none'} is the best for local servers{without}"
    ledger = found.ledger
    if ledger is not None:
        age = _age(ledger.anchored_at)
        anchored = "none is anchored" if age is None else f"anchored up to {ledger.anchored}"
        when = "" if age is None else f", {_ago(age)} ago, in {ledger.anchor_file}"
        journal = f"journal {size_text(ledger.journal_bytes)}"
        yield f"ledger   {ledger.rows} rows, {anchored}{when}; {journal}"


def _age(at: str | None) -> float | None:
    return None if at is None else max(0.0, SYSTEM_CLOCK.now() - seconds_of(at))


def _ago(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def size_text(count: float) -> str:
    """Return a number of bytes in words."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1_000:
            return f"{count:.0f} {unit}"
        count /= 1_000
    return f"{count:.1f} GB"
