"""The ledgers of nodes, as they send them: rows of their own chains, after those that are here.

Whose chain it is comes from the credential. What is refused is said in the log and in the own
ledger: somebody changed the ledger of a node, or speaks in its name.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Literal

from bascule.asgi.errors import Refused
from bascule.audit.chain import Row
from bascule.audit.events import NodeLedger
from bascule.audit.journaled_ledger import JournaledLedger
from bascule.audit.log_lines import say
from bascule.audit.received import (
    REMEDY,
    NotTaken,
    SentRows,
    Taken,
    receive,
    refuse_malformed,
)
from bascule.audit.sent_calls import SentCalls
from bascule.auth.tokens import Note
from bascule.clock import Clock
from bascule.control.rpc.calls import Call, Unary
from bascule.lifetime import Finishing
from bascule.wire.pb import node_pb2 as pb

logger = logging.getLogger("bascule.nodes")
#: Refusals that are remembered, so that each is noted once.
_REMEMBERED = 1_000


class LedgerRpc:
    """``Append``. Without a ledger it says that nothing is kept."""

    def __init__(
        self,
        ledger: JournaledLedger | None,
        clock: Clock,
        note: Note | None = None,
        calls: SentCalls | None = None,
    ) -> None:
        self._ledger = ledger
        self._calls = calls
        self._note = note
        self._clock = clock
        self._taking = Finishing()
        self._refused: OrderedDict[tuple[str, str, int], None] = OrderedDict()

    def methods(self) -> tuple[Unary[pb.AppendRequest]]:
        """Return the method, for the service."""
        return (Unary("Append", pb.AppendRequest, "audit:write", self._append),)

    async def _append(self, request: pb.AppendRequest, call: Call) -> bytes:
        if self._ledger is None:
            raise Refused("not_found", "the ledger is off: ledger.enabled is false")
        sent = _sent(request, call.node)
        refuse_malformed(sent)
        # To the end: what is noted of the rows must not be lost with the node's connection.
        taken = await self._taking.done(self._received(self._ledger, sent))
        reached = taken.reached
        return pb.AppendResponse(
            number=reached.number, hash=reached.hash, anchored=reached.anchored
        ).SerializeToString()

    async def _received(self, ledger: JournaledLedger, sent: SentRows) -> Taken:
        now, tables = self._clock.now(), ledger.tables
        try:
            taken = await ledger.database.write(lambda found: receive(found, tables, sent, now))
        except NotTaken as error:
            await self._tell(sent, error)
            raise
        ledger.note_added(0)
        if self._calls is not None and taken.first:
            self._calls.note([row for row in sent.rows if row.number >= taken.first], now)
        if taken.began and taken.first:
            before = f"it goes on after row {taken.first - 1} of ledger {taken.follows}"
            reason = "" if taken.follows is None else before
            await self._noted(sent, "began", taken.first, reason)
        elif taken.gap:
            await self._noted(sent, "gap", taken.first)
        return taken

    async def _tell(self, sent: SentRows, error: NotTaken) -> None:
        """Say once what a node sends that is not believed."""
        key = sent.node, sent.ledger, error.number
        if key in self._refused:
            return
        self._refused[key] = None
        if len(self._refused) > _REMEMBERED:
            self._refused.popitem(last=False)
        words = f"the ledger of node {sent.node!r} is not believed: {error}; {REMEDY}"
        say(logger, logging.ERROR, words, node=sent.node, ledger=sent.ledger)
        await self._noted(sent, "refused", error.number, str(error))

    async def _noted(
        self,
        sent: SentRows,
        action: Literal["began", "gap", "refused"],
        number: int,
        reason: str = "",
    ) -> None:
        if self._note is not None:
            at, ledger = self._clock.now(), sent.ledger
            await self._note(
                NodeLedger(
                    timestamp=at,
                    by=sent.node,
                    action=action,
                    ledger=ledger,
                    number=number,
                    reason=reason,
                )
            )


def _sent(request: pb.AppendRequest, node: str) -> SentRows:
    rows = [Row(one.number, one.journal, one.place, one.event, one.hash) for one in request.rows]
    return SentRows(
        node=node,
        ledger=request.ledger,
        process=request.journal,
        before=request.before,
        rows=rows,
        anchors=[*request.anchors],
    )
