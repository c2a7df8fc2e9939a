"""``bascule up``: read the settings, say where the process serves, and heed its signals.

Below: ``bascule.roots.up`` joins the parts, ``bascule.roots.dry_run`` tries the files alone. The
demo's records are written to the data directory at every start.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bascule.asgi.serve import CannotServe
from bascule.cli.configured import add_data_options, read_settings
from bascule.cli.running import run_async, shown, warn
from bascule.demo.copies import write_records
from bascule.errors import BasculeError, InvalidRecord
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.roots.data_dir import DEMO_FOLDER
from bascule.roots.dry_run import dry_run
from bascule.roots.settings import Settings
from bascule.roots.up import Orders, up

_EPILOG = """\
The first start makes a token for an administrator, writes it to a private file in the data
directory and prints it once; the first administrator's token of your own ends it. Records are
loaded again when their files change, and on SIGHUP. Ctrl-C and SIGTERM end the process when calls
under way have ended.

  bascule up
  bascule up --registry-dir mcp.d --empty --port 0
  bascule up --registry-dir mcp.d --dry-run
"""
_WITH_DEMO = ("servers list", "tokens create --role client --task demo --json", "tools list")
_WITHOUT_DEMO = ("servers add --help", "servers list")
_DEMO_TASK = TaskRecord(
    task_id="demo",
    name="Demo",
    mcp=TaskPolicy(enabled=True, default_server_ids=("notes",)),
)


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``up``."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_data_options(parser)
    text = parser.add_argument
    text("--host", metavar="ADDRESS", help="the address to listen on (127.0.0.1)")
    text("--port", type=int, metavar="PORT", help="the port for HTTP (7070); 0 takes a free one")
    text("--grpc-port", type=int, metavar="PORT", help="the port for gRPC, not yet served (7071)")
    text("--registry-dir", metavar="DIR", help="records to load, one a file")
    text("--registry-file", metavar="FILE", help="records to load, many in one file")
    text(
        "--backend",
        action="append",
        metavar="NAME=BASE_URL",
        help="a server that answers for models; may be repeated",
    )
    text("--agents", metavar="FILE", help="agents with servers of their own, looked after as well")
    text("--environment", metavar="NAME", help="the profiles' environment")
    text("--strict", action="store_true", default=None, help="refuse records with mistakes")
    text("--tls-certificate", metavar="FILE", help="a certificate, PEM")
    text("--tls-key", metavar="FILE", help="its key, PEM")
    text("--insecure", action="store_true", default=None, help="allow plain HTTP beyond loopback")
    text("--empty", action="store_true", help="leave the bundled demo records out")
    text("--dry-run", action="store_true", help="say what the records would change, and end")
    parser.set_defaults(run=serve, usage=parser.error, json=False)


def serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes, or try the records."""
    try:
        settings = read_settings(arguments)
        if arguments.dry_run:
            return run_async(_try(settings))
        run_async(_serve(settings, empty=arguments.empty))
    except InvalidRecord:
        raise  # said problem by problem, as everywhere
    except (BasculeError, OSError) as error:
        print(f"error: {error}{_hint(error)}", file=sys.stderr)
        return 1
    return 0


def _hint(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error, CannotServe) else None
    if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
        return "; another process serves there: end it, or give --port 0 to take a free one"
    return ""


async def _try(settings: Settings) -> int:
    """Say what loading the records would change; 1 if something of them cannot be used."""
    if settings.mcp.registry_dir is None and settings.mcp.registry_file is None:
        warn(["there is nothing to load: give --registry-dir or --registry-file"])
    written = await dry_run(settings)
    warn(written.warnings)
    for problem in written.problems:
        print(f"error: {shown(problem)}", file=sys.stderr)
    print(written.diff())
    return 1 if written.problems else 0


async def _serve(settings: Settings, *, empty: bool) -> None:
    orders = Orders(stop=asyncio.Event(), reload=asyncio.Event())
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(ending, orders.stop.set)
    loop.add_signal_handler(signal.SIGHUP, orders.reload.set)
    announce = _Printed(_WITHOUT_DEMO if empty else _WITH_DEMO)
    await up(settings, announce, orders, partial(_demo_records, empty=empty))


class _Printed:
    """Announcements on the terminal; ``try_next`` are commands for whoever is new."""

    def __init__(self, try_next: Sequence[str]) -> None:
        self._try_next = try_next

    def serving(self, url: str, setup_token: str | None, setup_file: Path) -> None:
        """Say where; on the first start also with which token, and what to do next."""
        if setup_token is not None:
            print(f"setup token: {setup_token}")
            print(f"  (an administrator's, shown this once; kept in {setup_file})")
        print(f"Bascule serves at {url}", flush=True)
        if setup_token is not None:
            print("Try next, in another terminal:")
            for words in self._try_next:
                print(f"  bascule {words}{_found_at(setup_file.parent)}")
            sys.stdout.flush()

    def problems(self, problems: Sequence[str]) -> None:
        """Say what was left out."""
        warn(problems)


def _found_at(data: Path) -> str:
    """Return the words that lead a command to a data directory, where it needs any."""
    usual = Path(Settings().data_dir).expanduser()
    return "" if data == usual else f" --data-dir {shlex.quote(str(data))}"


def _demo_records(data_dir: Path, *, empty: bool) -> Path | None:
    """Write the demo's records, or take them away; return their folder if there is one to load."""
    folder = data_dir / DEMO_FOLDER
    if empty and not folder.exists():
        return None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if not empty:
        write_records(folder, _DEMO_TASK)
    return folder
