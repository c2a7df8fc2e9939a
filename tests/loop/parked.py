"""A world whose tools ask somebody, whoever decides there, and a place to park one turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from bascule.audit.approval_rows import ApprovalFilter
from bascule.audit.approval_steps import Decision
from bascule.audit.approvals import Approvals, MemoryStore
from bascule.errors import BasculeError
from bascule.loop.budgets import LoopSettings
from bascule.loop.parking import ParkedTurn
from bascule.model.approval import Approval, ApprovalState, Decider, Verb
from bascule.model.server import ServerRecord
from tests.node.fakes import World
from tests.policy.build import server
from tests.waits import SOON_SECONDS

#: Nobody waits: what is not decided is parked.
AT_ONCE = LoopSettings(approval_wait_seconds=0)
BOB = Decider(name="bob", token_id="tok-bob")


def asking_server(name: str = "fs") -> ServerRecord:
    """Return a server that writes and deletes only if somebody agrees."""
    per_tool = {"write": "always", "delete": "always"}
    return server(name, approval_policy={"default": "never", "per_tool": per_tool})


class Desk:
    """Where somebody decides."""

    def __init__(self, approvals: Approvals | None = None) -> None:
        self.approvals = approvals or Approvals(MemoryStore())

    def world(self) -> World:
        return World(asking_server(), approver=self.approvals)

    async def all(self, *states: ApprovalState) -> list[Approval]:
        """Return the approvals, the oldest first."""
        return (await self.approvals.listing(ApprovalFilter(states=states)))[::-1]

    async def asked(self, count: int = 1) -> list[Approval]:
        """Wait until so many questions are open."""
        async with asyncio.timeout(SOON_SECONDS):
            while len(found := await self.all("pending")) < count:
                await self.approvals.moved(1)
        return found

    async def decide(self, verb: Verb, *approvals: Approval) -> None:
        """Decide on these, or on everything that is open."""
        for one in approvals or await self.asked():
            decision = Decision(verb=verb, by=BOB, digest=one.digest)
            await self.approvals.decide(one.id, decision)

    async def ended(self, state: ApprovalState, count: int = 1) -> list[Approval]:
        """Wait until so many have come to this state."""
        async with asyncio.timeout(SOON_SECONDS):
            while len(found := await self.all(state)) < count:
                await self.approvals.moved(1)
        return found


class Lot:
    """A ``Parking`` that keeps what a disk would: bytes."""

    def __init__(self, approvals: Approvals | None = None) -> None:
        self._approvals = approvals
        self.body: bytes | None = None
        self.renewed = 0
        self.broken = False

    @property
    def parked(self) -> ParkedTurn | None:
        return None if self.body is None else msgspec.json.decode(self.body, type=ParkedTurn)

    async def keep(self, turn: ParkedTurn) -> str:
        if self.broken:
            raise BasculeError("the disk is full")
        self.body = msgspec.json.encode(turn)
        self.renewed += 1
        return "turn-1"

    async def forget(self) -> None:
        self.body = None

    def abandon(self, approval_ids: Sequence[str]) -> None:
        for id in approval_ids if self._approvals else ():
            assert self._approvals is not None
            self._approvals.leave(id)
