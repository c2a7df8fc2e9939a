"""Directories and files of records, loaded into the registry together: one revision for all.

A record remembers the file that defines it. A load writes what the files say, deletes what a file
owned and no longer defines, and touches nothing else: a record that was made or adopted elsewhere
stays, and the file's word is reported as a problem. A file that cannot be read keeps everything
it defined before. Where two sources define one record, the first of them counts.

Below: ``bascule.files`` scans, ``service.py`` commits. Above: the composition root, which decides
when (at start, on a signal, on a change, every so often, when asked).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from bascule.control.registry.history import RevisionDiff
from bascule.control.registry.kinds import SECTIONS
from bascule.control.registry.planning import Draft, namespace_problem
from bascule.control.registry.service import RegistryService, Written
from bascule.control.registry.store import Author, Key, Stored, View, Write
from bascule.errors import InvalidRecord
from bascule.files.scan import Scan, scan_directory, scan_file
from bascule.model.server import ServerRecord
from bascule.wire.records import Record

BY = Author("files", "loaded from files")
_ITEM = re.compile(rf" (?:{'|'.join(SECTIONS)})\[\d+\]$")


class Source(Struct, frozen=True):
    """A directory or a file of records.

    ``yields`` is for records that anybody's own of the same name replace, without a word.
    """

    path: Path
    yields: bool = False

    def scan(self, *, strict: bool) -> Scan:
        """Read everything; raise InvalidRecord when there is nothing to read."""
        try:
            if self.path.is_file():
                return scan_file(self.path, strict=strict)
            return scan_directory(self.path, strict=strict)
        except OSError as error:  # it went away while it was read
            raise InvalidRecord([f"{self.path} cannot be read: {error.strerror}"]) from error

    def owner(self, where: str) -> str:
        """Return the file of a scan's source: its path, without the place inside the file."""
        return str(self.path if self.path.is_file() else self.path / _ITEM.sub("", where))

    def owns(self, stored: Stored) -> bool:
        """Say whether an object came from here."""
        return stored.owner is not None and Path(stored.owner).is_relative_to(self.path)


class Found(Struct, frozen=True):
    """A record, where it stands, and the file that owns it from now on."""

    record: Record
    where: str
    owner: str
    yields: bool


class Loader:
    """Keeps what directories and files define in the registry.

    The earlier of two ``paths`` counts where both define a record; ``defaults`` is a folder of
    records that step back for all others.
    """

    def __init__(
        self,
        service: RegistryService,
        *paths: str | Path,
        defaults: str | Path | None = None,
        strict: bool = False,
    ) -> None:
        self.paths = tuple(Path(path).absolute() for path in paths)
        self._sources = [Source(path) for path in self.paths]
        if defaults is not None:
            self._sources.append(Source(Path(defaults).absolute(), yields=True))
        self._service = service
        self._strict = strict
        self._loading = asyncio.Lock()

    async def load(self, *, dry_run: bool = False) -> Written:
        """Load once; ``problems`` of the result name what was left out, and why.

        Raise InvalidRecord when a source is not there and, if strict, for any problem at all;
        then nothing has changed. ``dry_run`` changes nothing either: print the result's ``diff``.
        """
        async with self._loading:
            reading = await asyncio.to_thread(_read, self._sources, strict=self._strict)
            if self._strict and reading.problems:
                raise InvalidRecord(reading.problems)
            return await self._service.transact(
                lambda view: self._plan(view, reading), BY, as_owner=True, dry_run=dry_run
            )

    def diff_of(self, written: Written) -> RevisionDiff:
        """Compare the registry before and after a load."""
        return self._service.diff_of(written)

    def _plan(self, view: View, reading: Reading) -> Draft:
        kept = {*reading.found, *reading.left_out}
        deletions = [
            Write(kind=stored.kind, id=stored.id, record=None)
            for stored in view.objects.values()
            if self._is_mine(stored)
            and stored.key not in kept
            and stored.owner not in reading.broken
        ]
        mine = {key: found for key, found in reading.found.items() if self._may_write(view, key)}
        problems = [
            f"{found.where}: {_described(view.objects[key])}; the file's word does not count"
            for key, found in reading.found.items()
            if key not in mine and not found.yields
        ]
        problems += _drop_clashes(mine, view.planned(deletions))
        if self._strict and problems:
            raise InvalidRecord(problems)
        upserts = [
            Write(kind=kind, id=key, record=found.record, owner=found.owner)
            for (kind, key), found in sorted(mine.items(), key=lambda item: item[0])
        ]
        said = (*reading.problems, *problems)
        return Draft((*deletions, *upserts), tuple(reading.warnings), said)

    def _is_mine(self, stored: Stored) -> bool:
        return any(source.owns(stored) for source in self._sources)

    def _may_write(self, view: View, key: Key) -> bool:
        """Say whether a file here may define an object: a new one, ours, or an orphan's."""
        stored = view.objects.get(key)
        if stored is None or self._is_mine(stored):
            return True
        owner = None if stored.owner is None else Path(stored.owner)
        return owner is not None and owner.is_absolute() and not owner.exists()


class Reading:
    """What all sources say together, and what of it cannot be used."""

    def __init__(self) -> None:
        self.found: dict[Key, Found] = {}
        #: Records whose word does not count, so that their older selves stay.
        self.left_out: set[Key] = set()
        #: The files that keep what they defined before.
        self.broken: set[str] = set()
        self.warnings: list[str] = []
        self.problems: list[str] = []

    def add(self, source: Source, scan: Scan) -> None:
        """Take in what one source says, where no earlier one has spoken."""
        self.warnings += scan.warnings
        self.problems += [str(broken) for broken in scan.broken]
        self.broken |= {source.owner(broken.source) for broken in scan.broken}
        earlier = [found.record for found in self.found.values()]
        servers = [record for record in earlier if isinstance(record, ServerRecord)]
        for key, found in _records(source, scan):
            problem = self._problem(key, found, servers)
            if problem is None:
                self.found[key] = found
                continue
            self.left_out.add(key)
            if not found.yields:
                self.problems.append(f"{found.where}: {problem}")

    def _problem(self, key: Key, found: Found, servers: list[ServerRecord]) -> str | None:
        first = self.found.get(key)
        if first is not None:
            return f"{key[0]} {key[1]!r} is defined by {first.owner}, which counts"
        if not isinstance(found.record, ServerRecord):
            return None
        return namespace_problem(found.record, servers)


def _read(sources: list[Source], *, strict: bool) -> Reading:
    reading = Reading()
    for source in sources:
        reading.add(source, source.scan(strict=strict and not source.yields))
    return reading


def _records(source: Source, scan: Scan) -> Iterator[tuple[Key, Found]]:
    for kind, records in scan.records.items():
        for key, loaded in records.items():
            owner = source.owner(loaded.source)
            yield (kind, key), Found(loaded.record, loaded.source, owner, source.yields)


def _drop_clashes(mine: dict[Key, Found], kept: View) -> list[str]:
    """Take out what claims the namespace of a server that stays; say so.

    A record that is taken out leaves its older self in the registry, and that may clash with
    another: so look again until nothing is taken out.
    """
    problems: list[str] = []
    while True:
        staying = [s.record for s in kept.objects.values() if s.key not in mine]
        servers = [record for record in staying if isinstance(record, ServerRecord)]
        clashes = {
            key: f"{found.where}: {clash}"
            for key, found in sorted(mine.items(), key=lambda item: item[0])
            if isinstance(found.record, ServerRecord)
            and (clash := namespace_problem(found.record, servers)) is not None
        }
        if not clashes:
            return problems
        problems += [said for key, said in clashes.items() if not mine[key].yields]
        for key in clashes:
            del mine[key]


def _described(stored: Stored) -> str:
    by = "edited in the registry" if stored.owner is None else f"owned by {stored.owner}"
    return f"{stored.kind} {stored.id!r} is {by}"
