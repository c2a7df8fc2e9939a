"""What an operator's write may not do by itself, and what waits for an administrator because of it.

A pair of a credential and its target is accepted while a record has it, for it came with an
administrator's write or a file of the machine's owner; and afterwards, if it was an operator who
took it away. A write that would make another one is refused and kept as a proposal, which an
administrator lets in as it is or leaves. Below: ``bascule.policy.pairs``. Above: stores keep pairs
and proposals, ``service.py`` asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bascule.control.registry.store import Key, Proposal, View, Write
from bascule.policy.pairs import Pair, pairs_of


def gained(view: View, writes: Iterable[Write]) -> dict[Key, frozenset[Pair]]:
    """Return the pairs that writes add to their own records."""
    found = {write.key: pairs_of(write.record) - _before(view, write) for write in writes}
    return {key: pairs for key, pairs in found.items() if pairs}


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


def unaccepted(
    view: View, writes: Sequence[Write], kept: frozenset[Pair]
) -> dict[Key, frozenset[Pair]]:
    """Return, for each record, the pairs of writes that no administrator wrote."""
    wanted = gained(view, writes)
    if not wanted:
        return {}
    accepted = present(view) | kept
    found = {key: pairs - accepted for key, pairs in wanted.items()}
    return {key: pairs for key, pairs in found.items() if pairs}


def proposals_of(
    view: View, writes: Iterable[Write], refused: Iterable[Key], *, actor: str, at: float
) -> list[Proposal]:
    """Return what is to wait of writes that are refused for these records."""
    keys = set(refused)
    return [
        Proposal(
            kind=write.kind,
            id=write.id,
            record=write.record,
            base=stored.revision if (stored := view.objects.get(write.key)) is not None else 0,
            actor=actor,
            at=at,
        )
        for write in writes
        if write.key in keys and write.record is not None
    ]
