"""Notices that files change, come, go, or are replaced as a whole.

A directory is watched with the folders in it, a file through the directory that holds it: editors
replace files rather than write them. A watch is bound to the directory it began with, so every
second it is asked whether that is still the one of this name; if not, or if watching fails, it
begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from msgspec import Struct
from watchfiles import Change, awatch  # pyright: ignore[reportUnknownVariableType] - of trio

from bascule.clock import Clock

#: A burst of writes is over when nothing has changed for this long, or after the longest.
QUIET_MS = 100
LONGEST_MS = 1_000
LOOK_SECONDS = 1.0


async def changes(path: Path, clock: Clock, *, always: bool = False) -> AsyncGenerator[None, None]:
    """Yield for every burst of changes at a path, and whenever watching it has begun anew.

    ``always`` yields for every change in the folder and once a second besides, watched or not:
    for whoever compares what is there, and has a file that may be a link or cannot be watched.
    """
    while True:
        try:
            async with aclosing(_watch(path, always=always)) as noticed:
                async for _ in noticed:
                    yield
        except (OSError, RuntimeError):  # not there, no watch to be had, or none any more
            if always:
                yield
        await clock.sleep(LOOK_SECONDS)


async def _watch(path: Path, *, always: bool) -> AsyncGenerator[None, None]:
    """Yield when the watch stands, and for every burst; end when the path is another one."""
    place = await asyncio.to_thread(_place_of, path)
    watch = awatch(
        place.folder,
        watch_filter=None if always else place.concerns,
        debounce=LONGEST_MS,
        step=QUIET_MS,
        rust_timeout=round(LOOK_SECONDS * 1000),
        yield_on_timeout=True,
        recursive=place.file is None,
        ignore_permission_denied=True,
    )
    first = True
    async with aclosing(watch) as bursts:
        async for burst in bursts:
            if always or first or burst:
                yield
            if await asyncio.to_thread(_place_of, path) != place:
                return
            first = False


class _Place(Struct, frozen=True):
    """What is watched for a path: a folder, which one it is, and the one file in it that counts."""

    folder: Path
    identity: tuple[int, int]
    file: str | None

    def concerns(self, change: Change, name: str) -> bool:
        """Say whether a change is about what is watched, and not about a neighbour of it."""
        del change
        return self.file is None or Path(name).name == self.file


def _place_of(path: Path) -> _Place:
    is_folder = path.is_dir()
    folder = path if is_folder else path.parent
    seen = folder.stat()
    return _Place(folder, (seen.st_dev, seen.st_ino), None if is_folder else path.name)
