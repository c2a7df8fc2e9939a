"""A control plane that takes the rows of a node's own ledger."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from bascule.audit.received import Reached, SentRows
from bascule.client.http import Unreachable
from bascule.client.rpc import RpcSource
from bascule.wire.pb import node_pb2 as pb


class RpcLedger:
    """``Append``, over the connection of a node."""

    def __init__(self, source: RpcSource) -> None:
        self._source = source

    async def append(self, sent: SentRows) -> Reached:
        """Send rows; return how far the control plane is. Raise as it refuses them."""
        rows = [
            pb.LedgerRow(
                number=row.number,
                journal=row.journal,
                place=row.place,
                event=row.event,
                hash=row.hash,
            )
            for row in sent.rows
        ]
        said = pb.AppendRequest(
            before=sent.before,
            rows=rows,
            anchors=sent.anchors,
            ledger=sent.ledger,
            journal=sent.process,
        )
        try:
            found = pb.AppendResponse.FromString(
                await self._source.ask("Append", said.SerializeToString())
            )
        except DecodeError:
            raise Unreachable("the control plane's answer cannot be read") from None
        return Reached(found.number, found.hash, found.anchored)
