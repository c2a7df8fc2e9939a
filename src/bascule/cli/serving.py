"""What the commands that serve have in common: options, signals, and what they announce."""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from bascule.app.serving import Announce, Orders
from bascule.app.settings import Settings
from bascule.app.settings_tables import Level, LogForm
from bascule.asgi.serve import CannotServe, NeedsTls
from bascule.cli.command import warn
from bascule.cli.command_line import typed
from bascule.cli.configuration import CONFIG, DATA_DIR, DSN, address
from bascule.cli.failures import complain, error_lines, error_object
from bascule.cli.page_link import page_link
from bascule.cli.parser import EXIT_FAILED, option, switch
from bascule.cli.secrets import SECRETS_KEY_FD
from bascule.errors import BasculeError
from bascule.model.json import JsonObject
from bascule.wire.api.addresses import GATEWAY, PAGE

logger = logging.getLogger("bascule.records")
LOGGING = (
    option("--log-level", None, "the lowest level that is logged (info)", choices=get_args(Level)),
    option("--log-format", None, "the format of the log (text)", choices=get_args(LogForm)),
)
JSON_LINES = switch("--json", "print announcements as JSON, one on each line")
#: The options of every command that serves a registry.
SERVING = (
    DATA_DIR,
    CONFIG,
    SECRETS_KEY_FD,
    DSN,
    *address(7070),
    switch("--grpc", "serve the registry over gRPC too", default=None),
    option("--grpc-port", "PORT", "the port for gRPC (7071, or one above --port)", type=int),
    option("--registry-dir", "DIR", "records to load, one per file"),
    option("--registry-file", "FILE", "records to load, many in one file"),
    switch("--strict", "refuse records with mistakes", default=None),
    *LOGGING,
    switch(
        "--new-registry",
        "start with an empty registry if there are tokens but no registry",
    ),
    JSON_LINES,
)


def orders_of_signals() -> Orders:
    """Heed the signals of this process; call it inside its event loop."""
    orders = Orders(stop=asyncio.Event(), reload=asyncio.Event(), hurry=asyncio.Event())
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(ending, partial(_end, orders))
    loop.add_signal_handler(signal.SIGHUP, orders.reload.set)
    return orders


def _end(orders: Orders) -> None:
    """End when calls under way have ended; at the second signal, without them."""
    (orders.hurry if orders.stop.is_set() else orders.stop).set()


def announced_to(
    arguments: argparse.Namespace,
    settings: Settings,
    try_next: Mapping[str, str],
    *,
    gateway: bool = True,
) -> Announce:
    """Return who is told what happens: a person, or a program; ``gateway``: MCP clients connect."""
    if arguments.json:
        return _Lines(gateway=gateway)
    return _Printed(try_next, in_log=settings.log.format == "json", gateway=gateway)


def say_ended(arguments: argparse.Namespace) -> None:
    """Say to a program that nothing serves any more."""
    if arguments.json:
        print_announcement({"event": "ended"})


def not_served(error: BasculeError | OSError, *, as_json: bool) -> int:
    """Say why there is nothing that serves, and the way out where there is one."""
    if as_json:
        print_announcement({"error": error_object(error)})
    complain(f"{line}{_hint(error)}" for line in error_lines(error))
    return EXIT_FAILED


def _hint(error: Exception) -> str:
    if isinstance(error, NeedsTls):
        return ": --tls-certificate and --tls-key, or --insecure"
    cause = error.__cause__ if isinstance(error, CannotServe) else None
    if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
        return "; another process serves there: end it, or give --port 0 to take a free one"
    return ""


class _Printed:
    """Announcements on the terminal; ``try_next`` are commands for whoever is new, with notes.

    Where standard error is for machines (``in_log``), problems are lines of the log.
    """

    def __init__(self, try_next: Mapping[str, str], *, in_log: bool, gateway: bool) -> None:
        self._try_next = try_next
        self._gateway = gateway
        self._in_log = in_log

    @property
    def shows_links(self) -> bool:
        """Say whether a person reads this: under a service manager it goes into a log."""
        return sys.stdout.isatty()

    def serving(
        self,
        url: str,
        setup_token: str | None,
        setup_file: Path,
        code: str | None,
        grpc: str | None,
    ) -> None:
        """Say where, and how to open the page; on the first start also what to do next."""
        place = _found_at(setup_file.parent)
        another = typed("web", place)
        print(f"Bascule serves at {url}")
        if self._gateway:
            print(f"MCP clients connect to {url}{GATEWAY}")
        if grpc is not None:
            print(f"The registry answers over gRPC at {grpc}")
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

    def __init__(self, *, gateway: bool) -> None:
        self._gateway = gateway

    def serving(
        self,
        url: str,
        setup_token: str | None,
        setup_file: Path,
        code: str | None,
        grpc: str | None,
    ) -> None:
        """Say where, and on the first start with which token."""
        del code
        print_announcement(
            {
                "event": "serving",
                "url": url,
                **({"mcp_url": f"{url}{GATEWAY}"} if self._gateway else {}),
                **({} if grpc is None else {"grpc": grpc}),
                "page_url": f"{url}{PAGE}",
                "setup_token": setup_token,
                "setup_file": str(setup_file.absolute()),
            }
        )

    def problems(self, problems: Sequence[str]) -> None:
        """Say what was left out or is doubtful; an empty list: nothing is any more."""
        print_announcement({"event": "problems", "problems": list(problems)})


def print_announcement(value: JsonObject) -> None:
    """Print an announcement for a program."""
    print(json.dumps(value), flush=True)


def _found_at(data: Path) -> argparse.Namespace | None:
    """Return the options that lead a command to a data directory, where it needs any."""
    usual = Path(Settings().data_dir).expanduser()
    return None if data == usual else argparse.Namespace(data_dir=str(data))
