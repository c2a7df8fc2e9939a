"""The path of a call: everything else is set-up for it, or a part of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from bascule.errors import BasculeError, DeadlineExceeded
from bascule.model.call import CallLimits, Progress
from bascule.model.outcome import Outcome
from bascule.node.bridge import approvals, hygiene
from bascule.node.bridge.budgets import Slot
from bascule.node.bridge.record import CallRecord
from bascule.node.bridge.table import Target

if TYPE_CHECKING:
    from bascule.node.bridge.session import Session

OnProgress = Callable[[Progress], None]
T = TypeVar("T")


async def call(
    session: Session,
    name: str,
    arguments: Mapping[str, object] | None,
    limits: CallLimits,
    on_progress: OnProgress | None,
) -> Outcome:
    """Carry one call across, or say why not. Only a cancelled caller gets an exception.

    What need not wait does not: the usual call awaits the ledger and the server, nothing else.
    """
    until = None if limits.timeout is None else asyncio.get_running_loop().time() + limits.timeout
    with CallRecord(session, name, arguments) as record:  # every exit is written, cancelling too
        try:
            found = session.lookup(name) or await _resolved(session, name, until)
            target = record.resolved(found)  # denied: with the decision
            accepted = record.accepted(target.accept(arguments, session.core.scanner))
            granted = False
            if not target.unattended:
                asked = approvals.obtain(session, target, accepted, record.request_id)
                target, granted = await _before(until, asked)
            with Slot(session, target, limits, until) as slot:
                while not slot.ready:  # what was decided before a wait is decided again after it
                    await slot.wait()
                    again = approvals.decide_again(session, target, accepted, granted=granted)
                    target, accepted = slot.decided(record, *await _before(until, again))
                await session.core.ledger.intent(record.intent(approved=granted))
                raw = await slot.send(accepted, on_progress, granted=granted)
            return record.done(hygiene.clean(raw, target, session, slot, record))
        except BasculeError as error:
            return record.failed(error)


async def _resolved(session: Session, name: str, until: float | None) -> Target:
    """Find the target; a server that is still starting says so when the time is up."""
    try:
        return await _before(until, session.resolve(name))
    except DeadlineExceeded as error:
        raise DeadlineExceeded(f"{error}{session.delay_of(name)}") from None


async def _before(until: float | None, work: Awaitable[T]) -> T:
    """Wait for something that may take its time, but not beyond the caller's own limit."""
    try:
        async with asyncio.timeout_at(until):
            return await work
    except TimeoutError:
        raise DeadlineExceeded("the time given for the call is up (the caller's timeout)") from None
