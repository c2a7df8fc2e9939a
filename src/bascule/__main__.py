"""The ``bascule`` command."""

from __future__ import annotations

import gc
import sys

from bascule.cli.main import run


def main() -> None:
    """Run the command line and leave with its exit code."""
    gc.disable()  # what is loaded stays: looking through it meanwhile finds nothing to take away
    try:
        sys.exit(run(sys.argv[1:], loaded=_settle))
    finally:
        gc.freeze()  # to look through all that goes away would take longer than most commands


def _settle() -> None:
    """Leave what has been loaded out of every later look for garbage."""
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    main()
