"""Directories and files of records, loaded into the registry together: one revision for all.

A record remembers the file that defines it. A load writes what the files say, deletes what a file
owned and no longer defines, and touches nothing else: a record that was made or adopted elsewhere
stays, and the file's word is reported as a problem. A file that cannot be read keeps everything
it defined before. Where two sources define one record, the first of them counts.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field

from bascule.clock import SYSTEM_CLOCK
from bascule.control.registry.kinds import body_of
from bascule.control.registry.plan import Draft, Namespaces
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Author, Key, Stored, View, Write
from bascule.control.registry.written import Written
from bascule.errors import InvalidRecord
from bascule.files.memory import Memory
from bascule.files.scan import Scan, scan_directory, scan_file
from bascule.model.kinds import SECTIONS, Record
from bascule.model.server import ServerRecord

BY = Author("files", "loaded from files")
_ITEM = re.compile(rf" (?:{'|'.join(SECTIONS)})\[\d+\]$")


class Source(Struct, frozen=True):
    """A directory or a file of records.

    ``yields`` is for records that anybody's own of the same name replace, without a word. While
    nothing changes, ``scan`` returns the same scan.
    """

    path: Path
    yields: bool = False
    follow_links: bool = False
    memory: Memory[Scan] = field(default_factory=lambda: Memory(SYSTEM_CLOCK))

    def scan(self, *, strict: bool) -> Scan:
        """Read what has changed; raise InvalidRecord when there is nothing to read."""
        try:
            if self.path.is_file():
                return scan_file(self.path, strict=strict, memory=self.memory)
            return scan_directory(
                self.path, strict=strict, follow_links=self.follow_links, memory=self.memory
            )
        except OSError as error:  # it went away while it was read
            raise InvalidRecord([f"{self.path} cannot be read: {error.strerror}"]) from error

    def owner(self, where: str, *, is_file: bool) -> str:
        """Return the file of a scan's source: its path, without the place inside the file."""
        return str(self.path) if is_file else f"{self.path}/{_ITEM.sub('', where)}"

    def owns(self, stored: Stored) -> bool:
        """Say whether an object came from here."""
        owner, path = stored.owner, str(self.path)
        return owner is not None and (owner == path or owner.startswith(f"{path}/"))


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
        follow_links: bool = False,
    ) -> None:
        self.paths = tuple(Path(path).absolute() for path in paths)
        self._sources = [Source(path, follow_links=follow_links) for path in self.paths]
        if defaults is not None:
            self._sources.append(Source(Path(defaults).absolute(), yields=True))
        self._service = service
        self._strict = strict
        self._loading = asyncio.Lock()
        self._scans: list[Scan] = []
        self._reading = Reading()
        self._settled: _Settled | None = None
        #: Whether at the last plan every file's word counted, whoever else owns records.
        self._unopposed = False
        #: What was found to be the same, by text, as what is stored.
        self._same: dict[Key, tuple[Record, Record]] = {}

    async def load(self, *, dry_run: bool = False) -> Written:
        """Load once; ``problems`` of the result name what was left out, and why.

        Raise InvalidRecord when a source is not there and, if strict, for any problem at all;
        then nothing has changed. ``dry_run`` changes nothing either: print the result's ``diff``.
        """
        async with self._loading:
            reading = await asyncio.to_thread(self._read)
            self._refuse(reading.problems)
            view = self._service.view
            if self._settled is not None and self._settled.still(reading, view):
                return self._settled.written(view)
            written = await self._service.transact(
                lambda view: self._plan(view, reading), BY, as_owner=True, dry_run=dry_run
            )
            settles = self._unopposed and not dry_run
            self._settled = _Settled(reading, written) if settles else None
            return written

    async def digest(self) -> str:
        """Read the files; return a name for what they say, the same for equal copies elsewhere.

        Raise InvalidRecord as ``load`` does.
        """
        async with self._loading:
            reading = await asyncio.to_thread(self._read)
            self._refuse(reading.problems)
            return await asyncio.to_thread(reading.digest)

    def untouched(self) -> Written:
        """Return what it is to load nothing of what was read last."""
        view, said = self._service.view, self._reading
        return Written(view.revision, None, view, view, (*said.warnings,), (*said.problems,))

    def _refuse(self, problems: Sequence[str]) -> None:
        if self._strict and problems:
            raise InvalidRecord(problems)

    def _read(self) -> Reading:
        """Return what the files say: the very same as before while none of them changes."""
        scans = [s.scan(strict=self._strict and not s.yields) for s in self._sources]
        if len(scans) != len(self._scans) or any(
            new is not old for new, old in zip(scans, self._scans, strict=True)
        ):
            self._reading = Reading()
            for source, scan in zip(self._sources, scans, strict=True):
                self._reading.add(source, scan)
            self._scans = scans
        return self._reading

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
        self._unopposed = len(mine) == len(reading.found)
        self._refuse(problems)
        upserts = [
            Write(kind=kind, id=key, record=found.record, owner=found.owner)
            for (kind, key), found in sorted(mine.items(), key=lambda item: item[0])
            if not self._is_kept(view.get(kind, key), found)
        ]
        said = (*reading.problems, *problems)
        return Draft((*deletions, *upserts), tuple(reading.warnings), said)

    def _is_kept(self, stored: Stored | None, found: Found) -> bool:
        """Say whether the registry has this already; what was compared once is remembered."""
        if stored is None or stored.owner != found.owner:
            return False
        pair = (stored.record, found.record)
        if pair[0] is pair[1]:
            return True
        known = self._same.get(stored.key)
        if known is not None and known[0] is pair[0] and known[1] is pair[1]:
            return True
        if body_of(pair[0]) != body_of(pair[1]):
            return False
        self._same[stored.key] = pair
        return True

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
        self._digest = ""

    def digest(self) -> str:
        """Return a name for all of it, wherever the files are; made once."""
        if not self._digest:
            found = hashlib.sha256()
            for (kind, key), one in sorted(self.found.items(), key=lambda item: item[0]):
                found.update(f"{kind} {key} {body_of(one.record)}\n".encode())
            unused = (sorted(self.left_out), sorted(Path(path).name for path in self.broken))
            found.update(repr(unused).encode())
            self._digest = found.hexdigest()[:32]
        return self._digest

    def add(self, source: Source, scan: Scan) -> None:
        """Take in what one source says, where no earlier one has spoken."""
        is_file = source.path.is_file()
        self.warnings += scan.warnings
        self.problems += [str(broken) for broken in scan.broken]
        self.broken |= {source.owner(broken.source, is_file=is_file) for broken in scan.broken}
        claims = Namespaces(found.record for found in self.found.values())
        for key, found in _records(source, scan, is_file=is_file):
            problem = self._problem(key, found, claims)
            if problem is None:
                self.found[key] = found
                continue
            self.left_out.add(key)
            if not found.yields:
                self.problems.append(f"{found.where}: {problem}")

    def _problem(self, key: Key, found: Found, claims: Namespaces) -> str | None:
        first = self.found.get(key)
        if first is not None:
            return f"{key[0]} {key[1]!r} is defined by {first.owner}, which counts"
        if not isinstance(found.record, ServerRecord):
            return None
        return claims.problem(found.record)


class _Settled(Struct, frozen=True):
    """A load after which files and registry agree, with nobody's word left out for another's."""

    reading: Reading
    after: Written

    def still(self, reading: Reading, view: View) -> bool:
        """Say whether neither the files nor the registry have changed since."""
        return reading is self.reading and view.position == self.after.after.position

    def written(self, view: View) -> Written:
        """Return what the same load would lead to now: the same words, and no change."""
        return Written(view.revision, None, view, view, self.after.warnings, self.after.problems)


def _records(source: Source, scan: Scan, *, is_file: bool) -> Iterator[tuple[Key, Found]]:
    for kind, records in scan.records.items():
        for key, loaded in records.items():
            owner = source.owner(loaded.source, is_file=is_file)
            yield (kind, key), Found(loaded.record, loaded.source, owner, source.yields)


def _drop_clashes(mine: dict[Key, Found], kept: View) -> list[str]:
    """Take out what claims the namespace of a server that stays; say so.

    A record that is taken out leaves its older self in the registry, and that may clash with
    another: so look again until nothing is taken out.
    """
    problems: list[str] = []
    while True:
        claims = Namespaces(s.record for s in kept.objects.values() if s.key not in mine)
        clashes = {
            key: f"{found.where}: {clash}"
            for key, found in sorted(mine.items(), key=lambda item: item[0])
            if isinstance(found.record, ServerRecord)
            and (clash := claims.problem(found.record)) is not None
        }
        if not clashes:
            return problems
        problems += [said for key, said in clashes.items() if not mine[key].yields]
        for key in clashes:
            del mine[key]


def _described(stored: Stored) -> str:
    by = "edited in the registry" if stored.owner is None else f"owned by {stored.owner}"
    return f"{stored.kind} {stored.id!r} is {by}"
