"""A trial of a server, with what it is doing meanwhile: a first start may fetch for minutes.

Below: the client of the registry, the status line. Above: ``servers test``.
"""

from __future__ import annotations

import asyncio

from bascule.cli.progress import StatusLine
from bascule.client.http import TooLate
from bascule.client.registry import RegistryClient, Trial
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError
from bascule.model.json import is_object

_LOOK_SECONDS = 0.5


async def tried(registry: RegistryClient, server_id: str, seconds: float) -> Trial:
    """Have a node try a server; one that takes longer is a failure that says what it is doing."""
    line = StatusLine()
    began = SYSTEM_CLOCK.monotonic()
    async with line.waiting(f"testing {server_id}"):
        following = asyncio.create_task(_follow(registry, server_id, line, SYSTEM_CLOCK))
        try:
            return await registry.test(server_id, seconds=seconds)
        except TooLate as error:
            doing = await _doing(registry, server_id)
            took = (SYSTEM_CLOCK.monotonic() - began) * 1000
            text = f"not there yet: {doing}; that goes on" if doing else str(error)
            return Trial(ok=False, duration_ms=took, error=text)
        finally:
            following.cancel()


async def _follow(registry: RegistryClient, server_id: str, line: StatusLine, clock: Clock) -> None:
    """Keep the status line up to date, where there is one."""
    while line.visible:
        await clock.sleep(_LOOK_SECONDS)
        doing = await _doing(registry, server_id)
        line.say(f"testing {server_id}: {doing}" if doing else f"testing {server_id}")


async def _doing(registry: RegistryClient, server_id: str) -> str | None:
    """Return what a start is doing, as far as the registry has heard of it."""
    try:
        status = (await registry.get("server", server_id)).get("status")
    except BasculeError:
        return None
    words = status.get("starting") if is_object(status) else None
    return words if isinstance(words, str) else None
