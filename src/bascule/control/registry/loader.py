"""A directory or a file of records, loaded into the registry as one revision.

A record remembers the file that defines it. A load writes what the files say, deletes what a file
owned and no longer defines, and touches nothing else: a record that was made or adopted elsewhere
stays, and the file's word is reported as a problem. A file that cannot be read keeps everything
it defined before.

Below: ``bascule.files`` scans, ``service.py`` commits. Above: the composition root, which decides
when (at start, on a signal, on a change, every so often, when asked).
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.control.registry.kinds import SECTIONS
from bascule.control.registry.planning import Draft, namespace_problem
from bascule.control.registry.service import RegistryService, Written
from bascule.control.registry.store import Author, Key, Stored, View, Write
from bascule.errors import BasculeError, InvalidRecord
from bascule.files.scan import Loaded, Scan, scan_directory, scan_file
from bascule.model.server import ServerRecord
from bascule.wire.records import Record

BY = Author("files", "loaded from files")
_ITEM = re.compile(rf" (?:{'|'.join(SECTIONS)})\[\d+\]$")


class Loader:
    """Keeps what a directory or a file defines in the registry."""

    def __init__(self, service: RegistryService, path: str | Path, *, strict: bool = False) -> None:
        self.path = Path(path).absolute()
        self._service = service
        self._strict = strict
        self._loading = asyncio.Lock()

    async def load(self, *, dry_run: bool = False) -> Written:
        """Load once; ``problems`` of the result name what was left out, and why.

        Raise InvalidRecord when there is nothing to read and, if strict, for any problem at all;
        then nothing has changed. ``dry_run`` changes nothing either: print the result's ``diff``.
        """
        async with self._loading:
            scan = await asyncio.to_thread(self._scan)
            if self._strict:
                scan.refuse_broken()
            return await self._service.transact(
                lambda view: self._plan(view, scan), BY, as_owner=True, dry_run=dry_run
            )

    async def load_every(self, seconds: float, clock: Clock = SYSTEM_CLOCK) -> None:
        """Load again and again until cancelled; a load that fails is tried at the next turn."""
        while True:
            await clock.sleep(seconds)
            try:
                await self.load()
            except BasculeError:
                continue  # the registry keeps what it has; an asked-for load says what is wrong

    def _scan(self) -> Scan:
        if self.path.is_file():
            return scan_file(self.path, strict=self._strict)
        return scan_directory(self.path, strict=self._strict)

    def _plan(self, view: View, scan: Scan) -> Draft:
        found = _found(scan)
        broken = {self._owner(broken.source) for broken in scan.broken}
        problems = [str(broken) for broken in scan.broken]
        deletions = [
            Write(kind=stored.kind, id=stored.id, record=None)
            for stored in view.objects.values()
            if self._is_mine(stored) and stored.key not in found and stored.owner not in broken
        ]
        mine = {key: loaded for key, loaded in found.items() if self._may_write(view, key)}
        problems += [
            f"{loaded.source}: {_described(view.objects[key])}; the file's word does not count"
            for key, loaded in found.items()
            if key not in mine
        ]
        problems += _drop_clashes(mine, view.planned(deletions))
        if self._strict and problems:
            raise InvalidRecord(problems)
        upserts = [
            Write(kind=kind, id=key, record=loaded.record, owner=self._owner(loaded.source))
            for (kind, key), loaded in sorted(mine.items(), key=lambda item: item[0])
        ]
        return Draft((*deletions, *upserts), tuple(scan.warnings), tuple(problems))

    def _owner(self, source: str) -> str:
        """Return the file of a scan's source: its path, without the place inside the file."""
        name = _ITEM.sub("", source)
        return str(self.path if self.path.is_file() else self.path / name)

    def _is_mine(self, stored: Stored) -> bool:
        return stored.owner is not None and Path(stored.owner).is_relative_to(self.path)

    def _may_write(self, view: View, key: Key) -> bool:
        """Say whether a file here may define an object: a new one, ours, or an orphan's."""
        stored = view.objects.get(key)
        if stored is None or self._is_mine(stored):
            return True
        return stored.owner is not None and not Path(stored.owner).exists()


def _found(scan: Scan) -> dict[Key, Loaded[Record]]:
    found: dict[Key, Loaded[Record]] = {}
    for kind, records in scan.records.items():
        for key, loaded in records.items():
            found[kind, key] = loaded
    return found


def _drop_clashes(mine: dict[Key, Loaded[Record]], kept: View) -> list[str]:
    """Take out what claims the namespace of a server that stays; say so.

    A record that is taken out leaves its older self in the registry, and that may clash with
    another: so look again until nothing is taken out.
    """
    problems: list[str] = []
    while True:
        staying = [s.record for s in kept.objects.values() if s.key not in mine]
        servers = [record for record in staying if isinstance(record, ServerRecord)]
        clashes = {
            key: f"{loaded.source}: {clash}"
            for key, loaded in sorted(mine.items(), key=lambda item: item[0])
            if isinstance(loaded.record, ServerRecord)
            and (clash := namespace_problem(loaded.record, servers)) is not None
        }
        if not clashes:
            return problems
        problems += clashes.values()
        for key in clashes:
            del mine[key]


def _described(stored: Stored) -> str:
    by = "edited in the registry" if stored.owner is None else f"owned by {stored.owner}"
    return f"{stored.kind} {stored.id!r} is {by}"
