"""What uv and npm write down about packages, read and written again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import MsgspecError, Struct, json

from bascule.node.pool.pins import Package

_MAX_BYTES = 16 * 1024 * 1024
_HASH = re.compile(r"--hash=(\S+)")
_EXACT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==(\S+)")
_AT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])? @ (\S+)")
_LOCAL = ("file:", "./", "/")
_LOCK = "package-lock.json"
#: npx names the folder of an installation by a digest of what was asked for.
_TREE = re.compile(r"[0-9a-f]{8,128}")


class _Entry(Struct):
    version: str = ""
    integrity: str = ""
    link: bool = False


class _NodeLock(Struct):
    packages: dict[str, _Entry] = {}


def requirements(text: str) -> Iterator[Package]:
    """Return the packages of a file that ``uv pip compile --generate-hashes`` wrote."""
    for line in text.replace("\\\n", " ").splitlines():
        words, _, _ = line.partition(" --hash=")
        words = words.partition(" #")[0].partition(" ;")[0].strip()
        if not words or words.startswith("#"):
            continue
        hashes = tuple(sorted(_HASH.findall(line)))
        found = _EXACT.fullmatch(words) or _AT.fullmatch(words)
        if found is None or found[2].startswith(_LOCAL):
            yield Package(words, "", hashes)
        else:
            yield Package(found[1], found[2], hashes)


def requirement_lines(packages: Iterable[Package]) -> str:
    """Return what has uv take those packages and no others."""
    return "".join(
        " ".join([_line(one), *(f"--hash={each}" for each in one.hashes)]) + "\n"
        for one in packages
    )


def constraint_lines(packages: Iterable[Package]) -> str:
    """Return the versions alone; a place is no version."""
    return "".join(f"{_line(one)}\n" for one in packages if one.version and ":" not in one.version)


def _line(package: Package) -> str:
    if not package.version:
        return package.name
    return f"{package.name}{' @ ' if ':' in package.version else '=='}{package.version}"


def node_trees(cache: Path) -> dict[str, str]:
    """Return npm's notes on what npx installed below a cache, by their names below ``_npx``."""
    found: dict[str, str] = {}
    for lock in sorted((cache / "_npx").glob(f"*/{_LOCK}")):
        if not _TREE.fullmatch(lock.parent.name):
            continue
        for file in (lock, lock.with_name("package.json")):
            text = read_plain(file)
            if text is not None:
                found[f"{file.parent.name}/{file.name}"] = text
    return found


def node_packages(trees: dict[str, str]) -> tuple[Package, ...]:
    """Return the packages of those notes."""
    found: set[Package] = set()
    for name, text in trees.items():
        if not name.endswith(_LOCK):
            continue
        try:
            entries = json.decode(text, type=_NodeLock).packages
        except MsgspecError:
            continue
        for place, one in entries.items():
            _, inside, package = place.rpartition("node_modules/")
            if inside and not one.link:
                hashes = (one.integrity,) if one.integrity else ()
                found.add(Package(package, one.version, hashes))
    return tuple(sorted(found))


def read_plain(path: Path) -> str | None:
    """Return the text of a file of reasonable size that is no link; None for anything else."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _MAX_BYTES:
        return None
    return path.read_text("utf-8", "replace")
