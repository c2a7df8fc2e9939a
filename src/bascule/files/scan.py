"""Scan a directory or a file of records.

One record per ``*.toml`` or ``*.json`` file; servers at the top, the other kinds in folders of
their own beside them (``tasks/``, ``profiles/``, ``backends/``, ``users/``, ``platform.toml``). One
file may also hold many records, under their kinds' names. A broken file never hides the others.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import Struct

from bascule.errors import InvalidRecord
from bascule.files.entries import (
    FOLDERS,
    MAX_FILE_BYTES,
    SUFFIXES,
    record_folders,
    record_names,
)
from bascule.files.jsonc import plain_json
from bascule.files.memory import Memory, Read, Reads
from bascule.model.json import JsonObject, is_array, is_object
from bascule.model.kinds import CLASSES, SECTIONS, Kind, Record, record_key
from bascule.model.platform import PlatformRecord
from bascule.model.snapshot import Snapshot
from bascule.wire.record_rules import namespace_conflicts
from bascule.wire.records import Format, decode, parse

R = TypeVar("R", bound=Record)

_PLATFORM_FILES = frozenset(f"platform{suffix}" for suffix in SUFFIXES)
_USUAL_BYTES = 16 * 1024
#: A text that begins with a table of TOML: in JSON no name stands bare in brackets.
_TABLE = re.compile(rb"\s*\[\[?\s*[A-Za-z_][\w.\- ]*\]")


class Loaded(Struct, Generic[R], frozen=True):
    """A record and the file that owns it."""

    record: R
    source: str


class Broken(Struct, frozen=True):
    """A file, or a record in one, that cannot be used."""

    source: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.source}: {'; '.join(self.problems)}"


class Scan:
    """Everything a directory or file holds: records with their owners, and what is wrong."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.records: dict[Kind, dict[str, Loaded[Any]]] = {kind: {} for kind in CLASSES}
        self.warnings: list[str] = []
        self.broken: list[Broken] = []

    def snapshot(self, *, store_id: str = "files", revision: int = 1) -> Snapshot:
        """Return the good records as a snapshot."""
        found = {
            kind: {key: loaded.record for key, loaded in sorted(items.items())}
            for kind, items in self.records.items()
        }
        return Snapshot(
            store_id=store_id,
            revision=revision,
            servers=found["server"],
            tasks=found["task"],
            profiles=found["profile"],
            platform=found["platform"].get("platform", PlatformRecord()),
            backends=found["backend"],
            users=found["user"],
        )

    def refuse_broken(self) -> None:
        """Raise InvalidRecord with everything that is broken, if anything is."""
        if self.broken:
            raise InvalidRecord([str(broken) for broken in self.broken])

    def add(self, reads: Reads) -> None:
        """Take in what a file gave."""
        for read in reads:
            if read.record is None:
                self.broken.append(Broken(read.source, read.said))
                continue
            self.warnings += [f"{read.source}: {warning}" for warning in read.said]
            self._keep(read.kind, Loaded(read.record, read.source))

    def _keep(self, kind: Kind, loaded: Loaded[Record]) -> None:
        key = record_key(kind, loaded.record)
        earlier = self.records[kind].get(key)
        self.records[kind][key] = loaded
        if earlier is None:
            return
        clash = f"{kind} {key!r} is defined by {earlier.source} and by {loaded.source}"
        if self.strict:
            self.broken.append(Broken(loaded.source, (f"{clash}; only one may define it",)))
        else:
            self.warnings.append(f"{clash}; {loaded.source} counts")

    def drop_conflicts(self) -> None:
        """Leave out servers that claim another's tool namespace."""
        servers = self.records["server"]
        for conflict in namespace_conflicts(loaded.record for loaded in servers.values()):
            server_id, _, problem = conflict.partition(".")
            self.broken.append(Broken(servers.pop(server_id).source, (problem,)))


def scan_directory(
    directory: str | Path,
    *,
    strict: bool = False,
    follow_links: bool = False,
    memory: Memory[Scan] | None = None,
) -> Scan:
    """Scan a directory; raise InvalidRecord only when there is no such directory.

    One that goes away meanwhile is not there either: what it seemed to lack then must not be
    taken for removed. With a ``memory`` only what changed is read, and where nothing did the
    result is the very one of the time before.
    """
    root = Path(directory)
    links: list[str] = []
    try:
        files = list(record_files(root, links, follow_links=follow_links))
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidRecord([f"no such directory: {root}"]) from None
    return _scanned(files, tuple(links), strict=strict, named=False, memory=memory or Memory())


def scan_file(
    path: str | Path, *, strict: bool = False, memory: Memory[Scan] | None = None
) -> Scan:
    """Scan one file of one or many records."""
    files: list[_File] = [(str(path), Path(path).name, "server")]
    return _scanned(files, (), strict=strict, named=True, memory=memory or Memory())


#: A file, what messages call it, and what it holds if it does not say.
_File = tuple[str, str, Kind]


def record_files(root: Path, links: list[str], *, follow_links: bool = False) -> Iterable[_File]:
    """Yield the files of a directory that hold records; ``links`` gets those that do not count."""
    for name in record_names(root, links, follow_links=follow_links):
        yield f"{root}/{name}", name, "platform" if name in _PLATFORM_FILES else "server"
    for folder in record_folders(root):
        inside = root / folder
        for name in record_names(inside, links, within=root, follow_links=follow_links):
            yield f"{inside}/{name}", f"{folder}/{name}", FOLDERS[folder]


def _scanned(
    files: Sequence[_File],
    links: tuple[str, ...],
    *,
    strict: bool,
    named: bool,
    memory: Memory[Scan],
) -> Scan:
    gathered = [
        memory.of(path, partial(_read, path, name, kind, strict=strict, named=named))
        for path, name, kind in files
    ]

    def made() -> Scan:
        scan = Scan(strict=strict)
        scan.warnings += links
        for reads in gathered:
            scan.add(reads)
        scan.drop_conflicts()
        return scan

    return memory.made(gathered, links, made)


def _read(file: str, name: str, kind: Kind, *, strict: bool, named: bool) -> Reads:
    """Read one file; what is wrong with it is a part of what it gives.

    ``name`` is what messages call it; ``named`` says that somebody asked for this very file,
    which may then be a pipe.
    """
    path = Path(file)
    try:
        if not named:
            _refuse_irregular(path, name)
        data = _plain(path, name)
    except InvalidRecord as error:
        failed = isinstance(error.__cause__, OSError)
        return (Read(name, kind, None, error.problems, passing=failed),)
    return tuple(_record(*item, strict=strict) for item in record_items(data, name, kind))


def _record(source: str, kind: Kind, data: JsonObject, *, strict: bool) -> Read:
    try:
        return Read(source, kind, *decode(CLASSES[kind], data, strict=strict))
    except InvalidRecord as error:
        return Read(source, kind, None, error.problems)


def read_plain(path: str | Path, *, relaxed: bool = False) -> JsonObject:
    """Read one TOML or JSON file as plain values, or say in which line it is broken.

    ``relaxed`` takes JSON with comments and the like, as editors write it.
    """
    data = _plain(Path(path), Path(path).name, relaxed=relaxed)
    if not is_object(data):
        raise InvalidRecord(["must be a table of fields"], source=Path(path).name)
    return data


def parse_text(text: bytes, source: str, *, relaxed: bool = False) -> JsonObject:
    """Read a text that may be JSON or TOML; ``relaxed`` takes JSON as editors write it."""
    plain = plain_json(text) if relaxed else text
    if plain.lstrip().startswith((b"{", b"[")) and not _TABLE.match(plain):
        return parse(plain, "json", source=source)
    return parse(text, "toml", source=source)


def _plain(path: Path, name: str, *, relaxed: bool = False) -> JsonObject:
    form: Format = "toml" if path.suffix == ".toml" else "json"
    try:
        text = _bytes(path, name)
        if relaxed and form == "json":
            text = plain_json(text)
        return parse(text, form, source=name)
    except OSError as error:
        raise InvalidRecord([f"cannot be read: {error.strerror}"], source=name) from error


def _refuse_irregular(path: Path, name: str) -> None:
    """Refuse what has no end: whoever follows files would wait for a pipe's writer for ever."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # whoever reads it says why
    if not stat.S_ISREG(mode):
        raise InvalidRecord(["is no regular file"], source=name)


def _bytes(path: Path, name: str) -> bytes:
    with path.open("rb") as file:
        text = file.read(_USUAL_BYTES)  # room is made for all that is asked for
        if len(text) == _USUAL_BYTES:
            text += file.read(MAX_FILE_BYTES + 1 - _USUAL_BYTES)
    if len(text) > MAX_FILE_BYTES:
        raise InvalidRecord([f"is larger than {MAX_FILE_BYTES} bytes"], source=name)
    return text


def record_items(data: JsonObject, name: str, kind: Kind) -> Iterable[tuple[str, Kind, JsonObject]]:
    """Take a file apart into records, each with the words that say where it stands."""
    sections = sections_of(data)
    if not sections:
        return [(name, kind, data)]
    return [
        (f"{name} {section}[{index}]", SECTIONS[section], item)
        for section in sections
        for index, item in enumerate(_as_list(data[section]))
    ]


def sections_of(data: JsonObject) -> list[str]:
    """Return the names in a file under which records of a kind stand."""
    return [key for key in data if key in SECTIONS and _is_section(data[key], key)]


def _is_section(value: object, key: str) -> bool:
    return is_array(value) or (key == "platform" and is_object(value))


def _as_list(value: object) -> Iterable[JsonObject]:
    return value if is_array(value) else [value]
