"""Credentials and where they go: an administrator's word is needed for each new pair.

Below: ``proposals.py`` says which pairs a write adds and takes away, the store keeps them. Above:
``service.py`` asks before each write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bascule.clock import Clock
from bascule.control.registry.errors import NotAccepted, NotProposed
from bascule.control.registry.proposals import lost, proposals_of, unaccepted
from bascule.control.registry.store import Author, Key, Proposal, Store, View, Write


class Acceptance:
    """The accepted pairs of one store, and what waits to be accepted."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def check(
        self, before: View, writes: Sequence[Write], by: Author, *, dry_run: bool
    ) -> None:
        """Raise NotAccepted for pairs that an operator may not make, and keep what was refused.

        What only an operator takes away stays accepted; what an administrator takes away does not.
        """
        kept = await self._store.kept_pairs()
        if by.trusted:
            if kept and not dry_run:
                await self._store.forget_pairs(lost(before, writes) & kept)
            return
        refused = unaccepted(before, writes, kept)
        if refused:
            if not dry_run:
                waiting = proposals_of(
                    before, writes, refused, actor=by.actor, at=self._clock.now()
                )
                await self._store.propose(waiting)
            raise NotAccepted(refused, kept=not dry_run)
        gone = lost(before, writes) - kept
        if gone and not dry_run:
            await self._store.keep_pairs(gone)

    async def waiting(self, view: View) -> tuple[Proposal, ...]:
        """Return what waits for an administrator; what a later write overtook does not."""
        return tuple(one for one in await self._store.proposals() if _is_open(view, one))

    async def proposed(self, view: View, key: Key, digest: str | None) -> Write:
        """Return the write that is proposed for a record; raise NotProposed.

        ``digest`` says which proposal was looked at.
        """
        found = {one.key: one for one in await self.waiting(view)}.get(key)
        if found is None or digest not in (None, found.digest):
            raise NotProposed(*key)
        stored = view.objects.get(key)
        extra: Mapping[str, Any] = {} if stored is None else stored.extra
        return Write(kind=key[0], id=key[1], record=found.record, expected=found.base, extra=extra)

    async def withdraw(self, key: Key) -> None:
        """Forget what was proposed for a record."""
        await self._store.withdraw(key)


def _is_open(view: View, proposal: Proposal) -> bool:
    stored = view.objects.get(proposal.key)
    return proposal.base == (0 if stored is None else stored.revision)
