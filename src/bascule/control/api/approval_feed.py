"""Every step of approvals, as it is made: here, or by another process over the same ledger."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from msgspec.structs import replace

from bascule.asgi.errors import Refused
from bascule.audit.approval_rows import ApprovalFilter
from bascule.audit.approvals import Approvals
from bascule.model.approval import STEPS, Approval, ApprovalState

#: How often what nobody has told is looked for.
LOOK_SECONDS = 5.0
#: How many steps may wait for their reader.
MAX_WAITING = 10_000
_OPEN: tuple[ApprovalState, ...] = tuple(STEPS)
_PAGE = 1_000


class ApprovalFeed:
    """What is pending, then every step, each once.

    Steps that are made here come one by one. Of those made elsewhere only the last is seen: the
    rows are looked at now and then.
    """

    def __init__(self, approvals: Approvals, wanted: ApprovalFilter) -> None:
        self._approvals = approvals
        self._wanted = wanted
        self._waiting: deque[Approval] = deque(maxlen=MAX_WAITING + 1)
        self._told: dict[str, ApprovalState] = {}
        self._loop = asyncio.get_running_loop()
        self._look_at = self._loop.time() + LOOK_SECONDS
        self._heard = approvals.heard

    async def steps(self) -> AsyncGenerator[Approval | None, None]:
        """Yield approvals as they move, and None when nothing did for a while.

        It ends with the process: from then on nobody has to wait for a step.
        """
        end = self._approvals.subscribe(self._waiting.append)
        try:
            for approval in await self._open():
                if approval.state == "pending":
                    self._waiting.append(approval)
                else:
                    self._told[approval.id] = approval.state
            while not self._approvals.stopping:
                while self._waiting:
                    self._refuse_slow()
                    approval = self._waiting.popleft()
                    if self._is_news(approval):
                        yield approval
                yield None
                if not self._waiting:
                    await self._approvals.moved(LOOK_SECONDS)
                if self._heard != self._approvals.heard or self._loop.time() >= self._look_at:
                    await self._look()
        finally:
            end()

    def _refuse_slow(self) -> None:
        if len(self._waiting) > MAX_WAITING:
            raise Refused("compacted", f"{MAX_WAITING} steps were not read: watch again")

    def _is_news(self, approval: Approval) -> bool:
        before = self._told.get(approval.id)
        if not self._wanted.admits(approval) or _place(before) >= _place(approval.state):
            return False
        self._told.pop(approval.id, None)  # so that the oldest are forgotten first
        self._told[approval.id] = approval.state
        if len(self._told) > MAX_WAITING:
            ended = (id for id, state in self._told.items() if state not in STEPS)
            self._told.pop(next(ended, approval.id))
        return True

    async def _look(self) -> None:
        """See what nobody has told."""
        self._look_at = self._loop.time() + LOOK_SECONDS
        self._heard = self._approvals.heard
        found = await self._open()
        still = {approval.id for approval in found}
        ended = [id for id, state in self._told.items() if state in STEPS and id not in still]
        gone = [await self._approvals.get(id) for id in ended]
        self._waiting += [*found, *(one for one in gone if one is not None)]
        for id, approval in zip(ended, gone, strict=True):
            if approval is None:
                del self._told[id]

    async def _open(self) -> list[Approval]:
        """Return those that can still move, the oldest first."""
        found: list[Approval] = []
        page = replace(self._wanted, states=_OPEN, limit=_PAGE)
        while True:
            part = await self._approvals.listing(page)
            found += part
            if len(part) < _PAGE:
                return found[::-1]
            page = replace(page, before=(part[-1].asked_at, part[-1].id))


def _place(state: ApprovalState | None) -> int:
    """Return how far along its way a state is; what was told is not told again, nor what it was."""
    return -1 if state is None else _OPEN.index(state) if state in _OPEN else len(_OPEN)
