"""What holds calls up at a node: approvals, at its control plane, and turns that wait for them.

The turns are kept at the node, beside its ledger, sealed with a key of its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import Struct

from bascule.app.far_approvals import FarApprovals
from bascule.app.settings import Settings
from bascule.audit.journaled_ledger import JournaledLedger
from bascule.audit.parked_turns import LedgerTurns, MemoryTurns, ParkedTurns
from bascule.auth.keys import derived
from bascule.auth.sealing import KeySealer
from bascule.client.rpc import RpcSource
from bascule.client.rpc_approvals import ApprovalCalls


class Holds(Struct, frozen=True):
    """Where calls wait for somebody, and conversations for calls."""

    approvals: FarApprovals
    parked: ParkedTurns


@asynccontextmanager
async def open_holds(
    settings: Settings, source: RpcSource, ledger: JournaledLedger | None, root: bytes
) -> AsyncGenerator[Holds, None]:
    """Ask for approvals through a source; ``root`` is the node's own key."""
    refuse = None if ledger is None else ledger.refuse
    async with FarApprovals(ApprovalCalls(source), refuse) as approvals:
        yield Holds(approvals, _parked(settings, ledger, derived(root, "parked-turns")))


def _parked(settings: Settings, ledger: JournaledLedger | None, key: bytes) -> ParkedTurns:
    grace = float(settings.approvals.claim_seconds)
    if ledger is None:
        return MemoryTurns(grace=grace)
    return LedgerTurns(ledger, KeySealer(key), grace=grace)
