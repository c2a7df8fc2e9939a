"""``bascule rescan``: have a running process load its files of records now."""

from __future__ import annotations

import argparse
import sys

from bascule.cli.command import show, shown
from bascule.cli.endpoint import api_options, ask
from bascule.cli.parser import DRY_RUN, EXIT_FAILED, Parser, declared
from bascule.cli.table import paint
from bascule.policy.characters import render_safe

_EPILOG = """\
examples:
  bascule rescan --dry-run
  bascule rescan

Exit code 1: a record was left out, or would be; the others are still loaded.
"""


def fill(parser: Parser) -> None:
    """Add the options of ``rescan``."""
    declared(parser, rescan, DRY_RUN, *api_options(), epilog=_EPILOG)


def rescan(arguments: argparse.Namespace) -> int:
    """Load, and print what that changed and what was left out."""
    dry_run: bool = arguments.dry_run
    done = ask(arguments, lambda registry: registry.rescan(dry_run=dry_run), "operator")
    wrote = [f"revision {done.revision}"] if done.changed else []
    notes = ["nothing was written"] if dry_run else wrote
    text = render_safe("\n".join(done.diff))
    show(arguments, done, text, notes=notes, warnings=done.warnings)
    if not arguments.json:
        for problem in done.problems:
            print(paint(f"left out: {shown(problem)}", "red", sys.stderr), file=sys.stderr)
    return EXIT_FAILED if done.problems else 0
