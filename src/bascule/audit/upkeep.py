"""Upkeep that goes on while its database is away, and says so once."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from bascule.clock import Clock
from bascule.errors import BasculeError

logger = logging.getLogger("bascule.approvals")


async def look_after(
    what: str, sweep: Callable[[], Awaitable[None]], seconds: float, clock: Clock
) -> None:
    """Sweep every so often, until cancelled; the log has when that fails, and when it does again.

    A night without a database would fill it otherwise.
    """
    failing = False
    while True:
        try:
            await sweep()
        except BasculeError as error:
            if not failing:
                logger.warning("%s cannot be looked after now: %s", what, error)
            failing = True
        else:
            if failing:
                logger.info("%s are looked after again", what)
            failing = False
        await clock.sleep(seconds)
