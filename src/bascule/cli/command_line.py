"""Commands as people can type them: with the full path where the PATH does not lead to it.

Whatever a command prints for somebody to type next is made here, with the options that lead to
the same process.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path

NAME = "bascule"


@cache
def program() -> str:
    """Return how this very program is called from a shell."""
    script = Path(sys.executable).absolute().with_name(NAME)
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m {NAME}"
    found = shutil.which(NAME)
    if found is not None and Path(found).samefile(script):
        return NAME
    return shlex.quote(str(script))


def typed(words: str, arguments: argparse.Namespace | None = None) -> str:
    """Return a command line; its words may hold another command behind `` -- ``."""
    own, dashes, other = words.partition(" -- ")
    return f"{program()} {own}{_place(arguments)}{dashes}{other}"


def _place(arguments: argparse.Namespace | None) -> str:
    """Return the options of a command that say which process it talks to, but for its token."""
    if arguments is None:
        return ""
    given = vars(arguments)
    options = [("--api-url", given.get("api_url"))]
    options += [(f"--{name.replace('_', '-')}", _whole(given.get(name))) for name in _PATHS]
    return "".join(f" {name} {shlex.quote(value)}" for name, value in options if value)


_PATHS = ("data_dir", "config", "registry_dir")


def _whole(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser().absolute())
