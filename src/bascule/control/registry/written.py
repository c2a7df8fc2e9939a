"""What a write led to: the registry before and after it."""

from __future__ import annotations

from typing import Self

from msgspec import Struct

from bascule.control.registry.errors import NotFound
from bascule.control.registry.history import compare
from bascule.control.registry.plan import Draft
from bascule.control.registry.store import Change, Stored, View
from bascule.model.kinds import Kind
from bascule.policy.access import Catalogue
from bascule.wire.api.history import RevisionDiff


class Written(Struct, frozen=True):
    """What a write led to. ``change`` is None when nothing differed from what was there.

    ``revision`` is the registry's after the write; ``diff`` compares before and after;
    ``problems`` are what was left out (loading only).
    """

    revision: int
    change: Change | None
    before: View
    after: View
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, change: Change | None, before: View, after: View, draft: Draft) -> Self:
        """Return what a draft led to."""
        revision = before.revision if change is None else change.revision
        return cls(revision, change, before, after, draft.warnings, draft.problems)

    def stored(self, kind: Kind, key: str) -> Stored:
        """Return an object as the write left it."""
        found = self.after.get(kind, key)
        if found is None:
            raise NotFound(kind, key)
        return found

    def diff(self, catalogue: Catalogue | None = None) -> RevisionDiff:
        """Compare the registry before and after; ``catalogue`` has the tools that are known."""
        return compare(self.before.snapshot(), self.after.snapshot(), catalogue=catalogue)
