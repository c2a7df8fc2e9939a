"""Work that grows with the registry, done beside the event loop once there is much of it.

What is small stays where it is: to leave the loop costs more than to do it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: With so many records in it, work is large.
LARGE = 256


async def apart(size: int, work: Callable[[], T]) -> T:
    """Do some work about ``size`` records; it must touch nothing that others change."""
    return await asyncio.to_thread(work) if size >= LARGE else work()
