"""Which files a confined server sees: the system's, its program's, its own, and what is granted.

Paths are real ones, without links. What no server may see stays out of sight even where a folder
around it is granted.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bascule.node.pool.process.linked_sources import linked_sources

_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store",
    "/gnu/store",
)  # fmt: skip
#: The same of macOS. Not the whole of /Library, which has keys in it.
_MAC_SYSTEM = (
    "/System", "/usr", "/bin", "/sbin", "/opt", "/Library/Apple", "/Library/Developer",
    "/Library/Fonts", "/Library/Frameworks", "/Library/Java", "/nix/store",
    "/private/var/db/dyld", "/private/var/db/timezone", "/private/var/select",
)  # fmt: skip
_SYSTEM_SETTINGS = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version",
    "fonts", "gai.conf", "group", "host.conf", "hostname", "hosts", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "locale.alias", "localtime", "magic", "mime.types", "nsswitch.conf",
    "os-release", "passwd", "pki", "protocols", "resolv.conf", "services", "ssl", "terminfo",
    "timezone",
)  # fmt: skip
#: Of the machine: never granted, and hidden where a granted folder contains them.
_MACHINES_OWN = (
    "/proc", "/sys", "/dev", "/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/ssl/private",
    "/etc/pki/tls/private", "/run/user", "/run/docker.sock", "/run/containerd", "/run/podman",
    "/run/dbus", "/run/systemd", "/var/run/docker.sock", "/var/root", "/var/db/dslocal",
    "/Library/Keychains",
)  # fmt: skip
#: Of the node's user, below the home: keys, tokens, and what browsers keep.
_USERS_OWN = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".npmrc",
    ".pypirc", ".password-store", ".config/gcloud", ".config/gh", ".config/op", ".mozilla",
    ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware",
    ".config/microsoft-edge", ".config/opera", ".config/vivaldi", ".cache/mozilla",
    ".cache/google-chrome", ".cache/chromium", "snap/firefox", "snap/chromium",
    ".local/share/keyrings", ".local/share/kwalletd", "Library/Keychains",
    "Library/Application Support", "Library/Cookies", "Library/Mail", "Library/Messages",
    "Library/Safari",
)  # fmt: skip
_BINARIES = frozenset({"bin", "sbin", "libexec"})
_LONGEST_SHEBANG = 256
_MOST_LINKS = 40


def real(path: str) -> str:
    """Return a path without links."""
    return os.path.realpath(path)


def within(path: str, folder: str) -> bool:
    """Say whether a real path is a folder, or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def never_granted(environ: Mapping[str, str], private: Iterable[str]) -> tuple[str, ...]:
    """Return the places of this machine that no server sees, whatever its record says."""
    homes = {_home_of(os.getuid()), environ.get("HOME", "")} - {"", "/"}
    places = [*_MACHINES_OWN, *private]
    places += [f"{home}/{name}" for home in homes for name in _USERS_OWN]
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        places.append(runtime)
    return tuple(dict.fromkeys(real(place) for place in places))


def _home_of(user: int) -> str:
    """Return the home that the system knows of; containers run as users that it does not know."""
    try:
        return pwd.getpwuid(user).pw_dir
    except KeyError:
        return ""


def system_places(*, mac: bool = False) -> tuple[list[str], list[tuple[str, str]]]:
    """Return what every program may read of the system, and the links that lead there."""
    folders = _MAC_SYSTEM if mac else _SYSTEM
    settings = (f"/etc/{name}" for name in _SYSTEM_SETTINGS)
    return _resolved(place for place in (*folders, *settings) if Path(place).exists())


def program_places(
    programs: Iterable[str], path: str, never: Iterable[str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return where programs are installed, their interpreters included, and the links there."""
    found: dict[str, None] = {}
    links: list[tuple[str, str]] = []
    waiting, seen = [*programs], set[str]()
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        for step in _steps(each):
            found[_installation(step, never)] = None
        links += links_on(each)
        waiting += _interpreter(real(each), path)
    sources = [source for place in found for source in linked_sources(place)]
    return [*(real(place) for place in found), *sources], links


def links_on(path: str) -> list[tuple[str, str]]:
    """Return the links that are passed on the way to a path, each by its real place."""
    links: list[tuple[str, str]] = []
    at, rest = "/", [part for part in path.split("/") if part]
    while rest and len(links) < _MOST_LINKS:
        here = os.path.join(at, rest.pop(0))  # noqa: PTH118 -- as text, with the links in it
        try:
            target = os.readlink(here)  # noqa: PTH115
        except OSError:
            at = here
            continue
        links.append((here, target))
        away = os.path.normpath(os.path.join(at, target))  # noqa: PTH118
        at, rest = "/", [*(part for part in away.split("/") if part), *rest]
    return links


def around(place: str, never: Iterable[str]) -> Iterator[str]:
    """Return a place without what must not be seen in it, where nothing can be hidden.

    A folder that contains such a thing is given up for all else that is in it now.
    """
    inside = [each for each in never if within(each, place)]
    if not inside:
        yield place
        return
    if place in inside or not Path(place).is_dir():
        return
    try:
        names = sorted(os.listdir(place))  # noqa: PTH208
    except OSError:
        return
    for name in names:
        entry = f"{place.rstrip('/')}/{name}"
        if not Path(entry).is_symlink():
            yield from around(entry, inside)


def _resolved(places: Iterable[str]) -> tuple[list[str], list[tuple[str, str]]]:
    found: list[str] = []
    links: list[tuple[str, str]] = []
    for place in places:
        links += links_on(place)
        found.append(real(place))
    return list(dict.fromkeys(found)), links


def _steps(program: str) -> Iterator[str]:
    """Return a program and what its links lead to, one by one."""
    for _ in range(_MOST_LINKS):
        yield program
        try:
            target = os.readlink(program)  # noqa: PTH115
        except OSError:
            break
        program = os.path.normpath(os.path.join(os.path.dirname(program), target))  # noqa: PTH118, PTH120
    yield real(program)


def _installation(program: str, never: Iterable[str]) -> str:
    """Return the folder that a program was installed in, as far as it can be told."""
    folder = Path(program).parent
    if folder.name not in _BINARIES:
        return program
    prefix = folder.parent
    whole = (prefix / "lib").is_dir() and prefix.name not in (".local", "") and prefix != Path("/")
    if whole and not any(within(each, real(str(prefix))) for each in never):
        return str(prefix)
    return str(folder)


def _interpreter(program: str, path: str) -> list[str]:
    """Return what the first line of a script names; that of ``env`` is looked for on PATH."""
    try:
        with Path(program).open("rb") as file:
            line = file.readline(_LONGEST_SHEBANG)
    except OSError:
        return []
    if not line.startswith(b"#!"):
        return []
    words = os.fsdecode(line[2:].strip()).split()
    named = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if not words or Path(words[0]).name != "env" or not named:
        return words[:1]
    folders = [Path(folder) / named[0] for folder in path.split(os.pathsep) if folder]
    return [words[0], *(str(each) for each in folders if each.is_file())][:2]
