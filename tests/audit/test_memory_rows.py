"""Approvals that live as long as their process: how many are kept."""

from __future__ import annotations

from msgspec.structs import replace

from bascule.audit.approval_rows import KEPT, ApprovalFilter
from bascule.audit.approvals import Approvals, MemoryStore
from bascule.testing.clock import FakeClock
from tests.audit.questions import request, says


async def test_in_memory_what_has_ended_is_bounded_and_denials_stay():
    clock = FakeClock()
    store = MemoryStore(clock)
    approvals = Approvals(store, clock=clock)
    answer = await approvals.ask(request("no"), 0)
    denied = await approvals.get(answer.approval_id or "")
    assert denied is not None
    await approvals.decide(denied.id, says("deny", denied))
    ids: list[str] = []
    for number in range(KEPT + 5):
        row = replace(denied, id=f"apr-{number}", state="withdrawn")
        await store.step(lambda rows, row=row: rows.put(row))
        ids.append(row.id)
    assert await approvals.get(denied.id) is not None
    assert await approvals.get(ids[0]) is None
    assert await approvals.get(ids[-1]) is not None
    assert len(await approvals.listing(ApprovalFilter(limit=2 * KEPT))) == KEPT
