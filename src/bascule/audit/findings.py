"""What a verification found, in words."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

#: Problems and cuts that are told one by one; all problems are counted.
MOST_TOLD = 100
KeyFrom = Literal["given", "ledger"]


class Problem(Struct, frozen=True):
    """Something that is not as it was written; ``row`` is the row it is about, where it is one."""

    row: int | None
    words: str


class CutTold(Struct, frozen=True):
    """The row that says that older rows were taken away, and what it says."""

    row: int
    first: int
    last: int
    reason: str
    by: str
    timestamp: float


class Verification(Struct, frozen=True, kw_only=True):
    """What was found. ``ok`` says that nothing was changed before the last anchor.

    The ``unprotected`` rows after it agree with one another; whoever can write the file could have
    made them so, or taken some away. With ``key_from`` "ledger" the same holds for all rows: the
    key was taken from the anchors themselves.
    """

    ok: bool
    rows: int
    first: int | None
    last: int | None
    unprotected: int
    anchors: int
    anchors_torn: int
    anchored_at: float | None
    key_id: str | None
    key_from: KeyFrom | None
    cuts: tuple[CutTold, ...]
    problems: tuple[Problem, ...]
    problem_count: int


class Problems:
    """What was found, of which a bounded part is told."""

    def __init__(self) -> None:
        self.told: list[Problem] = []
        self.count = 0

    def add(self, row: int | None, words: str) -> None:
        self.count += 1
        if len(self.told) < MOST_TOLD:
            self.told.append(Problem(row, words))
