"""``bascule up``: read the settings, say where the process serves, and heed its signals.

Below: ``bascule.roots.up`` joins the parts. The demo's records are written to the data directory
with the interpreter that runs this, so that the demo works wherever Bascule does.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from bascule.cli.configured import add_data_options, read_settings
from bascule.cli.running import run_async, warn
from bascule.demo import RECORDS
from bascule.errors import BasculeError, InvalidRecord
from bascule.files.scan import scan_directory
from bascule.model.server import Stdio
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.roots.settings import Settings
from bascule.roots.up import Orders, up
from bascule.wire.records import dump

_EPILOG = """\
The first start makes a token for an administrator, writes it to a private file in the data
directory and prints it once. Ctrl-C and SIGTERM end the process when calls under way have ended;
SIGHUP loads the records anew.

  bascule up
  bascule up --registry-dir mcp.d --empty --port 0
"""
_DEMO = "demo"
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
    text("--environment", metavar="NAME", help="the profiles' environment")
    text("--strict", action="store_true", default=None, help="refuse records with mistakes")
    text("--tls-certificate", metavar="FILE", help="a certificate, PEM")
    text("--tls-key", metavar="FILE", help="its key, PEM")
    text("--insecure", action="store_true", default=None, help="allow plain HTTP beyond loopback")
    text("--empty", action="store_true", help="leave the bundled demo records out")
    parser.set_defaults(run=serve, usage=parser.error, json=False)


def serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    try:
        settings = read_settings(arguments)
        run_async(_serve(settings, empty=arguments.empty))
    except InvalidRecord:
        raise  # said problem by problem, as everywhere
    except (BasculeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(settings: Settings, *, empty: bool) -> None:
    orders = Orders(stop=asyncio.Event(), reload=asyncio.Event())
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(ending, orders.stop.set)
    loop.add_signal_handler(signal.SIGHUP, orders.reload.set)
    await up(settings, _Printed(), orders, partial(_demo_records, empty=empty))


class _Printed:
    """Announcements on the terminal."""

    def serving(self, url: str, setup_token: str | None, setup_file: Path) -> None:
        """Say where, and with which token on the first start."""
        if setup_token is not None:
            print(f"setup token: {setup_token}")
            print(f"  (an administrator's, shown this once; kept in {setup_file})")
        print(f"Bascule serves at {url}", flush=True)

    def problems(self, problems: Sequence[str]) -> None:
        """Say what was left out."""
        warn(problems)


def _demo_records(data_dir: Path, *, empty: bool) -> Path | None:
    """Write the demo's records, or take them away; return their folder if there is one to load."""
    folder = data_dir / _DEMO
    if empty and not folder.exists():
        return None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if not empty:
        _write_demo(folder)
    return folder


def _write_demo(folder: Path) -> None:
    notes = scan_directory(RECORDS).snapshot().servers["notes"]
    args = notes.stdio.args if notes.stdio is not None else ()
    python = sys.executable.replace("$", "$$")
    record = replace(notes, stdio=Stdio(command=python, args=args))
    (folder / "tasks").mkdir()
    (folder / "notes.toml").write_text(dump(record, "toml"), encoding="utf-8")
    (folder / "tasks" / "demo.toml").write_text(dump(_DEMO_TASK, "toml"), encoding="utf-8")
