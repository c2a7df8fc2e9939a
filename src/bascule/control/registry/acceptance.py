"""Credentials and where they go: an administrator's word is needed for each new pair.

A pair of a credential and its target is accepted while a record has it, for it came with an
administrator's write or a file of the machine's owner; and afterwards, if it was an operator who
took it away. A write that would make another one is refused and kept as a proposal, which an
administrator lets in as it is or leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bascule.clock import Clock
from bascule.control.registry.errors import NotAccepted, NotProposed
from bascule.control.registry.store import Author, Key, Proposal, Store, View, Write
from bascule.model.json import JsonObject
from bascule.policy.pairs import Pair, pairs_of


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
        gone = lost(before, writes)
        gained = {} if by.trusted else _gained(before, writes)
        if not gone and not any(gained.values()):
            return  # as most writes: nothing is asked of the store
        kept = await self._store.kept_pairs()
        if by.trusted:
            if gone & kept and not dry_run:
                await self._store.forget_pairs(gone & kept)
            return
        refused = unaccepted(before, gained, kept)
        if refused:
            if not dry_run:
                await self._propose(before, [write for write in writes if write.key in refused], by)
            raise NotAccepted(refused, kept=not dry_run)
        if gone - kept and not dry_run:
            await self._store.keep_pairs(gone - kept)

    async def _propose(self, view: View, writes: Iterable[Write], by: Author) -> None:
        await self._store.propose(
            [
                Proposal(
                    kind=write.kind,
                    id=write.id,
                    record=write.record,
                    base=view.revision_of(write.key),
                    actor=by.actor,
                    at=self._clock.now(),
                )
                for write in writes
                if write.record is not None
            ]
        )

    async def waiting(self, view: View) -> tuple[Proposal, ...]:
        """Return what waits for an administrator; what a later write overtook does not."""
        proposals = await self._store.proposals()
        return tuple(one for one in proposals if one.base == view.revision_of(one.key))

    async def proposed(self, view: View, key: Key, digest: str | None) -> Write:
        """Return the write that is proposed for a record; raise NotProposed.

        ``digest`` says which proposal was looked at.
        """
        found = {one.key: one for one in await self.waiting(view)}.get(key)
        if found is None or digest not in (None, found.digest):
            raise NotProposed(*key)
        stored = view.objects.get(key)
        extra: JsonObject = {} if stored is None else stored.extra
        return Write(kind=key[0], id=key[1], record=found.record, expected=found.base, extra=extra)

    async def refuse(self, view: View, key: Key, digest: str | None) -> None:
        """Forget what was proposed for a record and not let in; raise NotProposed."""
        await self.proposed(view, key, digest)
        await self.withdraw(key)

    async def withdraw(self, key: Key) -> None:
        """Forget what was proposed for a record."""
        await self._store.withdraw(key)


def lost(view: View, writes: Iterable[Write]) -> frozenset[Pair]:
    """Return the pairs that writes take from their own records."""
    return frozenset(
        pair for write in writes for pair in _before(view, write) - pairs_of(write.record)
    )


def _before(view: View, write: Write) -> frozenset[Pair]:
    stored = view.objects.get(write.key)
    return frozenset() if stored is None else pairs_of(stored.record)


def present(view: View) -> frozenset[Pair]:
    """Return the pairs of all records."""
    return frozenset(pair for stored in view.objects.values() for pair in pairs_of(stored.record))


def _gained(view: View, writes: Iterable[Write]) -> dict[Key, frozenset[Pair]]:
    """Return the pairs that writes add to their own records."""
    return {write.key: pairs_of(write.record) - _before(view, write) for write in writes}


def unaccepted(
    view: View, gained: Mapping[Key, frozenset[Pair]], kept: frozenset[Pair]
) -> dict[Key, frozenset[Pair]]:
    """Return, for each record, the pairs it gains that no administrator wrote."""
    if not any(gained.values()):
        return {}
    accepted = present(view) | kept
    found = {key: pairs - accepted for key, pairs in gained.items()}
    return {key: pairs for key, pairs in found.items() if pairs}
