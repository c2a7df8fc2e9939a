"""The node's own rules: what records may read and start on this machine.

Records come from a registry that others may write; these rules belong to whoever runs the node,
and no record can widen them. Below: the patterns of ``bascule.model``. Above: ``pool.launch`` asks
before it starts a server, ``egress`` before it connects to one. In the lists of what
may be read and started None means "no rule", an empty list "nothing".
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated

from msgspec import Meta, Struct

from bascule.model.pattern import Pattern

# Given to every server in any case, so reading it tells a record nothing.
_ALWAYS_READABLE = frozenset({"PATH"})


class NodeRules(Struct, frozen=True, kw_only=True):
    """What the operator allows. Entries are names or paths with ``*`` (any run) and ``?``.

    ``egress`` is the exception in kind: it adds to what every node may reach, which is the public
    internet. Its entries are host names, IP addresses and networks (``10.1.0.0/16``). The last two
    bound the HOMEs that are kept: all of them together, and one that nobody uses.
    """

    variables: tuple[str, ...] | None = None
    executables: tuple[str, ...] | None = None
    files: tuple[str, ...] | None = None
    egress: tuple[str, ...] = ()
    homes_max_mb: Annotated[int, Meta(ge=0)] = 5120
    homes_max_days: Annotated[int, Meta(ge=0)] = 30

    def allows_variable(self, name: str) -> bool:
        """Say whether a record may read this variable of the node."""
        return name in _ALWAYS_READABLE or _covered(self.variables, name)

    def allows_file(self, real_path: str) -> bool:
        """Say whether a record may read this file; the path has no links left in it."""
        return _covered(self.files, real_path)

    def allows_executable(self, program: str, name: str | None) -> bool:
        """Say whether a program may be started: its absolute path, or the name it was found by.

        ``name`` is None unless the node's own PATH led to the program: a list of names must
        not be answered by a record that brings its own folders. Nor is a path with ``..`` in
        it ever covered, since it says nothing about where it leads.
        """
        if self.executables is None:
            return True
        if ".." in PurePath(program).parts:
            return False
        paths = tuple(entry for entry in self.executables if "/" in entry or entry == "*")
        names = tuple(entry for entry in self.executables if "/" not in entry)
        return _covered(paths, program) or (name is not None and _covered(names, name))


def _covered(entries: tuple[str, ...] | None, text: str) -> bool:
    """Say whether an entry covers the whole text; ``node/`` stands where patterns name a server."""
    return entries is None or any(
        Pattern(f"node/{entry}").matches("node", text) for entry in entries
    )
