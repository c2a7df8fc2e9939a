"""The machine around a sandbox: what a record's server may read and write there, and what is."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from bascule.model.sandbox import OWN_CWD, Sandbox
from bascule.model.server import Stdio
from bascule.model.shell_line import inner_programs
from bascule.node.pool.process import places
from bascule.node.pool.process.missed import Kind, Surroundings
from bascule.node.pool.process.plain_levels import MAC


class Machine:
    """A ``Disk``: this machine, with the PATH of a server."""

    def __init__(self, path: str, never: Iterable[str]) -> None:
        self._path = path
        self._never = tuple(never)

    def real(self, path: str) -> str:
        """Return a path without links."""
        return places.real(path)

    def kind(self, path: str) -> Kind | None:
        """Say what is there; None where nothing is, or nobody may look."""
        try:
            if Path(path).is_dir():
                return "folder"
            return "file" if Path(path).exists() else None
        except OSError:
            return None

    def installed(self, program: str) -> tuple[str, ...]:
        """Return where a program is installed, found on the server's PATH; () where it is not."""
        found = shutil.which(program, path=self._path)
        if found is None:
            return ()
        return tuple(dict.fromkeys(places.program_places([found], self._path, self._never)[0]))


def around(
    sandbox: Sandbox, stdio: Stdio, path: str, own: Iterable[str], never: tuple[str, ...]
) -> Surroundings:
    """Return what is around a record's server; ``path`` is where its programs are looked for."""
    machine = Machine(path, never)
    read = _granted(sandbox.read, stdio.cwd)
    programs = (stdio.command, *inner_programs((stdio.command, *stdio.args)))
    return Surroundings(
        sandbox,
        machine,
        system=tuple(places.system_places(mac=sys.platform == MAC)[0]),
        readable=(*(place for each in programs for place in machine.installed(each)), *read),
        writable=_granted(sandbox.write, stdio.cwd),
        own=tuple(map(places.real, own)),
        never=never,
    )


def _granted(grants: Iterable[str], cwd: str | None) -> tuple[str, ...]:
    spelled = (cwd if grant == OWN_CWD else os.path.expanduser(grant) for grant in grants)  # noqa: PTH111
    return tuple(places.real(place) for place in spelled if place is not None)
