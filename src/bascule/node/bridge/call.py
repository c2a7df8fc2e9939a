"""The path of a call: everything else is set-up for it, or a part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bascule.errors import BasculeError, DeadlineExceeded
from bascule.model.approval import Approving, asking_of
from bascule.model.call import NO_LIMITS, Beside, CallLimits
from bascule.model.outcome import Outcome
from bascule.node.bridge import approvals, hygiene
from bascule.node.bridge.budgets import Passage
from bascule.node.bridge.table import Target

if TYPE_CHECKING:
    from bascule.node.bridge.session import Session


async def call(
    session: Session,
    name: str,
    arguments: Mapping[str, object] | None,
    limits: CallLimits,
    beside: Beside,
    approving: Approving = "wait",
) -> Outcome:
    """Carry one call across, or say why not. Only a cancelled caller gets an exception.

    What need not wait does not: the usual call awaits the server, and nothing else.
    """
    started, id = session.core.clock.monotonic(), session.next_request_id()
    passage = Passage(session, name, arguments, started, id, session.revision)
    if limits is not NO_LIMITS:
        passage.limited(limits)
    try:
        found = session.lookup(name) or await _resolved(passage, name)
        target = passage.resolved(found)  # denied: with the decision
        accepted = passage.accepted(target.accept(arguments, session.core.scanner))
        if not target.unattended or (approving != "wait" and asking_of(approving).approval_id):
            asked = await approvals.obtain(passage, target, accepted, approving)
            target, accepted = passage.asked(*asked)
        way = passage.enter(target)
        while way is None:  # what was decided before a wait is decided again after it
            await passage.wait(target)
            granted = passage.approved is not None
            again = approvals.decide_again(session, target, accepted, granted=granted)
            target, accepted = passage.decided(*await passage.within(again))
            way = passage.way(target)
        if passage.approved is None:
            written = session.core.ledger.intent(passage.leaving())
        else:
            written = approvals.claim(passage, target, accepted)
        passage.left = True
        if written is not None:
            await written
        raw = await passage.send(way, target, accepted, beside)
        return passage.done(hygiene.clean(raw, target, passage, beside))
    except BasculeError as error:
        return passage.failed(error)
    finally:
        passage.end()  # every exit is written, cancelling too


async def _resolved(passage: Passage, name: str) -> Target:
    """Find the target; a server that is still starting says so when the time is up."""
    try:
        return await passage.within(passage.session.resolve(name))
    except DeadlineExceeded as error:
        raise DeadlineExceeded(f"{error}{passage.session.delay_of(name)}") from None
