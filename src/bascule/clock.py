"""Time as a parameter: the only module that reads it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from math import isfinite
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> float:
        """Seconds since 1970, for records and logs; it may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for deadlines and durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's own time."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Wait on the running event loop."""
        await asyncio.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


def rfc3339(seconds: float | None) -> str | None:
    """Return a time in UTC as text; None for what never happened."""
    if not seconds:
        return None
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def seconds_of(text: str) -> float:
    """Read a time (RFC 3339, in UTC unless it says otherwise) or seconds; raise ValueError."""
    try:
        seconds = float(text)
    except ValueError:
        found = datetime.fromisoformat(text)
        seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    if not isfinite(seconds):
        raise ValueError(f"{text} is no time")
    return seconds
