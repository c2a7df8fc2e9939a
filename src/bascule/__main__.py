"""The ``bascule`` command."""

from __future__ import annotations

import gc
import sys

from bascule.cli.main import run


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        sys.exit(run(sys.argv[1:]))
    finally:
        gc.freeze()  # to look through all that goes away would take longer than most commands


if __name__ == "__main__":
    main()
