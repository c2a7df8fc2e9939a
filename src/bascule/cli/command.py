"""What the commands share: options, the files they name, the event loop, and how they print.

The node is not imported here: ``policy explain`` does without and is quick.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from bascule.cli.parser import ENVIRONMENT, many, option
from bascule.cli.table import paint
from bascule.errors import InvalidRecord
from bascule.files.scan import Scan, read_plain, scan_directory, scan_file
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.policy.characters import render_safe
from bascule.wire.records import decode
from bascule.wire.task_config import parse_session_params, parse_task_config

T = TypeVar("T")
_HOW_TO_BEGIN = "put one TOML or JSON file per server there, or see it at work: bascule tour"


class Plan(Struct, frozen=True):
    """What a command works on: the records, and the session it asks for."""

    snapshot: Snapshot
    task: TaskRecord | TaskPolicy | None
    request: SessionRequest
    environment: str | None
    egress: tuple[str, ...]
    warnings: tuple[str, ...]


REGISTRY_DIR = option("--registry-dir", "DIR", "records, one per file")
RECORDS = option("--registry-dir", "DIR", "records, one per file", required=True)
SESSION = option("--session", "FILE", "the session's parameters")
ALLOW_EGRESS = many(
    "--allow-egress",
    "HOST",
    "a private host, address or network that records may reach; may be repeated",
)
#: Whose session it is, over files or at a running process.
SESSION_OPTIONS = (
    REGISTRY_DIR,
    option("--task", "TASK", "the task: a file, or its id among the records"),
    SESSION,
    many("--server", "ID", "use this server only; may be repeated"),
    *(ALLOW_EGRESS, ENVIRONMENT),
)


def read_plan(arguments: argparse.Namespace) -> Plan:
    """Read the records and files that a command line names."""
    scan = scan_records(arguments.registry_dir)
    snapshot = scan.snapshot()
    task, task_warnings = _chosen_task(arguments.task, snapshot)
    request, session_warnings = read_request(arguments)
    known_servers(arguments, snapshot)
    if task is None and request.server_ids is None:
        request = replace(request, server_ids=_all_servers(scan, snapshot, arguments.registry_dir))
    warnings = (*file_warnings(scan), *task_warnings, *session_warnings)
    egress = tuple(arguments.allow_egress)
    return Plan(snapshot, task, request, arguments.environment, egress, warnings)


def _chosen_task(
    named: str | None, snapshot: Snapshot
) -> tuple[TaskRecord | TaskPolicy | None, tuple[str, ...]]:
    """Return the task of a command line: one of the records by its id, or a file."""
    if named is None:
        return None, ()
    if named in snapshot.tasks and not Path(named).exists():
        return snapshot.tasks[named], ()
    return read_task(named)


def scan_records(path: str, *, strict: bool = False) -> Scan:
    """Scan a directory of records, or one file of many."""
    if Path(path).is_file():
        return scan_file(path, strict=strict)
    return scan_directory(path, strict=strict)


def read_task(
    path: str, *, strict: bool = False
) -> tuple[TaskRecord | TaskPolicy, tuple[str, ...]]:
    """Read a task file in either form."""
    data = read_plain(path)
    if any(str(key).startswith("mcp.") for key in data):
        return parse_task_config(data, strict=strict)
    return decode(TaskRecord, {"task_id": "task", **data}, strict=strict, source=path)


def read_session(
    path: str | None, *, strict: bool = False
) -> tuple[SessionRequest, tuple[str, ...]]:
    """Read a file of session parameters; without one a session asks for nothing."""
    if path is None:
        return SessionRequest(), ()
    return parse_session_params(read_plain(path), strict=strict)


def read_request(arguments: argparse.Namespace) -> tuple[SessionRequest, tuple[str, ...]]:
    """Read what a session asks for: of a file, and of ``--server``."""
    request, warnings = read_session(arguments.session)
    if arguments.server:
        if request.server_ids is not None:
            arguments.usage("--server and the session file's mcp.server_ids both choose: give one")
        request = replace(request, server_ids=tuple(dict.fromkeys(arguments.server)))
    return request, warnings


def file_warnings(scan: Scan) -> list[str]:
    """Return what is wrong with the records, in words."""
    return [*scan.warnings, *(str(broken) for broken in scan.broken)]


def known_servers(arguments: argparse.Namespace, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the servers that ``--server`` names; one that does not exist is wrong usage."""
    chosen: list[str] = arguments.server
    for server in chosen:
        if server not in snapshot.servers:
            known = ", ".join(snapshot.servers) or "none"
            arguments.usage(f"no server {server!r} in {arguments.registry_dir} (known: {known})")
    return tuple(dict.fromkeys(chosen))


def _all_servers(scan: Scan, snapshot: Snapshot, where: str) -> tuple[str, ...]:
    """Return every enabled server; that there is none is worth an explanation."""
    if not snapshot.servers:
        broken = [str(broken) for broken in scan.broken]
        raise InvalidRecord([*broken, f"there is no server record; {_HOW_TO_BEGIN}"], source=where)
    enabled = tuple(s for s, record in snapshot.servers.items() if record.enabled)
    if not enabled:
        raise InvalidRecord(
            ["every server is disabled (enabled = false); enable one"], source=where
        )
    return enabled


def run_async(main: Coroutine[object, object, T]) -> T:
    """Run on uvloop where there is one."""
    import asyncio  # noqa: PLC0415 - see the module's first lines

    try:
        from uvloop import new_event_loop  # noqa: PLC0415 - not on every system
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def nearest(wanted: str, names: Iterable[str], *, count: int = 3) -> list[str]:
    """Return the names that somebody who wrote ``wanted`` may have meant."""
    return difflib.get_close_matches(wanted, list(names), n=count, cutoff=0.5)


def shown(text: str) -> str:
    """Return others' words on one line, fit for a terminal."""
    return render_safe(" ".join(text.split()), one_line=True)


def warn(warnings: Iterable[str]) -> None:
    """Print warnings where they do not mix with results."""
    for warning in warnings:
        print(paint(f"warning: {shown(warning)}", "yellow", sys.stderr), file=sys.stderr)


def print_json(value: object) -> None:
    """Print a value or struct as JSON; what is not plain ASCII is escaped, to deceive nobody."""
    print(json.dumps(to_builtins(value), indent=2))


def print_line(arguments: argparse.Namespace, value: object, text: str) -> None:
    """Print one of many things, as soon as it is there: as a line of JSON if so asked."""
    print(json.dumps(to_builtins(value)) if arguments.json else text, flush=True)


def show(
    arguments: argparse.Namespace,
    value: object,
    *texts: str,
    notes: Iterable[str] = (),
    warnings: Iterable[str] = (),
) -> int:
    """Print what a command came to: as JSON if so asked, else in texts with notes beside them."""
    if arguments.json:
        print_json(value)
        return 0
    for text in texts:
        print(text)
    for note in notes:
        print(note, file=sys.stderr)
    warn(warnings)
    return 0
