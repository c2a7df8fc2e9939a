"""``bascule rescan``: make a running process load its record files now.

Below: ``endpoint.py``. Above: ``main``.
"""

from __future__ import annotations

import argparse
import sys

from bascule.cli.command import print_json, shown, warn
from bascule.cli.endpoint import add_api_options, ask
from bascule.cli.parser import (
    EXIT_FAILED,
    declared,
)
from bascule.cli.table import paint
from bascule.policy.characters import render_safe
from bascule.wire.api.imports import Rescanned

_EPILOG = """\
examples:
  bascule rescan --dry-run
  bascule rescan

Exit code 1: a record was left out, or would be; the others are still loaded.
"""


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``rescan``."""
    declared(parser, rescan, _EPILOG)
    parser.add_argument("--dry-run", action="store_true", help="print what would change, and exit")
    add_api_options(parser)


def rescan(arguments: argparse.Namespace) -> int:
    """Load, and print what that changed and what was left out."""
    dry_run: bool = arguments.dry_run
    done = ask(arguments, lambda registry: registry.rescan(dry_run=dry_run))
    if arguments.json:
        print_json(done)
    else:
        _print(done, dry_run=dry_run)
    return EXIT_FAILED if done.problems else 0


def _print(done: Rescanned, *, dry_run: bool) -> None:
    print(render_safe("\n".join(done.diff)))
    if dry_run:
        print("nothing was written", file=sys.stderr)
    elif done.changed:
        print(f"revision {done.revision}", file=sys.stderr)
    warn(done.warnings)
    for problem in done.problems:
        print(paint(f"left out: {shown(problem)}", "red", sys.stderr), file=sys.stderr)
