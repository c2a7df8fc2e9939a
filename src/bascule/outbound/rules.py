"""The node's own rules: what records may read and start on this machine.

Records come from a registry that others may write; these rules belong to whoever runs the node,
and no record can widen them. Of the lists of what may be read, started and run None means "no rule"
while all of them are None, and "nothing" as soon as one is set: whoever writes one list means to
contain records, and the others would be the way out.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Final

from msgspec import Meta, Struct

from bascule.model.keyword import refuse_text
from bascule.model.pattern import Pattern

# Given to every server in any case, so reading it tells a record nothing.
_ALWAYS_READABLE = frozenset({"PATH"})
# Bascule's own: tokens, addresses, rules. No list opens them.
_OWN_PREFIX = "BASCULE_"
_WHAT = {
    "variables": "read no variable but PATH",
    "executables": "start no program",
    "files": "read no file",
    "guests": "run no WASM module",
}


#: The ``proxy`` that is whatever HTTPS_PROXY, HTTP_PROXY and NO_PROXY say.
FROM_ENVIRONMENT: Final = "environment"
# A password has no place in a file of settings: it stands in HTTPS_PROXY.
_PROXY = rf"^({FROM_ENVIRONMENT}|http://[A-Za-z0-9._-]+(:[0-9]+)?/?|http://\[[0-9a-fA-F:.]+\](:[0-9]+)?/?)$"


class NodeLists(Struct, frozen=True, kw_only=True):
    """What the operator allows. Entries are names or paths with ``*`` (any run) and ``?``.

    ``guests`` are the WASM modules that tasks may run in a process of the node.
    ``egress`` is the exception in kind: it adds to what every node may reach, which is the public
    internet. Its entries are host names, IP addresses and networks (``10.1.0.0/16``). ``proxy`` is
    what remote servers and backends are reached through: a URL, or ``environment``. The last two
    bound the HOMEs that are kept: all of them together, and one that nobody uses.
    """

    variables: tuple[str, ...] | None = None
    executables: tuple[str, ...] | None = None
    files: tuple[str, ...] | None = None
    guests: tuple[str, ...] | None = None
    egress: tuple[str, ...] = ()
    proxy: Annotated[str, Meta(pattern=_PROXY)] | None = None
    homes_max_mb: Annotated[int, Meta(ge=0)] = 5120
    homes_max_days: Annotated[int, Meta(ge=0)] = 30

    def __post_init__(self) -> None:
        refuse_text(
            type(self).__name__,
            variables=self.variables,
            executables=self.executables,
            files=self.files,
            guests=self.guests,
            egress=self.egress,
        )

    def closed(self) -> str | None:
        """Say which lists are empty because another one is set, if any are."""
        lists = {name: getattr(self, name) for name in _WHAT}
        given = [name for name, entries in lists.items() if entries is not None]
        absent = [name for name, entries in lists.items() if entries is None]
        if not given or not absent:
            return None
        return (
            f"[node] {' and '.join(given)} {'is' if len(given) == 1 else 'are'} set, so records "
            f"may {' and '.join(_WHAT[name] for name in absent)}; list what they may in [node] "
            f"{' and '.join(absent)}"
        )


class NodeRules(NodeLists, frozen=True, kw_only=True):
    """What is allowed on this machine: its operator's lists, and what no list can open.

    ``private`` are folders and files that records never read: the data directory, our own keys.
    ``closed_to_others``: an absent list is an empty one, and nothing is reached but what ``egress``
    lists: the records are those of others.
    """

    private: tuple[str, ...] = ()
    closed_to_others: bool = False

    @staticmethod
    def is_own_variable(name: str) -> bool:
        """Say whether a variable is Bascule's own, which no record ever reads."""
        return name.upper().startswith(_OWN_PREFIX)

    def allows_variable(self, name: str) -> bool:
        """Say whether a record may read this variable of the node."""
        if self.is_own_variable(name):
            return False
        return name in _ALWAYS_READABLE or covers(self._effective(self.variables), name)

    def allows_file(self, real_path: str) -> bool:
        """Say whether a record may read this file; the path has no links left in it."""
        return covers(self._effective(self.files), real_path)

    def allows_guest(self, real_path: str) -> bool:
        """Say whether a task may run this module; the path has no links left in it."""
        return covers(self._effective(self.guests), real_path)

    def listed_executables(self) -> tuple[str, ...] | None:
        """Return the entries of the list of executables; None where any program is started."""
        return self._effective(self.executables)

    def _effective(self, entries: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return a list as it counts: one that is absent is empty as soon as another is set."""
        is_set = any(getattr(self, name) is not None for name in _WHAT)
        return () if entries is None and (is_set or self.closed_to_others) else entries


def covers_program(entry: str, program: str, name: str | None) -> bool:
    """Say whether a word of an entry covers a program: its absolute path, or its name.

    ``name`` is None unless the node's own PATH led to the program: a list of names must not be
    answered by a record that brings its own folders. Nor is a path with ``..`` in it ever covered,
    since it says nothing about where it leads.
    """
    if ".." in PurePath(program).parts:
        return False
    if "/" in entry or entry == "*":
        return covers((entry,), program)
    return name is not None and covers((entry,), name)


def covers(entries: tuple[str, ...] | None, text: str) -> bool:
    """Say whether an entry covers the whole text; ``node/`` stands where patterns name a server."""
    return entries is None or any(
        Pattern(f"node/{entry}").matches("node", text) for entry in entries
    )
