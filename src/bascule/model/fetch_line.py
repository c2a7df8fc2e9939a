"""Command lines that only fetch what a launcher would start, and run none of its code.

For uvx that is a resolution, which says what there is and its hashes, and an installation into a
folder, which is held to those: in an environment of its own, uv would start an interpreter, and
with it whatever packages put into ``.pth`` files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from bascule.model.launcher import launcher_place, program_name

#: Options of a launcher that take the next word, where they stand before what it starts.
_UVX_VALUED = frozenset(
    [
        "--from",
        "--with",
        "-w",
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
#: Options of uvx that name a package.
_UVX_PACKAGES = frozenset({"--from", "--with", "-w", "--with-editable"})
#: Those that mean nothing to an installation.
_UVX_ONLY = frozenset(
    {"--isolated", "--env-file", "--no-env-file", "--lfs", "--no-require-build-hashes"}
)
#: Those that mean something to it, and nothing to a resolution.
_INSTALL_ONLY = frozenset(
    {"--compile-bytecode", "--reinstall", "--reinstall-package", "--no-config"}
)
#: Those that an installation has by another name.
_RENAMED = {"--no-binary-package": "--no-binary", "--no-build-package": "--only-binary"}
_NPX_PACKAGES = frozenset({"-p", "--package"})
#: Code of the caller's own, which is in no package.
_NPX_INLINE = frozenset({"-c", "--call"})
_SUBCOMMANDS = {"uv": ("tool", "run"), "npm": ("exec",)}
_WITH_VERSION = re.compile(r"([A-Za-z0-9._-]+(?:\[[^]]*\])?)@([A-Za-z0-9][A-Za-z0-9.+!_-]*)")
#: A comma between packages; within one there are some between limits of its version.
_BETWEEN = re.compile(r",(?=\s*[A-Za-z./])")
#: An exact version, of one package.
_EXACT = {
    "uvx": re.compile(r"[A-Za-z0-9._-]+(?:\[[^]]*\])?==[A-Za-z0-9.+!_-]+"),
    "npx": re.compile(r"(?:@[^/@]+/)?[^/@]+@v?[0-9]+\.[0-9]+\.[0-9]+(?:[-+][A-Za-z0-9.+-]+)?"),
}
#: By a shell of the system's, for a package may bring a program of any name, ``node`` too.
_DOES_NOTHING = ("--script-shell", "/bin/sh", "--", ":")


class FetchLine(Struct, frozen=True, kw_only=True):
    """What a launcher would fetch, and how (``uvx`` or ``npx``)."""

    kind: Literal["uvx", "npx"]
    #: The program that fetches, with what it is wrapped in.
    program: tuple[str, ...]
    #: Its options, with their values, as far as they count for a fetch.
    options: tuple[tuple[str, str | None], ...]
    #: The packages as the fetch takes them, and files that name more of them.
    packages: tuple[str, ...]
    files: tuple[str, ...] = ()
    build: bool = False

    @property
    def exact(self) -> bool:
        """Say whether the line names one version of each of its packages."""
        pattern = _EXACT[self.kind]
        return not self.files and all(pattern.fullmatch(package) for package in self.packages)

    @property
    def words(self) -> tuple[str, ...]:
        """What tells it from others: where the launcher lies and builds do not."""
        return (self.kind, *_flat(self.options), *self.packages, *self.files)

    def resolving(self, asked: str, found: str) -> tuple[str, ...]:
        """Return how uv finds out which packages there are, of which hashes."""
        known = tuple(pair for pair in self.options if pair[0] not in _INSTALL_ONLY)
        plain = ("--no-header", "--no-annotate", "--generate-hashes", *self._unbuilt("--no-build"))
        return (
            *self.program,
            "pip",
            "compile",
            *plain,
            *_flat(known),
            "-o",
            found,
            asked,
            *self.files,
        )

    def installing(self, files: Sequence[str], into: str, *extra: str) -> tuple[str, ...]:
        """Return how uv unpacks those of files, into a folder that nobody needs afterwards."""
        own = (*self._unbuilt("--no-build"), *extra, "--target", into, *_flat(self.options))
        listed = (word for file in files for word in ("-r", file))
        return (*self.program, "pip", "install", *own, *listed)

    def unpacking(self) -> tuple[str, ...]:
        """Return how npx unpacks its packages, and starts none of them."""
        named = not {name for name, _ in self.options}.isdisjoint(_NPX_PACKAGES)
        packages = () if named else ("--package", *self.packages)
        silent = self._unbuilt("--ignore-scripts")
        return (*self.program, *silent, "--yes", *_flat(self.options), *packages, *_DOES_NOTHING)

    def _unbuilt(self, word: str) -> tuple[str, ...]:
        return () if self.build else (word,)


def fetch_line(argv: Sequence[str], *, build: bool = False) -> FetchLine | None:
    """Return how to fetch what a command line starts; None where it is no launcher that can.

    Packages are unpacked and none of their code runs, unless ``build`` allows what they do at
    their installation.
    """
    place = launcher_place(argv)
    found = None if place is None else _kind(argv, place)
    if place is None or found is None:
        return None
    kind, begin = found
    if kind == "uvx":
        return _uv_line((*argv[:place], _uv_beside(argv[place])), argv[begin:], build=build)
    return _npx_line(tuple(argv[:begin]), argv[begin:], build=build)


def constrained(argv: Sequence[str], file: str) -> tuple[str, ...]:
    """Return the line of a uvx that takes no other versions than those of a file."""
    place = launcher_place(argv)
    found = None if place is None else _kind(argv, place)
    if found is None or found[0] != "uvx":
        return tuple(argv)
    return (*argv[: found[1]], "--constraints", file, *argv[found[1] :])


def _kind(argv: Sequence[str], place: int) -> tuple[Literal["uvx", "npx"], int] | None:
    """Return which launcher it is, and where its own words begin."""
    name = program_name(argv[place])
    if name == "uvx" or name == "npx":
        return name, place + 1
    words = _SUBCOMMANDS.get(name, ())
    begin = place + 1 + len(words)
    if not words or tuple(argv[place + 1 : begin]) != words:
        return None
    return "uvx" if name == "uv" else "npx", begin


def _uv_beside(launcher: str) -> str:
    """Return uv itself, as it stands beside uvx."""
    folder, slash, name = launcher.rpartition("/")
    return f"{folder}{slash}uv" if program_name(name) == "uvx" else launcher


def _uv_line(program: tuple[str, ...], words: Sequence[str], *, build: bool) -> FetchLine | None:
    options, target = _parted(words, _UVX_VALUED)
    kept: list[tuple[str, str | None]] = []
    packages: list[str] = []
    files: list[str] = []
    for name, value in options:
        if value is not None and name == "--with-requirements":
            files.append(value)
        elif value is not None and name == "--with-editable":
            packages.append(f"-e {value}")
        elif value is not None and name in _UVX_PACKAGES:
            parts = [value] if name == "--from" else _BETWEEN.split(value)
            packages += [_requirement(one) for one in parts]
        elif name not in _UVX_ONLY:
            kept.append((_RENAMED.get(name, name), value))
    if not any(name == "--from" for name, _ in options):
        if target is None:
            return None
        packages.append(_requirement(target))
    return FetchLine(
        kind="uvx",
        program=program,
        options=tuple(kept),
        packages=tuple(packages),
        files=tuple(files),
        build=build,
    )


def _requirement(word: str) -> str:
    """Return a package as an installation takes it: uvx has a form of its own for versions."""
    found = _WITH_VERSION.fullmatch(word)
    if found is None:
        return word
    return found[1] if found[2] == "latest" else f"{found[1]}=={found[2]}"


def _npx_line(program: tuple[str, ...], words: Sequence[str], *, build: bool) -> FetchLine | None:
    options, target = _parted(words, _NPX_VALUED)
    if not {name for name, _ in options}.isdisjoint(_NPX_INLINE):
        return None
    packages = [value for name, value in options if name in _NPX_PACKAGES and value is not None]
    if not packages:
        if target is None:
            return None
        packages = [target]
    return FetchLine(
        kind="npx", program=program, options=tuple(options), packages=tuple(packages), build=build
    )


def _flat(options: Iterable[tuple[str, str | None]]) -> tuple[str, ...]:
    return tuple(word for pair in options for word in pair if word is not None)


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
