"""The path of a call: everything else is set-up for it, or a part of it.

Above: ``Session.call``. Below, in the order they are used: ``record.py`` writes every exit down,
``table.py`` resolves and accepts, ``approvals.py`` asks, ``budgets.py`` reserves, the
``ToolCaller`` port sends, ``hygiene.py`` cleans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from bascule.errors import BasculeError, DeadlineExceeded
from bascule.model.call import CallLimits, Progress
from bascule.model.outcome import Outcome
from bascule.node.bridge import approvals, hygiene
from bascule.node.bridge.record import CallRecord

if TYPE_CHECKING:
    from bascule.node.bridge.session import Session

OnProgress = Callable[[Progress], None]

_FOR_EVER = nullcontext()


async def call(
    session: Session,
    name: str,
    arguments: Mapping[str, Any] | None,
    limits: CallLimits,
    on_progress: OnProgress | None,
) -> Outcome:
    """Carry one call across, or say why not. Only a cancelled caller gets an exception."""
    until = None if limits.timeout is None else asyncio.get_running_loop().time() + limits.timeout
    with CallRecord(session, name, arguments) as record:  # every exit is written, cancelling too
        try:
            async with _before(until):
                target = record.resolved(await session.resolve(name))  # denied: with the decision
                accepted = record.accepted(target.accept(arguments, session.scanner))
                target, granted = await approvals.obtain(
                    session, target, accepted, record.request_id
                )
            async with session.reserve(target, limits, until) as slot:
                await record.intent(approved=granted)
                raw = await slot.send(accepted.payload, on_progress)
            return record.done(hygiene.clean(raw, target, session, slot, record))
        except BasculeError as error:
            return record.failed(error)
        except TimeoutError:
            return record.failed(DeadlineExceeded("the time given for the call is up"))


def _before(until: float | None) -> AbstractAsyncContextManager[object]:
    """Bound what is inside by a deadline. Without one, a timeout would be a tenth of the path."""
    return _FOR_EVER if until is None else asyncio.timeout_at(until)
