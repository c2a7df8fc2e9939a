"""Whether what a registry offers may take the place of what a node serves.

A registry may be emptied, or replaced by an older or another copy, without anybody having meant
it. What follows in the same history is taken, and so is a store that says that it replaces the
present one. Anything else is doubted: a node would rather be late than lose what it had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from bascule.errors import BasculeError
from bascule.model.kinds import KEY_FIELDS
from bascule.model.snapshot import Snapshot


class Implausible(BasculeError):
    """What the registry offers is not taken until a person says so."""

    code = "store_changed"

    def __init__(self, doubt: str, remedy: str) -> None:
        super().__init__(
            f"{doubt}; what this node had goes on serving. If the registry is right, {remedy}"
        )


#: Says what ends a doubt: from what a node has, and what it was offered, if that is known.
Remedy: TypeAlias = Callable[[Snapshot, Snapshot | None], str]


def by_restart(_present: Snapshot, _offered: Snapshot | None) -> str:
    """Say what ends a doubt of a node that is part of a program."""
    return "restart this node to take what it has"


def by_command(present: Snapshot, _offered: Snapshot | None) -> str:
    """Say what ends a doubt of a node that is a process of its own."""
    here = "take what it has with `bascule node accept` on this node's machine"
    announced = f"`bascule registry announce --succeeds {present.store_id}`"
    return f"{here}, or have every node take it with {announced}"


def is_stale(confirmed_at: float, now: float, max_stale: float) -> bool:
    """Say whether what was confirmed at one time is too old to decide by at another.

    A time in the future is no better: somebody has set a clock.
    """
    return abs(now - confirmed_at) >= max_stale


def doubt_about(present: Snapshot, offered: Snapshot) -> str | None:
    """Say why a snapshot should not take the place of another; None where it may.

    That the mark at the present revision is another one in the registry is the registry's own
    word, and the source's to say.
    """
    was, now = present.position, offered.position
    if not was.is_of(now.store_id):
        return _doubt_about_store(present, offered)
    if now.revision < was.revision:
        return f"the registry is back at revision {now.revision} of its store and was at {was}"
    if now.revision == was.revision and not was.fits(now.mark):
        return f"the registry is at {now}, which is another revision than {was}"
    unmarked = not (was.mark and now.mark)
    if unmarked and _is_emptied(present, offered):
        return f"the registry has no records at {now}, and had some at {was}"
    return None


def _doubt_about_store(present: Snapshot, offered: Snapshot) -> str | None:
    was, now = present.position, offered.position
    if offered.predecessor == was.store_id:
        return None
    if _is_emptied(present, offered):
        return f"the registry is another store ({now}) without any record, and was at {was}"
    return f"the registry is another store ({now}) that does not say it replaces {was.store_id}"


def _is_emptied(present: Snapshot, offered: Snapshot) -> bool:
    return _has_records(present) and not _has_records(offered)


def _has_records(snapshot: Snapshot) -> bool:
    return any(snapshot.items(kind) for kind in KEY_FIELDS)
