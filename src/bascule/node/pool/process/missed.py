"""What a server missed inside its sandbox, by its own words: which grant would give it.

No kernel tells a node what a confined program was refused, so what it wrote before it gave up is
read. That is a guess in its favour and grants nothing: a person decides. Pure.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from bascule.model.sandbox import Sandbox
from bascule.node.pool.process.places import within
from bascule.wire.api.trials import Missed

Kind = Literal["file", "folder"]
MOST = 6
_LONGEST = 1024

_REFUSED = re.compile(
    r"permission denied|no such file or directory|operation not permitted|read-only file system"
    r"|not found|cannot find module|can(?:no|')t open|\b(?:EACCES|EPERM|ENOENT|EROFS)\b",
    re.IGNORECASE,
)
_WRITES = re.compile(
    r"read-only file system|cannot (?:create|touch|remove)|\bEROFS\b"
    r"|\b(?:mkdir|mkdtemp|unlink|rmdir|rename|copyfile|symlink|link|f?chmod|l?chown|l?utimes?)\b",
    re.IGNORECASE,
)
_ABSENT = re.compile(r"no such file or directory|not found|\bENOENT\b", re.IGNORECASE)
_QUOTED = re.compile(r"""['"`](/[^'"`]*)['"`]""")
_BARE = re.compile(r"""(?<![\w./~:-])/[^\s'"`:,;()\[\]<>]+""")
_STRAIGHT = str.maketrans({"\u2018": "'", "\u2019": "'"})
#: A program by its bare name: Python, Node, a shell, env.
_PROGRAM = re.compile(
    r"no such file or directory: '(?P<python>[\w.+-]+)'"
    r"|\bspawn (?P<node>[\w.+/-]+) (?:ENOENT|EACCES)"
    r"|(?:^|: )(?P<shell>[\w.+/-]+): (?:command )?not found"
    r"|env: '(?P<env>[\w.+-]+)': no such file",
    re.IGNORECASE,
)
_UNREACHED = re.compile(
    r"\b(?:ECONNREFUSED|ENETUNREACH|EHOSTUNREACH|ENETDOWN|EAI_AGAIN|ENOTFOUND)\b"
    r"|network is unreachable|no route to host|connection refused|name resolution"
    r"|name or service not known|could not resolve|failed to resolve|no such host|dns error"
    r"|nodename nor servname",
    re.IGNORECASE,
)
_NO_CALL = re.compile(r"operation not permitted|\bEPERM\b", re.IGNORECASE)
_NAME = r"(?P<host>(?:[a-z0-9-]+\.)+[a-z][a-z0-9-]*)"
_ASKS = r"getaddrinfo \w+|resolve host:?|failed to resolve|lookup|dial \w+"
_HOSTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?P<scheme>https?|wss?)://{_NAME}(?::(?P<port>\d{{1,5}}))?",
        rf"host=['\"]?{_NAME}['\"]?, port=(?P<port>\d{{1,5}})",
        rf"(?:{_ASKS}) ['\"]?{_NAME}(?::(?P<port>\d{{1,5}}))?",
    )
)
_PLAIN = ("http", "ws")


class Disk(Protocol):
    """The machine outside of the sandbox."""

    def real(self, path: str) -> str:
        """Return a path without links."""
        ...

    def kind(self, path: str) -> Kind | None:
        """Say what is there; None where nothing is."""
        ...

    def installed(self, program: str) -> tuple[str, ...]:
        """Return where a program is installed, found on the server's PATH; () where it is not."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a server has: its sandbox, and by real paths what that lets it read and write.

    ``system`` is what every server may read, and none should write. ``own`` are its private
    folders; ``never`` is what no grant opens.
    """

    sandbox: Sandbox
    disk: Disk
    system: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def closed(self, path: str) -> bool:
        """Say whether a place, or what it leads to, is one that no server sees."""
        return any(_covered(each, self.never) for each in (path, self.disk.real(path)))


def missed(said: str, around: Surroundings) -> tuple[Missed, ...]:
    """Return what a server said it did not get, each with the grant that would give it."""
    found: dict[Missed, None] = {}
    before = ""
    for line in (one[:_LONGEST] for one in said.splitlines()):
        for each in _of_line(line, before, around):
            found.setdefault(each)
        before = line
    return tuple(found)[:MOST]


def _of_line(line: str, before: str, around: Surroundings) -> Iterator[Missed]:
    line = line.translate(_STRAIGHT)
    paths: list[str] = []
    if _REFUSED.search(line):
        program = _program(line)
        paths = [path for path in _paths(line) if path != program]
        for path in paths:
            # What Python was doing stands above what it says of it.
            writes = bool(_WRITES.search(f"{before}\n{line}"))
            yield from _of_path(path, line, around, writes=writes)
        yield from _of_program(program, around)
    network = around.sandbox.network
    # What makes a socket is refused as a call, which names nothing.
    refused = network == "none" and not paths and _NO_CALL.search(line)
    if network != "full" and (refused or _UNREACHED.search(line)):
        yield from _of_network(line, around.sandbox)


def _paths(line: str) -> Iterator[str]:
    quoted = [match[1] for match in _QUOTED.finditer(line)]
    bare = [match[0] for match in _BARE.finditer(_QUOTED.sub(" ", line))]
    for path in (*quoted, *bare):
        if "\\" not in path and "\0" not in path:
            yield posixpath.normpath("/" + path.strip("/"))


def _of_path(path: str, line: str, around: Surroundings, *, writes: bool) -> Iterator[Missed]:
    disk = around.disk
    place = disk.real(path)
    if path == "/" or _covered(place, (*around.own, *around.writable)):
        return
    if around.closed(path):
        yield Missed(field="", value="", wanted=path)
        return
    there, readable = disk.kind(path), _covered(place, (*around.system, *around.readable))
    if readable and _ABSENT.search(line):
        return  # it would be there, if it were there outside
    if there is not None and not readable and not writes:
        yield Missed(field="read", value=path, wanted=path)
    elif (folder := _writable_folder(path, there, around)) is not None:
        yield Missed(field="write", value=folder, wanted=path)


def _writable_folder(path: str, there: Kind | None, around: Surroundings) -> str | None:
    """Return the least that lets a server write to a place: its folder, or the file itself."""
    folder = path if there == "folder" else posixpath.dirname(path)
    place = around.disk.real(folder)
    if _covered(place, around.system):
        return None
    wide = folder == "/" or around.closed(folder)
    wide = wide or any(within(each, place) for each in around.never)
    if wide and there != "folder":
        return path if there == "file" else None
    if wide or around.disk.kind(folder) != "folder":
        return None
    return None if _covered(place, (*around.own, *around.writable)) else folder


def _program(line: str) -> str:
    match = _PROGRAM.search(line)
    return next(filter(None, match.groups()), "") if match else ""


def _of_program(name: str, around: Surroundings) -> Iterator[Missed]:
    have = (*around.system, *around.readable, *around.writable, *around.own)
    for place in around.disk.installed(name) if name else ():
        if not _covered(around.disk.real(place), have) and not around.closed(place):
            yield Missed(field="read", value=place, wanted=name)


def _of_network(line: str, sandbox: Sandbox) -> Iterator[Missed]:
    host = next(filter(None, (pattern.search(line) for pattern in _HOSTS)), None)
    if host is None or sandbox.level == "landlock":  # which knows ports, not hosts
        wanted = "" if host is None else host["host"]
        yield Missed(field="network", value="full", wanted=wanted)
        return
    named = host["host"].lower()
    plain = host.groupdict().get("scheme") in _PLAIN
    port = host["port"] or ("80" if plain else "443")
    value = named if port == "443" else f"{named}:{port}"
    if 0 < int(port) < 65536 and value not in sandbox.hosts:
        yield Missed(field="hosts", value=value, wanted=named)


def _covered(path: str, folders: Iterable[str]) -> bool:
    return any(within(path, folder) for folder in folders)
