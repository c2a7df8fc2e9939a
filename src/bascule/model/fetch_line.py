"""Command lines that only fetch what a launcher would start, and run none of its code.

For uvx that is an installation into a folder: in an environment of its own, uv would start an
interpreter, and with it whatever packages put into ``.pth`` files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from bascule.model.launcher import launcher_place, program_name

#: Options of a launcher that take the next word, where they stand before what it starts.
_UVX_VALUED = frozenset(
    [
        "--from",
        "--with",
        "--with-editable",
        "--with-requirements",
        "-c",
        "--constraints",
        "--overrides",
        "-b",
        "--build-constraints",
        "--env-file",
        "-p",
        "--python",
        "--python-platform",
        "--index",
        "--default-index",
        "-i",
        "-f",
        "--find-links",
        "--index-strategy",
        "--keyring-provider",
        "-P",
        "--upgrade-package",
        "--reinstall-package",
        "--resolution",
        "--prerelease",
        "--fork-strategy",
        "--exclude-newer",
        "-C",
        "--config-setting",
        "--no-build-isolation-package",
        "--no-build-package",
        "--no-binary-package",
        "--link-mode",
        "--no-sources-package",
        "--refresh-package",
        "--cache-dir",
        "--color",
        "--directory",
        "--project",
        "--config-file",
        "--allow-insecure-host",
        "--torch-backend",
    ]
)
_NPX_VALUED = frozenset(
    [
        "-p",
        "--package",
        "-w",
        "--workspace",
        "--registry",
        "--cache",
        "--userconfig",
        "--globalconfig",
        "--prefix",
        "--loglevel",
        "--script-shell",
        "--node-options",
        "--before",
        "--tag",
        "--scope",
        "--cafile",
    ]
)
#: Options of uvx that name a package, and the form in which an installation takes each.
_UVX_PACKAGES = {
    "--from": (),
    "--with": (),
    "--with-editable": ("--editable",),
    "--with-requirements": ("--requirements",),
}
#: Those that mean nothing to an installation.
_UVX_ONLY = frozenset({"--isolated", "--env-file", "--no-env-file"})
#: Code of the caller's own, which is in no package.
_NPX_INLINE = frozenset({"-c", "--call"})
_SUBCOMMANDS = {"uv": ("tool", "run"), "npm": ("exec",)}
_WITH_VERSION = re.compile(r"([A-Za-z0-9._-]+(?:\[[^]]*\])?)@([A-Za-z0-9][A-Za-z0-9.+!_-]*)")
_DOES_NOTHING = ("--", "node", "-e", "")


class FetchLine(Struct, frozen=True):
    """How to fetch, and with what (``uvx`` or ``npx``)."""

    kind: str
    argv: tuple[str, ...]


def fetch_line(argv: Sequence[str], into: str, *, build: bool = False) -> FetchLine | None:
    """Return how to fetch what a command line starts; None where it is no launcher that can.

    Packages are unpacked and none of their code runs, unless ``build`` allows what they do at
    their installation. ``into`` is a folder for a copy that nobody needs afterwards.
    """
    place = launcher_place(argv)
    found = None if place is None else _kind(argv, place)
    if place is None or found is None:
        return None
    kind, begin = found
    if kind == "uvx":
        words = _uv_words(argv[begin:], into, build=build)
        before = (*argv[:place], _uv_beside(argv[place]))
    else:
        words = _npx_words(argv[begin:], build=build)
        before = tuple(argv[:begin])
    return None if words is None else FetchLine(kind, (*before, *words))


def _kind(argv: Sequence[str], place: int) -> tuple[str, int] | None:
    """Return which launcher it is, and where its own words begin."""
    name = program_name(argv[place])
    if name in ("uvx", "npx"):
        return name, place + 1
    words = _SUBCOMMANDS.get(name, ())
    begin = place + 1 + len(words)
    if not words or tuple(argv[place + 1 : begin]) != words:
        return None
    return {"uv": "uvx", "npm": "npx"}[name], begin


def _uv_beside(launcher: str) -> str:
    """Return uv itself, as it stands beside uvx."""
    folder, slash, name = launcher.rpartition("/")
    return f"{folder}{slash}uv" if program_name(name) == "uvx" else launcher


def _uv_words(words: Sequence[str], into: str, *, build: bool) -> list[str] | None:
    options, target = _parted(words, _UVX_VALUED)
    kept: list[str] = []
    packages: list[str] = []
    for name, value in options:
        if name in _UVX_PACKAGES and value is not None:
            form = _UVX_PACKAGES[name]
            for one in [value] if form else value.split(","):
                packages += [*form, one if form else _requirement(one)]
        elif name not in _UVX_ONLY:
            kept += [name] if value is None else [name, value]
    if not any(name == "--from" for name, _ in options):
        if target is None:
            return None
        packages.append(_requirement(target))
    unbuilt = [] if build else ["--no-build"]
    return ["pip", "install", *unbuilt, "--target", into, *kept, *packages]


def _requirement(word: str) -> str:
    """Return a package as an installation takes it: uvx has a form of its own for versions."""
    found = _WITH_VERSION.fullmatch(word)
    if found is None:
        return word
    return found[1] if found[2] == "latest" else f"{found[1]}=={found[2]}"


def _npx_words(words: Sequence[str], *, build: bool) -> list[str] | None:
    options, target = _parted(words, _NPX_VALUED)
    names = {name for name, _ in options}
    if not names.isdisjoint(_NPX_INLINE):
        return None
    given = [
        word for name, value in options for word in ([name] if value is None else [name, value])
    ]
    if names.isdisjoint({"-p", "--package"}):
        if target is None:
            return None
        given += ["--package", target]
    silent = [] if build else ["--ignore-scripts"]
    return [*silent, "--yes", *given, *_DOES_NOTHING]


def _parted(
    words: Sequence[str], valued: frozenset[str]
) -> tuple[list[tuple[str, str | None]], str | None]:
    """Return a launcher's own options with their values, and the first word that is none."""
    options: list[tuple[str, str | None]] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        name, equals, value = words[at].partition("=")
        takes = name in valued or name.endswith("-url")
        if takes and not equals and at + 1 < len(words):
            at += 1
            value, equals = words[at], "="
        options.append((name, value if equals else None))
        at += 1
    rest = [word for word in words[at : at + 2] if word != "--"]
    return options, rest[0] if rest else None
