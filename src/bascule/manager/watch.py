"""Notices that the file of agents may have changed.

The folder is watched rather than the file, which editors replace; and once a second there is a
look in any case, for folders that cannot be watched. Whoever is told compares digests, so that
one look too many costs nothing. Below: watchfiles. Above: ``fleet.py``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType] - of trio

from bascule.clock import Clock

QUIET_MS = 50
LONGEST_MS = 500
LOOK_SECONDS = 1.0


async def looks(path: Path, clock: Clock) -> AsyncGenerator[None, None]:
    """Yield whenever it is time to look at the file, until closed."""
    while True:
        try:
            async with aclosing(_watched(path)) as bursts:
                async for _ in bursts:
                    yield
        except (OSError, RuntimeError):  # no such folder, or no watch to be had
            yield
        await clock.sleep(LOOK_SECONDS)


async def _watched(path: Path) -> AsyncGenerator[None, None]:
    bursts = awatch(
        path.parent,
        watch_filter=None,
        debounce=LONGEST_MS,
        step=QUIET_MS,
        rust_timeout=round(LOOK_SECONDS * 1000),
        yield_on_timeout=True,
        recursive=False,
        ignore_permission_denied=True,
    )
    async with aclosing(bursts) as found:
        async for _ in found:
            yield
