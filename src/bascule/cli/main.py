"""The parser of the ``bascule`` command and its exit codes.

Below: one module per command group, imported only when its command runs, so that ``--help``
stays quick. Exit codes: 0 done, 1 the work failed, 2 wrong usage, 10 refused by policy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from bascule import __version__
from bascule.cli import policy
from bascule.errors import InvalidRecord, SessionRefused

EXIT_FAILED = 1
EXIT_REFUSED = 10

Command = Callable[[argparse.Namespace], int]


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with every command."""
    parser = argparse.ArgumentParser(
        prog="bascule",
        description="The governed bridge between agents and MCP tools.",
        epilog="Every command explains itself: bascule COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"bascule {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    policy.add_parser(commands.add_parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    arguments = build_parser().parse_args(argv)
    command: Command = arguments.run
    try:
        return command(arguments)
    except SessionRefused as error:
        print(f"refused ({error.reason}): {error}", file=sys.stderr)
        return EXIT_REFUSED
    except InvalidRecord as error:
        for problem in error.problems:
            print(
                f"error: {error.source}: {problem}" if error.source else f"error: {problem}",
                file=sys.stderr,
            )
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return EXIT_FAILED
