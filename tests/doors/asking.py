"""A served door whose approvals are kept in memory, and somebody who decides on its questions."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bascule.asgi.serve import Serving
from bascule.audit.approval_rows import ApprovalFilter
from bascule.audit.approval_steps import Decision
from bascule.audit.approvals import Approvals, MemoryStore
from bascule.model.approval import Approval, Decider, Verb
from tests.doors.door import Door
from tests.node.fakes import text
from tests.waits import until


class Counted(Approvals):
    """Approvals that know how many calls have waited, and how many wait now."""

    waits = 0
    waiting = 0

    async def settled(self, id: str, seconds: float | None) -> Approval:
        self.waits += 1
        self.waiting += 1
        try:
            return await super().settled(id, seconds)
        finally:
            self.waiting -= 1


class Scene:
    """A door over HTTP, one client's token, and its approvals; ``delete`` needs one."""

    def __init__(self) -> None:
        self.approvals = Counted(MemoryStore())
        self.door = Door(approvals=self.approvals)
        self.door.world.caller.answers("delete", text("gone"))
        self.server = Serving(self.door.app)
        self.token = ""

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def runs(self) -> int:
        """Return how many calls have left for the server."""
        return len(self.door.world.sent)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    async with scene.server:
        scene.token = await scene.door.minted()
        yield scene
        await scene.approvals.close()


async def asked(approvals: Approvals) -> Approval:
    """Wait until there is a question, the only one, and return it."""
    [found] = await until(lambda: approvals.listing(ApprovalFilter(states=("pending",))))
    return found


async def decided(approvals: Approvals, verb: Verb = "approve", reason: str = "") -> Approval:
    """Decide on the only question there is, once it is there."""
    return await _said(approvals, await asked(approvals), verb, reason)


async def approve(approvals: Approvals, id: str) -> Approval:
    """Agree to a question."""
    question = await approvals.get(id)
    assert question is not None
    return await _said(approvals, question, "approve", "")


async def _said(approvals: Approvals, question: Approval, verb: Verb, reason: str) -> Approval:
    by = Decider(name="bob", token_id="tok-bob")
    decision = Decision(verb=verb, by=by, digest=question.digest, reason=reason)
    return await approvals.decide(question.id, decision)
