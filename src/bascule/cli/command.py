"""What the commands share: options, the files they name, the bridge, and the event loop.

Below: ``bascule.files`` and the readers of ``bascule.wire``; the node is imported only when a
bridge is opened, because ``policy explain`` does without and is quick. Above: ``policy``,
``tools`` and ``doctor``.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import AsyncGenerator, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from bascule.cli.table import paint
from bascule.errors import InvalidRecord
from bascule.files.scan import Scan, read_plain, scan_directory, scan_file
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.policy.characters import render_safe
from bascule.wire.records import decode
from bascule.wire.task_config import parse_session_params, parse_task_config

if TYPE_CHECKING:
    from bascule.node.assembly import Bridge
    from bascule.node.bridge.session import Session
    from bascule.node.ports import Approver
    from bascule.outbound.rules import NodeRules

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


def add_registry_option(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the option that every command on records has."""
    parser.add_argument(
        "--registry-dir", required=required, metavar="DIR", help="records, one per file"
    )


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say whose session it is, over files or at a running process."""
    add_registry_option(parser, required=False)
    parser.add_argument(
        "--task", metavar="TASK", help="the task: a file, or its id in a running process"
    )
    parser.add_argument("--session", metavar="FILE", help="the session's parameters")
    add_server_option(parser, "use this server only; may be repeated")
    parser.add_argument("--environment", metavar="NAME", help="the environment for profiles")


def add_server_option(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the options that pick servers, and say where they may be."""
    parser.add_argument("--server", action="append", default=[], metavar="ID", help=text)
    parser.add_argument(
        "--allow-egress",
        action="append",
        default=[],
        metavar="HOST",
        help="a private host, address or network that records may reach; may be repeated",
    )


def read_plan(arguments: argparse.Namespace) -> Plan:
    """Read the records and files that a command line names."""
    scan = scan_records(arguments.registry_dir)
    snapshot = scan.snapshot()
    task, task_warnings = (None, ()) if arguments.task is None else read_task(arguments.task)
    request, session_warnings = read_session(arguments.session)
    if arguments.server and request.server_ids is not None:
        arguments.usage("--server and the session file's mcp.server_ids both choose: give one")
    if arguments.server:
        chosen = known_servers(arguments, snapshot)
        request = replace(request, server_ids=chosen)
    elif task is None and request.server_ids is None:
        request = replace(request, server_ids=_all_servers(scan, snapshot, arguments.registry_dir))
    warnings = (*file_warnings(scan), *task_warnings, *session_warnings)
    egress = tuple(arguments.allow_egress)
    return Plan(snapshot, task, request, arguments.environment, egress, warnings)


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
        raise InvalidRecord([*broken, f"no server record to use; {_HOW_TO_BEGIN}"], source=where)
    enabled = tuple(s for s, record in snapshot.servers.items() if record.enabled)
    if not enabled:
        raise InvalidRecord(["every server says enabled = false; enable one"], source=where)
    return enabled


def open_bridge(
    snapshot: Snapshot,
    *,
    approver: Approver | None = None,
    environment: str | None = None,
    egress: tuple[str, ...] = (),
    rules: NodeRules | None = None,
) -> Bridge:
    """Return a bridge over the records; ``egress`` adds to what ``rules`` allow."""
    from bascule.node.assembly import Bridge  # noqa: PLC0415 - see the module's first lines
    from bascule.outbound.rules import NodeRules  # noqa: PLC0415

    given = rules or NodeRules()
    rules = replace(given, egress=(*given.egress, *egress))
    return Bridge.open(snapshot, approver=approver, environment=environment, rules=rules)


@asynccontextmanager
async def open_session(plan: Plan, approver: Approver | None = None) -> AsyncGenerator[Session]:
    """Open a bridge and one session on it; both end with the block."""
    from bascule.node.bridge.opening import Opening  # noqa: PLC0415 - see the module's first lines

    bridge = open_bridge(
        plan.snapshot, approver=approver, environment=plan.environment, egress=plan.egress
    )
    opening = Opening(request=plan.request, task=plan.task)
    async with bridge, bridge.open_session(opening) as session:
        yield session


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where there is one."""
    import asyncio  # noqa: PLC0415 - as for the node

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


def print_json(value: Any) -> None:
    """Print a value or struct as JSON; what is not plain ASCII is escaped, to deceive nobody."""
    print(json.dumps(to_builtins(value), indent=2))
