"""What no limit of the kernel keeps for a whole server, looked at from outside once a second.

That is the size of its private folders, and where it could have no cgroup its memory and its
processes. A server that uses more than its record grants is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bascule.clock import Clock
from bascule.node.pool.process.plan import Confinement
from bascule.node.pool.process.warden_process import Process, family, living, processes
from bascule.node.trees import BLOCK, measure_tree

if TYPE_CHECKING:
    from bascule.node.pool.process.warden_link import WardenServer

logger = logging.getLogger(__name__)

PERIOD = 1.0  # seconds
#: Looks after which folders are measured whatever the disk says, since others may have freed as
#: much as a server wrote; one more for each so many files, as to measure costs.
MEASURED_AFTER = 3
FILES_A_LOOK = 1000
_MB = 1 << 20


class Watch:
    """Looks after the confined servers of one spawner, while there are any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watched: list[_Watched] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, server: WardenServer, confinement: Confinement) -> None:
        """Look after a server until it has ended."""
        self._watched.append(_Watched(server, confinement))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop looking."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        while self._watched:
            await self._clock.sleep(PERIOD)
            self._watched = [each for each in self._watched if not each.server.over]
            for server, excess in await asyncio.to_thread(_look, tuple(self._watched)):
                logger.warning("process %d: %s", server.pid, excess)
                server.excess = excess
                await server.end(0.0)
        self._task = None


class _Processes:
    """The processes of this moment, read when somebody asks for them."""

    @cached_property
    def table(self) -> Mapping[int, Process]:
        return processes()

    def of(self, server: WardenServer) -> set[int]:
        """Return the living processes of a server, with those that it left to the warden."""
        roots = {server.pid}
        if server.pid in self.table:
            warden = self.table[server.pid].parent
            orphans = (each for each in self.table.values() if each.parent == warden)
            roots |= {each.pid for each in orphans if server.owns(each)}
        return living(self.table, family(self.table, roots))


class _Watched:
    """One server, and what was found when its folders were last measured."""

    def __init__(self, server: WardenServer, confinement: Confinement) -> None:
        self.server = server
        self.sandbox = confinement.sandbox
        self._folders = [Path(folder) for folder in confinement.own]
        self._size = 0
        self._used = 0
        self._rest = 0  # looks until the folders are measured again

    def excess(self, now: _Processes) -> str:
        """Say what the server has too much of; "" while it keeps within its limits."""
        if self._is_to_be_measured() and (found := self._too_large(now)):
            return found
        if self.server.counted:
            return ""
        members = now.of(self.server)
        if len(members) > 2 * self.sandbox.processes:
            return self._over("it has many more processes than", "processes")
        limit = self.sandbox.memory_mb * _MB
        if sum(map(_memory, members)) > limit and sum(map(_share_of_memory, members)) > limit:
            return self._over("it uses more memory than", "memory_mb")
        return ""

    def _over(self, what: str, field: str) -> str:
        return f"the server was ended: {what} sandbox.{field} = {getattr(self.sandbox, field)}"

    def _is_to_be_measured(self) -> bool:
        """Say whether the disk has filled by enough: a HOME may hold many files."""
        used = sum(map(_used_on_disk, self._folders))
        filled = used - self._used >= max((self._limit - self._size) / 2, _MB)
        self._used = used if filled else min(self._used, used)
        self._rest -= 1
        return filled or self._rest < 0

    @property
    def _limit(self) -> int:
        return self.sandbox.home_mb * _MB

    def _too_large(self, now: _Processes) -> str:
        found = [measure_tree(folder) for folder in self._folders]
        self._rest = MEASURED_AFTER + sum(each.entries for each in found) // FILES_A_LOOK
        self._size = sum(each.size for each in found)
        if self._size <= self._limit:
            self._size += _nameless(now.of(self.server), self._folders)
        if self._size > self._limit:
            return self._over("its HOME and TMPDIR are larger than", "home_mb")
        if any(each.closed for each in found):
            return self._over("it has folders that nobody can measure against", "home_mb")
        return ""


def _look(watched: tuple[_Watched, ...]) -> list[tuple[WardenServer, str]]:
    """Return the servers that use more than they may."""
    now = _Processes()
    found = ((each.server, each.excess(now)) for each in watched)
    return [(server, excess) for server, excess in found if excess]


def _nameless(members: Iterable[int], folders: Iterable[Path]) -> int:
    """Return what files take that have no name any more, and that processes still have open."""
    devices = {folder.stat().st_dev for folder in folders if folder.exists()}
    sizes: dict[tuple[int, int], int] = {}
    for pid in members:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    found = entry.stat()
                    if stat.S_ISREG(found.st_mode) and not found.st_nlink:
                        sizes[found.st_dev, found.st_ino] = found.st_blocks * BLOCK
    return sum(size for (device, _), size in sizes.items() if device in devices)


def _used_on_disk(folder: Path) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _memory(pid: int) -> int:
    """Return the memory of a process in bytes, with all that it shares with its kin."""
    return _sum(f"/proc/{pid}/status", "RssAnon:", "RssShmem:") or 0


def _share_of_memory(pid: int) -> int:
    """Return the same without counting shared pages twice; it costs a walk of its mappings."""
    share = _sum(f"/proc/{pid}/smaps_rollup", "Pss_Anon:", "Pss_Shmem:")
    return _memory(pid) if share is None else share


def _sum(path: str, *names: str) -> int | None:
    """Return the sum of some lines of a file in kB, in bytes; None when it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    lines = (line.split() for line in text.splitlines())
    return sum(1024 * int(line[1]) for line in lines if line and line[0] in names)
