"""``bascule preflight``: can this machine serve? What is missing, and how to mend it.

Nothing is changed, on the machine or in the database.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TypeAlias

from bascule.app.settings import Settings
from bascule.app.shared_registry import with_shared
from bascule.asgi.serve import CannotServe
from bascule.cli.command import print_json, run_async, shown
from bascule.cli.configuration import CONFIG, DATA_DIR, DSN, address, read_settings
from bascule.cli.findings import Checker, Finding, Verdict
from bascule.cli.machine_checks import (
    data_directory,
    free_space,
    not_served,
    port,
    server_key,
    stored_forms,
    time_of_day,
    tls_files,
)
from bascule.cli.node import ALLOWING, FOLLOWING, PLACED, node_order, node_settings
from bascule.cli.parser import EXIT_FAILED, JSON, Parser, actions_of, command
from bascule.cli.progress import StatusLine
from bascule.cli.table import Colour, paint
from bascule.errors import BasculeError

#: Finds out, and tells what it is looking at.
Look: TypeAlias = Callable[[Callable[[str], None]], AsyncGenerator[Finding, None]]
_COLOURS: Mapping[Verdict, Colour] = {"ok": "green", "warning": "yellow", "failed": "red"}
_WIDTH = 16
_EXAMPLES = """\
examples:
  bascule preflight registry                       # with the settings of bascule up
  BASCULE_DSN=postgresql://bascule@db/bascule bascule preflight registry --json

It changes nothing: privileges are tried in a transaction that is undone.
Exit code 0: it can be served, perhaps with warnings; 1: it cannot.
"""
_NODE_EXAMPLES = """\
examples:
  bascule preflight node --registry registry.example:7071 --ca ca.pem --token-file token
  bascule preflight node --registry 127.0.0.1:7071 --allow-executable 'uvx mcp-server-time' --json

Give it the options of bascule node serve. It starts and reaches no server, and keeps nothing.
Exit code 0: the node can be served, perhaps with warnings; 1: it cannot.
"""


def fill(parser: Parser) -> None:
    """Add what can be looked at."""
    actions = actions_of(parser)
    summary = "check this machine, and its database, before a registry is served"
    options = (DATA_DIR, CONFIG, DSN, *address(7070), JSON)
    command(actions, "registry", summary, preflight_registry, *options, epilog=_EXAMPLES)
    summary = "check this machine, its token and its control plane, before a node is served"
    options = (*FOLLOWING, *PLACED, *ALLOWING, JSON)
    command(actions, "node", summary, preflight_node, *options, epilog=_NODE_EXAMPLES)


def preflight_registry(arguments: argparse.Namespace) -> int:
    """Look at everything that a registry needs, and print each finding as it comes."""
    settings = with_shared(read_settings(arguments))
    return _told(arguments, lambda say: registry_findings(settings, say))


def preflight_node(arguments: argparse.Namespace) -> int:
    """Look at everything that a node needs, and print each finding as it comes."""
    settings = node_settings(arguments)
    return _told(arguments, lambda say: node_findings(settings, arguments, say))


def _told(arguments: argparse.Namespace, look: Look) -> int:
    found = run_async(_examine(look, None if arguments.json else _print))
    well = all(finding.verdict != "failed" for finding in found)
    if arguments.json:
        print_json({"ok": well, "checks": found})
    return 0 if well else EXIT_FAILED


async def _examine(look: Look, tell: Callable[[Finding], None] | None) -> list[Finding]:
    line = StatusLine()
    found: list[Finding] = []
    async with (
        line.waiting("looking at this machine"),
        aclosing(look(line.say)) as findings,
    ):
        async for finding in findings:
            found.append(finding)
            if tell is not None:
                with line.held():
                    tell(finding)
    return found


async def registry_findings(
    settings: Settings, say: Callable[[str], None]
) -> AsyncGenerator[Finding, None]:
    """Yield what was found, check by check; ``say`` is told what is being looked at."""
    data = Path(settings.data_dir)
    yield data_directory(data)
    yield free_space(data)
    yield not_served(data)
    yield server_key(data, shared=settings.store.dsn is not None)
    yield tls_files(settings.server)
    yield await port(settings.server)
    yield time_of_day()
    if settings.store.dsn is None:
        yield stored_forms(data)
        return
    try:
        from bascule.cli.database_checks import database  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        mend = "install it: pip install 'bascule[scale]'"
        yield Checker("database").failed(f"its driver is not installed ({error.name})", mend)
        return
    async with aclosing(database(settings.store, Path(settings.data_dir), say)) as findings:
        async for finding in findings:
            yield finding


async def node_findings(
    settings: Settings, arguments: argparse.Namespace, say: Callable[[str], None]
) -> AsyncGenerator[Finding, None]:
    """Yield what was found, check by check; ``say`` is told what is being looked at."""
    data = Path(settings.data_dir)
    yield data_directory(data)
    yield free_space(data)
    busy = not_served(data)
    yield busy
    yield tls_files(settings.server)
    yield await port(settings.server)
    yield time_of_day()
    try:
        order = node_order(arguments)
    except CannotServe as error:
        yield Checker("packages").failed(str(error), "pip install 'bascule[scale]'")
        return
    except (BasculeError, OSError) as error:
        words, _, mend = str(error).partition("; ")
        yield Checker("token").failed(words, mend or "name a file that can be read")
        return
    if busy.verdict == "failed":
        return  # its control plane would take this for a second process of the node
    from bascule.cli.node_checks import node_findings as of_node  # noqa: PLC0415 - with grpc

    file = None if arguments.token_file is None else Path(arguments.token_file)
    async with aclosing(of_node(settings, order, file, say)) as findings:
        async for finding in findings:
            yield finding


def _print(finding: Finding) -> None:
    verdict = paint(f"{finding.verdict:7}", _COLOURS[finding.verdict])
    print(f"{verdict}  {finding.check:{_WIDTH}}{shown(finding.words)}", flush=True)
    if finding.mend is not None:
        print(f"{'':9}{'mend:':{_WIDTH}}{shown(finding.mend)}", flush=True)
