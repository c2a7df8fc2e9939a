"""How long the calls of a door wait for approval: a first call asks, a second one waits.

So a call that needs none has its own time and nothing more, and whoever listens hears of the
question before anybody waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bascule.model.approval import Asking, Waiting, waiting_of
from bascule.model.call import CallLimits
from bascule.model.outcome import Outcome
from bascule.node.contract import ToolSession


class Patience(Struct, frozen=True):
    """So many seconds: 0 returns at once, infinity waits until the question's own deadline."""

    seconds: float = 0.0

    def __post_init__(self) -> None:
        given: Any = self.seconds
        if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
            raise ValueError(
                f"approval_seconds must be 0 or more, or math.inf for as long as it can be given, "
                f"not {given!r}"
            )

    def asking(self, waiting: Waiting) -> Asking:
        """Return how a question is waited for, and used, that was asked already."""
        wait = None if math.isinf(self.seconds) else self.seconds
        return Asking(wait=wait, approval_id=waiting.approval_id)

    def limits(self, own: CallLimits) -> CallLimits:
        """Return a call's own limits with the time that it waits."""
        if own.timeout is None:
            return own
        timeout = own.timeout + self.seconds
        return replace(own, timeout=timeout if math.isfinite(timeout) else None)


async def patiently(
    session: ToolSession,
    name: str,
    arguments: Mapping[str, object],
    limits: CallLimits,
    patience: Patience,
    told: Callable[[Waiting], None],
) -> Outcome:
    """Call a tool; tell of the question where it needs approval, and wait for the answer."""
    outcome = await session.call(name, arguments, limits=limits, approval="return")
    waiting = waiting_of(outcome)
    if waiting is None:
        return outcome
    told(waiting)
    if not patience.seconds:
        return outcome
    longer, asking = patience.limits(limits), patience.asking(waiting)
    return await session.call(name, arguments, limits=longer, approval=asking)
