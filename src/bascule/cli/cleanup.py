"""``bascule servers clean``: remove what servers kept on this machine.

HOMEs are kept in the data directory, and by the library and the commands in the user's cache
folder. No process is asked: a HOME that is in use says so itself, and stays.
"""

from __future__ import annotations

import argparse
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bascule.app.data_dir import HOMES_FOLDER
from bascule.cli.command import show, shown
from bascule.cli.configuration import CONFIG, DATA_DIR, read_settings
from bascule.cli.parser import EXIT_FAILED, JSON, Actions, command, option, switch
from bascule.cli.table import render_table
from bascule.model.json import JsonObject

if TYPE_CHECKING:
    from bascule.node.homes import Homes, KeptHome

_MB = 1024 * 1024
_EXAMPLES = """\
examples:
  bascule servers clean --dry-run
  bascule servers clean time
  bascule servers clean time --pins

Each local server has its own HOME, with the packages that uvx or npx downloaded into it. The next
start creates it again, with newer versions where the command leaves them open. A HOME that is in
use is not removed. A version that was downloaded once must have the same hashes the next time;
--pins accepts other ones, and newer dependencies of a version that the command names.
"""


def add_clean(actions: Actions) -> None:
    """Add the command."""
    summary = "remove the kept HOMEs of local servers, with their packages"
    only = option("id", "ID", "only the HOMEs of this server", nargs="?")
    trial = switch("--dry-run", "print what would go, and exit")
    pins = switch("--pins", "also forget the versions and hashes that servers are held to")
    options = (only, trial, pins, DATA_DIR, CONFIG, JSON)
    command(actions, "clean", summary, clean, *options, epilog=_EXAMPLES)


def clean(arguments: argparse.Namespace) -> int:
    """Remove kept HOMEs; exit 1 when the server that was named has none."""
    places = _places(arguments)
    found = [
        (homes, home)
        for homes in places
        for home in homes.found()
        if arguments.id in (None, home.server_id)
    ]
    rows = [(home, _removed(homes, home, dry_run=arguments.dry_run)) for homes, home in found]
    pins = [path for homes in places for path in _pins(homes, arguments)]
    homes = [_plain(home, outcome) for home, outcome in rows]
    nothing = "no HOME is kept" + (f" for {shown(arguments.id)}" if arguments.id else "")
    header = ("server", "size", "last used", "what", "folder")
    table = render_table(header, [_row(home, outcome) for home, outcome in rows], none=nothing)
    forgotten = "would forget" if arguments.dry_run else "forgot"
    texts = [f"{forgotten} {shown(str(path))}" for path in pins]
    value = {"dry_run": arguments.dry_run, "homes": homes, "pins": [str(path) for path in pins]}
    show(arguments, value, table, *texts)
    return EXIT_FAILED if arguments.id is not None and not rows and not pins else 0


def _pins(homes: Homes, arguments: argparse.Namespace) -> list[Path]:
    """Forget what servers are held to, if so asked; else have newer versions looked for."""
    files = homes.pin_files(arguments.id)
    if not arguments.dry_run:
        for file in files:
            with suppress(OSError):
                file.unlink() if arguments.pins else os.utime(file, (0, 0))
    return files if arguments.pins else []


def _places(arguments: argparse.Namespace) -> list[Homes]:
    """Return where HOMEs are kept: by the process of the data directory, and by the library."""
    from bascule.node.homes import Homes, user_homes  # noqa: PLC0415 - this command alone

    data = Path(read_settings(arguments).data_dir)
    of_user = user_homes(os.environ)
    return [Homes(data, (HOMES_FOLDER,)), *([] if of_user is None else [of_user])]


def _removed(homes: Homes, home: KeptHome, *, dry_run: bool) -> str:
    if home.in_use:
        return "in use"
    if dry_run:
        return "would go"
    return "removed" if homes.remove(home) else "in use"


def _row(home: KeptHome, outcome: str) -> list[str]:
    used = datetime.fromtimestamp(home.used_at, UTC).strftime("%Y-%m-%d %H:%M")
    size = f"{home.bytes / _MB:.1f} MB"
    return [shown(home.server_id), size, used, outcome, shown(str(home.folder))]


def _plain(home: KeptHome, outcome: str) -> JsonObject:
    return {
        "server_id": home.server_id,
        "folder": str(home.folder),
        "bytes": home.bytes,
        "used_at": home.used_at,
        "in_use": outcome == "in use",
        "removed": outcome == "removed",
    }
