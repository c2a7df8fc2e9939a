"""What writes would allow that was not allowed before, as the ledger notes it."""

from __future__ import annotations

from collections.abc import Sequence

from bascule.audit.events import PolicyLoosened
from bascule.control.registry.errors import Conflict
from bascule.control.registry.store import Author, View, Write, effective_writes
from bascule.policy.loosening import loosened


def loosenings(
    before: View, writes: Sequence[Write], by: Author, now: float
) -> list[PolicyLoosened]:
    """Return what each write would allow that its record did not; nothing if it is to be refused.

    Then the store refuses it too, or knows of a newer revision.
    """
    found = [(write, before.objects.get(write.key)) for write in writes]
    named = [(w, loosened(None if old is None else old.record, w.record)) for w, old in found]
    acts = [
        PolicyLoosened(
            timestamp=now,
            by=by.actor,
            revision=before.revision + 1,
            kind=write.kind,
            id=write.id,
            changes=changes,
        )
        for write, changes in named
        if changes
    ]
    try:
        return acts if acts and effective_writes(writes, before.current) else []
    except Conflict:
        return []
