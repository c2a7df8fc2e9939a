"""``bascule up``: read the settings, say where the process serves, and heed its signals.

``bascule.app.up`` joins the parts, ``bascule.app.dry_run`` tries the files alone. The demo's server
is written to the data directory at every start, its task is made once.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import logging
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from msgspec.structs import replace

from bascule.app.data_dir import DEMO_FOLDER
from bascule.app.dry_run import dry_run
from bascule.app.hardening import harden
from bascule.app.settings import Settings
from bascule.app.settings_tables import Level, LogForm
from bascule.app.up import Demo, Orders, up
from bascule.asgi.serve import CannotServe, NeedsTls
from bascule.cli.command import ALLOW_EGRESS, run_async, show, warn
from bascule.cli.command_line import typed
from bascule.cli.configuration import ADDRESS, CONFIG, DATA_DIR, DSN, read_settings
from bascule.cli.failures import complain, error_lines, error_object
from bascule.cli.page_link import page_link
from bascule.cli.parser import ENVIRONMENT, Parser, declared, many, option, switch
from bascule.cli.secrets import SECRETS_KEY_FD, given_key
from bascule.control.envelope import OuterKey
from bascule.demo.copies import write_records
from bascule.errors import BasculeError
from bascule.model.json import JsonObject
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.wire.api.addresses import GATEWAY, PAGE

logger = logging.getLogger("bascule.records")
_EPILOG = """\
On a terminal each start prints a link to the admin page, which opens it once, within ten minutes;
bascule web makes another. The first start creates an administrator token and writes it to a private
file in the data directory; it is valid until you create your own administrator token. Records are
loaded again when their files change, and on SIGHUP. After Ctrl-C or SIGTERM the process waits for
running calls, at most ten seconds, and exits; a second signal stops it at once.

  bascule up
  bascule up --registry-dir mcp.d --empty --port 0
  bascule up --registry-dir mcp.d --dry-run

With --json each announcement is one line of JSON on standard output: {"event": "serving", "url",
"mcp_url", "page_url", "setup_token", "setup_file"}, {"event": "problems", "problems"}, {"event":
"ended"}; a start that fails prints {"error"}, and a dry run prints one document.
"""
#: Commands for whoever is new, some with a note.
_WITH_DEMO = {
    "servers list": "",
    "tokens create --role client --task demo": "a token, and how to connect an MCP client with it",
    "tools list": "",
    "chat 'call notes.list_notes with {}'": "",
    """chat 'call notes.delete_note with {"name": "shopping"}'""": "waits until it is approved",
    "approvals watch": "in one more terminal: shows what is asked, and asks you",
}
_WITHOUT_DEMO = {"servers add time --allow '*' -- uvx mcp-server-time": "", "servers list": ""}
_DEMO_TASK = TaskRecord(
    task_id="demo",
    name="Demo",
    mcp=TaskPolicy(enabled=True, default_server_ids=("notes",)),
)


_OPTIONS = (
    DATA_DIR,
    CONFIG,
    SECRETS_KEY_FD,
    DSN,
    *ADDRESS,
    option("--registry-dir", "DIR", "records to load, one per file"),
    option("--registry-file", "FILE", "records to load, many in one file"),
    many(
        "--backend",
        "NAME=BASE_URL",
        "a server that answers for models; may be repeated",
        default=None,
    ),
    option("--agents", "FILE", "a file of agents with their own servers, connected too"),
    ENVIRONMENT,
    ALLOW_EGRESS,
    switch("--strict", "refuse records with mistakes", default=None),
    option("--log-level", None, "the lowest level that is logged (info)", choices=get_args(Level)),
    option("--log-format", None, "the format of the log (text)", choices=get_args(LogForm)),
    switch("--empty", "leave out the bundled demo records"),
    switch(
        "--new-registry",
        "start with an empty registry if there are tokens but no registry",
    ),
    switch("--dry-run", "print what the records would change, and exit"),
    switch("--json", "print announcements as JSON, one on each line"),
)


def fill(parser: Parser) -> None:
    """Add the options of ``up``."""
    declared(parser, serve, *_OPTIONS, epilog=_EPILOG)


def serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes, or try the records."""
    if not arguments.dry_run:
        harden()  # before anything that is secret is read
    try:
        settings = _with_egress(read_settings(arguments), arguments.allow_egress)
        key = given_key(arguments)  # before the event loop opens descriptors of its own
        if arguments.dry_run:
            return run_async(_try(settings, arguments))
        run_async(_serve(settings, arguments, key))
    except (BasculeError, OSError) as error:
        return _failed(error, as_json=arguments.json)
    return 0


def _with_egress(settings: Settings, hosts: Sequence[str]) -> Settings:
    """Return settings with further hosts besides those of the file and the environment."""
    node = replace(settings.node, egress=(*settings.node.egress, *hosts))
    return replace(settings, node=node)


def _failed(error: BasculeError | OSError, *, as_json: bool) -> int:
    """Say why there is nothing that serves, and the way out where there is one."""
    if as_json:
        _print_line({"error": error_object(error)})
    complain(f"{line}{_hint(error)}" for line in error_lines(error))
    return 1


def _hint(error: Exception) -> str:
    if isinstance(error, NeedsTls):
        return ": --tls-certificate and --tls-key, or --insecure"
    cause = error.__cause__ if isinstance(error, CannotServe) else None
    if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
        return "; another process serves there: end it, or give --port 0 to take a free one"
    return ""


async def _try(settings: Settings, arguments: argparse.Namespace) -> int:
    """Say what loading the records would change; 1 if something of them cannot be used."""
    if settings.mcp.registry_dir is None and settings.mcp.registry_file is None:
        warn(["there is nothing to load: give --registry-dir or --registry-file"])
    written = await dry_run(settings, new_registry=arguments.new_registry)
    closed = settings.node.closed()
    warn([*written.warnings, *([] if closed is None else [closed])])
    complain(written.problems)
    diff = written.diff().text
    found = {"problems": written.problems, "warnings": written.warnings}
    show(arguments, {"diff": diff.splitlines(), **found}, diff)
    return 1 if written.problems else 0


async def _serve(settings: Settings, arguments: argparse.Namespace, key: OuterKey | None) -> None:
    empty: bool = arguments.empty
    orders = Orders(stop=asyncio.Event(), reload=asyncio.Event(), hurry=asyncio.Event())
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(ending, partial(_end, orders))
    loop.add_signal_handler(signal.SIGHUP, orders.reload.set)
    try_next = _WITHOUT_DEMO if empty else _WITH_DEMO
    in_log = settings.log.format == "json"
    announce = _Lines() if arguments.json else _Printed(try_next, in_log=in_log)
    demo = Demo(_DEMO_TASK, partial(_demo_records, empty=empty), empty)
    await up(
        settings,
        announce,
        orders,
        demo,
        new_registry=arguments.new_registry,
        secrets_key=key,
    )
    if arguments.json:
        _print_line({"event": "ended"})


def _end(orders: Orders) -> None:
    """End when calls under way have ended; at the second signal, without them."""
    (orders.hurry if orders.stop.is_set() else orders.stop).set()


class _Printed:
    """Announcements on the terminal; ``try_next`` are commands for whoever is new, with notes.

    Where standard error is for machines (``in_log``), problems are lines of the log.
    """

    def __init__(self, try_next: Mapping[str, str], *, in_log: bool) -> None:
        self._try_next = try_next
        self._in_log = in_log

    @property
    def shows_links(self) -> bool:
        """Say whether a person reads this: under a service manager it goes into a log."""
        return sys.stdout.isatty()

    def serving(
        self, url: str, setup_token: str | None, setup_file: Path, code: str | None
    ) -> None:
        """Say where, and how to open the page; on the first start also what to do next."""
        place = _found_at(setup_file.parent)
        another = typed("web", place)
        print(f"Bascule serves at {url}")
        print(f"MCP clients connect to {url}{GATEWAY}")
        if code is None:
            print(f"The admin page is at {url}{PAGE}; a link that opens it: {another}")
        else:
            print(f"Open the admin page: {page_link(url, code)}")
            print(f"  (an administrator's, once, within ten minutes; another link: {another})")
        if setup_token is not None:
            print(f"An administrator's token for programs is in {setup_file}")
            print("Try next, in another terminal:")
            for words, note in self._try_next.items():
                command = typed(words, place)
                print(f"  {command}    # {note}" if note else f"  {command}")
        sys.stdout.flush()

    def problems(self, problems: Sequence[str]) -> None:
        """Say what was left out."""
        if not self._in_log:
            warn(problems)
            return
        for problem in problems:
            logger.warning("%s", problem)


class _Lines:
    """Announcements for programs: one JSON object a line."""

    shows_links = False

    def serving(
        self, url: str, setup_token: str | None, setup_file: Path, code: str | None
    ) -> None:
        """Say where, and on the first start with which token."""
        del code
        _print_line(
            {
                "event": "serving",
                "url": url,
                "mcp_url": f"{url}{GATEWAY}",
                "page_url": f"{url}{PAGE}",
                "setup_token": setup_token,
                "setup_file": str(setup_file.absolute()),
            }
        )

    def problems(self, problems: Sequence[str]) -> None:
        """Say what was left out or is doubtful; an empty list: nothing is any more."""
        _print_line({"event": "problems", "problems": list(problems)})


def _print_line(value: JsonObject) -> None:
    print(json.dumps(value), flush=True)


def _found_at(data: Path) -> argparse.Namespace | None:
    """Return the options that lead a command to a data directory, where it needs any."""
    usual = Path(Settings().data_dir).expanduser()
    return None if data == usual else argparse.Namespace(data_dir=str(data))


def _demo_records(data_dir: Path, *, empty: bool) -> Path | None:
    """Write the demo's records, or take them away; return their folder if there is one to load."""
    folder = data_dir / DEMO_FOLDER
    if empty and not folder.exists():
        return None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if not empty:
        write_records(folder)
    return folder
