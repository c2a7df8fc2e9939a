"""What no limit of the kernel keeps for a whole server, looked at from outside once a second.

That is the size of its private folders, and where it could have no cgroup its memory and its
processes. A server that uses more than its record grants is ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bascule.clock import Clock
from bascule.node.pool.process.plan import Confinement
from bascule.node.pool.process.warden_process import Process, family, living, processes
from bascule.node.trees import size_of_tree

if TYPE_CHECKING:
    from bascule.node.pool.process.warden_link import WardenServer

logger = logging.getLogger(__name__)

PERIOD = 1.0  # seconds
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


class _Watched:
    """One server, and what was found when its folders were last measured."""

    def __init__(self, server: WardenServer, confinement: Confinement) -> None:
        self.server = server
        self.sandbox = confinement.sandbox
        self._folders = [Path(folder) for folder in confinement.own]
        self._size = 0
        self._used = -1

    def excess(self, table: Mapping[int, Process] | None) -> str:
        """Say what the server has too much of; "" while it keeps within its limits."""
        if self._folders_too_large():
            return self._over("its HOME and TMPDIR are larger than", "home_mb")
        if table is None:
            return ""
        members = living(table, family(table, [self.server.pid]))
        if len(members) > 2 * self.sandbox.processes:
            return self._over("it has many more processes than", "processes")
        limit = self.sandbox.memory_mb * _MB
        if sum(map(_memory, members)) > limit and sum(map(_share_of_memory, members)) > limit:
            return self._over("it uses more memory than", "memory_mb")
        return ""

    def _over(self, what: str, field: str) -> str:
        return f"the server was ended: {what} sandbox.{field} = {getattr(self.sandbox, field)}"

    def _folders_too_large(self) -> bool:
        """Measure, but only when the disk has filled by enough: a HOME may hold many files."""
        limit = self.sandbox.home_mb * _MB
        used = sum(map(_used_on_disk, self._folders))
        if self._used >= 0 and used - self._used < max((limit - self._size) / 2, _MB):
            self._used = min(self._used, used)
            return False
        self._used = used
        self._size = sum(map(size_of_tree, self._folders))
        return self._size > limit


def _look(watched: tuple[_Watched, ...]) -> list[tuple[WardenServer, str]]:
    """Return the servers that use more than they may."""
    table = None
    if any(not each.server.counted for each in watched):
        table = processes()
    found = ((each.server, each.excess(None if each.server.counted else table)) for each in watched)
    return [(server, excess) for server, excess in found if excess]


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
